//! The epilogue of swapped operands: rows of the sums are columns of C, which is stored by TMA only.

use core::mem;

use cuda_std::float::Element;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{fence, matrix, thread, tma};

use super::super::super::epilogue::{Epilogue, Sum};
use super::super::{WARPGROUP, slab_columns};
use super::{ADD, AHEAD, Output, PAIRS, Part, SWAPPED_ROWS, WARP_ROWS, four_times};

impl<C: Element, E: Epilogue> Part<'_, C, E> {
    /// [`AHEAD`] columns of the sums from `columns` on, or what is left of them, which are as many rows of C: one slab of 16 bits, which is as wide as the sums
    /// have rows, or two of f32 side by side. Each warp stores [`WARP_ROWS`] of the rows.
    #[inline(always)]
    pub(super) unsafe fn store_swapped<S: Sum, const R: usize>(
        &self,
        acc: &[S; R],
        columns: u32,
        read: [E::Read; PAIRS],
    ) {
        let Output { map, store, slabs, barrier, .. } = *self.output;
        let (first, count) = if size_of::<C>() == 2 { ((columns / AHEAD) as usize % 2, 1) } else { (0, 2) };
        // Stores of what both buffers held before have to have read them; of 16 bits the second is then free too.
        if first == 0 {
            if self.lane.is_multiple_of(32) {
                tma::wait_group_read::<0>();
            }
            thread::named_barrier::sync(barrier, WARPGROUP);
        }
        if size_of::<C>() == 2 {
            self.write_half_swapped(slabs[first].cast(), acc, columns, read);
        } else {
            self.write_f32_swapped(slabs.map(SharedPtr::cast), acc, columns, read);
        }
        fence::proxy_async_shared();
        thread::named_barrier::sync(barrier, WARPGROUP);
        if self.lane.is_multiple_of(32) {
            let mut row = self.lane / 32 * WARP_ROWS;
            let end = row + WARP_ROWS;
            // The last columns of a tile may be fewer rows.
            while row < end && columns + row < Self::width(R) {
                let mut slab = 0;
                while slab < count {
                    let column = self.m0 + slab as u32 * slab_columns::<C>();
                    let to = [column as i32, (self.n0 + columns + row) as i32, self.product as i32];
                    let buffer = slabs[(first + slab) % 2].add(row * 128);
                    if size_of::<C>() == 4 && store == ADD {
                        tma::add_3d(map, to, buffer);
                    } else {
                        tma::store_3d(map, to, buffer);
                    }
                    slab += 1;
                }
                row += SWAPPED_ROWS;
            }
            // A group for what both buffers hold: the next wait is for both.
            if size_of::<C>() == 4 || first == 1 || columns + AHEAD >= Self::width(R) {
                tma::commit_group();
            }
        }
    }

    /// Writes 64 columns in 16 bits, transposed, to a swizzled buffer.
    #[inline(always)]
    unsafe fn write_half_swapped<S: Sum, const R: usize>(
        &self,
        buffer: SharedPtr<C>,
        acc: &[S; R],
        columns: u32,
        read: [E::Read; PAIRS],
    ) {
        const COLUMNS: u32 = slab_columns::<u16>();
        // Each of a warp's 32 lanes points stmatrix at one row, a column of the sums, of one of four 8×8 matrices: of two neighbouring blocks of eight
        // columns, what was rows 0-7 and rows 8-15. The eight rows of a matrix lie in different chunks, so that they share no bank.
        let (row, chunk) = (self.lane % 32 / 16 * 8 + self.lane % 8, self.lane / 32 * 2 + self.lane % 16 / 8);
        let to = buffer.add(row * COLUMNS + (chunk ^ (row % 8)) * 8);
        four_times!(|quarter| {
            let j: usize = 2 * quarter;
            let columns = columns + j as u32 * 8;
            if Self::has(R, columns) {
                let results = self.results(acc, columns, [read[j], read[j + 1]]);
                let [[a, b], [c, d]] =
                    results.map(|rows| rows.map(|pair| mem::transmute_copy(&Pack::<C, 2>::from_f32(pair))));
                matrix::store_x4_transposed(to.add(j as u32 * 8 * COLUMNS), [a, b, c, d]);
            }
        });
    }

    /// Writes 64 columns in f32, transposed, to two swizzled buffers: two of the four warps have the columns of each. No two lanes share a bank.
    #[inline(always)]
    unsafe fn write_f32_swapped<S: Sum, const R: usize>(
        &self,
        [left, right]: [SharedPtr<f32>; 2],
        acc: &[S; R],
        columns: u32,
        read: [E::Read; PAIRS],
    ) {
        const COLUMNS: u32 = slab_columns::<f32>();
        let buffer = if self.lane < WARPGROUP / 2 { left } else { right };
        let column = self.lane / 32 % 2 * 16 + self.lane % 32 / 4;
        four_times!(|quarter| {
            let j: usize = 2 * quarter;
            let columns = columns + j as u32 * 8;
            if Self::has(R, columns) {
                let results = self.results(acc, columns, [read[j], read[j + 1]]);
                let mut i = 0;
                while i < 8 {
                    let (pair, half, e) = (i / 4, i / 2 % 2, i % 2);
                    let row = self.lane % 4 * 2 + e as u32;
                    let chunk = (column / 4 + 2 * half as u32) ^ row;
                    let at = ((j + pair) as u32 * 8 + row) * COLUMNS + chunk * 4 + column % 4;
                    buffer.add(at).write(results[pair][half][e]);
                    i += 1;
                }
            }
        });
    }
}
