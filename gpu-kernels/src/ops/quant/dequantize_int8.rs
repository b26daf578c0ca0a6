//! 8-bit integers back to floats, with one scale or one for each row or column.
//!
//! # Math
//! y[r, c] = (q[r, c] − zero) · scale, or · scales\[r\], or · scales\[c\].
//!
//! # Layout
//! `q` and `y` are rows of d adjacent elements that may be padded. Rows at multiples of a pack are moved by packs, others element by element.
//!
//! # Mapping
//! Blocks of 128 threads with four packs of eight integers each, along the row by x, and the rows by y and z. With a scale for each column these lie
//! below each other in four rows, whose eight scales a thread then loads once.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! The difference is exact; if `zero` is not an 8-bit zero point, it is then rounded to f32. One f32 product, and one
//! rounding to the storage type.
//!
//! # Cost
//! One read of an integer and one write an element: bound by memory bandwidth.
//!
//! # Limits
//! d up to (2³¹ − 1) · 4096, or · 1024 with a scale for each column.
//!
//! # Sources
//! Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (arXiv:1712.05877).

use cuda_std::float::Element;
use cuda_std::kernel;

use super::blocks;

/// Threads of a block.
pub const BLOCK: u32 = blocks::BLOCK;
/// Elements of a row that a block covers.
pub const PER_BLOCK: usize = blocks::WIDENED_BY_BLOCK;
/// The number of rows that these elements come from if each column has a scale.
pub const ROWS: usize = blocks::WIDENED_ROWS;

/// y for `rows` rows of `d` elements; `zero` is null for none. Shifts are 63 along what shares a scale, and 0 along what does not.
///
/// # Safety
/// `q` is valid for reads and `y` for writes of those rows at their strides, `scales` for reads of as many values as the shifts say, `zero`, if not
/// null, of one; d and rows are at least 1.
#[kernel(dtypes(T: float), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn dequantize_int8<T: Element>(
    q: *const i8,
    scales: *const f32,
    zero: *const i32,
    y: *mut T,
    rows: u64,
    d: u64,
    q_stride: u64,
    y_stride: u64,
    row_shift: u32,
    column_shift: u32,
) {
    // Differences of what is no zero point of 8 bits do not wrap: among numbers of that size 128 is less than a rounding to f32.
    const GREATEST: i32 = i32::MAX - 127;
    let zero = if zero.is_null() { 0 } else { (*zero).clamp(-GREATEST, GREATEST) };
    let value = |q: i8| (i32::from(q) - zero) as f32;
    let (q, y, shifts) = ((q, q_stride), (y, y_stride), [row_shift, column_shift]);
    blocks::dequantize(q, scales, y, rows, d, shifts, |values| values.map(value));
}
