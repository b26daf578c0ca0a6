//! Quantization to MXFP8 along rows: 8-bit floats with a power of two for each 32 neighbours.
//!
//! # Math
//! For each group of 1 × 32: scale = 2^(⌊log₂ max |x|⌋ − e), at least 2⁻¹²⁷, and q = ⌊x / scale⌉, with e = 8 for E4M3 and 15 for E5M2.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded; what is contiguous and has whole groups is passed as a single row. `scales` is
//! dense, ⌈d / 32⌉ a row. Rows at multiples of a pack are moved by packs, others element by element.
//!
//! # Mapping
//! Blocks of 128 threads with two packs of 16 bytes each, along the row by x, and the rows by y and z. Four lanes share a group's 32 elements of 16
//! bits, eight those of 32, and find its greatest by shuffles.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! The scale by the exponent's bits, the quotient exact, one rounding to nearest, ties to even. What the rounding or a mantissa above 1.75 puts
//! beyond the largest value saturates. A group of zeros has scale 2⁻¹²⁷. NaN or an infinity in a group makes its scale and all of it NaN.
//!
//! # Cost
//! One read of x, one write of a byte an element and of a byte a group: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 6.3.

use cuda_std::float::Element;
use cuda_std::fp8::{Float8, f8e8m0};
use cuda_std::kernel;

use super::blocks;

/// Threads of a block.
pub const BLOCK: u32 = blocks::BLOCK;
/// Elements that share a scale.
pub const WIDTH: usize = 32;

/// Elements of a row that a block covers, of that many bytes each.
pub const fn per_block(bytes: usize) -> usize {
    blocks::read_by_block(bytes)
}

/// q and scales of `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of those rows at their strides, `scales` for writes of one value per
/// group; d and rows are at least 1.
#[kernel(dtypes(T: float, Q: float8), block = BLOCK, no_spills)]
pub unsafe fn quantize_mxfp8_1x32<T: Element, Q: Float8>(
    x: *const T,
    q: *mut Q,
    scales: *mut f8e8m0,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    blocks::quantize_rows::<T, Q, f8e8m0, 1, WIDTH>([(x, x_stride)], (q, q_stride), scales, rows, d, |[x]| x);
}
