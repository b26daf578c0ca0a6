//! 4-bit integers back to floats, with a scale, and a zero point if there is one, for each 128 neighbours of a row.
//!
//! # Math
//! y[r, c] = (q[r, c] − zeros[r, ⌊c/128⌋]) · scales[r, ⌊c/128⌋], q and zeros from 0 to 15; without zeros they are 8.
//!
//! # Layout
//! `q` is rows of ⌈d/2⌉ bytes, and `y` of d adjacent elements, which may be padded; `scales` and `zeros` are dense, ⌈d / 128⌉ a row: as
//! [`quantize_int4`](super::quantize_int4) writes them. Of a byte of `zeros` the lower four bits count. Rows at multiples of a pack are moved by packs, others
//! element by element.
//!
//! # Mapping
//! Blocks of 128 threads with four packs of eight integers each, along the row by x, and the rows by y and z.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! The difference is exact; one f32 product, and one rounding to the storage type.
//!
//! # Cost
//! One read of half a byte and one write an element, and a read of 4 or 5 bytes per group: bound by memory bandwidth.
//!
//! # Limits
//! d up to (2³¹ − 1) · 4096.
//!
//! # Sources
//! Frantar et al., "GPTQ" (arXiv:2210.17323), for groups; Lin et al., "AWQ" (arXiv:2306.00978), for their zero points.

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

use super::blocks;
use super::quantize_int4::{GROUP, ZERO};

/// Threads of a block.
pub const BLOCK: u32 = blocks::BLOCK;
/// Elements of a row that a block covers.
pub const PER_BLOCK: usize = BLOCK as usize * PACKS * PACK;

/// Packs in flight per thread, and their elements.
const PACKS: usize = 4;
const PACK: usize = 8;
/// Bits of a zero point.
const ZERO_BITS: u8 = 15;

/// y for `rows` rows of `d` elements; `zeros` is null for none.
///
/// # Safety
/// `q` is valid for reads and `y` for writes of those rows at their strides, `scales` and, if not null, `zeros` for reads of a value a group; d and rows are at
/// least 1.
#[kernel(dtypes(T: float), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn dequantize_int4<T: Element>(
    q: *const u8,
    scales: *const f32,
    zeros: *const u8,
    y: *mut T,
    rows: u64,
    d: u64,
    q_stride: u64,
    y_stride: u64,
) {
    let row = blocks::row_of_grid();
    if row >= rows {
        return;
    }
    let (q, y) = (q.add((row * q_stride) as usize), y.add((row * y_stride) as usize));
    let first_group = row * d.div_ceil(GROUP as u64);
    let [q_packed, y_packed] = [(q as usize).is_multiple_of(PACK / 2), (y as usize).is_multiple_of(16)];
    let start = u64::from(thread::block_idx_x()) * PER_BLOCK as u64;
    let at = |i: usize| start + ((thread::thread_idx_x() as usize + i * BLOCK as usize) * PACK) as u64;
    // Past the end, the row's last group is used.
    let group = |i: usize| (first_group + at(i).min(d - 1) / GROUP as u64) as usize;
    let scale = |i: usize| *scales.add(group(i));
    let zero = |i: usize| if zeros.is_null() { ZERO } else { *zeros.add(group(i)) & ZERO_BITS };
    let widen = |bytes: [u8; PACK / 2], scale: f32, zero: u8| -> Pack<T, PACK> {
        let word = u32::from_le_bytes(bytes);
        let value = |e: usize| ((word >> (4 * e) & 15) as i32 - i32::from(zero)) as f32;
        Pack::from_f32(array::from_fn(|e| value(e) * scale))
    };
    // Without branches between the loads, all of them are in flight at the same time.
    if q_packed && y_packed && start + PER_BLOCK as u64 <= d {
        let loaded: [Pack<u8, { PACK / 2 }>; PACKS] =
            array::from_fn(|i| Pack::load_nc_no_allocate(q.add(at(i) as usize / 2)));
        let (scales, zeros): ([_; PACKS], [_; PACKS]) = (array::from_fn(scale), array::from_fn(zero));
        for i in 0..PACKS {
            widen(loaded[i].0, scales[i], zeros[i]).store_streaming(y.add(at(i) as usize));
        }
        return;
    }
    for i in 0..PACKS {
        let first = at(i) / 2;
        let inside = |b: usize| first + (b as u64) < d.div_ceil(2);
        let bytes = array::from_fn(|b| if inside(b) { *q.add(first as usize + b) } else { 0 });
        blocks::store(widen(bytes, scale(i), zero(i)), y, at(i), d, y_packed);
    }
}
