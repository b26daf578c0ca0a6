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
//! Blocks of 64 threads, along the row by x, and the rows by y and z. A thread has sixteen neighbours in each half of what its block covers, both under way at
//! once. Eight lanes share a group and find its greatest, or its least and its greatest: in pairs of 16 bits before these are converted, then by shuffles. A sum
//! with 1.5 · 2²³ rounds to an integer, and leaves it in the low bits. Eight integers are the digits of one word, to which the zero point is added once.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! q: x · (steps / range), with the factor in f32 and the product rounded once, to the nearest integer, ties to even. A
//! scale is at least the least normal number, so that neither it nor its inverse loses bits; a group of zeros has this
//! scale. If a group contains NaN or an infinity, or its range exceeds f32's greatest number, the scale is that value,
//! and every q is the zero point: 8, or 0 in the asymmetric form.
//!
//! # Cost
//! One read of x, one write of half a byte an element and of 4 or 5 bytes per group: bound by memory bandwidth.
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

use super::{blocks, fold_registers, greatest, of_register};

/// Threads of a block.
pub const BLOCK: u32 = 64;
/// Elements that share a scale.
pub const GROUP: usize = 128;
/// Elements of a row that a block covers.
pub const PER_BLOCK: usize = BLOCK as usize * PACK * PACKS;
/// What stands for zero without zero points.
pub const ZERO: u8 = 8;

/// Neighbours of a thread.
const PACK: usize = 16;
/// How often it has as many.
const PACKS: usize = 2;
/// Steps from zero to the greatest magnitude, and from the least number to the greatest.
const SYMMETRIC: f32 = 7.0;
const ASYMMETRIC: f32 = 15.0;
/// A word of eight ones.
const ONES: u32 = 0x1111_1111;
/// What is added to a small number so that its nearest integer, ties to even, is in its low bits.
const ROUND: f32 = 12_582_912.0;

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
    let start = u64::from(thread::block_idx_x()) * PER_BLOCK as u64;
    let at = |i: usize| start + u64::from((thread::thread_idx_x() + i as u32 * BLOCK) * PACK as u32);
    let whole = x_packed && q_packed && start + PER_BLOCK as u64 <= d;
    let groups = (row * d.div_ceil(GROUP as u64)) as usize;
    let (scales, zeros) = (scales.add(groups), zeros.wrapping_add(groups));
    // Nothing of one form runs into the other, where what is loaded would be taken apart.
    if whole {
        let loaded: [Pack<T, PACK>; PACKS] = array::from_fn(|i| Pack::load_nc(x.add(at(i) as usize)));
        for i in 0..PACKS {
            let quantized = quantize::<T, ZEROS>(loaded[i]);
            quantized.store_group::<ZEROS>(scales, zeros, at(i));
            quantized.bytes().store_global(q.add((at(i) / 2) as usize));
        }
    } else {
        let loaded: [Pack<T, PACK>; PACKS] = array::from_fn(|i| blocks::load(x, at(i), d, x_packed));
        for i in 0..PACKS {
            let quantized = quantize::<T, ZEROS>(loaded[i]);
            if at(i) < d {
                quantized.store_group::<ZEROS>(scales, zeros, at(i));
            }
            blocks::store(quantized.bytes(), q, at(i) / 2, d.div_ceil(2), q_packed);
        }
    }
}

/// What becomes of sixteen neighbours.
struct Quantized {
    words: [u32; 2],
    range: f32,
    zero: u8,
}

impl Quantized {
    /// Writes what a group has, if its first element is the one at `at`.
    #[inline(always)]
    unsafe fn store_group<const ZEROS: bool>(&self, scales: *mut f32, zeros: *mut u8, at: u64) {
        if at.is_multiple_of(GROUP as u64) {
            let group = (at / GROUP as u64) as usize;
            *scales.add(group) = self.range / if ZEROS { ASYMMETRIC } else { SYMMETRIC };
            if ZEROS {
                *zeros.add(group) = self.zero;
            }
        }
    }

    /// Two integers each.
    #[inline(always)]
    fn bytes(&self) -> Pack<u8, { PACK / 2 }> {
        let [low, high] = self.words.map(u32::to_le_bytes);
        Pack(array::from_fn(|b| if b < 4 { low[b] } else { high[b - 4] }))
    }
}

/// Of those of this lane. Warp-wide.
#[inline(always)]
unsafe fn quantize<T: Element, const ZEROS: bool>(pack: Pack<T, PACK>) -> Quantized {
    let ([above, below], steps) =
        if ZEROS { (span(pack), ASYMMETRIC) } else { ([of_group(greatest(pack)), 0.0], SYMMETRIC) };
    let range = math::max_nan(above + below, steps * f32::MIN_POSITIVE);
    let inverse = steps / range;
    let finite = range < f32::INFINITY;
    // An integer above the bits of ROUND.
    let rounded = |x: f32| math::fma(x, inverse, ROUND).to_bits();
    let zero = match (ZEROS, finite) {
        (false, _) => u32::from(ZERO),
        (true, true) => rounded(below) - ROUND.to_bits(),
        (true, false) => 0,
    };
    let values = pack.to_f32();
    // Digits may be negative until the zero point is added to each, and what they are above is taken off.
    let above_all = (0..8).fold(0u32, |sum, e| sum.wrapping_add(ROUND.to_bits() << (4 * e)));
    let first = (zero * ONES).wrapping_sub(above_all);
    let digits = |digit: &dyn Fn(f32) -> u32| {
        [0, 8].map(|at| (0..8).fold(first, |word, e| word.wrapping_add(digit(values[at + e]) << (4 * e))))
    };
    let last = ROUND.to_bits() + ASYMMETRIC as u32 - zero;
    let words = if !finite {
        // NaN is rounded to 0, and all else is 0 times as much.
        [zero * ONES; 2]
    } else if ZEROS && rounded(above) > last {
        // Where both ends are rounded up, the greatest is a step too far.
        digits(&|x| rounded(x).min(last))
    } else {
        digits(&rounded)
    };
    Quantized { words, range, zero: zero as u8 }
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

/// How far a group reaches above 0, and how far below. Warp-wide.
#[inline(always)]
unsafe fn span<T: Element>(pack: Pack<T, PACK>) -> [f32; 2] {
    let above = of_register::<T>(fold_registers(pack, 0, T::max_nan_of_registers), math::max_nan);
    let below = of_register::<T>(fold_registers(pack, 0, T::min_nan_of_registers), math::min_nan);
    [of_group(above), of_group(-below)]
}
