//! Product of a matrix with a vector, or with a few of them, y = A·x.
//!
//! # Math
//! y[b, i] = Σⱼ A[i, j] · x[b, j].
//!
//! # Layout
//! A is m × n, row-major ([`gemv`]) or column-major ([`gemv_columns`]) with rows or columns that may be padded; `x` is batch × n and `y`
//! batch × m, rows of which may be padded. Packs of 16 bytes (`PACKED`) where they divide what is adjacent in A and everything lies at such
//! multiples.
//!
//! # Mapping
//! [`gemv`]: a block of 256 threads multiplies one row with one vector, four packs a thread in flight, or four rows with up to eight
//! vectors, a pack of each row in flight. [`gemv_columns`]: a block takes a strip of 32 packs of columns and a part of the rows, a
//! warp every eighth of these, eight packs a thread in flight; [`gemv_sum`] adds the parts. There are as many parts as fill the
//! device.
//!
//! # Shared memory
//! [`gemv`]: a partial sum of each warp, 1 KiB. [`gemv_columns`]: the strip of each warp, 8 KiB.
//!
//! # Numerics
//! f32 products and sums in a fixed order, one rounding to the storage type: results are reproducible bit by bit.
//!
//! # Cost
//! The bytes of A once, 2 FLOPs an element and vector: bound by memory bandwidth. The vectors come from L1 and L2; with eight vectors
//! four rows share each reading of them. The parts of [`gemv_columns`] are 8 bytes for each m and part.
//!
//! # Limits
//! m below 2³², 2³¹ − 1 blocks, 65535 times eight vectors.
//!
//! # Sources
//! Dongarra et al., "An extended set of FORTRAN basic linear algebra subprograms" (1988): GEMV.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{kernel, thread, warp};

pub use super::{BLOCK, Partials, VECTORS, rows_per_block};
use super::{Rows, WARPS, load};
use crate::lanes;

/// Row-major A times up to `B` vectors a block.
///
/// # Safety
/// `a` is valid for reads of `m` × `n`, `x` of `batch` × `n`, `y` for writes of `batch` × `m` elements at their strides; m is not 0, y of the
/// grid covers `batch` by `B`; with `PACKED` all rows are at multiples of 16 bytes and 16-byte packs divide `n`.
#[kernel(
    dtypes(T: float),
    values(B: 1, 8, PACKED: false, true),
    where(PACKED || B == 1),
    block = BLOCK,
    min_blocks = if B == 1 { 4 } else { 2 },
    shared = Partials,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemv<T: Element, const B: usize, const PACKED: bool>(
    a: *const T,
    x: *const T,
    y: *mut T,
    m: u32,
    n: u64,
    batch: u32,
    a_stride: u64,
    x_stride: u64,
    y_stride: u64,
) {
    let rows = Rows { a, x, scales: core::ptr::null(), y, m, n, batch, a_stride, x_stride, y_stride };
    match (B, if PACKED { lanes::<T>() } else { 1 }) {
        (1, 1) => rows.multiply::<1, 1, 1, 4>(T::to_f32),
        (1, 4) => rows.multiply::<4, 1, 1, 4>(T::to_f32),
        (1, _) => rows.multiply::<8, 1, 1, 4>(T::to_f32),
        (_, 4) => rows.multiply::<4, 8, 4, 1>(T::to_f32),
        _ => rows.multiply::<8, 8, 4, 1>(T::to_f32),
    }
}

/// Packs of a strip, one a lane.
pub const STRIP: u32 = 32;

