//! Attention of a few new queries of each sequence over a cache of keys and values: one decoding step.
//!
//! # Math
//! As in [`forward`](super::forward), with the diagonal ending at the last query and the last key: query n of `q_len`
//! stands at position key length − q_len + n, and sees that key and those before it, at most `left` of them. New keys
//! and values, if given, are first written to positions length − q_len and up.
//!
//! **Split keys.** There are fewer heads and sequences than a GPU has multiprocessors, so the keys of one are divided
//! among several blocks (split-K decoding). Each block gives the O and the logsumexp of its keys. With M the greatest
//! logsumexp Lₛ of all pieces, o = Σ e^(Lₛ − M)·oₛ / Σ e^(Lₛ − M) and L = M + log Σ e^(Lₛ − M). The same formula merges
//! the warps of a block. A head's sink b counts as one more piece, with L = b and o = 0.
//!
//! # Layout
//! `q` and `o` have the strides of a [`Problem`], whose `k` and `v` strides are those of page, head and place in a
//! page; a contiguous cache has one page per sequence and needs no table. `lse` is `[batch, heads, q_len]`, dense.
//! Partial results for pieces of the keys are in f32, `[splits]` times a dense `o` and `lse`.
//!
//! **8-bit caches** ([`stored`]) have an f32 scale for every token and head beside them, at any strides. Neither keys
//! nor values are multiplied by their scales: sⱼ = scale·(q·k'ⱼ)·aⱼ and o = Σ (e^(sⱼ − L)·bⱼ)·v'ⱼ for stored elements
//! k' and v' with scales a and b.
//!
//! # Mapping
//! [`simple`]: one warp per query; any type, length and alignment: the one to read first. [`mma`]: one block of four
//! warps per head of K and V, with the queries of all its heads as columns of the tensor cores' operand, so that a key
//! is read once for all of them: Sᵀ = K·Qᵀ and Oᵀ = Vᵀ·Pᵀ, because a product has 16 rows but 8 columns, and a decoding
//! step has few queries per head (`columns`). A warp takes every fourth group of 16 keys of the block's piece, in a
//! ring of its own that its lanes fill by cp.async: no warp waits for another until all keys are done. [`combine`]: one
//! block per query.
//!
//! # Shared memory
//! [`mma`]: the queries, and for each warp a ring of three stages of 16 keys and values, whose memory afterwards holds
//! the warps' results. [`combine`]: its warps' partial results.
//!
//! # Numerics
//! As in [`forward`](super::forward): scores, sums and everything that is merged are f32. A length outside 0..=capacity
//! is clamped to that range; new keys and values past the capacity are seen but not written, because they would
//! overwrite others. A key whose page number is not in the cache is not seen, and a new one whose position or page does
//! not exist is neither seen nor written. The division of the keys depends only on the lengths and the number of
//! splits, and merging has a fixed order: results are the same bits every time. 8-bit elements become 16-bit floats
//! exactly; a weight times the scale of its value is rounded to bf16, whatever the queries' type, because f16 would
//! lose what is below 6·10⁻⁵.
//!
//! # Cost
//! K and V once: bound by memory bandwidth up to some 100 rows per key. At d = 128 a key takes 512 bytes, a
//! multiprocessor of an H200 gets 19 a cycle, and the products of 16 rows take 2 cycles of the 27. [`mma`] has 192 KiB
//! of ring a multiprocessor, two thirds of it always in flight: 128 KiB, four times what 4.25 TB/s and 1 µs need: one
//! of two blocks is enough, and pieces are as few as give each multiprocessor that one. More rows than 16 (32 at d up
//! to 64) take several blocks, of which all but one find their keys in L2. A key of 8 bits takes 264 bytes, 14 cycles,
//! and widening its 256 elements 450 (E4M3: 830) instructions of threads, 4 (7) cycles of a multiprocessor's 128 a
//! cycle. The pieces' results are 4·d bytes per row against 128 keys at least, mostly thousands.
//!
//! # Limits
//! 2²⁸ positions a sequence; d up to 256: [`mma`] for multiples of 8 and rows at multiples of 16 bytes; of 8-bit caches multiples of 16 up to 128.
//!
//! # Sources
//! Dao et al., "Flash-Decoding for long-context inference" (2023), for splits; Shazeer, "Fast Transformer Decoding" (arXiv:1911.02150)
//! and Ainslie et al., "GQA" (arXiv:2305.13245), for shared heads; Kwon et al., "PagedAttention" (arXiv:2309.06180), for pages.

