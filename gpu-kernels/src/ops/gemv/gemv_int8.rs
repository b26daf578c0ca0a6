//! Product of a matrix of 8-bit integers, with a scale for each row, with a vector or a few of them.
//!
//! # Math
//! y[b, i] = scales\[i\] · Σⱼ A[i, j] · x[b, j].
//!
//! # Layout
//! As for [`gemv`](super::gemv), row-major; `scales` holds m values. Packs are 16 integers, and as many elements of `x`.
//!
//! # Mapping
//! As for [`gemv`](super::gemv): one row and one vector a block, four packs a thread in flight, or two rows and up to eight vectors.
//!
//! # Shared memory
//! A partial sum of each warp, 1 KiB.
//!
//! # Numerics
//! Integers are exact in f32; products, sums and the scale in f32 in a fixed order, one rounding to the storage type.
//!
//! # Cost
//! The bytes of A once, a quarter of those of f32: bound by memory bandwidth.
//!
//! # Limits
//! m below 2³², 2³¹ − 1 blocks, 65535 times eight vectors.
//!
//! # Sources
//! Dettmers, Lewis, Belkada and Zettlemoyer, "LLM.int8()" (arXiv:2208.07339), for scales of rows.

use cuda_std::float::Element;
use cuda_std::kernel;

use super::{BLOCK, Partials, Rows};

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
