//! Root-mean-square normalisation of rows, and its quantization to 8-bit integers with a scale for each row, in one pass.
//!
//! # Math
//! y = x · r · weight with r = 1 / √(Σ x² / d + eps); scale\[r\] = max |y[r, :]| / 127 and q[r, c] = ⌊y[r, c] / scale\[r\]⌉.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded, `weight` is d elements. Rows at multiples of a pack are moved by packs, others
//! element by element.
//!
//! # Mapping
//! A block of 256 threads a row. Each holds four packs of 16 bytes of it: rows of up to 16 KiB are read once, the rest of longer ones again.
//!
//! # Shared memory
//! The sum and the greatest value of each warp, 256 B.
//!
//! # Numerics
//! Squares as of rms_norm: summed in f32 in a fixed order, r by rsqrt.approx. y stays in f32: one rounding, to q. Scales as of quantize_rows_int8.
//!
//! # Cost
//! One read of x, one write of a byte an element and of 4 bytes a row: bound by memory bandwidth. Apart, y would be written and read as well.
//!
//! # Limits
//! 2³¹ − 1 rows.
//!
//! # Sources
//! Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467); Dettmers et al., "LLM.int8()" (arXiv:2208.07339).

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread};

use super::norm_row::{self, NormRow, Partials};
use super::{blocks, inverse, round};
use crate::lanes;
use crate::rows::{BlockThreads, Threads};

/// Threads of a block.
pub const BLOCK: u32 = norm_row::BLOCK;

/// A block a row.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of a row of `d` elements a block at their strides, `weight` for reads of d, `scales` for writes of a value
/// a block; d is at least 1.
#[kernel(dtypes(T: float), block = BLOCK, shared = Partials<2>, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm_quantize_rows_int8<T: Element>(
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
        4 => quantize::<T, 4>(x, weight, q, scale, d, eps),
        _ => quantize::<T, 8>(x, weight, q, scale, d, eps),
    }
}

#[inline(always)]
unsafe fn quantize<T: Element, const N: usize>(
    x: *const T,
    weight: *const T,
    q: *mut i8,
    scale: *mut f32,
    d: u64,
    eps: f32,
) {
    let row = NormRow::<T, N>::load(x, weight, d);
    let inverse_rms = row.inverse_rms(eps);
    let mut max = 0.0;
    row.each_normalized(inverse_rms, |_, values| max = values.into_iter().fold(max, blocks::max_magnitude));
    let [max] = BlockThreads::reduce([max], [0.0], 1, |[a], [b]| [math::max_nan(a, b)]);
    if thread::thread_idx_x() == 0 {
        *scale = max / 127.0;
    }
    let (inverse, packed) = (inverse(max, 127.0), (q as usize).is_multiple_of(N));
    row.each_normalized(inverse_rms, |at, values| {
        blocks::store(Pack(values.map(|y| round(y, inverse, 0))), q, at, d, packed);
    });
}
