//! The epilogue: converts a consumer's accumulators to its part of C.

mod copy;
mod swapped;

use core::hint::cold_path;
use core::{array, mem};

use cuda_std::float::Element;
use cuda_std::launch::TensorMap;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{fence, math, matrix, tma, warp};

use super::super::Problem;
use super::super::epilogue::{Epilogue, Four, Sum};
use super::{SLAB_BYTES, STORE_M, Tile, slab_columns};

/// How results are stored, as the host chooses: one at a time.
pub const DIRECT: u32 = 0;
/// In units of 16 bytes, which needs β = 0 and rows of C at multiples of 16 bytes that hold whole units: by ordinary stores.
/// Blocks with a single tile end without waiting for these.
pub const UNITS: u32 = 1;
/// In such units by TMA, which goes on while the next tile is multiplied.
pub const TILES: u32 = 2;
/// By TMA, added to what an f32 C holds: β = 1.
pub const ADD: u32 = 3;

/// The destination of a consumer's results.
///
/// Its sums are of [`STORE_M`] rows and two columns for each of `R` registers, or of half as many where the epilogue makes one result of two. Lane l of warp w holds rows 16w + l/4 and 8 below it, columns
/// 8j + 2(l mod 4) and the next, in acc[4j..4j + 4].
pub(in super::super) struct Output<'a, C, E> {
    pub(super) map: &'a TensorMap,
    pub(super) c: *mut C,
    pub(in super::super) epilogue: E,
    pub(in super::super) problem: Problem,
    pub(super) store: u32,
    /// The consumer's two buffers.
    pub(super) slabs: [SharedPtr<u8>; 2],
    /// The barrier that its threads share.
    pub(in super::super) barrier: u32,
}

/// Rows of a consumer's sums that a warp has, and stores by TMA at a time.
pub const WARP_ROWS: u32 = 16;
/// Rows of C that TMA stores at a time where operands are swapped: tiles may have this many more than a multiple of [`WARP_ROWS`].
pub const SWAPPED_ROWS: u32 = 8;
/// Columns whose reads are under way while the ones before are computed.
const AHEAD: u32 = 64;
/// Pairs of columns of a thread among them.
const PAIRS: usize = (AHEAD / 8) as usize;

/// Repeats `$body` for `$i` of 0 to 3. The compiler does not unroll large loops, but registers cannot be indexed by a
/// loop counter.
macro_rules! four_times {
    (|$i:ident| $body:expr) => {{
        {
            let $i = 0;
            $body
        }
        {
            let $i = 1;
            $body
        }
        {
            let $i = 2;
            $body
        }
        {
            let $i = 3;
            $body
        }
    }};
}

use four_times;

/// A part of C whose sums are to be stored; the epilogue's data for its first columns is being read.
pub(in super::super) struct Part<'a, C, E: Epilogue> {
    output: &'a Output<'a, C, E>,
    lane: u32,
    /// Of the part's first element, and the product.
    m0: u32,
    n0: u32,
    product: u32,
    /// Where rows end before C does, which then is one that TMA stores.
    end: Option<u32>,
    /// What the columns of the thread's two rows share.
    rows: [E::Row; 2],
    /// The thread's first.
    row: u32,
    column: u32,
    ahead: [E::Read; PAIRS],
}

impl<C: Element, E: Epilogue> Output<'_, C, E> {
    /// The part of the block's tile that is a consumer's, for `lane` of it, all of which have to store it.
    #[inline(always)]
    pub(in super::super) unsafe fn part(&self, lane: u32, consumer: u32, tile: Tile) -> Part<'_, C, E> {
        let Tile { row, column: n0, product, end, .. } = tile;
        let m0 = row + consumer * STORE_M;
        let (row, column) = (m0 + lane / 32 * 16 + lane % 32 / 4, n0 + lane % 4 * 2);
        let rows = [self.epilogue.row(row), self.epilogue.row(row + 8)];
        let ahead = self.epilogue.read(rows, column);
        Part { output: self, lane, m0, n0, product, end, rows, row, column, ahead }
    }

    /// Waits until TMA has read shared memory, which is released when the block ends.
    #[inline(always)]
    pub(in super::super) unsafe fn finish(&self, lane: u32) {
        if lane.is_multiple_of(32) {
            tma::wait_group_read::<0>();
        }
    }
}

