//! Sum of two tensors, elementwise: the residual connection.
//!
//! # Math
//! z = x + y.
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As in every elementwise kernel, each thread keeps two 16-byte packs of each operand in flight; blocks have
//! [`map::block`] threads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! One f32 addition, rounded once to the storage type: the nearest value to the exact sum in 16-bit types as well.
//!
//! # Cost
//! 3·n elements of traffic, one FLOP per element: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (arXiv:1512.03385).

use cuda_std::float::Element;
use cuda_std::kernel;

use crate::map::{self, LIGHT, block};

/// z = x + y, for `rows` rows of `d` elements.
///
/// # Safety
/// `x` and `y` are valid for reads and `z` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), LIGHT), min_blocks = 4, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn add<T: Element>(
    x: *const T,
    y: *const T,
    z: *mut T,
    rows: u64,
    d: u64,
    x_stride: u64,
    y_stride: u64,
    z_stride: u64,
) {
    map::zip::<T, T, 2, 0, LIGHT>([(x, x_stride), (y, y_stride)], (z, z_stride), rows, d, |[x, y]| x + y);
}
