//! Product of a matrix with one vector, or with a few, y = A·x.
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
//! [`gemv`]: a block of 256 threads, or for short rows a team of 64 of them, multiplies one row by one vector, four
//! packs per thread in flight. Up to eight vectors share one reading of 32 rows, four per warp, by way of stretches
//! staged in shared memory; with 16-bit elements they share one of 16 rows, on tensor cores. [`gemv_columns`]: a block
//! takes a strip of 32 packs of columns and a part of the rows, a warp every eighth of these, eight packs per thread in
//! flight; with 16-bit elements and several vectors a block takes 128 rows, on tensor cores. [`gemv_sum`] adds the
//! parts. There are as many parts as fill the device.
//!
//! # Shared memory
//! [`gemv`]: the partial sums of each warp, 4 KiB, or two stretches of 512 elements of eight vectors, 34 KiB. [`gemv_columns`]: the strip of each warp, 8 KiB.
//!
//! # Numerics
//! f32 products and sums in a fixed order, one rounding to the storage type: results are reproducible bit by bit. Tensor cores have exact
//! products as well, and sums of f32's range and about its precision.
//!
//! # Cost
//! The bytes of A once, 2 FLOPs per element and vector: bound by memory bandwidth. The vectors come from L1 and L2;
//! with eight vectors 32 rows, or 16, share each reading of them. The parts of [`gemv_columns`] are 8 bytes for each m
//! and part.
//!
//! # Limits
//! m below 2³², 2³¹ − 1 blocks, 65535 times eight vectors.
//!
//! # Sources
//! Dongarra et al., "An extended set of FORTRAN basic linear algebra subprograms" (1988): GEMV.

use cuda_std::float::Element;
use cuda_std::math::permute_bytes;
use cuda_std::vector::Pack;
use cuda_std::{bf16, f16, kernel, thread};

pub use super::{BLOCK, SMALL_ROW, STRIP, Strips, VECTORS, column_blocks, column_rows, rows_per_team, team};
use super::{Columns, Rows, rows_shared_bytes};
use crate::lanes;

/// Row-major A times up to `B` vectors a block, and a row by a small team or a block.
///
/// # Safety
/// `a` is valid for reads of `m` × `n`, `x` of `batch` × `n`, `y` for writes of `batch` × `m` elements at their strides; m is not 0, y of the
/// grid covers `batch` by `B`; with `PACKED` all rows are at multiples of 16 bytes and 16-byte packs divide `n`.
#[kernel(
    dtypes(T: float),
    values(B: 1, 8, SMALL: false, true, PACKED: false, true),
    where((PACKED || B == 1) && (!SMALL || PACKED && B == 1)),
    block = BLOCK,
    min_blocks = if B == 1 { 4 } else { 2 },
    shared = { rows_shared_bytes(B, size_of::<T>(), size_of::<T>()) },
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemv<T: Element, const B: usize, const SMALL: bool, const PACKED: bool>(
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
        (1, 1) => rows.multiply::<1, 1, 4, SMALL>(Pack::to_f32),
        (1, 4) => rows.multiply::<4, 1, 4, SMALL>(Pack::to_f32),
        (1, _) => rows.multiply::<8, 1, 4, SMALL>(Pack::to_f32),
        _ => match T::INDEX {
            0 => rows.multiply_staged(),
            1 => rows.multiply_by_fragments::<f16, 8, 1, 4>(|Pack(pairs), _| pairs),
            _ => rows.multiply_by_fragments::<bf16, 8, 1, 4>(|Pack(pairs), _| pairs),
        },
    }
}

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
    min_blocks = column_blocks(B, size_of::<T>()),
    shared = Strips<8>,
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
    let columns = Columns { a, x, parts, m, n, batch, part, a_stride, x_stride };
    match (B, if PACKED { lanes::<T>() } else { 1 }) {
        (1, 1) => columns.multiply::<1, 1>(Pack::to_f32),
        (1, 4) => columns.multiply::<4, 1>(Pack::to_f32),
        (1, _) => columns.multiply::<8, 1>(Pack::to_f32),
        _ => match T::INDEX {
            0 => columns.multiply::<4, 8>(Pack::to_f32),
            1 => columns.multiply_by_fragments::<f16, 8>(pairs),
            _ => columns.multiply_by_fragments::<bf16, 8>(pairs),
        },
    }
}

/// Of two columns' 16-bit elements those of rows 2i and 2i + 1.
#[inline(always)]
fn pairs([left, right]: [Pack<u32, 4>; 2], i: usize) -> [u32; 2] {
    [0x5410, 0x7632].map(|selector| permute_bytes(left.0[i], right.0[i], selector))
}

/// y = Σ of the parts, in order, times `scales`: x of the grid covers `m` by blocks, y counts the vectors.
///
/// # Safety
/// `parts` is valid for reads of `count` × `batch` × `m` sums and `y` for writes of `batch` rows of `m` elements at their stride; `scales`
/// is null or valid for reads of `m` values.
#[kernel(dtypes(T: float), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemv_sum<T: Element>(
    parts: *const f32,
    scales: *const f32,
    y: *mut T,
    m: u64,
    batch: u32,
    count: u32,
    y_stride: u64,
) {
    let row = u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x());
    let vector = u64::from(thread::block_idx_y());
    if row >= m {
        return;
    }
    let mut sum = 0.0;
    for part in 0..u64::from(count) {
        sum += *parts.add(((part * u64::from(batch) + vector) * m + row) as usize);
    }
    let scale = if scales.is_null() { 1.0 } else { *scales.add(row as usize) };
    *y.add((vector * y_stride + row) as usize) = T::from_f32(sum * scale);
}
