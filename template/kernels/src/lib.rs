//! The kernels: compiled to PTX for the device, to the types that launch them for the host.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

use cuda_std::float::Element;
use cuda_std::{bf16, f16, kernel, math, thread};

/// y = a · x + y, for n elements.
///
/// # Safety
/// `x` and `y` hold `n` elements.
#[kernel(dtypes(T: f32, f16, bf16), block = 256)]
pub unsafe fn axpy<T: Element>(a: f32, x: *const T, y: *mut T, n: u64) {
    let i = thread::index_1d();
    if (i as u64) < n {
        // SAFETY: both have an element at every place below n.
        let (x, y) = unsafe { (&*x.add(i), &mut *y.add(i)) };
        *y = T::from_f32(a * x.to_f32() + y.to_f32());
    }
}

gpu_kernels::map! {
    /// y = max(x, 0)², elementwise.
    pub fn relu_squared(x: f32) -> f32 {
        let r = x.max(0.0);
        r * r
    }
}

gpu_kernels::zip! {
    /// y = cap · tanh((x + bias) / cap), elementwise: five kernels in one.
    pub fn soft_cap([x, bias]: [f32; 2], cap: f32) -> f32 {
        cap * math::tanh((x + bias) / cap)
    }
}

gpu_kernels::row! {
    /// y = softmax(x / temperature), of every row.
    pub fn soften([x]: [f32; 1], temperature: f32) -> f32 {
        let greatest = max(x);
        let total = sum(math::exp((x - greatest) / temperature));
        math::exp((x - greatest) / temperature) / total
    }
}
