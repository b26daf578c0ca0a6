//! The gradient of an embedding's table.
//!
//! # Math
//! dtable[r, :] = Σ dy[i, :] over the i with ids\[i\] = r, in the order of i.
//!
//! # Layout
//! `dtable` is vocab rows of d elements, `dy` one row a token; all rows may be padded. Packs of 16 bytes where all rows lie at such multiples
//! and consist of them.
//!
//! # Mapping
//! A block owns [`ROWS`] rows of the table and [`BLOCK`] packs of each, of which a thread sums one row after the other
//! in registers. [`embedding_lists`] has listed the tokens that name one of these rows; each lane of a warp has one,
//! and the warp repeatedly takes the smallest that is left. Rows whose list overflowed are left to the grid's first
//! blocks, one row at a time: the block's warps mark the tokens that name the row in a bitmap, 32 tokens per ballot;
//! then every thread walks over the marks in order, skips words without marks by another ballot, and loads the
//! gradients of several tokens at once. No two threads add to one place, and sums are in the order of the tokens:
//! results are reproducible bit by bit. [`embedding_backward_atomic`] is a variant in which a thread adds packs of a
//! token's row to the table atomically, in any order.
//!
//! # Shared memory
//! A bitmap of 128 B.
//!
//! # Numerics
//! Sums in f32, rounded once, in the atomic form too: its table is in f32, and another kernel rounds it. An index
//! outside the table contributes nothing.
//!
//! # Cost
//! dy read and dtable written once: bound by memory bandwidth. Of a row that many tokens name each block reads all of `ids`, from L2, and sums
//! [`BLOCK`] half packs of its columns.
//!
//! # Limits
//! 2³² − 1 tokens, 2³¹ rows of the table.
//!
//! # Sources
//! Bengio, Ducharme, Vincent and Jauvin, "A Neural Probabilistic Language Model" (JMLR 2003).

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::tma::prefetch_bytes;
use cuda_std::vector::Pack;
use cuda_std::{arch, atomic, grid, kernel, thread, warp};

pub use super::BLOCK;
use super::{load, move_runs};
use crate::map::{In, Out};
use crate::{div_rem, lanes};

/// Rows of the table that a block of the backward owns.
pub const ROWS: u32 = 8;
/// Words of a list, one a lane: how many tokens there are, and the first of them.
pub const LIST: u32 = 32;
/// Blocks, for each part of the columns, that sum rows whose lists have no room.
pub const HOT: u32 = 512;
/// Tokens of a bitmap.
const MARKED: u32 = 1024;
/// Tokens whose gradients are in flight at the same time, for a row that many tokens name.
const IN_FLIGHT: usize = 8;

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
            // As an unsigned number, a negative index is past the last row too.
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

/// Lists the tokens that name each [`ROWS`] rows of the table: in the first word how many they are, and behind it those that came first, in any
/// order, each with its row among these in the word's upper half. `hot` are the groups whose lists have no room, in any order behind their number.
///
/// # Safety
/// `ids` is valid for reads of `tokens` numbers, `lists` for reads and writes of [`LIST`] words for each [`ROWS`] of `vocab` rows, and `hot` of a word
/// more than there are lists. All begin as 0.
#[kernel(block = BLOCK, no_spills)]
pub unsafe fn embedding_lists(ids: *const i32, lists: *mut u64, hot: *mut u32, tokens: u32, vocab: u32) {
    grid::launch_dependents();
    let token = thread::block_idx_x() * BLOCK + thread::thread_idx_x();
    if token >= tokens {
        return;
    }
    // As an unsigned number, a negative index is past the last row too.
    let id = *ids.add(token as usize) as u32;
    if id < vocab {
        let (group, row) = (id / ROWS, id % ROWS);
        // There are so many groups that their places need 64 bits.
        let list = lists.add(group as usize * LIST as usize);
        let slot = 1 + atomic::add_u32(list.cast(), 1);
        if slot < LIST {
            *list.add(slot as usize) = u64::from(row) << 32 | u64::from(token);
        } else if slot == LIST {
            *hot.add(1 + atomic::add_u32(hot, 1) as usize) = group;
        }
    }
}

