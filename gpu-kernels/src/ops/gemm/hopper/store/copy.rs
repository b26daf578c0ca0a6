//! Ordinary stores of what a warp has written to shared memory.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;

use super::super::super::epilogue::Epilogue;
use super::super::super::{Problem, shifted};
use super::super::slab_columns;
use super::{Output, Part, WARP_ROWS, four_times};

/// Units of 16 bytes in a row of a slab, of which each lane copies one, and rows that a warp copies at a time.
const ACROSS: u32 = 8;
const ROWS: u32 = 32 / ACROSS;

impl<C: Element, E: Epilogue> Part<'_, C, E> {
    /// Where the columns of the part end, in C.
    #[inline(always)]
    fn last_column<const R: usize>(&self) -> u32 {
        self.output.problem.n.min(self.n0 + Self::width(R))
    }

    /// Copies the warp's rows of a slab, 16 bytes per lane, to the columns from `columns` on.
    #[inline(always)]
    pub(super) unsafe fn copy_units<const R: usize>(&self, buffer: SharedPtr<C>, columns: u32) {
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

    /// Copies the warp's rows of a slab of 16 bits to the columns from `columns` on of a C whose rows may start anywhere: 16
    /// bytes per lane that lie at a multiple of 16 in C, so that they consist of parts of two units of the slab, or of the last
    /// unit of the slab `before` and the first one of this. What is left at both ends of a row of the part is copied one element
    /// per lane.
    #[inline(always)]
    pub(super) unsafe fn copy_halves<const R: usize>(&self, buffer: SharedPtr<C>, before: SharedPtr<C>, columns: u32) {
        /// Columns of a slab, and elements of a unit.
        const WIDTH: u32 = slab_columns::<u16>();
        const UNIT: u32 = 8;
        let Output { c, problem: Problem { c: [c_product, ldc], m, .. }, .. } = *self.output;
        // As in `copy_units`.
        let Pack([lane, ..]) = Pack([self.lane, 0, 0, 0]).forget();
        let (first, at) = (lane / 32 * WARP_ROWS + lane % 32 / ACROSS, lane % ACROSS);
        // Where the columns of C end, from the part's first.
        let end = self.last_column::<R>() - self.n0;
        if end <= columns {
            return;
        }
        let to = c.wrapping_add(
            (u64::from(self.product) * c_product + u64::from(self.m0 + first) * ldc + u64::from(self.n0)) as usize,
        );
        let ahead = |i: u32| (u64::from(i * ROWS) * ldc) as usize;
        // By how much packs of a row are ahead of units, 1 to a whole one; and where the last pack starts, which is left.
        let off = |to: *mut C| (to as u32 / 2).wrapping_sub(1) % UNIT + 1;
        let last = |off: u32| ((end - 1 + off) / UNIT * UNIT) as i32 - off as i32;
        let unit = |buffer: SharedPtr<C>, row: u32, at: u32| buffer.add(row * WIDTH + (at ^ (row % 8)) * UNIT);
        four_times!(|i| {
            let (row, to) = (first + i as u32 * ROWS, to.wrapping_add(ahead(i as u32)));
            let off = off(to);
            let start = (columns + at * UNIT) as i32 - off as i32;
            if (self.m0 + row < m) & (start >= 0) & (start < last(off)) {
                let low = unit(if at == 0 { before } else { buffer }, row, at.wrapping_sub(1) % ACROSS);
                let units = [low, unit(buffer, row, at)].map(|unit| Pack::<u32, 4>::load(unit.as_ptr().cast()).0);
                Pack(shifted(units, UNIT - off)).store(to.wrapping_add(start as usize).cast());
            }
        });
        if (columns != 0) & (end > columns + WIDTH) {
            return;
        }
        let mut i = 0;
        while i < WARP_ROWS / ROWS {
            let (row, to) = (first + i * ROWS, to.wrapping_add(ahead(i)));
            let off = off(to);
            let (inside, last) = (self.m0 + row < m, last(off));
            let copy = |column: u32| {
                let buffer = if column < columns { before } else { buffer };
                let from = unit(buffer, row, column % WIDTH / UNIT).add(column % UNIT);
                *to.wrapping_add(column as usize) = from.read();
            };
            if (columns == 0) & inside & (at < end.min(UNIT - off)) {
                copy(at);
            }
            let column = last as u32 + at;
            if (end <= columns + WIDTH) & inside & (last >= 0) & (column < end) {
                copy(column);
            }
            i += 1;
        }
    }

    /// The same for a slab of f32, one element per lane: a row of a slab is all lanes of a warp.
    #[inline(always)]
    pub(super) unsafe fn copy_f32<const R: usize>(&self, buffer: SharedPtr<C>, columns: u32) {
        /// Rows under way at a time.
        const ROWS: usize = 4;
        const WIDTH: u32 = slab_columns::<f32>();
        let Output { c, problem: Problem { c: [c_product, ldc], m, .. }, .. } = *self.output;
        let c = c.wrapping_add((u64::from(self.product) * c_product) as usize);
        // As in `copy_units`. The loops are unrolled: where they were not, a product waited 4 µs of 29 for shared memory.
        let Pack([lane, ..]) = Pack([self.lane, 0, 0, 0]).forget();
        let (warp, lane) = (lane / 32, lane % 32);
        let column = self.n0 + columns + lane;
        let is_inside = column < self.last_column::<R>();
        let mut first = warp * WARP_ROWS;
        while first < warp * WARP_ROWS + WARP_ROWS {
            let values: [C; ROWS] = array::from_fn(|i| {
                let row = first + i as u32;
                buffer.add(row * WIDTH + ((lane / 4) ^ (row % 8)) * 4 + lane % 4).read()
            });
            let row = self.m0 + first;
            let to = c.wrapping_add((u64::from(row) * ldc + u64::from(column)) as usize);
            let mut i = 0;
            while i < ROWS {
                if (row + (i as u32) < m) & is_inside {
                    *to.wrapping_add(i * ldc as usize) = values[i];
                }
                i += 1;
            }
            first += ROWS as u32;
        }
    }
}
