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
//! [`BLOCK`] packs of each. Its warps mark in a bitmap which tokens name one of these rows, 32 tokens a ballot; then every thread walks
//! the marks in order, past words without any by another ballot, and adds its pack of the token's row to sums of its own. Nothing is sorted, no two threads add to one place, and
//! the order of a sum is that of the tokens: results are reproducible bit by bit. [`embedding_backward_atomic`], a variant of it: a
//! thread adds packs of a token's row to the table atomically, in any order.
//!
//! # Shared memory
//! [`embedding`]: none. [`embedding_backward`]: the sums, [`ROWS`] × [`BLOCK`] packs in f32, 32 KiB of f32 and 64 KiB of 16-bit types,
//! and a bitmap of 256 B.
//!
//! # Numerics
//! Forward bit by bit; backward sums in f32 and rounds once, the atomic form too: its table is one of f32 that is rounded by another kernel. A number
//! that is none of the table's rows gives zeros, and adds to nothing.
//!
//! # Cost
//! Forward: a row read and written for each token. Backward: dy read and dtable written once, and `ids` read from L2 by every block,
//! 4·tokens·vocab / [`ROWS`] bytes for each [`BLOCK`] packs of d: bound by memory bandwidth while tokens · 4 is less than the bytes of
//! [`ROWS`] rows. A row that very many tokens name is summed by one block.
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
use cuda_std::{atomic, kernel, thread, warp};

pub use super::BLOCK;
use super::{load, move_runs, store};
use crate::lanes;

/// Rows of the table that a block of the backward owns.
pub const ROWS: u32 = 8;
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
            if N == 1 || cfg!(cuda_arch = "sm_80") {
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

/// dtable from dy, whole: rows that no token names become zeros.
///
/// # Safety
/// `ids` is valid for reads of `tokens` numbers, `dy` of `tokens` rows and `dtable` for writes of `vocab` rows of `d` elements, at their
/// strides; with `PACKED` all rows are at multiples of 16 bytes and 16-byte packs divide `d`.
#[kernel(
    dtypes(T: float),
    values(PACKED: false, true),
    block = BLOCK,
    shared = { (ROWS * BLOCK) as usize * 64 / size_of::<T>() + MARKED as usize / 8 },
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn embedding_backward<T: Element, const PACKED: bool>(
    ids: *const i32,
    dy: *const T,
    dtable: *mut T,
    tokens: u32,
    vocab: u32,
    d: u64,
    dy_stride: u64,
    dtable_stride: u64,
) {
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => sum_rows::<T, 1>(ids, dy, dtable, tokens, vocab, d, dy_stride, dtable_stride),
        4 => sum_rows::<T, 4>(ids, dy, dtable, tokens, vocab, d, dy_stride, dtable_stride),
        _ => sum_rows::<T, 8>(ids, dy, dtable, tokens, vocab, d, dy_stride, dtable_stride),
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn sum_rows<T: Element, const N: usize>(
    ids: *const i32,
    dy: *const T,
    dtable: *mut T,
    tokens: u32,
    vocab: u32,
    d: u64,
    dy_stride: u64,
    dtable_stride: u64,
) {
    let tid = thread::thread_idx_x();
    let first_row = thread::block_idx_x() * ROWS;
    let column = (u64::from(thread::block_idx_y()) * u64::from(BLOCK) + u64::from(tid)) * N as u64;
    let marks: SharedPtr<u32> = shared::dynamic();
    let sums: SharedPtr<f32> = marks.add(MARKED / 32).cast();
    // Element e of this thread's pack of a row: the threads' elements lie side by side.
    let sum = sums.add(tid);
    let pitch = N as u32 * BLOCK;
    for i in 0..ROWS * N as u32 {
        sum.add(i * BLOCK).write(0.0);
    }
    let id = |token: u32| *ids.add(token as usize) as u32;
    let mut start = 0;
    while start < tokens {
        let count = (tokens - start).min(MARKED);
        // All loads before the first is looked at. What there is beyond the last token is no row.
        let ids: [u32; (MARKED / BLOCK) as usize] = array::from_fn(|k| {
            let i = k as u32 * BLOCK + tid;
            if i < count { id(start + i) } else { u32::MAX }
        });
        for k in 0..MARKED / BLOCK {
            let mark = warp::ballot(ids[k as usize].wrapping_sub(first_row) < ROWS);
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
                    let token = start + word * 32 + mark.trailing_zeros();
                    mark &= mark - 1;
                    if column < d {
                        let row = id(token).wrapping_sub(first_row) % ROWS;
                        let from = dy.add((u64::from(token) * dy_stride + column) as usize);
                        let values = Pack::<T, N>::load_nc(from).to_f32();
                        let sum = sum.add(row * pitch);
                        for e in 0..N {
                            let place = sum.add(e as u32 * BLOCK);
                            place.write(place.read() + values[e]);
                        }
                    }
                }
            }
        }
        start += count;
        if start < tokens {
            // The marks are about to be overwritten.
            thread::sync_threads();
        }
    }
    for row in 0..ROWS {
        if first_row + row < vocab && column < d {
            let values = array::from_fn(|e| sum.add(row * pitch + e as u32 * BLOCK).read());
            let to = dtable.add((u64::from(first_row + row) * dtable_stride + column) as usize);
            Pack::<T, N>::from_f32(values).store_streaming(to);
        }
    }
}
