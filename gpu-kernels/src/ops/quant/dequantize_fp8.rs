//! 8-bit floats back to wider ones, with a scale for each group of 1 × 128 or 128 × 128.
//!
//! # Math
//! y[r, c] = q[r, c] · scales\[group of (r, c)\].
//!
//! # Layout
//! `q` and `y` are rows of d adjacent elements that may be padded. `scales` is dense, a row of ⌈d / 128⌉ for each row of groups.
//! Rows at multiples of a pack are moved by packs, others element by element.
//!
//! # Mapping
//! Blocks of 128 threads with four packs of eight bytes each, along the row by x, and the rows by y and z.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! One f32 product, and one rounding to the storage type.
//!
//! # Cost
//! One read of a byte and one write an element: bound by memory bandwidth.
//!
//! # Limits
//! d up to (2³¹ − 1) · 4096.
//!
//! # Sources
//! DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437), section 3.3.

use cuda_std::float::Element;
use cuda_std::fp8::Float8;
use cuda_std::kernel;
use cuda_std::vector::Pack;

use super::blocks;

/// Threads of a block.
pub const BLOCK: u32 = blocks::BLOCK;
/// Elements of a row that a block covers.
pub const PER_BLOCK: usize = blocks::WIDENED_BY_BLOCK;
/// The number of rows that these elements come from if each column has a scale.
pub const ROWS: usize = blocks::WIDENED_ROWS;

/// y for `rows` rows of `d` elements, with a scale for each group of 2^`row_shift` × 2^`column_shift`.
///
/// # Safety
/// `q` is valid for reads and `y` for writes of those rows at their strides, `scales` for reads of one value per group;
/// d and rows are at least 1, the shifts at most 63 and that of columns at least 3.
#[kernel(dtypes(T: float, Q: float8), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn dequantize_fp8<T: Element, Q: Float8>(
    q: *const Q,
    scales: *const f32,
    y: *mut T,
    rows: u64,
    d: u64,
    q_stride: u64,
    y_stride: u64,
    row_shift: u32,
    column_shift: u32,
) {
    let (q, y, shifts) = ((q, q_stride), (y, y_stride), [row_shift, column_shift]);
    blocks::dequantize(q, scales, y, rows, d, shifts, |values| blocks::widen(Pack(values)));
}
