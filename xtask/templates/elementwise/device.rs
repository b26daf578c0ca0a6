//! NAME, elementwise.
//!
//! # Math
//! y = x.
//!
//! # Layout
//! `x` and `y` have rows of d elements that may be padded: see [`map`].
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes of each operand in flight a thread, in blocks of [`map::block`] threads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, rounded once to the storage type.
//!
//! # Cost
//! 2·n elements of traffic: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::kernel;

use crate::map::{self, LIGHT, block};

/// y = x, for `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), LIGHT), min_blocks = 4, no_spills)]
pub unsafe fn NAME<T: Element>(x: *const T, y: *mut T, rows: u64, d: u64, x_stride: u64, y_stride: u64) {
    map::zip::<T, T, 1, 0, LIGHT>([(x, x_stride)], (y, y_stride), rows, d, |[x]| x);
}
