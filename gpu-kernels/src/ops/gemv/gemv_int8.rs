//! Product of a matrix of 8-bit integers, with a scale for each row, with a vector or a few of them.
//!
//! # Math
//! y[b, i] = scales\[i\] · Σⱼ A[i, j] · x[b, j].
//!
//! # Layout
//! As for [`gemv`](super::gemv), row-major ([`gemv_int8`]) or column-major ([`gemv_int8_columns`]); `scales` holds m values. Packs are 16
//! integers, and as many elements of `x` where that is read by packs; 8 of columns that several vectors share.
//!
//! # Mapping
//! As for [`gemv`](super::gemv): one row and one vector a block, four packs a thread in flight, or two rows and up to eight vectors;
//! strips of columns and parts of the rows, which [`gemv_sum`](super::gemv::gemv_sum) adds and scales.
//!
//! # Shared memory
//! [`gemv_int8`]: a partial sum of each warp, 1 KiB. [`gemv_int8_columns`]: the strip of each warp, 16 KiB.
//!
//! # Numerics
//! Integers are exact in f32; products, sums and the scale in f32 in a fixed order, one rounding to the storage type.
//!
//! # Cost
//! The bytes of A once, a quarter of those of f32: bound by memory bandwidth. Parts of columns as for [`gemv`](super::gemv).
//!
//! # Limits
//! m below 2³², 2³¹ − 1 blocks, 65535 times eight vectors.
//!
//! # Sources
//! Dettmers, Lewis, Belkada and Zettlemoyer, "LLM.int8()" (arXiv:2208.07339), for scales of rows.

use cuda_std::float::Element;
use cuda_std::kernel;

pub use super::column_pack;
use super::{BLOCK, Columns, Partials, Rows, Strips};

/// A times up to `B` vectors a block.
///
/// # Safety
/// As for [`gemv`](super::gemv::gemv), and `scales` is valid for reads of `m` values.
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
pub unsafe fn gemv_int8<T: Element, const B: usize, const PACKED: bool>(
    a: *const i8,
    scales: *const f32,
    x: *const T,
    y: *mut T,
    m: u32,
    n: u64,
    batch: u32,
    a_stride: u64,
    x_stride: u64,
    y_stride: u64,
) {
    let rows = Rows { a, x, scales, y, m, n, batch, a_stride, x_stride, y_stride };
    match (B, PACKED) {
        (1, false) => rows.multiply::<1, 1, 1, 4>(f32::from),
        (1, true) => rows.multiply::<16, 1, 1, 4>(f32::from),
        _ => rows.multiply::<16, 8, 2, 1>(f32::from),
    }
}

/// Column-major A times up to `B` vectors a block, into `parts`, without the scales: as [`gemv_columns`](super::gemv::gemv_columns).
///
/// # Safety
/// As for [`gemv_columns`](super::gemv::gemv_columns); with `PACKED` all columns are at multiples of a [pack](column_pack), which divides `m`.
#[kernel(
    dtypes(T: float),
    values(B: 1, 8, PACKED: false, true),
    where(PACKED || B == 1),
    block = BLOCK,
    min_blocks = super::column_blocks(B),
    shared = Strips<16>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemv_int8_columns<T: Element, const B: usize, const PACKED: bool>(
    a: *const i8,
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
    match (B, PACKED) {
        (1, false) => columns.multiply::<1, 1>(f32::from),
        (1, true) => columns.multiply::<{ column_pack(1, 1) }, 1>(f32::from),
        _ => columns.multiply::<{ column_pack(8, 1) }, 8>(f32::from),
    }
}