mod columns;
pub mod combine;
pub mod mma;
mod piece;
pub mod simple;
mod stage;
pub mod stored;

use cuda_std::launch::Fields;

use super::{Problem, Sequence, bounded, nonzero};
use crate::div_rem;

/// Keys of a tile: the least that a block's piece grows by.
pub const TILE: u32 = 64;
/// The fewest tiles of a piece, but the last.
pub const MIN_TILES: u32 = 2;

/// What a [`Problem`] does not say of a cache.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cache {
    /// Strides of the new keys, of batch, head and token.
    pub k_new: [u64; 3],
    /// Of the new values.
    pub v_new: [u64; 3],
    /// Strides of the keys' scales, of page, head and place; unused without scales.
    pub k_scales: [u64; 3],
    /// Of the values'.
    pub v_scales: [u64; 3],
    /// Positions of a page.
    pub page_size: u32,
    /// Pages of the cache.
    pub page_count: u32,
    /// Pages that a sequence has.
    pub max_pages: u32,
    /// The greatest number of pieces that the keys of a sequence are divided into.
    pub splits: u32,
}

// SAFETY: 12 u64 and 4 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Cache {}

impl Cache {
    /// The scales of the keys, or of the values, of a head.
    #[inline(always)]
    pub(super) fn scales(&self, of_keys: bool, scales: [*const f32; 2], batch: u32, kv_head: u32) -> Rows<f32> {
        let [k, v] = scales;
        let (from, strides) = if of_keys { (k, self.k_scales) } else { (v, self.v_scales) };
        Problem::cached(from.cast_mut(), strides, core::ptr::null(), [0; 3], batch, kv_head)
    }
}

/// The keys or the values of one sequence and head.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    /// Place 0 of page 0.
    pub cache: *mut T,
    pub page_stride: u64,
    pub place_stride: u64,
    /// Token 0 of what is new.
    pub new: *const T,
    pub new_stride: u64,
}

impl<T> Rows<T> {
    #[inline(always)]
    fn at(&self, page: u32, place: u32) -> *mut T {
        let offset = u64::from(page) * self.page_stride + u64::from(place) * self.place_stride;
        self.cache.wrapping_add(offset as usize)
    }
}

/// Locates the tokens of one sequence.
#[derive(Clone, Copy)]
pub(super) struct Positions {
    /// The sequence's pages; null if its only page is the one with the sequence's number.
    table: *const i32,
    batch: u32,
    len: u32,
    /// The position of the first new token, which may be below 0; past all positions if there are no new tokens.
    first_new: i32,
    /// Whether there is room for the new tokens: false if they would overwrite others.
    has_room: bool,
    page_size: u32,
    page_count: u32,
}

impl Positions {
    #[inline(always)]
    pub(super) unsafe fn of(
        sequence: &Sequence,
        lengths: *const i32,
        table: *const i32,
        appends: bool,
        cache: &Cache,
    ) -> Self {
        let entry = u64::from(sequence.batch) * u64::from(cache.max_pages);
        Self {
            table: if table.is_null() { table } else { table.add(entry as usize) },
            batch: sequence.batch,
            len: sequence.k_len,
            first_new: if appends { sequence.k_len as i32 - sequence.q_len as i32 } else { i32::MAX },
            // The capacity bounds a length beyond it.
            has_room: *lengths.add(sequence.batch as usize) <= sequence.k_len as i32,
            page_size: cache.page_size,
            page_count: cache.page_count,
        }
    }

