//! Rows of a table looked up by number, and the gradient of the table.
//!
//! # Math
//! y[i, :] = table[ids\[i\], :]. Backward: dtable[r, :] = Σ dy[i, :] over the i with ids\[i\] = r, in the order of i.
//!
//! # Layout
//! `table` and `dtable` are vocab rows of d elements, `y` and `dy` one row a token; all rows may be padded. Packs of 16 bytes where all
//! rows lie at such multiples and consist of them.
//!
//! # Mapping
//! [`embedding`]: a thread moves two packs, see [`runs`](super). [`embedding_backward`]: a block owns [`ROWS`] rows of the table and
//! [`BLOCK`] packs of each, of which a thread sums one row after the other in registers. [`embedding_lists`] has listed which tokens name one of these
//! rows; a warp has one a lane, and takes the least that is left. Where there are more than [`LISTED`], the block's warps mark in a bitmap which
//! tokens name a row, 32 tokens a ballot; then every thread walks the marks in order, past words without any by another ballot. No two threads add to one
//! place, and the order of a sum is that of the tokens: results are reproducible bit by bit. [`embedding_backward_atomic`], a variant of it: a
//! thread adds packs of a token's row to the table atomically, in any order.
//!
//! # Shared memory
//! [`embedding`]: none. [`embedding_backward`]: a bitmap of 256 B.
//!
//! # Numerics
//! Forward bit by bit; backward sums in f32 and rounds once, the atomic form too: its table is one of f32 that is rounded by another kernel. A number
//! that is none of the table's rows gives zeros, and adds to nothing.
//!
//! # Cost
//! Forward: a row read and written for each token. Backward: dy read and dtable written once: bound by memory bandwidth where few tokens name a
//! row. Blocks of rows that many name read all of `ids` for each of them, from L2; a row that very many name is summed by one block.
//!
//! # Limits
//! 2³² − 1 tokens, 2³¹ rows of the table.
//!
//! # Sources
//! Bengio, Ducharme, Vincent and Jauvin, "A Neural Probabilistic Language Model" (JMLR 2003).

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{arch, atomic, kernel, thread, warp};

pub use super::BLOCK;
use super::{load, move_runs, store};
use crate::lanes;

/// Rows of the table that a block of the backward owns.
pub const ROWS: u32 = 8;
/// Tokens of a list, one a lane.
pub const LISTED: u32 = 32;
/// Tokens of a bitmap.
const MARKED: u32 = 2048;

/// y = table\[ids\] for `runs` tokens, a row being `width` packs of `V` words.
///
/// # Safety
/// `ids` is valid for reads of `runs` numbers, `table` of `vocab` rows, `y` for writes of `runs` rows at their strides; `width` is not 0,
/// and packs of 16 bytes are aligned.
#[kernel(dtypes(W: u16, u32), values(V: 1, 4), where(V == 1 || W == u32), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn embedding<W: Copy + Default, const V: usize>(
    ids: *const i32,
    table: *const W,
    y: *mut W,
    runs: u32,
    width: u32,
    vocab: u32,
    table_stride: u64,
    y_stride: u64,
) {
    move_runs(
        width,
        runs,
        |run, pack| {
            // A negative number is behind the last row as well.
            let id = *ids.add(run as usize) as u32;
            if id < vocab {
                load::<W, V>(table.add((u64::from(id) * table_stride) as usize + pack as usize * V))
            } else {
                Pack::splat(W::default())
            }
        },
        |run, pack, words| store(words, y.add((u64::from(run) * y_stride) as usize + pack as usize * V)),
    );
}