impl<C: Element, E: Epilogue> Part<'_, C, E> {
    /// Columns of `sums` sums.
    const fn width(sums: usize) -> u32 {
        2 * sums as u32 / if E::PAIRED { 2 } else { 1 }
    }

    /// Times that [`AHEAD`] of them are stored, or what is left of them.
    const fn blocks(sums: usize) -> usize {
        Self::width(sums).div_ceil(AHEAD) as usize
    }

    /// Whether any columns are left after the first `columns`, a multiple of 16.
    const fn has(sums: usize, columns: u32) -> bool {
        columns < Self::width(sums)
    }

    /// Whether a tile cannot simply continue the alternation of the two buffers: because the number of slabs is odd, or
    /// because TMA does not store the last one.
    const fn begins_anew(sums: usize) -> bool {
        !Self::width(sums).is_multiple_of(2 * slab_columns::<C>())
    }

    /// Whether the next tile begins with the buffer that this one ends with.
    const fn ends_with_first(sums: usize) -> bool {
        !Self::width(sums).div_ceil(slab_columns::<C>()).is_multiple_of(2)
    }

    /// Stores it.
    #[inline(always)]
    pub(in super::super) unsafe fn store<S: Sum, const R: usize>(self, acc: &mut [S; R]) {
        let factor = self.output.epilogue.factor();
        if factor != 1.0 {
            cold_path();
            let mut i = 0;
            while i < R {
                acc[i] = acc[i].times(factor);
                i += 1;
            }
        }
        let Output { problem: Problem { beta, .. }, store, .. } = *self.output;
        // What is rare is last here, so that it does not lie between what is frequent: in a short kernel, jumps to instructions
        // that have not been read yet take longer than these.
        let reads_c = !E::SWAPPED & (store == DIRECT) & (beta != 0.0);
        if !reads_c {
            let mut ahead = self.ahead;
            four_times!(|block| {
                if block < Self::blocks(R) {
                    let (columns, mut read) = (block as u32 * AHEAD, ahead);
                    if block + 1 < Self::blocks(R) {
                        read = mem::replace(
                            &mut ahead,
                            self.output.epilogue.read(self.rows, self.column + columns + AHEAD),
                        );
                    }
                    if E::SWAPPED {
                        self.store_swapped(acc, columns, read);
                    } else {
                        self.store_tiles(acc, columns, read);
                    }
                }
            });
        } else {
            cold_path();
            four_times!(|block| {
                if block < Self::blocks(R) {
                    self.store_direct(acc, block as u32 * AHEAD);
                }
            });
        }
    }

    /// The results of `N` pairs of columns from `columns` on.
    #[inline(always)]
    unsafe fn results<S: Sum, const R: usize, const N: usize>(
        &self,
        acc: &[S; R],
        columns: u32,
        read: [E::Read; N],
    ) -> [Four<f32>; N] {
        let first = columns as usize / 2;
        // The epilogue is applied to a sum where the sum is used, and not to all at once: there are no registers for
        // that.
        let sums = |first: usize| {
            array::from_fn(|i| {
                // Of blocks of 8 columns an odd one out is stored with another that is not.
                let at = (first + 4 * i).min(R - 4);
                let Pack(sums) = Pack([acc[at], acc[at + 1], acc[at + 2], acc[at + 3]]).forget();
                let [a, b, c, d] = sums.map(if E::RAW { S::bits } else { S::to_f32 });
                [[a, b], [c, d]]
            })
        };
        let mut all = sums(first);
        if E::PAIRED {
            all = self.output.epilogue.join(all, sums(first + R / 2));
        }
        self.output.epilogue.apply(self.rows, self.column + columns, read, all)
    }

    /// Columns from `columns` on, through the warp's 16 rows of 128 bytes of the two swizzled buffers in turn.
    #[inline(always)]
    unsafe fn store_tiles<S: Sum, const R: usize>(&self, acc: &[S; R], columns: u32, read: [E::Read; PAIRS]) {
        let Output { map, store, slabs, .. } = *self.output;
        let (is_direct, by_tma) = (store == DIRECT, store >= TILES);
        let mut slab = 0;
        // The last columns of a tile may be fewer slabs.
        while slab < AHEAD / slab_columns::<C>() && columns + slab * slab_columns::<C>() < Self::width(R) {
            let column = slab * slab_columns::<C>();
            let number = (columns + column) / slab_columns::<C>();
            let buffer = slabs[number as usize % 2];
            let is_rest = columns + column + slab_columns::<C>() > Self::width(R);
            // The store that last read this buffer was issued two slabs ago, or, where a tile begins anew, before this
            // tile: then the first slab waits for both buffers.
            let (first, second) = (number == 0, number == 1);
            if by_tma & !(Self::begins_anew(R) & second) {
                if self.lane.is_multiple_of(32) {
                    if Self::begins_anew(R) && first {
                        tma::wait_group_read::<0>();
                    } else {
                        tma::wait_group_read::<1>();
                    }
                }
                warp::sync(u32::MAX);
            } else if Self::ends_with_first(R) && first {
                warp::sync(u32::MAX);
            }
            if size_of::<C>() == 2 {
                self.write_half(buffer.cast(), acc, columns, read);
            } else {
                self.write_f32(buffer.cast(), acc, columns, column, read);
            }
            if by_tma & !is_rest {
                fence::proxy_async_shared();
            }
            warp::sync(u32::MAX);
            // TMA would store what is behind the tile's columns, or behind the end of its rows.
            let row = self.lane / 32 * WARP_ROWS;
            let ends = self.end.is_some_and(|end| self.m0 + row + WARP_ROWS > end);
            if !is_direct & !(by_tma & !is_rest & !ends) {
                self.copy_units::<R>(buffer.cast(), columns + column);
            } else if !is_direct {
                if self.lane.is_multiple_of(32) {
                    let to = [(self.n0 + columns + column) as i32, (self.m0 + row) as i32, self.product as i32];
                    let from = buffer.add(row * 128);
                    if size_of::<C>() == 4 && store == ADD {
                        tma::add_3d(map, to, from);
                    } else {
                        tma::store_3d(map, to, from);
                    }
                }
            } else {
                cold_path();
                if size_of::<C>() == 2 {
                    self.copy_halves::<R>(buffer.cast(), slabs[(number as usize + 1) % 2].cast(), columns + column);
                    // The last unit of the slab before has been read, which the next slab overwrites unless it ends before that.
                    let left = Self::width(R).saturating_sub(columns + column + slab_columns::<C>());
                    let overwrites = if left == 0 { !Self::ends_with_first(R) } else { left >= slab_columns::<C>() };
                    if number != 0 && overwrites {
                        warp::sync(u32::MAX);
                    }
                } else {
                    self.copy_f32::<R>(buffer.cast(), columns + column);
                }
            }
            // One group per slab, even if empty: the wait above counts groups.
            if by_tma & !is_rest & self.lane.is_multiple_of(32) {
                tma::commit_group();
            }
            slab += 1;
        }
    }

    /// Columns from `columns` on, from registers: for C whose rows TMA cannot address, and any β.
    #[inline(always)]
    unsafe fn store_direct<S: Sum, const R: usize>(&self, acc: &[S; R], columns: u32) {
        let Output { c, problem: Problem { c: [c_product, ldc], m, n, beta, .. }, .. } = *self.output;
        let c = c.wrapping_add((u64::from(self.product) * c_product) as usize);
        let pairs = ldc.is_multiple_of(2) && (c as usize).is_multiple_of(2 * size_of::<C>());
        let store = |row: u32, column: u32, mut pair: [f32; 2]| {
            let inside = if row < m { n.saturating_sub(column) } else { 0 };
            let at = c.wrapping_add((u64::from(row) * ldc + u64::from(column)) as usize);
            let mut e = 0;
            while e < 2 {
                if beta != 0.0 && (e as u32) < inside {
                    pair[e] = math::fma(beta, (*at.wrapping_add(e)).to_f32(), pair[e]);
                }
                e += 1;
            }
            if pairs && inside >= 2 {
                Pack::<C, 2>::from_f32(pair).store(at);
            } else {
                if inside >= 1 {
                    *at = C::from_f32(pair[0]);
                }
                if inside >= 2 {
                    *at.wrapping_add(1) = C::from_f32(pair[1]);
                }
            }
        };
        four_times!(|quarter| {
            let columns = columns + quarter * 16;
            if Self::has(R, columns) {
                let column = self.column + columns;
                let [left, right] = self.results(acc, columns, self.output.epilogue.read(self.rows, column));
                store(self.row, column, left[0]);
                store(self.row + 8, column, left[1]);
                store(self.row, column + 8, right[0]);
                store(self.row + 8, column + 8, right[1]);
            }
        });
    }

    /// Writes 64 columns in 16 bits, or what is left of them, to a swizzled buffer.
    #[inline(always)]
    unsafe fn write_half<S: Sum, const R: usize>(
        &self,
        buffer: SharedPtr<C>,
        acc: &[S; R],
        columns: u32,
        read: [E::Read; PAIRS],
    ) {
        const COLUMNS: u32 = slab_columns::<u16>();
        // Each of a warp's 32 lanes points stmatrix at one row of one of four 8×8 matrices: rows 0-7 and 8-15 of two
        // neighbouring blocks of eight columns.
        let row = self.lane / 32 * 16 + self.lane % 16;
        let right = self.lane % 32 / 16;
        four_times!(|quarter| {
            let j: usize = 2 * quarter;
            let columns = columns + j as u32 * 8;
            if Self::has(R, columns) {
                let results = self.results(acc, columns, [read[j], read[j + 1]]);
                let [[a, b], [c, d]] =
                    results.map(|rows| rows.map(|pair| mem::transmute_copy(&Pack::<C, 2>::from_f32(pair))));
                let chunk = (j as u32 + right) ^ (row % 8);
                matrix::store_x4(buffer.add(row * COLUMNS + chunk * 8), [a, b, c, d]);
            }
        });
    }

    /// Writes 32 columns from `column` of those that were read for on in f32 to a swizzled buffer.
    #[inline(always)]
    unsafe fn write_f32<S: Sum, const R: usize>(
        &self,
        buffer: SharedPtr<f32>,
        acc: &[S; R],
        columns: u32,
        column: u32,
        read: [E::Read; PAIRS],
    ) {
        const COLUMNS: u32 = slab_columns::<f32>();
        let row = self.lane / 32 * 16 + self.lane % 32 / 4;
        four_times!(|j| {
            // A chunk of 16 bytes is two lanes' pairs; rows 8 apart are swizzled alike.
            let chunk = (j * 2 + self.lane % 4 / 2) ^ (row % 8);
            let to = buffer.add(row * COLUMNS + chunk * 4 + self.lane % 2 * 2);
            let column = column + j * 8;
            let [[upper, lower]] = self.results(acc, columns + column, [read[column as usize / 8]]);
            Pack(upper).store(to.as_ptr());
            Pack(lower).store(to.add(8 * COLUMNS).as_ptr());
        });
    }
}

const _: () = assert!(STORE_M * slab_columns::<u16>() * 2 == SLAB_BYTES && AHEAD == slab_columns::<u16>());
