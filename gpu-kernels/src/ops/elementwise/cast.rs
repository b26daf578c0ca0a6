//! Conversion between float types, elementwise.
//!
//! # Math
//! y is the value of U nearest to x.
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As every elementwise kernel, by the wider of the two types: 16 bytes of it and 8 of a narrower one at a time.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! Round to nearest, ties to even; overflow gives infinity. NaN stays NaN, its payload does not stay.
//!
//! # Cost
//! One read of T and one write of U an element: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! IEEE 754-2019, section 5.4.2.

use cuda_std::float::Element;
use cuda_std::kernel;

use crate::map::{self, LIGHT, block};

/// y = U(x), for `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(
    dtypes(T: float, U: float), block = block(widest(size_of::<T>(), size_of::<U>()), LIGHT), min_blocks = 4, no_spills
)]
pub unsafe fn cast<T: Element, U: Element>(x: *const T, y: *mut U, rows: u64, d: u64, x_stride: u64, y_stride: u64) {
    map::zip::<T, U, 1, 0, LIGHT>([(x, x_stride)], (y, y_stride), rows, d, |[x]| x);
}

const fn widest(from: usize, to: usize) -> usize {
    if from > to { from } else { to }
}
