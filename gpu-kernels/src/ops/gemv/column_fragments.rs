//! Products of a column-major matrix with several vectors on tensor cores: fragments of 16 rows and eight vectors.
//!
//! A lane has packs of four columns at the same rows. The assignment of columns to a fragment, and their order, is the
//! same for matrix and vectors, and the assignment of rows is undone when sums are stored. So a lane's elements of two
//! columns become pairs, and those of two rows of a pack become a fragment's upper and lower half.

use core::array;

use cuda_std::float::{Element, Half};
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{mma, thread, warp};

use super::{BLOCK, Columns, STRIP, VECTORS, WARPS};

/// Rows of a block.
pub(super) const ROWS: usize = 128;
/// Columns of a lane, of which four lanes have a fragment's 16.
const COLUMNS: usize = 4;
/// Sums of a lane: of a 32nd of the block's rows and vectors.
const SUMS: usize = ROWS * VECTORS / 32;
/// The most packs of a column that a lane has.
const PACKS: usize = 2;
/// Packs that a lane has in flight.
const LOADS: usize = 8;

impl<A: Copy, T: Element> Columns<A, T> {
    /// This block's [`ROWS`] rows and its part of the columns times up to eight vectors, which are of `H`: [`Columns::multiply`] otherwise.
    /// `pairs` makes of two columns' packs of `N` elements of A the pairs of `H` that stand for two rows, from 2 times a number on.
    ///
    /// A warp has every eighth stretch of the columns; sums are those of the tensor cores, and then of the warps in order.
    #[inline(always)]
    pub(crate) unsafe fn multiply_by_fragments<H: Half, const N: usize>(
        self,
        pairs: impl Fn([Pack<u32, 4>; 2], usize) -> [u32; 2],
    ) {
        // Packs of a column that a lane has, and stretches of 16 columns that it has in flight.
        let of_column = const { ROWS / (8 * N) };
        let groups = LOADS / COLUMNS / of_column;
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        let (group, along) = (lane as usize / COLUMNS, lane as usize % COLUMNS);
        let first_row = thread::block_idx_x() as usize * ROWS;
        let first_vector = thread::block_idx_z() * VECTORS as u32;
        // Vectors past the last are replaced by the last one, and not stored; the same holds for rows.
        let vector = (first_vector + group as u32).min(self.batch - 1);
        let x = self.x.add((u64::from(vector) * self.x_stride) as usize);
        let a: [*const A; PACKS] = array::from_fn(|pack| {
            let row = first_row + (pack * 8 + group) * N;
            self.a.add(row.min(self.m as usize - N))
        });
        let start = thread::block_idx_y() * self.part;
        let end = (start + self.part).min(self.n);
        let stretch = (groups * 4 * COLUMNS) as u32;
        let along = (along * COLUMNS) as u32;
        let mut sums = [[0.0; 4]; SUMS / 4];
        let mut first = start + warp * stretch;
        // No load of the main loop is conditional, so that all are in flight before the first is waited for.
        while first + stretch <= end {
            self.stretch::<H, N, true>(a, x, [first + along, end], &mut sums, &pairs);
            first += WARPS * stretch;
        }
        if first < end {
            self.stretch::<H, N, false>(a, x, [first + along, end], &mut sums, &pairs);
        }
        // This is not a loop, because the indices of the sums have to be known at compile time.
        macro_rules! store {
            ($($strip:literal)*) => { $(
                if $strip * N < SUMS {
                    self.store::<N, $strip>(&sums);
                }
            )* };
        }
        store!(0 1 2 3);
    }

