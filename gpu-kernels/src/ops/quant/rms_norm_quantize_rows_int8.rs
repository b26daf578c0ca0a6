//! Root-mean-square normalisation of rows, and its quantization to 8-bit integers with a scale for each row, in one pass.
//!
//! # Math
//! y = x · r · weight with r = 1 / √(Σ x² / d + eps); scale\[r\] = max |y[r, :]| / 127 and q[r, c] = ⌊y[r, c] / scale\[r\]⌉.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded, `weight` is d elements. With `PACKED` packs of 16 bytes of `x` divide d, and all rows
//! lie at multiples of them; others are moved by packs where they can, else element by element.
//!
//! # Mapping
//! A block of 64 to 512 threads a row. Each holds eight packs of 16 bytes of it: rows of up to 64 KiB are read once, the rest of longer ones again.
//! Max |y| is r · max |x · weight|, so that one reduction finds r and the scale.
//!
//! # Shared memory
//! The sum and the greatest value of each warp, 256 B.
//!
//! # Numerics
//! Squares as of rms_norm: summed in f32 in a fixed order, r by rsqrt.approx. y stays in f32: one rounding, to q. Scales as of quantize_rows_int8.
//! x · weight comes before r, with a scale of its own, which is at least the least normal number as well: y's is not below r times that. Where
//! x · weight overflows f32 the scale is infinite, and q is 0.
//!
//! # Cost
//! One read of x, one write of a byte an element and of 4 bytes per row: bound by memory bandwidth. Apart, y would be
//! written and read as well.
//!
//! # Limits
//! 2³¹ − 1 rows.
//!
//! # Sources
//! Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467); Dettmers et al., "LLM.int8()" (arXiv:2208.07339).

use cuda_std::float::Element;
use cuda_std::{kernel, thread};

use super::norm_row::NormRow;
use super::row::{self, Partials};
use super::{round, scale_of};
use crate::lanes;

/// Packs of a thread that stay in registers.
const HELD: usize = 8;

/// Threads for a row of `d` elements of `bytes` each.
pub const fn threads(d: usize, bytes: usize) -> u32 {
    row::threads(d, bytes, HELD)
}

/// One block per row, of [`threads`].
///
/// # Safety
/// `x` is valid for reads and `q` for writes of a row of `d` elements per block at their strides, `weight` for reads of
/// d, `scales` for writes of one value per block; d is at least 1. With `PACKED` all rows are at multiples of 16 bytes,
/// or of q of as many elements, and 16-byte packs of `x` divide `d`.
#[kernel(
    dtypes(T: float),
    values(PACKED: false, true),
    block = row::block(HELD),
    min_blocks = if PACKED { 2 } else { 1 },
    shared = Partials<2>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm_quantize_rows_int8<T: Element, const PACKED: bool>(
    x: *const T,
    weight: *const T,
    q: *mut i8,
    scales: *mut f32,
    d: u64,
    x_stride: u64,
    q_stride: u64,
    eps: f32,
) {
    let row = u64::from(thread::block_idx_x());
    let (x, q) = (x.add((row * x_stride) as usize), q.add((row * q_stride) as usize));
    let scale = scales.add(row as usize);
    match lanes::<T>() {
        4 => quantize::<T, 4, PACKED>(x, weight, q, scale, d, eps),
        _ => quantize::<T, 8, PACKED>(x, weight, q, scale, d, eps),
    }
}

#[inline(always)]
unsafe fn quantize<T: Element, const N: usize, const PACKED: bool>(
    x: *const T,
    weight: *const T,
    q: *mut i8,
    scale: *mut f32,
    d: u64,
    eps: f32,
) {
    let row = NormRow::<T, N, HELD, PACKED>::load(x, weight, d);
    let [inverse_rms, max] = row.inverse_rms_and_max(eps);
    let (mut of_row, mut factor) = scale_of(max, 127.0);
    // For a row of zeros 1 / rms may be infinite; for a row without elements it is NaN.
    if max != 0.0 {
        of_row *= inverse_rms;
    }
    if of_row < f32::MIN_POSITIVE {
        (of_row, factor) = (f32::MIN_POSITIVE, inverse_rms * (1.0 / f32::MIN_POSITIVE));
    }
    if thread::thread_idx_x() == 0 {
        *scale = of_row;
    }
    row.each_normalized(factor, |place, steps| row.store(round(steps, 0), q, place));
}
