//! GELU activation in its tanh form, elementwise.
//!
//! # Math
//! y = x/2 · (1 + tanh u) with u = √(2/π)·(x + 0.044715·x³). Since 1 + tanh u = 2 / (1 + e^(−2u)), this is
//! y = x / (1 + e^(−2u)): one exponential and one reciprocal.
//!
//! # Layout
//! `x` and `y` are n contiguous elements each. If both start at a multiple of 16 bytes they are moved 16 bytes at a time, and
//! otherwise element by element.
//!
//! # Mapping
//! One-dimensional grid of 256 threads a block, 8 KiB of `x` a block. Thread t moves packs t and t + 256
//! of its block: neighbouring threads touch neighbouring packs, and both loads are in flight before the first is used.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, rounded once to the storage type. ex2.approx and rcp.approx err by about 2⁻²² relative, multiplied
//! by the exponent's size where y tends to zero. NaN gives NaN, +∞ gives +∞, and −∞ gives NaN, as the formula does.
//!
//! # Cost
//! 2·n elements of traffic and about 10 FLOPs an element: bound by memory bandwidth. Of the special-function units it needs two
//! results an element, half of what they deliver at full bandwidth for 16-bit types.
//!
//! # Limits
//! n up to (2³¹ − 1) · 8 KiB.
//!
//! # Sources
//! Hendrycks and Gimpel, "Gaussian Error Linear Units" (arXiv:1606.08415).

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{bf16, f16, kernel, math, thread};

use crate::{aligned_16, lanes};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Bytes of `x` a block moves.
pub const PER_BLOCK_BYTES: usize = BLOCK as usize * PACKS * 16;

/// Packs in flight a thread.
const PACKS: usize = 2;

/// y = gelu(x) for n elements.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `n` elements.
#[kernel(dtypes(T: f32, f16, bf16), block = BLOCK, min_blocks = 4, no_spills)]
pub unsafe fn gelu<T: Element>(x: *const T, y: *mut T, n: u64) {
    match lanes::<T>() {
        4 => map::<T, 4>(x, y, n),
        _ => map::<T, 8>(x, y, n),
    }
}

#[inline(always)]
fn gelu_f32(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    const MINUS_2_LOG2_E: f32 = -2.0 * core::f32::consts::LOG2_E;
    let u = SQRT_2_OVER_PI * x * (1.0 + 0.044_715 * x * x);
    x * math::rcp_approx(1.0 + math::ex2_approx(MINUS_2_LOG2_E * u))
}

/// Applies [`gelu_f32`] to this block's elements, `N` to a pack.
#[inline(always)]
unsafe fn map<T: Element, const N: usize>(x: *const T, y: *mut T, n: u64) {
    let per_block = (BLOCK as usize * PACKS * N) as u64;
    let start = u64::from(thread::block_idx_x()) * per_block;
    let tid = thread::thread_idx_x() as usize;
    let (x, y) = (x.add(start as usize), y.add(start as usize));
    if n - start >= per_block && aligned_16([x as usize, y as usize]) {
        let at = |i: usize| (tid + i * BLOCK as usize) * N;
        let packs: [Pack<T, N>; PACKS] = array::from_fn(|i| Pack::load_nc_no_allocate(x.add(at(i))));
        for (i, pack) in packs.into_iter().enumerate() {
            Pack::<T, N>::from_f32(pack.to_f32().map(gelu_f32)).store_streaming(y.add(at(i)));
        }
    } else {
        let count = (n - start).min(per_block) as usize;
        let mut i = tid;
        while i < count {
            *y.add(i) = T::from_f32(gelu_f32((*x.add(i)).to_f32()));
            i += BLOCK as usize;
        }
    }
}
