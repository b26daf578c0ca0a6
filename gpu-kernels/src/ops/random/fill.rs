//! A constant.
//!
//! # Math
//! y = value.
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As every elementwise kernel, without an input: four packs of 16 bytes per thread, 256 threads a block.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! The value, rounded once to the storage type.
//!
//! # Cost
//! One write of n elements: bound by memory bandwidth.
//!
//! # Limits
//! d up to (2³¹ − 1) · 16 KiB.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::kernel;

use super::generate;
use crate::map::{BUSY, block};

/// y = value, for `rows` rows of `d` elements.
///
/// # Safety
/// `y` is valid for writes of those rows at their stride; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), BUSY), min_blocks = 4, no_spills)]
pub unsafe fn fill<T: Element>(y: *mut T, rows: u64, d: u64, y_stride: u64, value: f32) {
    generate((y, y_stride), rows, d, |_| [value; 4]);
}
