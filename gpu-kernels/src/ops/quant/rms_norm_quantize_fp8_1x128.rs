//! Root-mean-square normalisation of rows, and its quantization to 8-bit floats with a scale for each 128 neighbours, in one pass.
//!
//! # Math
//! y = x · r · weight with r = 1 / √(Σ x² / d + eps); for each 1 × 128 of y: scale = max |y| / MAX, at least 2⁻¹²⁶, and q = ⌊y / scale⌉, with MAX = 448
//! for E4M3 and 57344 for E5M2.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded, `weight` is d elements. `scales` is dense, ⌈d / 128⌉ a row. Rows at multiples of a
//! pack are moved by packs, others element by element.
//!
//! # Mapping
//! A block of 256 threads a row. Each holds four packs of 16 bytes of it: rows of up to 16 KiB are read once, the rest of longer ones again.
//! Sixteen lanes share a block's 128 elements of 16 bits, a warp those of 32.
//!
//! # Shared memory
//! The sum of each warp, 128 B.
//!
//! # Numerics
//! Squares as of rms_norm: summed in f32 in a fixed order, r by rsqrt.approx. y stays in f32: one rounding, to q. Scales as of quantize_fp8_1x128.
//!
//! # Cost
//! One read of x, one write of a byte an element and of 4 bytes a block: bound by memory bandwidth. Apart, y would be written and read as well.
//!
//! # Limits
//! 2³¹ − 1 rows.
//!
//! # Sources
//! Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467); DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437).

use cuda_std::float::Element;
use cuda_std::fp8::Float8;
use cuda_std::{kernel, thread};

use super::blocks::{self, Narrowed};
use super::norm_row::{self, NormRow, Partials};
use crate::lanes;

/// Threads of a block.
pub const BLOCK: u32 = norm_row::BLOCK;
/// Elements that share a scale.
pub const WIDTH: usize = 128;

/// A block a row.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of a row of `d` elements a block at their strides, `weight` for reads of d, `scales` for writes of a value
/// for each 128 of a row; d is at least 1.
#[kernel(dtypes(T: float, Q: float8), block = BLOCK, shared = Partials<1>, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm_quantize_fp8_1x128<T: Element, Q: Float8>(
    x: *const T,
    weight: *const T,
    q: *mut Q,
    scales: *mut f32,
    d: u64,
    x_stride: u64,
    q_stride: u64,
    eps: f32,
) {
    let row = u64::from(thread::block_idx_x());
    let (x, q) = (x.add((row * x_stride) as usize), q.add((row * q_stride) as usize));
    let scales = scales.add((row * d.div_ceil(WIDTH as u64)) as usize);
    match lanes::<T>() {
        4 => quantize::<T, Q, 4>(x, weight, q, scales, d, eps),
        _ => quantize::<T, Q, 8>(x, weight, q, scales, d, eps),
    }
}

#[inline(always)]
unsafe fn quantize<T: Element, Q: Float8, const N: usize>(
    x: *const T,
    weight: *const T,
    q: *mut Q,
    scales: *mut f32,
    d: u64,
    eps: f32,
) {
    let row = NormRow::<T, N>::load(x, weight, d);
    let packed = (q as usize).is_multiple_of(N);
    row.each_normalized(row.inverse_rms(eps), |at, values| {
        let block = Narrowed::<Q, f32, N>::of_lanes::<WIDTH>(values);
        if at.is_multiple_of(WIDTH as u64) && at < d {
            *scales.add((at / WIDTH as u64) as usize) = block.scale;
        }
        blocks::store(block.values, q, at, d, packed);
    });
}