    /// The page of a position and the place in that page, if both exist.
    #[inline(always)]
    unsafe fn find(&self, position: u32) -> Option<(u32, u32)> {
        if position >= self.len {
            return None;
        }
        let (page, place) = if self.table.is_null() {
            // A sequence's only page has room for all.
            (self.batch, position)
        } else {
            let (logical, place) = div_rem(position, self.page_size);
            (*self.table.add(logical as usize) as u32, place)
        };
        // As an unsigned number, a negative page is past the last one too.
        if page < self.page_count { Some((page, place)) } else { None }
    }

    /// The start of `count` positions from `first`, a multiple of `count`, if all are in one page and none is new.
    #[inline(always)]
    unsafe fn find_together(&self, first: u32, count: u32) -> Option<(u32, u32)> {
        let end = first + count;
        let one_page = self.table.is_null() || self.page_size.is_multiple_of(count);
        if one_page && end <= self.len && end as i32 <= self.first_new { self.find(first) } else { None }
    }

    /// The address of a position in each of these caches, which share pages; null if it has none.
    #[inline(always)]
    pub(super) unsafe fn places<T, const N: usize>(&self, of: [&Rows<T>; N], position: u32) -> [*mut T; N] {
        match self.find(position) {
            Some((page, place)) => of.map(|rows| rows.at(page, place)),
            None => [core::ptr::null_mut(); N],
        }
    }

    /// The address from which to read a position in each of these caches, given that new tokens have been appended;
    /// null if there is none.
    #[inline(always)]
    pub(super) unsafe fn rows<T, const N: usize>(&self, of: [&Rows<T>; N], position: u32) -> [*const T; N] {
        match self.find(position) {
            Some(_) if position as i32 >= self.first_new => {
                of.map(|rows| self.new_row(rows, (position as i32 - self.first_new) as u32))
            }
            Some((page, place)) => of.map(|rows| rows.at(page, place).cast_const()),
            None => [core::ptr::null(); N],
        }
    }

    /// The address of new token `token`.
    #[inline(always)]
    pub(super) fn new_row<T>(&self, rows: &Rows<T>, token: u32) -> *const T {
        rows.new.wrapping_add((u64::from(token) * rows.new_stride) as usize)
    }

    /// The address to which new token `token` is written, if there is room for it and its position is in `first ..
    /// end`; null otherwise. No block reads from there: see [`rows`](Self::rows).
    #[inline(always)]
    pub(super) unsafe fn new_place<T>(&self, rows: &Rows<T>, token: u32, first: u32, end: u32) -> *mut T {
        let position = self.first_new.wrapping_add(token as i32);
        if !self.has_room || position < first as i32 || position >= end as i32 {
            return core::ptr::null_mut();
        }
        let [place] = self.places([rows], position as u32);
        place
    }
}

impl Problem {
    /// Sequence `batch`, with the length that is read from memory.
    #[inline(always)]
    pub(super) unsafe fn decoded(&self, batch: u32, lengths: *const i32) -> Sequence {
        let k_len = bounded(lengths, batch, 0, self.k_len);
        Sequence { batch, q0: 0, q_len: self.q_len, k0: 0, k_len, padded: false, before: 0 }
    }

    /// The keys, or the values with their strides, of a head.
    #[inline(always)]
    pub(super) fn cached<T>(
        cache: *mut T,
        strides: [u64; 3],
        new: *const T,
        new_strides: [u64; 3],
        batch: u32,
        kv_head: u32,
    ) -> Rows<T> {
        let [page_stride, head_stride, place_stride] = strides;
        Rows {
            cache: cache.wrapping_add((u64::from(kv_head) * head_stride) as usize),
            page_stride,
            place_stride,
            new: new.wrapping_add(Problem::at(new_strides, batch, kv_head, 0)),
            new_stride: new_strides[2],
        }
    }

    /// The first tile of keys that a sequence's queries see, the end of these tiles, and the number of tiles of each
    /// piece.
    #[inline(always)]
    pub(super) fn pieces(&self, sequence: &Sequence, splits: u32) -> (u32, u32, u32) {
        let (first, end) = self.span(sequence).key_tiles(0, self.q_len as i32, TILE as i32);
        let tiles = end - first;
        let per_split = (tiles + (splits - 1)) / nonzero(splits);
        (first, end, if per_split < MIN_TILES { MIN_TILES } else { per_split })
    }
}
