//! The epilogue: how a consumer's accumulators become its part of C.

use core::mem;

use cuda_std::float::Element;
use cuda_std::launch::TensorMap;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{fence, math, matrix, thread, tma};

use super::super::Problem;
use super::super::epilogue::{Epilogue, Sum};
use super::{SLAB_BYTES, STORE_M, WARPGROUP, slab_columns};

/// How results leave, as the host chooses.
pub const DIRECT: u32 = 0;
/// By TMA, which needs β = 0 and rows of C at multiples of 16 bytes that hold whole units of 16 bytes.
pub const TILES: u32 = 1;
/// By TMA, added to what an f32 C holds: β = 1.
pub const ADD: u32 = 2;

/// Where a consumer's results go.
///
/// Its sums are of [`STORE_M`] rows and two columns for each of `R` registers. Lane l of warp w holds rows 16w + l/4 and 8 below it, columns
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
    pub(super) barrier: u32,
}

/// A thread's sums, which the epilogue is applied to when they are asked for: what it reads for them is not held either.
#[derive(Clone, Copy)]
struct Sums<'a, E: Epilogue, S, const R: usize> {
    epilogue: &'a E,
    acc: &'a [S; R],
    /// Of the thread's two rows.
    rows: [E::Row; 2],
    /// The thread's first.
    row: u32,
    column: u32,
}

impl<E: Epilogue, S: Sum, const R: usize> Sums<'_, E, S, R> {
    /// Those in four registers from `first` on: two columns of the thread's first row, and of the second.
    #[inline(always)]
    unsafe fn four(self, first: usize) -> [[f32; 2]; 2] {
        let acc = self.acc;
        // What becomes of a sum is computed where it is used, and not of all at once: there are no registers for that.
        let Pack(sums) = Pack([acc[first], acc[first + 1], acc[first + 2], acc[first + 3]]).forget();
        let [a, b, c, d] = sums.map(S::to_f32);
        let column = self.column + first as u32 / 4 * 8;
        [self.epilogue.apply(self.rows[0], column, [a, b]), self.epilogue.apply(self.rows[1], column, [c, d])]
    }

    /// The same as two registers of two elements, which have 16 bits.
    #[inline(always)]
    unsafe fn packed<C: Element>(self, first: usize) -> [u32; 2] {
        self.four(first).map(|pair| mem::transmute_copy(&Pack::<C, 2>::from_f32(pair)))
    }
}

