//! Quantization to 4-bit integers with a scale, and a zero point if wanted, for each 128 neighbours of a row: weights of products with few bits.
//!
//! # Math
//! For each group of 1 × 128, symmetric: scale = max |x| / 7 and q = ⌊x / scale⌉ + 8, from 1 to 15. Asymmetric, over the range [low, high] of x and 0:
//! scale = (high − low) / 15, zero = −⌊low / scale⌉ and q = min(⌊x / scale⌉ + zero, 15), from 0 to 15.
//!
//! # Layout
//! `x` is rows of d adjacent elements and `q` rows of ⌈d/2⌉ bytes, which may be padded. Byte i of a row has q of element 2i in its lower half, and that of 2i + 1 in
//! its upper one, the zero point if there is none. `scales` and `zeros` are dense, ⌈d / 128⌉ a row. Rows at multiples of a pack are moved by packs, others element
//! by element.
//!
//! # Mapping
//! Blocks of 128 threads with sixteen neighbours each, along the row by x, and the rows by y and z. Eight lanes share a group and find its greatest, or its least
//! and its greatest, by shuffles. Eight integers are the digits of one word, to which the zero point is added once.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! q in f32: x · (steps / range), rounded to nearest, ties to even. A scale is at least the least normal number, so that neither it nor its inverse loses bits;
//! it is that of a group of zeros. With NaN or an infinity in a group, or a range beyond f32's greatest number, the scale is that, and every q the zero point: 8,
//! or 0 in the asymmetric form.
//!
//! # Cost
//! One read of x, one write of half a byte an element and of 4 or 5 bytes a group: bound by memory bandwidth.
//!
//! # Limits
//! d up to (2³¹ − 1) · 2048.
//!
//! # Sources
//! Frantar et al., "GPTQ" (arXiv:2210.17323), for groups; Lin et al., "AWQ" (arXiv:2306.00978), for their zero points.

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread, warp};

use super::blocks;

/// Threads of a block.
pub const BLOCK: u32 = blocks::BLOCK;
/// Elements that share a scale.
pub const GROUP: usize = 128;
/// Elements of a row that a block covers.
pub const PER_BLOCK: usize = BLOCK as usize * PACK;
/// What stands for zero without zero points.
pub const ZERO: u8 = 8;

/// Elements of a thread.
const PACK: usize = 16;
/// Steps from zero to the greatest magnitude, and from the least number to the greatest.
const SYMMETRIC: f32 = 7.0;
const ASYMMETRIC: f32 = 15.0;
/// A word of eight ones.
const ONES: u32 = 0x1111_1111;

/// q, scales and, with `ZEROS`, zero points of `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of those rows at their strides, `scales` and, with `ZEROS`, `zeros` for writes of a value a group; d and rows are at
/// least 1.
#[kernel(dtypes(T: float), values(ZEROS: false, true), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn quantize_int4<T: Element, const ZEROS: bool>(
    x: *const T,
    q: *mut u8,
    scales: *mut f32,
    zeros: *mut u8,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    let row = blocks::row_of_grid();
    if row >= rows {
        return;
    }
    let (x, q) = (x.add((row * x_stride) as usize), q.add((row * q_stride) as usize));
    let [x_packed, q_packed] = [(x as usize).is_multiple_of(16), (q as usize).is_multiple_of(PACK / 2)];
    let at = (u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x())) * PACK as u64;
    let loaded: Pack<T, PACK> = if x_packed && at + PACK as u64 <= d {
        Pack::load_nc(x.add(at as usize))
    } else {
        blocks::load(x, at, d, false)
    };
    let values = loaded.to_f32();
    let (range, below) = if ZEROS { span(values) } else { (greatest(values), 0.0) };
    let steps = if ZEROS { ASYMMETRIC } else { SYMMETRIC };
    let range = math::max_nan(range, steps * f32::MIN_POSITIVE);
    let inverse = steps / range;
    let zero = if ZEROS { math::round_to_i32(below * inverse) } else { i32::from(ZERO) };
    if at.is_multiple_of(GROUP as u64) && at < d {
        let group = (row * d.div_ceil(GROUP as u64) + at / GROUP as u64) as usize;
        *scales.add(group) = range / steps;
        if ZEROS {
            *zeros.add(group) = zero as u8;
        }
    }
    // NaN is rounded to 0. No other than the greatest can be a step too far: where both ends are rounded up.
    let code = |x: f32| {
        let steps = math::round_to_i32(x * inverse);
        if ZEROS { steps.min(15 - zero) as u32 } else { steps as u32 }
    };
    // Digits may be negative until the zero point is added to each.
    let word = |first: usize| {
        (0..8).fold(zero as u32 * ONES, |word, e| word.wrapping_add(code(values[first + e]) << (4 * e))).to_le_bytes()
    };
    let [low, high] = [word(0), word(8)];
    let bytes: Pack<u8, { PACK / 2 }> = Pack(array::from_fn(|b| if b < 4 { low[b] } else { high[b - 4] }));
    blocks::store(bytes, q, at / 2, d.div_ceil(2), q_packed);
}

/// The greatest of what the lanes of a group have. Warp-wide.
#[inline(always)]
unsafe fn of_group(mut max: f32) -> f32 {
    let mut lanes = (GROUP / PACK / 2) as u32;
    while lanes > 0 {
        max = math::max_nan(max, warp::shuffle_xor(max, lanes));
        lanes /= 2;
    }
    max
}

/// The greatest magnitude of a group. Warp-wide.
#[inline(always)]
unsafe fn greatest(values: [f32; PACK]) -> f32 {
    of_group(values.into_iter().fold(0.0, math::max_magnitude))
}

/// How far a group, and 0, reach in all, and how far below 0. Warp-wide.
#[inline(always)]
unsafe fn span(values: [f32; PACK]) -> (f32, f32) {
    let above = of_group(values.into_iter().fold(0.0, math::max_nan));
    let below = of_group(values.into_iter().fold(0.0, |below, x| math::max_nan(below, -x)));
    (above + below, below)
}
