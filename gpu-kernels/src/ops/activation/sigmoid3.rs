//! Three stacked sigmoids, elementwise: what a backward should keep and what it should compute again.
//!
//! # Math
//! a = σ(x), b = σ(a), y = σ(b). Backward: dx = dy · y·(1 − y) · b·(1 − b) · a·(1 − a).
//!
//! # Layout
//! All tensors have rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes of each operand in flight a thread, 256 threads a block. [`sigmoid3`] and
//! [`sigmoid3_backward`] keep x alone and compute a and b again; [`sigmoid3_saved`] writes them, and [`sigmoid3_saved_backward`] reads
//! them.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, rounded once to the storage type. ex2.approx and rcp.approx err by about 2⁻²² relative. A gradient from what was saved
//! takes 1 − a of an a that was rounded to the storage type. NaN gives NaN.
//!
//! # Cost
//! Computing again: 2·n elements of traffic forward and 3·n backward. Saving: 4·n and 5·n, 1.8 times as long, to spare three
//! exponentials an element, which memory leaves time for.
//!
//! # Limits
//! d up to (2³¹ − 1) · 8 KiB.
//!
//! # Sources
//! Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174).

use cuda_std::float::Element;
use cuda_std::kernel;

use super::{activation, sigmoid_and_slope};
use crate::map::{self, BLOCK};

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    sigmoid_and_slope(x).0
}

#[inline(always)]
fn value(x: f32) -> f32 {
    sigmoid(sigmoid(sigmoid(x)))
}

#[inline(always)]
fn slope(x: f32) -> f32 {
    let (a, da) = sigmoid_and_slope(x);
    let (b, db) = sigmoid_and_slope(a);
    da * db * sigmoid_and_slope(b).1
}

activation!(sigmoid3, sigmoid3_backward);

/// a = σ(x), b = σ(a) and y = σ(b), for `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `a`, `b` and `y` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(dtypes(T: float), block = BLOCK, min_blocks = 3, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn sigmoid3_saved<T: Element>(
    x: *const T,
    a: *mut T,
    b: *mut T,
    y: *mut T,
    rows: u64,
    d: u64,
    x_stride: u64,
    a_stride: u64,
    b_stride: u64,
    y_stride: u64,
) {
    let outputs = [(a, a_stride), (b, b_stride), (y, y_stride)];
    map::zip_to_many::<T, T, 1, 0, 3>([(x, x_stride)], outputs, rows, d, |[x]| {
        let a = sigmoid(x);
        let b = sigmoid(a);
        [a, b, sigmoid(b)]
    });
}

/// dx = dy · y·(1 − y) · b·(1 − b) · a·(1 − a), for `rows` rows of `d` elements.
///
/// # Safety
/// `dy`, `a`, `b` and `y` are valid for reads and `dx` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(dtypes(T: float), block = BLOCK, min_blocks = 3, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn sigmoid3_saved_backward<T: Element>(
    dy: *const T,
    a: *const T,
    b: *const T,
    y: *const T,
    dx: *mut T,
    rows: u64,
    d: u64,
    dy_stride: u64,
    a_stride: u64,
    b_stride: u64,
    y_stride: u64,
    dx_stride: u64,
) {
    let inputs = [(dy, dy_stride), (a, a_stride), (b, b_stride), (y, y_stride)];
    map::zip::<T, T, 4, 0>(inputs, (dx, dx_stride), rows, d, |[dy, a, b, y]| {
        let slope = a * (1.0 - a) * (b * (1.0 - b)) * (y * (1.0 - y));
        dy * slope
    });
}
