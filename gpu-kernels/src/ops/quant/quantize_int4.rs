//! Quantization to 4-bit integers with a scale for each 128 neighbours of a row: weights of products with few bits.
//!
//! # Math
//! For each group of 1 × 128: scale = max |x| / 7 and q = ⌊x / scale⌉ + 8, from 1 to 15.
//!
//! # Layout
//! `x` is rows of d adjacent elements and `q` rows of ⌈d/2⌉ bytes, which may be padded. Byte i of a row has q of element 2i in its lower half, and that of 2i + 1 in
//! its upper one, 8 if there is none. `scales` is dense, ⌈d / 128⌉ a row. Rows at multiples of a pack are moved by packs, others element by element.
//!
//! # Mapping
//! Blocks of 128 threads with two packs of eight elements each, along the row by x, and the rows by y and z. Sixteen lanes share a group and find its
//! greatest by shuffles.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! q in f32: x · (7 / max), rounded to nearest, ties to even. A group of zeros has scale 0 and eights. With NaN or an infinity in a group that is its
//! scale, and every q is 8.
//!
//! # Cost
//! One read of x, one write of half a byte an element and of 4 bytes a group: bound by memory bandwidth.
//!
//! # Limits
//! d up to (2³¹ − 1) · 2048.
//!
//! # Sources
//! Frantar et al., "GPTQ" (arXiv:2210.17323), for groups.

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread, warp};

use super::{blocks, inverse};

/// Threads of a block.
pub const BLOCK: u32 = blocks::BLOCK;
/// Elements that share a scale.
pub const GROUP: usize = 128;
/// Elements of a row that a block covers.
pub const PER_BLOCK: usize = BLOCK as usize * PACKS * PACK;
/// What is stored for zero.
pub const ZERO: u8 = 8;

/// Packs in flight a thread, and their elements.
const PACKS: usize = 2;
const PACK: usize = 8;
/// The greatest integer, and minus the least that a value becomes.
const STEPS: f32 = 7.0;

/// q and scales of `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of those rows at their strides, `scales` for writes of a value a group; d and rows are at least 1.
#[kernel(dtypes(T: float), block = BLOCK, no_spills)]
pub unsafe fn quantize_int4<T: Element>(
    x: *const T,
    q: *mut u8,
    scales: *mut f32,
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
    let scales = scales.add((row * d.div_ceil(GROUP as u64)) as usize);
    let [x_packed, q_packed] = [(x as usize).is_multiple_of(16), (q as usize).is_multiple_of(PACK / 2)];
    let start = u64::from(thread::block_idx_x()) * PER_BLOCK as u64;
    let at = |i: usize| start + ((thread::thread_idx_x() as usize + i * BLOCK as usize) * PACK) as u64;
    let loaded: [Pack<T, PACK>; PACKS] = array::from_fn(|i| blocks::load(x, at(i), d, x_packed));
    for i in 0..PACKS {
        let values = loaded[i].to_f32();
        let mut max = values.into_iter().fold(0.0, math::max_magnitude);
        let mut lanes = (GROUP / PACK / 2) as u32;
        while lanes > 0 {
            max = math::max_nan(max, warp::shuffle_xor(max, lanes));
            lanes /= 2;
        }
        let inverse = inverse(max, STEPS);
        if at(i).is_multiple_of(GROUP as u64) && at(i) < d {
            *scales.add((at(i) / GROUP as u64) as usize) = max / STEPS;
        }
        // NaN is rounded to 0.
        let code = |e: usize| (math::round_to_i32(values[e] * inverse).clamp(-8, 7) as u8).wrapping_add(ZERO);
        let bytes: Pack<u8, { PACK / 2 }> = Pack(array::from_fn(|b| code(2 * b) | code(2 * b + 1) << 4));
        blocks::store(bytes, q, at(i) / 2, d.div_ceil(2), q_packed);
    }
}