/// Column-major A times up to `B` vectors a block, into `parts`: for each part of `part` columns of A (that is, elements of `x`), each vector
/// and each element of `y`, a sum.
///
/// # Safety
/// `a` is valid for reads of `n` columns of `m` elements, `x` of `batch` × `n`, `parts` for writes of as many sums as said; y of the grid
/// counts the parts and z covers `batch` by `B`; with `PACKED` all columns are at multiples of 16 bytes and 16-byte packs divide `m`.
#[kernel(
    dtypes(T: float),
    values(B: 1, 8, PACKED: false, true),
    where(PACKED || B == 1),
    block = BLOCK,
    min_blocks = if B == 1 { 4 } else { 1 },
    shared = { (BLOCK * 32) as usize },
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemv_columns<T: Element, const B: usize, const PACKED: bool>(
    a: *const T,
    x: *const T,
    parts: *mut f32,
    m: u64,
    n: u32,
    batch: u32,
    part: u32,
    a_stride: u64,
    x_stride: u64,
) {
    match (B, if PACKED { lanes::<T>() } else { 1 }) {
        (1, 1) => multiply_columns::<T, 1, 1, 8>(a, x, parts, m, n, batch, part, a_stride, x_stride),
        (1, 4) => multiply_columns::<T, 4, 1, 8>(a, x, parts, m, n, batch, part, a_stride, x_stride),
        (1, _) => multiply_columns::<T, 8, 1, 8>(a, x, parts, m, n, batch, part, a_stride, x_stride),
        (_, 4) => multiply_columns::<T, 4, 8, 8>(a, x, parts, m, n, batch, part, a_stride, x_stride),
        _ => multiply_columns::<T, 8, 8, 8>(a, x, parts, m, n, batch, part, a_stride, x_stride),
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn multiply_columns<T: Element, const N: usize, const B: usize, const U: usize>(
    a: *const T,
    x: *const T,
    parts: *mut f32,
    m: u64,
    n: u32,
    batch: u32,
    part: u32,
    a_stride: u64,
    x_stride: u64,
) {
    let (tid, lane, warp) = (thread::thread_idx_x(), warp::lane_id(), warp::warp_id());
    let strip = u64::from(thread::block_idx_x()) * u64::from(STRIP) * N as u64;
    let row = strip + u64::from(lane) * N as u64;
    let first_vector = thread::block_idx_z() * B as u32;
    let vectors = batch - first_vector;
    let x = x.add((u64::from(first_vector) * x_stride) as usize);
    let start = thread::block_idx_y() * part;
    let end = (start + part).min(n);
    // Lanes beyond the last row read what is there, and store nothing.
    let a = a.add(row.min(m - N as u64) as usize);
    let mut sums = [[0.0; N]; B];
    let mut first = start + warp;
    // No load of the main loop has a condition, so that all are under way before the first is waited for.
    while first + (U as u32 - 1) * WARPS < end {
        add_columns::<T, N, B, U>(a, x, vectors, first, a_stride, x_stride, &mut sums);
        first += U as u32 * WARPS;
    }
    while first < end {
        add_columns::<T, N, B, 1>(a, x, vectors, first, a_stride, x_stride, &mut sums);
        first += WARPS;
    }
    let strips: SharedPtr<f32> = shared::dynamic();
    let width = STRIP * N as u32;
    // Not a loop: which sums are meant has to be known when this is compiled.
    array::from_fn::<(), B, _>(|b| {
        if b as u32 >= vectors {
            return;
        }
        if b > 0 {
            // The strips of the vector before are about to be overwritten.
            thread::sync_threads();
        }
        for e in 0..N {
            // A lane's elements lie 32 apart, so that lanes meet different banks.
            strips.add(warp * width + e as u32 * STRIP + lane).write(sums[b][e]);
        }
        thread::sync_threads();
        let row = strip + u64::from(tid);
        if tid < width && row < m {
            let place = tid % N as u32 * STRIP + tid / N as u32;
            let sum = (0..WARPS).fold(0.0, |sum, warp| sum + strips.add(warp * width + place).read());
            let part = u64::from(thread::block_idx_y()) * u64::from(batch) + u64::from(first_vector) + b as u64;
            *parts.add((part * m + row) as usize) = sum;
        }
    });
}

/// Adds the products of a pack of each of `U` columns, eight apart, from column `first` on.
#[inline(always)]
unsafe fn add_columns<T: Element, const N: usize, const B: usize, const U: usize>(
    a: *const T,
    x: *const T,
    vectors: u32,
    first: u32,
    a_stride: u64,
    x_stride: u64,
    sums: &mut [[f32; N]; B],
) {
    let at: [usize; U] = array::from_fn(|u| first as usize + u * WARPS as usize);
    let loaded = at.map(|at| load::<T, N>(a.add(at * a_stride as usize)));
    for u in 0..U {
        let weights = loaded[u].to_f32();
        for b in 0..B {
            if (b as u32) < vectors {
                let value = (*x.add(b * x_stride as usize + at[u])).to_f32();
                for e in 0..N {
                    sums[b][e] += weights[e] * value;
                }
            }
        }
    }
}

/// y = Σ of the parts, in order: x of the grid covers `m` by blocks, y counts the vectors.
///
/// # Safety
/// `parts` is valid for reads of `count` × `batch` × `m` sums and `y` for writes of `batch` rows of `m` elements at their stride.
#[kernel(dtypes(T: float), block = BLOCK, no_spills)]
pub unsafe fn gemv_sum<T: Element>(parts: *const f32, y: *mut T, m: u64, batch: u32, count: u32, y_stride: u64) {
    let row = u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x());
    let vector = u64::from(thread::block_idx_y());
    if row >= m {
        return;
    }
    let mut sum = 0.0;
    for part in 0..u64::from(count) {
        sum += *parts.add(((part * u64::from(batch) + vector) * m + row) as usize);
    }
    *y.add((vector * y_stride + row) as usize) = T::from_f32(sum);
}
