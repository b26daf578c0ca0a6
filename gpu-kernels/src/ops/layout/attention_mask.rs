//! Masks attention scores: causal, sliding window, padding, and packed sequences, for every query head.
//!
//! # Math
//! y[b, h, i, j] = x[b, h, i, j] where query i may see key j, else `fill`. What a query sees is an interval of keys, the intersection of
//! - the keys that are there: below lengths\[b\],
//! - causal: up to the query's own position p = i + keys − queries (the last query sees all), which padding does not move,
//! - a window of w: after p − w,
//! - packed sequences: the same one as the query's, from offsets\[s\] to offsets[s + 1].
//!
//! # Layout
//! Rows of `keys` elements that may be padded, a row for each batch entry, head and query, equally far apart.
//!
//! # Mapping
//! Blocks of 256 threads, x along the row, y and then z over the rows; a thread moves two packs. Packs outside the interval are not
//! read.
//!
//! # Shared memory
//! None: every thread computes its row's interval by itself.
//!
//! # Numerics
//! Bit by bit. A length below 0 counts as 0 and one above `keys` as `keys`; offsets that fall give some mask, and no access outside
//! the tensors.
//!
//! # Cost
//! At most one read and one write of the scores: bound by memory bandwidth. A causal mask reads half.
//!
//! # Limits
//! 2³² − 1 rows, 2³¹ − 1 queries and keys.
//!
//! # Sources
//! Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762), section 3.2.3; Beltagy, Peters and Cohan, "Longformer"
//! (arXiv:2004.05150), for windows; Krell et al., "Efficient Sequence Packing without Cross-contamination" (arXiv:2107.02027).

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

use crate::{div_rem, lanes};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Packs a thread moves.
pub const PACKS: u32 = 2;

/// Masks `rows` rows, `per_batch` for each batch entry; `window` 0 means no window, and `lengths` or `offsets` are null
/// if not given.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `rows` rows of `keys` elements at their strides, `lengths`, if not null, for reads of a
/// value a batch entry, `offsets` of `offset_count`; `queries` and `per_batch` are not 0. With `PACKED` all rows are at multiples of 16
/// bytes and 16-byte packs divide `keys`.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_mask<T: Element, const PACKED: bool>(
    x: *const T,
    lengths: *const i32,
    offsets: *const i32,
    y: *mut T,
    rows: u32,
    per_batch: u32,
    queries: u32,
    keys: u32,
    offset_count: u32,
    causal: u32,
    window: u32,
    fill: f32,
    x_stride: u64,
    y_stride: u64,
) {
    let row = u64::from(thread::block_idx_z()) * u64::from(thread::grid_dim_y()) + u64::from(thread::block_idx_y());
    if row >= u64::from(rows) {
        return;
    }
    let (batch, _) = div_rem(row as u32, per_batch);
    let (_, query) = div_rem(row as u32, queries);
    #[allow(clippy::manual_clamp, reason = "clamp can panic")]
    let there = if lengths.is_null() { keys } else { (*lengths.add(batch as usize)).max(0).min(keys as i32) as u32 };
    let position = i64::from(query) + i64::from(keys) - i64::from(queries);
    let (mut low, mut high) = (0, i64::from(there));
    if causal != 0 {
        high = high.min(position + 1);
    }
    if window != 0 {
        low = position + 1 - i64::from(window);
    }
    if !offsets.is_null() {
        let sequence = sequence_of(query as i32, offsets, offset_count);
        low = low.max(i64::from(sequence[0]));
        high = high.min(i64::from(sequence[1]));
    }
    let interval = [low.max(0) as u32, high.max(0) as u32];
    let (x, y) = (x.add((row * x_stride) as usize), y.add((row * y_stride) as usize));
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => mask_row::<T, 1>(x, y, keys, interval, fill),
        4 => mask_row::<T, 4>(x, y, keys, interval, fill),
        _ => mask_row::<T, 8>(x, y, keys, interval, fill),
    }
}

/// The offsets around `query`: the last that is not above it and the one after; an empty interval if there are none such.
#[inline(always)]
unsafe fn sequence_of(query: i32, offsets: *const i32, count: u32) -> [i32; 2] {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if *offsets.add(middle as usize) <= query {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == 0 || low == count {
        return [0, 0];
    }
    [*offsets.add(low as usize - 1), *offsets.add(low as usize)]
}

/// The block's part of a row: what lies in `low..high` from `x`, the rest `fill`.
#[inline(always)]
unsafe fn mask_row<T: Element, const N: usize>(x: *const T, y: *mut T, keys: u32, [low, high]: [u32; 2], fill: f32) {
    let packs = keys / N as u32;
    let first = thread::block_idx_x() * (PACKS * BLOCK) + thread::thread_idx_x();
    let places: [u32; PACKS as usize] = array::from_fn(|i| first + i as u32 * BLOCK);
    let fill = Pack::<T, N>::from_f32([fill; N]);
    let loaded = places.map(|pack| {
        let start = pack * N as u32;
        let seen = pack < packs && start < high && low < start + N as u32;
        if seen { Pack::load_nc(x.add(start as usize)) } else { fill }
    });
    for (pack, loaded) in places.into_iter().zip(loaded) {
        if pack < packs {
            let start = pack * N as u32;
            let place = |e: usize| start + e as u32;
            let masked: [T; N] =
                array::from_fn(|e| if low <= place(e) && place(e) < high { loaded.0[e] } else { fill.0[e] });
            Pack(masked).store_global(y.add(start as usize));
        }
    }
}
