//! Quantization of a tensor to 8-bit integers with one scale, symmetric or with a zero point.
//!
//! # Math
//! Symmetric: scale = max |x| / 127, zero = 0. Asymmetric, over the range [low, high] of x and 0: scale = (high − low) / 255 and
//! zero = −128 − ⌊low / scale⌉. Either way q = clamp(⌊x / scale⌉ + zero, −128, 127).
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! Two launches. [`minmax`]: blocks of 256 threads walk the rows, four packs per thread in flight, and each warp adds
//! what it has found to one range in memory. [`quantize_int8`]: as every elementwise kernel, by the wider type; every
//! thread derives the scale from the range.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! The range by atomics, which give the same in any order. q in f32: x · (steps / range), rounded to nearest, ties to even. A scale is at
//! least the least normal number, so that neither it nor its inverse loses bits; it is that of zeros, and of nothing. With NaN or an
//! infinity in x, or a range beyond f32's greatest number, the scale is that, and every q the zero.
//!
//! # Cost
//! Two reads of x and one write of an integer an element: bound by memory bandwidth. A tensor that fits L2 is read from memory once.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (arXiv:1712.05877).

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{atomic, kernel, math, thread, warp};

use super::{round, scale_of};
use crate::lanes;
use crate::map::{self, LIGHT, block};

/// Threads of a block of [`minmax`].
pub const BLOCK: u32 = 256;

/// Packs a thread of [`minmax`] has in flight.
const PACKS: usize = 4;

/// Extends `range`, of which both ends start at 0, by `rows` rows of `d` elements: rows by y of the grid, the row by x.
///
/// # Safety
/// `x` is valid for reads of those rows at their stride, `range` for atomic access to two values; with `PACKED` all rows are at multiples of 16
/// bytes and 16-byte packs divide `d`.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, no_spills)]
pub unsafe fn minmax<T: Element, const PACKED: bool>(x: *const T, range: *mut f32, rows: u64, d: u64, x_stride: u64) {
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => extend::<T, 1>(x, range, rows, d, x_stride),
        4 => extend::<T, 4>(x, range, rows, d, x_stride),
        _ => extend::<T, 8>(x, range, rows, d, x_stride),
    }
}

#[inline(always)]
unsafe fn extend<T: Element, const N: usize>(x: *const T, range: *mut f32, rows: u64, d: u64, x_stride: u64) {
    let (mut low, mut high) = (0.0f32, 0.0f32);
    let packs = d / N as u64;
    let step = u64::from(thread::grid_dim_x()) * u64::from(BLOCK);
    let mut row = u64::from(thread::block_idx_y());
    while row < rows {
        let mut first = u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x());
        while first < packs {
            let loaded: [Pack<T, N>; PACKS] = array::from_fn(|i| {
                let pack = first + i as u64 * step;
                // Beyond the end, the first once more.
                let pack = if pack < packs { pack } else { first };
                Pack::load_nc(x.add((row * x_stride + pack * N as u64) as usize))
            });
            for i in 0..PACKS {
                let values = loaded[i].to_f32();
                for e in 0..N {
                    // NaN is the high end, if there is one.
                    low = low.min(values[e]);
                    high = math::max_nan(high, values[e]);
                }
            }
            first += PACKS as u64 * step;
        }
        row += u64::from(thread::grid_dim_y());
    }
    let low = warp::reduce(low, f32::min);
    let high = warp::reduce(high, math::max_nan);
    if warp::lane_id() == 0 {
        atomic::red_min_f32(range, low);
        atomic::red_max_f32(range.add(1), high);
    }
}

/// q, and by the first thread `scale` and `zero`, of the range that [`minmax`] has found.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of those rows at their strides, `range` for reads of two values, `scale` and `zero` for writes of
/// one; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), LIGHT), no_spills, programmatic)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn quantize_int8<T: Element>(
    x: *const T,
    range: *const f32,
    q: *mut i8,
    scale: *mut f32,
    zero: *mut i32,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
    asymmetric: u32,
) {
    let (low, high) = (*range, *range.add(1));
    let (range, steps) = if asymmetric != 0 { (high - low, 255.0) } else { (math::max_nan(high, -low), 127.0) };
    let (scale_of_range, inverse) = scale_of(range, steps);
    let zero_point = if asymmetric != 0 { -128 - math::round_to_i32(low * inverse) } else { 0 };
    let first = [thread::block_idx_x(), thread::block_idx_y(), thread::block_idx_z(), thread::thread_idx_x()];
    if first == [0; 4] {
        *scale = scale_of_range;
        *zero = zero_point;
    }
    let (x, q) = ([(x, x_stride)], [(q, q_stride)]);
    let one = |[x]: [T; 1]| round([x.to_f32() * inverse], zero_point).0;
    match lanes::<T>() {
        4 => map::move_packs::<T, i8, 1, 0, 1, 4, LIGHT>(
            x,
            q,
            rows,
            d,
            |[x]| [round(x.to_f32().map(|x| x * inverse), zero_point)],
            one,
        ),
        _ => map::move_packs::<T, i8, 1, 0, 1, 8, LIGHT>(
            x,
            q,
            rows,
            d,
            |[x]| [round(x.to_f32().map(|x| x * inverse), zero_point)],
            one,
        ),
    }
}
