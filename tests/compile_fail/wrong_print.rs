//! A conversion prints what it is given.

use cuda_std::{gpu_printf, kernel};

/// # Safety
/// `x` is valid.
#[kernel(block = 32)]
unsafe fn print(x: *const f32, n: u64) {
    unsafe {
        gpu_printf!("%f of %llu at %p\n", *x, n, x);
        gpu_printf!("%d\n", *x);
        gpu_printf!("%u\n", n);
        gpu_printf!("%f\n", 1i32);
        gpu_printf!("%q\n", n);
    }
}

fn main() {}