/// dtable from dy, whole: rows that no token names become zeros.
///
/// # Safety
/// `ids` is valid for reads of `tokens` numbers, `dy` of `tokens` rows and `dtable` for writes of `vocab` rows of `d` elements, at their
/// strides, `lists` and `hot` are what [`embedding_lists`] wrote; the grid has `parts` blocks for each group of rows, and ahead of them
/// for each of `hot_blocks`, at least one, that share the latter; with `PACKED` all rows are at multiples of 16 bytes and 16-byte packs divide `d`.
#[kernel(
    dtypes(T: float),
    values(PACKED: false, true),
    block = BLOCK,
    min_blocks = 10,
    shared = { MARKED as usize / 8 },
    no_spills,
    programmatic
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn embedding_backward<T: Element, const PACKED: bool>(
    ids: *const i32,
    lists: *const u64,
    hot: *const u32,
    dy: *const T,
    dtable: *mut T,
    hot_blocks: u32,
    parts: u32,
    tokens: u32,
    vocab: u32,
    d: u64,
    dy_stride: u64,
    dtable_stride: u64,
) {
    // Neighbouring blocks have parts of the same rows, so that memory is written in long stretches.
    let (block, part) = div_rem(thread::block_idx_x(), parts);
    let table = Table { dy: (dy, dy_stride), dtable: (dtable, dtable_stride), vocab, d, part };
    let (ids, of_hot) = (Ids { ids, tokens }, (hot, hot_blocks));
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => table.sum::<1>(ids, lists, of_hot, block),
        4 => table.sum::<4>(ids, lists, of_hot, block),
        _ => table.sum::<8>(ids, lists, of_hot, block),
    }
}

/// The gradients to sum, and the destination of the sums.
struct Table<T> {
    dy: In<T>,
    dtable: Out<T>,
    vocab: u32,
    d: u64,
    /// Which [`BLOCK`] packs of the columns.
    part: u32,
}

impl<T: Element> Table<T> {
    /// The rows of a block, of which a thread has `N` columns at a time. Of rows that many tokens name it has half as many, so that what is under way
    /// takes no more registers than the others need.
    #[inline(always)]
    unsafe fn sum<const N: usize>(
        &self,
        ids: Ids,
        lists: *const u64,
        (hot, hot_blocks): (*const u32, u32),
        block: u32,
    ) {
        if block >= hot_blocks {
            let group = block - hot_blocks;
            self.sum_listed::<N>(group * ROWS, *lists.add(group as usize * LIST as usize + warp::lane_id() as usize));
            return;
        }
        let halves = if N > 1 { 2 } else { 1 };
        // Each takes more tokens than a list has.
        let items = *hot * (ROWS * halves);
        let mut item = block;
        while item < items {
            let (rest, half) = (item / halves, item % halves);
            let row = *hot.add(1 + (rest / ROWS) as usize) * ROWS + rest % ROWS;
            let first = (u64::from(self.part) * u64::from(halves) + u64::from(half)) * u64::from(BLOCK);
            if row < self.vocab {
                match N {
                    8 => self.sum_hot::<4>(row, first, &ids),
                    4 => self.sum_hot::<2>(row, first, &ids),
                    _ => self.sum_hot::<1>(row, first, &ids),
                }
            }
            item += hot_blocks;
        }
    }

    /// A group of rows by its list, of which each lane has a word, unless it has no room.
    #[inline(always)]
    unsafe fn sum_listed<const N: usize>(&self, first_row: u32, word: u64) {
        let count = warp::shuffle_idx(word as u32, 0);
        if count >= LIST {
            return;
        }
        let column = (u64::from(self.part) * u64::from(BLOCK) + u64::from(thread::thread_idx_x())) * N as u64;
        let has_one = (1..=count).contains(&warp::lane_id());
        let (token, of_token) = if has_one { (word as u32, (word >> 32) as u32) } else { (u32::MAX, u32::MAX) };
        for row in 0..ROWS.min(self.vocab - first_row) {
            let mut sums = [0.0; N];
            // In the order of tokens, which differs from that of the list.
            let mut left = if of_token == row { token } else { u32::MAX };
            loop {
                let next = warp::redux_min_u32(left);
                if next == u32::MAX {
                    break;
                }
                add(&mut sums, self.load(next, column));
                left = if left == next { u32::MAX } else { left };
            }
            self.store(first_row + row, column, sums);
        }
    }