/// dtable += dy, atomically: the row of each of `tokens` tokens, which is `width` packs of 16 bytes, or single elements.
///
/// # Safety
/// `ids` is valid for reads of `tokens` numbers, `dy` of `tokens` rows, `dtable` for reads and writes of `vocab` rows of f32, at their strides;
/// `width` is not 0, and with `PACKED` all rows are at multiples of 16 bytes.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn embedding_backward_atomic<T: Element, const PACKED: bool>(
    ids: *const i32,
    dy: *const T,
    dtable: *mut f32,
    tokens: u32,
    width: u32,
    vocab: u32,
    dy_stride: u64,
    dtable_stride: u64,
) {
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => add_rows::<T, 1>(ids, dy, dtable, tokens, width, vocab, dy_stride, dtable_stride),
        4 => add_rows::<T, 4>(ids, dy, dtable, tokens, width, vocab, dy_stride, dtable_stride),
        _ => add_rows::<T, 8>(ids, dy, dtable, tokens, width, vocab, dy_stride, dtable_stride),
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn add_rows<T: Element, const N: usize>(
    ids: *const i32,
    dy: *const T,
    dtable: *mut f32,
    tokens: u32,
    width: u32,
    vocab: u32,
    dy_stride: u64,
    dtable_stride: u64,
) {
    move_runs(
        width,
        tokens,
        |run, pack| {
            let from = dy.add((u64::from(run) * dy_stride) as usize + pack as usize * N);
            // A negative number is behind the last row as well.
            (*ids.add(run as usize) as u32, load::<T, N>(from).to_f32())
        },
        |_, pack, (id, values)| {
            if id >= vocab {
                return;
            }
            let to = dtable.add((u64::from(id) * dtable_stride) as usize + pack as usize * N);
            if N == 1 || arch::number() < 90 {
                for e in 0..N {
                    atomic::red_add_f32(to.add(e), values[e]);
                }
            } else {
                for e in (0..N).step_by(4) {
                    atomic::red_add_f32x4(to.add(e), array::from_fn(|i| values[e + i]));
                }
            }
        },
    );
}

/// Lists the tokens that name each [`ROWS`] rows of the table, in any order: how many they are, and the first [`LISTED`] that came.
///
/// # Safety
/// `ids` is valid for reads of `tokens` numbers, `counts` for atomic additions to a number, which is 0, and `lists` for writes of [`LISTED`], for each
/// [`ROWS`] of `vocab` rows.
#[kernel(block = BLOCK, no_spills)]
pub unsafe fn embedding_lists(ids: *const i32, counts: *mut u32, lists: *mut u32, tokens: u32, vocab: u32) {
    let token = thread::block_idx_x() * BLOCK + thread::thread_idx_x();
    if token >= tokens {
        return;
    }
    // A negative number is behind the last row as well.
    let id = *ids.add(token as usize) as u32;
    if id < vocab {
        let group = id / ROWS;
        let slot = atomic::add_u32(counts.add(group as usize), 1);
        if slot < LISTED {
            *list_of(lists, group).add(slot as usize) = token;
        }
    }
}

/// The list of a group of [`ROWS`] rows, of which there are so many that their places need 64 bits.
#[inline(always)]
unsafe fn list_of(lists: *mut u32, group: u32) -> *mut u32 {
    lists.add(group as usize * LISTED as usize)
}

/// dtable from dy, whole: rows that no token names become zeros.
///
/// # Safety
/// `ids` is valid for reads of `tokens` numbers, `dy` of `tokens` rows and `dtable` for writes of `vocab` rows of `d` elements, at their
/// strides, `counts` and `lists` are what [`embedding_lists`] wrote; with `PACKED` all rows are at multiples of 16 bytes and 16-byte packs divide `d`.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, shared = { MARKED as usize / 8 }, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn embedding_backward<T: Element, const PACKED: bool>(
    ids: *const i32,
    counts: *const u32,
    lists: *const u32,
    dy: *const T,
    dtable: *mut T,
    tokens: u32,
    vocab: u32,
    d: u64,
    dy_stride: u64,
    dtable_stride: u64,
) {
    let first_row = thread::block_idx_x() * ROWS;
    let of_block = Tokens { ids, tokens, first_row, dy_stride };
    let group = thread::block_idx_x();
    let (count, list) = (*counts.add(group as usize), list_of(lists.cast_mut(), group).cast_const());
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => of_block.sum_rows::<T, 1>(count, list, dy, dtable, vocab, d, dtable_stride),
        4 => of_block.sum_rows::<T, 4>(count, list, dy, dtable, vocab, d, dtable_stride),
        _ => of_block.sum_rows::<T, 8>(count, list, dy, dtable, vocab, d, dtable_stride),
    }
}

