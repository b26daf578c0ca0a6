//! Tiles of tokens in shared memory for mma.sync: loading them, and reading fragments from them.
//!
//! A tile has rows of `DT` · 8 elements (d, rounded up to what kernels are built for). Its 16-byte chunks are permuted in each row so
//! that the eight rows of an ldmatrix fall into different banks, whatever the row's length.

use cuda_std::float::Half;
use cuda_std::shared::SharedPtr;
use cuda_std::{cp_async, matrix, thread};

/// Where chunk `chunk` of row `row` is, in elements.
///
/// Rows of a multiple of 128 bytes all start at bank 0, and eight chunks go round them; rows of 64 bytes more start at banks 0 and
/// 16 in turn, and four chunks go round each half.
#[inline(always)]
pub(super) fn place<const DT: usize>(row: u32, chunk: u32) -> u32 {
    let turn = if DT.is_multiple_of(8) { row % 8 } else { row / 2 % 4 };
    row * (DT as u32 * 8) + (chunk ^ turn) * 8
}

/// Rows of a tensor that a tile is loaded from.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    /// Row 0, which may be out of range.
    pub data: *const T,
    pub stride: u64,
    /// Rows that exist, and elements of each, a multiple of 8.
    pub len: u32,
    pub d: u32,
}

impl<T: Half> Rows<T> {
    /// Starts copying `ROWS` rows from `first` on to `tile`, by `THREADS` threads; zeros where there are none.
    #[inline(always)]
    pub(super) unsafe fn copy<const DT: usize, const ROWS: u32, const THREADS: u32>(
        self,
        tile: SharedPtr<T>,
        first: u32,
    ) {
        let (thread, chunks) = (thread::thread_idx_x(), DT as u32);
        if THREADS.is_multiple_of(chunks) {
            // A thread's chunks are in one column of the tile: one address is kept and moved from row to row. The same
            // holds in the tile, because rows that are one period of the permutation apart have a constant distance.
            let (row, chunk) = (thread / chunks, thread % chunks);
            let mut from =
                self.data.wrapping_add((u64::from(first + row) * self.stride + u64::from(chunk * 8)) as usize);
            let rows = THREADS / chunks;
            let next = (u64::from(rows) * self.stride) as usize;
            let start = tile.add(place::<DT>(row, chunk));
            let to = |step: u32| {
                if rows.is_multiple_of(8) {
                    start.add(step * chunks * 8)
                } else {
                    tile.add(place::<DT>(row + step, chunk))
                }
            };
            let mut step = 0;
            if first + ROWS <= self.len && chunks * 8 == self.d {
                while step < ROWS {
                    cp_async::copy_16(to(step), from);
                    from = from.wrapping_add(next);
                    step += rows;
                }
                return;
            }
            let left = if chunk * 8 < self.d { self.len.saturating_sub(first + row) } else { 0 };
            while step < ROWS {
                cp_async::copy_16_zero_fill(to(step), from, if step < left { 16 } else { 0 });
                from = from.wrapping_add(next);
                step += rows;
            }
            return;
        }
        let mut at = thread;
        while at < ROWS * chunks {
            let (row, chunk) = (at / chunks, at % chunks);
            let inside = first + row < self.len && chunk * 8 < self.d;
            let from = self.data.wrapping_add((u64::from(first + row) * self.stride + u64::from(chunk * 8)) as usize);
            cp_async::copy_16_zero_fill(tile.add(place::<DT>(row, chunk)), from, if inside { 16 } else { 0 });
            at += THREADS;
        }
    }
}

/// Rows `row .. row + 16` and columns `16 step .. 16 step + 16` of a tile, as operand A.
#[inline(always)]
pub(super) unsafe fn a<T: Half, const DT: usize>(tile: SharedPtr<T>, row: u32, step: u32, lane: u32) -> [u32; 4] {
    matrix::load_x4(tile.add(place::<DT>(row + lane % 16, step * 2 + lane / 16)))
}

/// The same rows as 16 columns of operand B, which they are the columns of: two operands of 8.
#[inline(always)]
pub(super) unsafe fn b<T: Half, const DT: usize>(tile: SharedPtr<T>, row: u32, step: u32, lane: u32) -> [[u32; 2]; 2] {
    let [b0, b1, b2, b3] =
        matrix::load_x4(tile.add(place::<DT>(row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2)));
    [[b0, b1], [b2, b3]]
}

/// Rows `row .. row + 8` as columns of operand B, for two steps from 2 · `pair` on.
#[inline(always)]
pub(super) unsafe fn b_of_two_steps<T: Half, const DT: usize>(
    tile: SharedPtr<T>,
    row: u32,
    pair: u32,
    lane: u32,
) -> [[u32; 2]; 2] {
    let [b0, b1, b2, b3] = matrix::load_x4(tile.add(place::<DT>(row + lane % 8, pair * 4 + lane / 8)));
    [[b0, b1], [b2, b3]]
}

/// Rows `row .. row + 16` as the inner dimension of operand B, and columns `16 pair .. 16 pair + 16`: two operands of 8 columns.
#[inline(always)]
pub(super) unsafe fn b_transposed<T: Half, const DT: usize>(
    tile: SharedPtr<T>,
    row: u32,
    pair: u32,
    lane: u32,
) -> [[u32; 2]; 2] {
    let [b0, b1, b2, b3] = matrix::load_x4_transposed(tile.add(place::<DT>(row + lane % 16, pair * 2 + lane / 16)));
    [[b0, b1], [b2, b3]]
}

/// Accumulators of 16 × 16 as operand A of the next product: their layouts agree.
#[inline(always)]
pub(super) fn pack<T: Half>(left: [f32; 4], right: [f32; 4]) -> [u32; 4] {
    [T::pack(left[0], left[1]), T::pack(left[2], left[3]), T::pack(right[0], right[1]), T::pack(right[2], right[3])]
}

/// Writes a warp's 16 rows of accumulators, the first being `row`, to `tile`, where no other warp reads or writes these
/// rows, and from there to rows `first + row ..` of `to`, in whole chunks.
#[inline(always)]
pub(super) unsafe fn store<T: Half, const DT: usize>(
    accumulators: &[[f32; 4]; DT],
    factors: [f32; 2],
    tile: SharedPtr<T>,
    row: u32,
    first: u32,
    to: Rows<T>,
    lane: u32,
) {
    for j in 0..DT {
        let [a, b, c, d] = accumulators[j];
        let column = lane % 4 * 2;
        let upper = tile.add(place::<DT>(row + lane / 4, j as u32) + column);
        let lower = tile.add(place::<DT>(row + lane / 4 + 8, j as u32) + column);
        upper.cast::<u32>().write(T::pack(a * factors[0], b * factors[0]));
        lower.cast::<u32>().write(T::pack(c * factors[1], d * factors[1]));
    }
    cuda_std::warp::sync(u32::MAX);
    let chunks = DT as u32;
    let mut at = lane;
    while at < 16 * chunks {
        let (i, chunk) = (row + at / chunks, at % chunks);
        if first + i < to.len && chunk * 8 < to.d {
            let value = cuda_std::vector::Pack::<T, 8>::load(tile.add(place::<DT>(i, chunk)).as_ptr());
            let to = to.data.add((u64::from(first + i) * to.stride + u64::from(chunk * 8)) as usize);
            value.store(to.cast_mut());
        }
        at += 32;
    }
}
