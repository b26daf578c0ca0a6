//! 8-bit integers back to floats, with one scale or one for each row.
//!
//! # Math
//! y[r, c] = (q[r, c] − zero) · scale, or · scales\[r\].
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`]. Scales lie `scale_stride` apart from row to row: 0 for one that all rows share.
//!
//! # Mapping
//! As every elementwise kernel, eight integers at a time whatever they become.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! The difference is exact; one f32 product, and one rounding to the storage type.
//!
//! # Cost
//! One read of an integer and one write an element: bound by memory bandwidth.
//!
//! # Limits
//! d up to (2³¹ − 1) · 16 KiB.
//!
//! # Sources
//! Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (arXiv:1712.05877).

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

use crate::map;

pub use crate::map::BLOCK;

/// Integers moved at a time.
pub const PACK: usize = 8;

/// y for `rows` rows of `d` elements; `zero` is null for none.
///
/// # Safety
/// `q` is valid for reads and `y` for writes of those rows at their strides, `scales` for reads of a value a row at its stride, `zero`, if not
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
    scale_stride: u64,
) {
    let row = u64::from(thread::block_idx_z()) * u64::from(thread::grid_dim_y()) + u64::from(thread::block_idx_y());
    if row >= rows {
        return;
    }
    let scale = *scales.add((row * scale_stride) as usize);
    let zero = if zero.is_null() { 0 } else { *zero };
    // Differences of what is no zero point of 8 bits wrap.
    let value = |q: i8| i32::from(q).wrapping_sub(zero) as f32 * scale;
    let (q, y) = ([(q, q_stride)], [(y, y_stride)]);
    let one = |[q]: [i8; 1]| [T::from_f32(value(q))];
    let pack = |[q]: [Pack<i8, PACK>; 1]| [Pack::from_f32(array::from_fn(|e| value(q.0[e])))];
    map::move_packs::<i8, T, 1, 0, 1, PACK>(q, y, rows, d, pack, one);
}
