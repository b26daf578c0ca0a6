//! Ordinary stores of what a warp has written to shared memory.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;

use super::super::super::Problem;
use super::super::super::epilogue::Epilogue;
use super::super::slab_columns;
use super::{Output, Part, WARP_ROWS, four_times};

impl<C: Element, E: Epilogue> Part<'_, C, E> {
    /// Where the columns of the part end, in C.
    #[inline(always)]
    fn last_column<const R: usize>(&self) -> u32 {
        self.output.problem.n.min(self.n0 + Self::width(R))
    }

    /// Copies the warp's rows of a slab, 16 bytes per lane, to the columns from `columns` on.
    #[inline(always)]
    pub(super) unsafe fn copy_units<const R: usize>(&self, buffer: SharedPtr<C>, columns: u32) {
        /// Units of 16 bytes in a row, of which each lane copies one, and rows that a warp copies at a time.
        const ACROSS: u32 = 8;
        const ROWS: u32 = 32 / ACROSS;
        let Output { c, problem: Problem { c: [c_product, ldc], m, .. }, .. } = *self.output;
        let (n, end) = (self.last_column::<R>(), self.end.unwrap_or(m));
        // Values that derive from the lane are computed here: no registers could keep them during the products.
        let Pack([lane, ..]) = Pack([self.lane, 0, 0, 0]).forget();
        let (first, at) = (lane / 32 * WARP_ROWS + lane % 32 / ACROSS, lane % ACROSS);
        let elements = 16 / size_of::<C>() as u32;
        let (row, column) = (self.m0 + first, self.n0 + columns + at * elements);
        if column >= n {
            return;
        }
        let to =
            c.wrapping_add((u64::from(self.product) * c_product + u64::from(row) * ldc + u64::from(column)) as usize);
        let load = |row: u32| {
            let unit = row * ACROSS + (at ^ (row % 8));
            Pack::<u32, 4>::load(buffer.add(unit * elements).as_ptr().cast())
        };
        let units = [load(first), load(first + ROWS), load(first + 2 * ROWS), load(first + 3 * ROWS)];
        four_times!(|i| {
            let ahead = i as u32 * ROWS;
            if row + ahead < end {
                units[i].store(to.wrapping_add((u64::from(ahead) * ldc) as usize).cast());
            }
        });
    }

    /// Copies the warp's rows of a slab, one element per lane, to the columns from `columns` on of a C whose rows may start
    /// anywhere.
    #[inline(always)]
    pub(super) unsafe fn copy_elements<const R: usize>(&self, buffer: SharedPtr<C>, columns: u32) {
        /// Rows under way at a time.
        const ROWS: usize = 4;
        let Output { c, problem: Problem { c: [c_product, ldc], m, .. }, .. } = *self.output;
        let n = self.last_column::<R>();
        let c = c.wrapping_add((u64::from(self.product) * c_product) as usize);
        let (width, chunk) = (slab_columns::<C>(), 16 / size_of::<C>() as u32);
        // Values that derive from the lane are computed here: no registers could keep them during the products. And a loop whose
        // end is not known is not unrolled.
        let Pack([lane, rows, ..]) = Pack([self.lane, WARP_ROWS, 0, 0]).forget();
        let (warp, lane) = (lane / 32, lane % 32);
        let (mut row, end) = (warp * WARP_ROWS, warp * WARP_ROWS + rows);
        let mut column = lane;
        while row < end {
            let values: [C; ROWS] = array::from_fn(|i| {
                let row = row + i as u32;
                buffer.add(row * width + ((column / chunk) ^ (row % 8)) * chunk + column % chunk).read()
            });
            let (row0, column0) = (self.m0 + row, self.n0 + columns + column);
            let to = c.wrapping_add((u64::from(row0) * ldc + u64::from(column0)) as usize);
            let mut i = 0;
            while i < ROWS {
                if row0 + (i as u32) < m && column0 < n {
                    *to.wrapping_add(i * ldc as usize) = values[i];
                }
                i += 1;
            }
            // The next 32 columns of a slab of 64, or the next rows.
            let is_last = column + 32 >= width;
            column = if is_last { lane } else { column + 32 };
            row += if is_last { ROWS as u32 } else { 0 };
        }
    }
}