    /// Adds `N` of the lanes' sums over the warps, and stores them.
    #[inline(always)]
    unsafe fn store<const N: usize, const INDEX: usize>(&self, sums: &[[f32; 4]; SUMS / 4]) {
        let sum = INDEX * N;
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        let first_row = thread::block_idx_x() as usize * ROWS;
        let first_vector = thread::block_idx_z() * VECTORS as u32;
        let strips: SharedPtr<f32> = shared::dynamic();
        let width = STRIP * N as u32;
        if sum > 0 {
            // The sums written before are about to be overwritten.
            thread::sync_threads();
        }
        for i in 0..N {
            strips.add(warp * width + i as u32 * STRIP + lane).write(sums[(sum + i) / 4][i % 4]);
        }
        thread::sync_threads();
        for place in (0..width).step_by(BLOCK as usize).map(|first| first + thread::thread_idx_x()) {
            // Which of a lane's sums this is, of which lane.
            let (i, lane) = (sum + (place / STRIP) as usize, place % STRIP);
            let (product, e) = (i / 4, i % 4);
            let pack = product / (N / 2) * 8 + lane as usize / COLUMNS;
            let row = (first_row + pack * N + product % (N / 2) * 2 + e / 2) as u64;
            let vector = first_vector + lane % COLUMNS as u32 * 2 + e as u32 % 2;
            if place < width && row < self.m && vector < self.batch {
                let total = (0..WARPS).fold(0.0, |total, warp| total + strips.add(warp * width + place).read());
                let part = u64::from(thread::block_idx_y()) * u64::from(self.batch) + u64::from(vector);
                *self.parts.add((part * self.m + row) as usize) = total;
            }
        }
    }

    /// Adds the products of [`LOADS`] packs: of [`COLUMNS`] columns from `first` on, and as many 16 columns further on; unless `WHOLE`, of those of them
    /// that are below the end.
    #[inline(always)]
    unsafe fn stretch<H: Half, const N: usize, const WHOLE: bool>(
        &self,
        a: [*const A; PACKS],
        x: *const T,
        [first, end]: [u32; 2],
        sums: &mut [[f32; 4]; SUMS / 4],
        pairs: &impl Fn([Pack<u32, 4>; 2], usize) -> [u32; 2],
    ) {
        let of_column = const { ROWS / (8 * N) };
        let groups = LOADS / COLUMNS / of_column;
        // The columns in the order of their loads: all packs of a column, all columns of a group.
        let column = |i: usize| first + (i / COLUMNS * 4 * COLUMNS + i % COLUMNS) as u32;
        let inside = |i: usize| WHOLE || column(i) < end;
        // Past the end both sides are zero; the address is that of any existing column.
        let at = |i: usize| if inside(i) { column(i) } else { 0 };
        let loaded: [Pack<u32, 4>; LOADS] = array::from_fn(|load| {
            let i = load / of_column;
            let from = a[load % of_column].add((u64::from(at(i)) * self.a_stride) as usize);
            let pack = Pack::load_nc_no_allocate_ahead(from.cast());
            if inside(i) { pack } else { Pack([0; 4]) }
        });
        let values: [u32; LOADS] = array::from_fn(|i| {
            let value = if i < groups * COLUMNS { u32::from(*x.add(at(i) as usize).cast::<u16>()) } else { 0 };
            if inside(i) { value } else { 0 }
        });
        // This is not a loop, because the indices of the sums have to be known at compile time.
        macro_rules! products {
            ($($product:literal)*) => { $(
                if $product / (SUMS / 4) < groups {
                    product::<H, N, $product>(&loaded, &values, &mut sums[$product % (SUMS / 4)], pairs);
                }
            )* };
        }
        products!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
}

/// One of the products of [`LOADS`] packs: of a group of 16 columns, and of two rows of a lane's pack.
#[inline(always)]
unsafe fn product<H: Half, const N: usize, const PRODUCT: usize>(
    loaded: &[Pack<u32, 4>; LOADS],
    values: &[u32; LOADS],
    sums: &mut [f32; 4],
    pairs: &impl Fn([Pack<u32, 4>; 2], usize) -> [u32; 2],
) {
    let of_column = const { ROWS / (8 * N) };
    let (group, pack, i) = (PRODUCT / (SUMS / 4), PRODUCT / (N / 2) % of_column, PRODUCT % (N / 2));
    let of = |column: usize| values[group * COLUMNS + column];
    let x = [of(0) | of(1) << 16, of(2) | of(3) << 16];
    let of = |column: usize| loaded[(group * COLUMNS + column) * of_column + pack];
    let (left, right) = (pairs([of(0), of(1)], i), pairs([of(2), of(3)], i));
    mma::m16n8k16::<H>(sums, [left[0], left[1], right[0], right[1]], x);
}