    /// A row that many tokens name, in the columns of a block whose first thread has the `N` from `first` · `N` on.
    #[inline(always)]
    unsafe fn sum_hot<const N: usize>(&self, row: u32, first: u64, ids: &Ids) {
        let column = (first + u64::from(thread::thread_idx_x())) * N as u64;
        let mut sums = [0.0; N];
        // The block's columns, into L2.
        let fetch = |token: u32| {
            let (dy, stride) = self.dy;
            let (first, count) = (first * N as u64, u64::from(BLOCK) * N as u64);
            if N > 1 && arch::number() >= 90 && first < self.d {
                let bytes = count.min(self.d - first) as usize * size_of::<T>();
                prefetch_bytes(dy.add((u64::from(token) * stride + first) as usize), bytes as u32);
            }
        };
        ids.each(row, fetch, |tokens| {
            let none = Pack([T::from_f32(0.0); N]);
            let packs = tokens.map(|token| if token == u32::MAX { none } else { self.load(token, column) });
            for i in 0..IN_FLIGHT {
                if tokens[i] != u32::MAX {
                    add(&mut sums, packs[i]);
                }
            }
        });
        self.store(row, column, sums);
    }

    /// A token's contribution to these columns.
    #[inline(always)]
    unsafe fn load<const N: usize>(&self, token: u32, column: u64) -> Pack<T, N> {
        let (dy, stride) = self.dy;
        if column < self.d {
            load(dy.add((u64::from(token) * stride + column) as usize))
        } else {
            Pack([T::from_f32(0.0); N])
        }
    }

    #[inline(always)]
    unsafe fn store<const N: usize>(&self, row: u32, column: u64, sums: [f32; N]) {
        let (dtable, stride) = self.dtable;
        if column < self.d {
            Pack::<T, N>::from_f32(sums).store_streaming(dtable.add((u64::from(row) * stride + column) as usize));
        }
    }
}

#[inline(always)]
fn add<T: Element, const N: usize>(sums: &mut [f32; N], values: Pack<T, N>) {
    let values = values.to_f32();
    for e in 0..N {
        sums[e] += values[e];
    }
}

/// The rows that tokens name.
struct Ids {
    ids: *const i32,
    tokens: u32,
}

impl Ids {
    /// Calls `add` with the tokens that name `row`, in order, [`IN_FLIGHT`] at a time, with `u32::MAX` for missing
    /// ones. All of the block's threads search all tokens. The thread that finds one calls `fetch` with it.
    #[inline(always)]
    unsafe fn each(&self, row: u32, fetch: impl Fn(u32), mut add: impl FnMut([u32; IN_FLIGHT])) {
        let tid = thread::thread_idx_x();
        let marks: SharedPtr<u32> = shared::dynamic();
        let mut start = 0;
        while start < self.tokens {
            let count = (self.tokens - start).min(MARKED);
            // All loads are issued before the first one is used.
            let named: [bool; (MARKED / BLOCK) as usize] = array::from_fn(|k| {
                let i = k as u32 * BLOCK + tid;
                i < count && *self.ids.add((start + i) as usize) as u32 == row
            });
            // The previous marks have been read.
            thread::sync_threads();
            for k in 0..MARKED / BLOCK {
                if named[k as usize] {
                    fetch(start + k * BLOCK + tid);
                }
                let mark = warp::ballot(named[k as usize]);
                if warp::lane_id() == 0 {
                    marks.add((k * BLOCK + tid) / 32).write(mark);
                }
            }
            thread::sync_threads();
            // Few words have a mark: those left, the one that is looked at, and what is left of it.
            let mut words = warp::ballot(marks.add(warp::lane_id()).read() != 0);
            let (mut word, mut mark) = (0, 0);
            while words | mark != 0 {
                let tokens = array::from_fn(|_| {
                    if mark == 0 {
                        if words == 0 {
                            return u32::MAX;
                        }
                        word = words.trailing_zeros();
                        words &= words - 1;
                        mark = marks.add(word).read();
                    }
                    let bit = mark.trailing_zeros();
                    mark &= mark - 1;
                    start + word * 32 + bit
                });
                add(tokens);
            }
            start += count;
        }
    }
}
