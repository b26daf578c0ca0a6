//! The epilogue: how a consumer's accumulators become its part of C.

use cuda_std::float::{Element, Half};
use cuda_std::launch::TensorMap;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{fence, math, matrix, thread, tma};

use super::super::Problem;
use super::{BLOCK_N, SLAB_BYTES, STORE_M, WARPGROUP, slab_columns};

/// How results leave, as the host chooses.
pub const DIRECT: u32 = 0;
/// By TMA, which needs β = 0 and rows of C at multiples of 16 bytes that hold whole units of 16 bytes.
pub const TILES: u32 = 1;
/// By TMA, added to what an f32 C holds: β = 1.
pub const ADD: u32 = 2;

/// A consumer's accumulators: `STORE_M` × `BLOCK_N`.
///
/// Lane l of warp w holds rows 16w + l/4 and 8 below it, columns 8j + 2(l mod 4) and the next, in acc[4j..4j + 4].
pub(super) type Accumulators = [f32; (BLOCK_N / 2) as usize];

/// Where a consumer's results go.
pub(super) struct Output<'a, C> {
    pub(super) map: &'a TensorMap,
    pub(super) c: *mut C,
    pub(super) alpha: f32,
    pub(super) problem: Problem,
    pub(super) store: u32,
    /// The consumer's two buffers.
    pub(super) slabs: [SharedPtr<u8>; 2],
    /// The barrier that its threads share.
    pub(super) barrier: u32,
}

impl<C: Element> Output<'_, C> {
    /// Stores a part of product `product` whose first element is at (`m0`, `n0`). Run by the whole warpgroup, of which the caller is `lane`.
    #[inline(always)]
    pub(super) unsafe fn store<T: Half>(&self, acc: &mut Accumulators, lane: u32, [m0, n0, product]: [u32; 3]) {
        if self.alpha != 1.0 {
            let mut i = 0;
            while i < acc.len() {
                acc[i] *= self.alpha;
                i += 1;
            }
        }
        if self.store == DIRECT {
            self.store_direct(acc, lane, [m0, n0, product]);
        } else {
            self.store_tiles::<T>(acc, lane, [m0, n0, product]);
        }
    }

    /// Through two swizzled buffers of 128 bytes a row.
    #[inline(always)]
    unsafe fn store_tiles<T: Half>(&self, acc: &Accumulators, lane: u32, [m0, n0, product]: [u32; 3]) {
        let mut slab = 0;
        while slab < BLOCK_N / slab_columns::<C>() {
            let buffer = self.slabs[slab as usize % 2];
            // The store that last read this buffer was issued two slabs ago.
            if lane == 0 {
                tma::wait_group_read::<1>();
            }
            thread::named_barrier::sync(self.barrier, WARPGROUP);
            if size_of::<C>() == 2 {
                write_half::<T>(buffer.cast(), acc, slab, lane);
            } else {
                write_f32(buffer.cast(), acc, slab, lane);
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
    unsafe fn store_direct(&self, acc: &Accumulators, lane: u32, [m0, n0, product]: [u32; 3]) {
        let Problem { c: [c_product, ldc], m, n, beta, .. } = self.problem;
        let c = self.c.wrapping_add((u64::from(product) * c_product) as usize);
        let pairs = ldc.is_multiple_of(2) && (c as usize).is_multiple_of(2 * size_of::<C>());
        let row = m0 + lane / 32 * 16 + lane % 32 / 4;
        let mut j = 0;
        while j < BLOCK_N / 8 {
            let column = n0 + j * 8 + lane % 4 * 2;
            let mut half = 0;
            while half < 2 {
                let row = row + half * 8;
                let inside = if row < m { n.saturating_sub(column) } else { 0 };
                let at = c.wrapping_add((u64::from(row) * ldc + u64::from(column)) as usize);
                let first = (j * 4 + half * 2) as usize;
                let mut pair = [acc[first], acc[first + 1]];
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
unsafe fn write_half<T: Half>(buffer: SharedPtr<T>, acc: &Accumulators, slab: u32, lane: u32) {
    const COLUMNS: u32 = slab_columns::<u16>();
    // Each of a warp's 32 lanes points stmatrix at one row of one of four 8×8 matrices: rows 0-7 and 8-15 of two
    // neighbouring blocks of eight columns.
    let row = lane / 32 * 16 + lane % 16;
    let right = lane % 32 / 16;
    let mut pair = 0;
    while pair < COLUMNS / 16 {
        let first = ((slab * COLUMNS + pair * 16) / 2) as usize;
        let chunk = (pair * 2 + right) ^ (row % 8);
        matrix::store_x4(
            buffer.add(row * COLUMNS + chunk * 8),
            [
                T::pack(acc[first], acc[first + 1]),
                T::pack(acc[first + 2], acc[first + 3]),
                T::pack(acc[first + 4], acc[first + 5]),
                T::pack(acc[first + 6], acc[first + 7]),
            ],
        );
        pair += 1;
    }
}

/// Writes 32 columns in f32 to a swizzled buffer.
#[inline(always)]
unsafe fn write_f32(buffer: SharedPtr<f32>, acc: &Accumulators, slab: u32, lane: u32) {
    const COLUMNS: u32 = slab_columns::<f32>();
    let row = lane / 32 * 16 + lane % 32 / 4;
    let mut j = 0;
    while j < COLUMNS / 8 {
        // A chunk of 16 bytes is two lanes' pairs; rows 8 apart are swizzled alike.
        let chunk = (j * 2 + lane % 4 / 2) ^ (row % 8);
        let to = buffer.add(row * COLUMNS + chunk * 4 + lane % 2 * 2);
        let first = ((slab * COLUMNS + j * 8) / 2) as usize;
        Pack([acc[first], acc[first + 1]]).store(to.as_ptr());
        Pack([acc[first + 2], acc[first + 3]]).store(to.add(8 * COLUMNS).as_ptr());
        j += 1;
    }
}

const _: () = assert!(STORE_M * slab_columns::<u16>() * 2 == SLAB_BYTES);