impl<C: Element, E: Epilogue> Output<'_, C, E> {
    /// Stores a part of product `product` whose first element is at (`m0`, `n0`). Run by the whole warpgroup, of which the caller is `lane`.
    #[inline(always)]
    pub(in super::super) unsafe fn store<S: Sum, const R: usize>(
        &self,
        acc: &mut [S; R],
        lane: u32,
        [m0, n0, product]: [u32; 3],
    ) {
        let factor = self.epilogue.factor();
        if factor != 1.0 {
            let mut i = 0;
            while i < R {
                acc[i] = acc[i].times(factor);
                i += 1;
            }
        }
        if self.store == DIRECT {
            self.store_direct(acc, lane, [m0, n0, product]);
        } else {
            self.store_tiles(acc, lane, [m0, n0, product]);
        }
    }

    /// The sums of `lane`, of the part whose first element is at (`m0`, `n0`).
    #[inline(always)]
    unsafe fn sums<'a, S, const R: usize>(
        &'a self,
        acc: &'a [S; R],
        lane: u32,
        [m0, n0]: [u32; 2],
    ) -> Sums<'a, E, S, R> {
        let row = m0 + lane / 32 * 16 + lane % 32 / 4;
        let rows = [self.epilogue.row(row), self.epilogue.row(row + 8)];
        Sums { epilogue: &self.epilogue, acc, rows, row, column: n0 + lane % 4 * 2 }
    }

    /// Shared memory goes with the block: waits until the stores have read it.
    #[inline(always)]
    pub(in super::super) unsafe fn finish(&self, lane: u32) {
        if lane == 0 {
            tma::wait_group_read::<0>();
        }
    }

    /// Through two swizzled buffers of 128 bytes a row.
    #[inline(always)]
    unsafe fn store_tiles<S: Sum, const R: usize>(&self, acc: &[S; R], lane: u32, [m0, n0, product]: [u32; 3]) {
        let sums = self.sums(acc, lane, [m0, n0]);
        let mut slab = 0;
        while slab < 2 * R as u32 / slab_columns::<C>() {
            let buffer = self.slabs[slab as usize % 2];
            // The store that last read this buffer was issued two slabs ago.
            if lane == 0 {
                tma::wait_group_read::<1>();
            }
            thread::named_barrier::sync(self.barrier, WARPGROUP);
            if size_of::<C>() == 2 {
                write_half::<C, E, S, R>(buffer.cast(), sums, slab, lane);
            } else {
                write_f32(buffer.cast(), sums, slab, lane);
            }
            fence::proxy_async_shared();
            thread::named_barrier::sync(self.barrier, WARPGROUP);
            if lane == 0 {
                let to = [(n0 + slab * slab_columns::<C>()) as i32, m0 as i32, product as i32];
                if size_of::<C>() == 4 && self.store == ADD {
                    tma::add_3d(self.map, to, buffer);
                } else {
                    tma::store_3d(self.map, to, buffer);
                }
                tma::commit_group();
            }
            slab += 1;
        }
    }

    /// From registers: for C whose rows TMA cannot address, and any β.
    #[inline(always)]
    unsafe fn store_direct<S: Sum, const R: usize>(&self, acc: &[S; R], lane: u32, [m0, n0, product]: [u32; 3]) {
        let sums = self.sums(acc, lane, [m0, n0]);
        let Problem { c: [c_product, ldc], m, n, beta, .. } = self.problem;
        let c = self.c.wrapping_add((u64::from(product) * c_product) as usize);
        let pairs = ldc.is_multiple_of(2) && (c as usize).is_multiple_of(2 * size_of::<C>());
        let mut j = 0;
        while j < R as u32 / 4 {
            let column = sums.column + j * 8;
            let pairs_of_rows = sums.four((j * 4) as usize);
            let mut half = 0;
            while half < 2 {
                let row = sums.row + half * 8;
                let inside = if row < m { n.saturating_sub(column) } else { 0 };
                let at = c.wrapping_add((u64::from(row) * ldc + u64::from(column)) as usize);
                let mut pair = pairs_of_rows[half as usize];
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
                half += 1;
            }
            j += 1;
        }
    }
}

/// Writes 64 columns in 16 bits to a swizzled buffer.
#[inline(always)]
unsafe fn write_half<C: Element, E: Epilogue, S: Sum, const R: usize>(
    buffer: SharedPtr<C>,
    sums: Sums<'_, E, S, R>,
    slab: u32,
    lane: u32,
) {
    const COLUMNS: u32 = slab_columns::<u16>();
    // Each of a warp's 32 lanes points stmatrix at one row of one of four 8×8 matrices: rows 0-7 and 8-15 of two
    // neighbouring blocks of eight columns.
    let row = lane / 32 * 16 + lane % 16;
    let right = lane % 32 / 16;
    let mut pair = 0;
    while pair < COLUMNS / 16 {
        let first = ((slab * COLUMNS + pair * 16) / 2) as usize;
        let chunk = (pair * 2 + right) ^ (row % 8);
        let ([a, b], [c, d]) = (sums.packed::<C>(first), sums.packed::<C>(first + 4));
        matrix::store_x4(buffer.add(row * COLUMNS + chunk * 8), [a, b, c, d]);
        pair += 1;
    }
}

/// Writes 32 columns in f32 to a swizzled buffer.
#[inline(always)]
unsafe fn write_f32<E: Epilogue, S: Sum, const R: usize>(
    buffer: SharedPtr<f32>,
    sums: Sums<'_, E, S, R>,
    slab: u32,
    lane: u32,
) {
    const COLUMNS: u32 = slab_columns::<f32>();
    let row = lane / 32 * 16 + lane % 32 / 4;
    let mut j = 0;
    while j < COLUMNS / 8 {
        // A chunk of 16 bytes is two lanes' pairs; rows 8 apart are swizzled alike.
        let chunk = (j * 2 + lane % 4 / 2) ^ (row % 8);
        let to = buffer.add(row * COLUMNS + chunk * 4 + lane % 2 * 2);
        let first = ((slab * COLUMNS + j * 8) / 2) as usize;
        let [upper, lower] = sums.four(first);
        Pack(upper).store(to.as_ptr());
        Pack(lower).store(to.add(8 * COLUMNS).as_ptr());
        j += 1;
    }
}

const _: () = assert!(STORE_M * slab_columns::<u16>() * 2 == SLAB_BYTES);
