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
        // Values that derive from the lane are computed here: no registers could keep them during the products. The loops are unrolled:
        // where they were not, a product of 1793³ waited 4 µs of 29 for shared memory.
        let Pack([lane, ..]) = Pack([self.lane, 0, 0, 0]).forget();
        let (warp, lane) = (lane / 32, lane % 32);
        let mut first = warp * WARP_ROWS;
        while first < warp * WARP_ROWS + WARP_ROWS {
            let mut part = 0;
            while part < width / 32 {
                let column = part * 32 + lane;
                let values: [C; ROWS] = array::from_fn(|i| {
                    let row = first + i as u32;
                    buffer.add(row * width + ((column / chunk) ^ (row % 8)) * chunk + column % chunk).read()
                });
                let (row, column) = (self.m0 + first, self.n0 + columns + column);
                let to = c.wrapping_add((u64::from(row) * ldc + u64::from(column)) as usize);
                let mut i = 0;
                while i < ROWS {
                    if row + (i as u32) < m && column < n {
                        *to.wrapping_add(i * ldc as usize) = values[i];
                    }
                    i += 1;
                }
                part += 1;
            }
            first += ROWS as u32;
        }
    }
}
