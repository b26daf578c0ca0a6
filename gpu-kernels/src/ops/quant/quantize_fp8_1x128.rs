//! Quantization to 8-bit floats with a scale for each 128 neighbours of a row: activations of fp8 matrix products.
//!
//! # Math
//! For each group of 1 × 128: scale = max |x| / MAX, at least 2⁻¹²⁶, and q = ⌊x / scale⌉, with MAX = 448 for E4M3 and 57344 for E5M2.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded; what is contiguous and has whole groups is passed as a single row. `scales` is
//! dense, ⌈d / 128⌉ a row. Rows at multiples of a pack are moved by packs, others element by element.
//!
//! # Mapping
//! Blocks of 128 threads with two packs of 16 bytes each, along the row by x, and the rows by y and z. Sixteen lanes share a group's 128 elements of
//! 16 bits, a warp those of 32, and find its greatest by shuffles.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! q in f32: x · (MAX / max), rounded to nearest, ties to even. Nothing is beyond MAX, so that nothing saturates but by a rounding. A group of zeros
//! has scale 2⁻¹²⁶. NaN in a group makes its scale and all of it NaN; an infinity an infinite scale, zeros of what is finite, and NaN.
//!
//! # Cost
//! One read of x, one write of a byte an element and of 4 bytes per group: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437), section 3.3.

use cuda_std::float::Element;
use cuda_std::fp8::Float8;
use cuda_std::kernel;

use super::blocks;

/// Threads of a block.
pub const BLOCK: u32 = blocks::BLOCK;
/// Elements that share a scale.
pub const WIDTH: usize = 128;

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
pub unsafe fn quantize_fp8_1x128<T: Element, Q: Float8>(
    x: *const T,
    q: *mut Q,
    scales: *mut f32,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    blocks::quantize_rows::<T, Q, f32, 1, WIDTH>([(x, x_stride)], (q, q_stride), scales, rows, d, |[x]| x);
}
