//! Root-mean-square normalisation of rows, and its quantization to 8-bit floats with a scale for each 128 neighbours, in one pass.
//!
//! # Math
//! y = x · r · weight with r = 1 / √(Σ x² / d + eps); for each group of 1 × 128 of y: scale = max |y| / MAX, at least 2⁻¹²⁶, and q = ⌊y / scale⌉, with MAX = 448
//! for E4M3 and 57344 for E5M2.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded, `weight` is d elements. `scales` is dense, ⌈d / 128⌉ a row. With `PACKED` packs of
//! 16 bytes of `x` divide d, and all rows lie at multiples of them; others are moved by packs where they can, else element by element.
//!
//! # Mapping
//! One row per block of 64 to 1024 threads, each of which holds four packs of 16 bytes of it: rows of up to 64 KiB are read once, the rest of longer ones again.
//! Sixteen lanes share a group's 128 elements of 16 bits, a warp those of 32.
//!
//! # Shared memory
//! The sum of each warp, 128 B.
//!
//! # Numerics
//! Squares as of rms_norm: summed in f32 in a fixed order, r by rsqrt.approx. y stays in f32: one rounding, to q. Scales as of quantize_fp8_1x128, but
//! within two roundings, their inverses by rcp.approx.
//! x · weight comes before r, and must not overflow f32.
//!
//! # Cost
//! One read of x, one write of a byte an element and of 4 bytes per group: bound by memory bandwidth. Apart, y would be
//! written and read as well.
//!
//! # Limits
//! 2³¹ − 1 rows.
//!
//! # Sources
//! Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467); DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437).

use cuda_std::float::Element;
use cuda_std::fp8::Float8;
use cuda_std::{kernel, math, thread};

use super::blocks;
use super::norm_row::NormRow;
use super::row::{self, Partials};
use crate::lanes;

/// Packs of a thread that stay in registers.
const HELD: usize = 4;

/// Threads for a row of `d` elements of `bytes` each.
pub const fn threads(d: usize, bytes: usize) -> u32 {
    row::threads(d, bytes, HELD)
}

/// Elements that share a scale.
pub const WIDTH: usize = 128;

/// One block per row, of [`threads`].
///
/// # Safety
/// `x` is valid for reads and `q` for writes of a row of `d` elements per block at their strides, `weight` for reads of
/// d, `scales` for writes of a value for each 128 of a row; d is at least 1. With `PACKED` all rows are at multiples of
/// 16 bytes, or of q of as many elements, and 16-byte packs of `x` divide `d`.
#[kernel(
    dtypes(T: float, Q: float8),
    values(PACKED: false, true),
    block = row::block(HELD),
    min_blocks = 1,
    shared = Partials<1>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm_quantize_fp8_1x128<T: Element, Q: Float8, const PACKED: bool>(
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
        4 => quantize::<T, Q, 4, PACKED>(x, weight, q, scales, d, eps),
        _ => quantize::<T, Q, 8, PACKED>(x, weight, q, scales, d, eps),
    }
}

#[inline(always)]
unsafe fn quantize<T: Element, Q: Float8, const N: usize, const PACKED: bool>(
    x: *const T,
    weight: *const T,
    q: *mut Q,
    scales: *mut f32,
    d: u64,
    eps: f32,
) {
    let row = NormRow::<T, N, HELD, PACKED>::load(x, weight, d);
    row.each_normalized(row.inverse_rms(eps), |place, values| {
        let max = blocks::greatest_of_lanes::<N, WIDTH>(values, place.inside);
        // The error of y is larger than that of these approximations.
        let max = math::max_nan(max, Q::MAX * f32::MIN_POSITIVE);
        let inverse = Q::MAX * math::rcp_approx(max);
        if place.at.is_multiple_of(WIDTH as u64) && place.inside {
            *scales.add((place.at / WIDTH as u64) as usize) = max * (1.0 / Q::MAX);
        }
        row.store(blocks::narrow(values.map(|y| y * inverse)), q, place);
    });
}