/// The tokens, of which a block looks for those that name its rows.
struct Tokens {
    ids: *const i32,
    tokens: u32,
    first_row: u32,
    dy_stride: u64,
}

impl Tokens {
    /// The row of the block's that a token names, or a number that is none.
    #[inline(always)]
    unsafe fn row(&self, token: u32) -> u32 {
        (*self.ids.add(token as usize) as u32).wrapping_sub(self.first_row)
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn sum_rows<T: Element, const N: usize>(
        &self,
        count: u32,
        list: *const u32,
        dy: *const T,
        dtable: *mut T,
        vocab: u32,
        d: u64,
        dtable_stride: u64,
    ) {
        let thread = u64::from(thread::block_idx_y()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x());
        let column = thread * N as u64;
        // The token that a lane has of the list, and its row.
        let has_one = count <= LISTED && warp::lane_id() < count;
        let token = if has_one { *list.add(warp::lane_id() as usize) } else { u32::MAX };
        let of_token = if has_one { self.row(token) } else { u32::MAX };
        for row in 0..ROWS.min(vocab - self.first_row) {
            let mut sums = [0.0; N];
            let mut add = |token: u32| {
                if column < d {
                    let values =
                        Pack::<T, N>::load_nc(dy.add((u64::from(token) * self.dy_stride + column) as usize)).to_f32();
                    for e in 0..N {
                        sums[e] += values[e];
                    }
                }
            };
            if count <= LISTED {
                // In the order of tokens, which that of the list is not.
                let mut left = if of_token == row { token } else { u32::MAX };
                loop {
                    let next = warp::redux_min_u32(left);
                    if next == u32::MAX {
                        break;
                    }
                    add(next);
                    left = if left == next { u32::MAX } else { left };
                }
            } else {
                self.each(row, add);
            }
            if column < d {
                let to = dtable.add((u64::from(self.first_row + row) * dtable_stride + column) as usize);
                Pack::<T, N>::from_f32(sums).store_streaming(to);
            }
        }
    }

    /// Calls `add` with every token that names the row, in order: found by all of the block's threads, among all tokens.
    #[inline(always)]
    unsafe fn each(&self, row: u32, mut add: impl FnMut(u32)) {
        let tid = thread::thread_idx_x();
        let marks: SharedPtr<u32> = shared::dynamic();
        let mut start = 0;
        while start < self.tokens {
            let count = (self.tokens - start).min(MARKED);
            // All loads before the first is looked at. What there is beyond the last token is no row.
            let rows: [u32; (MARKED / BLOCK) as usize] = array::from_fn(|k| {
                let i = k as u32 * BLOCK + tid;
                if i < count { self.row(start + i) } else { u32::MAX }
            });
            // The marks before have been read.
            thread::sync_threads();
            for k in 0..MARKED / BLOCK {
                let mark = warp::ballot(rows[k as usize] == row);
                if warp::lane_id() == 0 {
                    marks.add((k * BLOCK + tid) / 32).write(mark);
                }
            }
            thread::sync_threads();
            for first_word in (0..MARKED / 32).step_by(32) {
                // Few words have a mark.
                let mut words = warp::ballot(marks.add(first_word + warp::lane_id()).read() != 0);
                while words != 0 {
                    let word = first_word + words.trailing_zeros();
                    words &= words - 1;
                    let mut mark = marks.add(word).read();
                    while mark != 0 {
                        add(start + word * 32 + mark.trailing_zeros());
                        mark &= mark - 1;
                    }
                }
            }
            start += count;
        }
    }
}
