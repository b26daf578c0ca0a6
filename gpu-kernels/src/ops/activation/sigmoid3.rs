//! Three stacked sigmoids, elementwise: the choice between saving intermediates for backward and recomputing them.
//!
//! # Math
//! a = σ(x), b = σ(a), y = σ(b). Backward: dx = dy · y·(1 − y) · b·(1 − b) · a·(1 − a).
//!
//! # Layout
//! All tensors have rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As in every elementwise kernel, each thread keeps two 16-byte packs of each operand in flight; blocks have
//! [`map::block`] threads. [`sigmoid3`] and [`sigmoid3_backward`] keep x alone and compute a and b again;
//! [`sigmoid3_saved`] writes them, and [`sigmoid3_saved_backward`] reads them.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, rounded once to the storage type. ex2.approx and rcp.approx err by about 2⁻²² relative, b and y by 2⁻²³. A
//! gradient from what was saved takes 1 − a of an a that was rounded to the storage type. NaN gives NaN.
//!
//! # Cost
//! Computing again: 2·n elements of traffic forward and 3·n backward. Saving: 4·n and 5·n, 1.8 times as long, to spare an
//! exponential and a polynomial an element, which memory leaves time for.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174).

use core::f32::consts::LOG2_E;

use cuda_std::float::Element;
use cuda_std::kernel;
use cuda_std::math::{ex2_approx_ftz, polynomial, rcp_approx_ftz};

use super::{activation, sigmoid_and_slope};
use crate::map::{self, LIGHT, block};

/// σ of a sigmoid's result, which is between 0 and 1: the polynomial of its degree with the least relative error there,
/// 2⁻²⁶. One exponential and one reciprocal for each of the three sigmoids would exceed the throughput of the
/// special-function units while memory brings 16-bit elements.
#[inline(always)]
fn second(a: f32) -> f32 {
    let coefficients =
        [6.224_593_5e-1, 2.350_036_2e-1, -2.877_796_4e-2, -1.605_640_5e-2, 4.358_112_3e-3, 1.105_209e-3, -5.073_013e-4];
    polynomial(a - 0.5, coefficients)
}

/// σ(σ(σ(x))), between 0.5 and 0.74: a polynomial as above, with error 2⁻²⁹.
#[inline(always)]
fn third(b: f32) -> f32 {
    let coefficients = [6.224_593_5e-1, 2.350_035e-1, -2.877_081_4e-2, -1.615_675_4e-2, 4.891_788_6e-3];
    polynomial(b - 0.5, coefficients)
}

/// σ(σ(v)) for v between 0 and 1, as one polynomial as above, with error 2⁻²⁸.
#[inline(always)]
fn second_and_third(a: f32) -> f32 {
    let coefficients =
        [6.507_777e-1, 5.340_837_7e-2, -8.432_718e-3, -3.365_109e-3, 1.301_558_6e-3, 1.775_199_5e-4, -1.546_494_6e-4];
    polynomial(a - 0.5, coefficients)
}

/// Its derivative: a polynomial as above, with error 2⁻²⁵.
#[inline(always)]
fn slope_of_second_and_third(a: f32) -> f32 {
    let coefficients = [
        5.340_837_7e-2,
        -1.686_557_4e-2,
        -1.009_514_3e-2,
        5.211_611e-3,
        8.848_357e-4,
        -9.780_78e-4,
        9.753_752e-6,
        1.301_371_4e-4,
    ];
    polynomial(a - 0.5, coefficients)
}

#[inline(always)]
fn value(x: f32) -> f32 {
    // If a is near 0, its exact value does not matter: a subnormal may flush to 0, and a power may be infinite.
    let a = rcp_approx_ftz(1.0 + ex2_approx_ftz(-LOG2_E * x));
    second_and_third(a)
}

#[inline(always)]
fn slope(x: f32) -> f32 {
    let (a, da) = sigmoid_and_slope(x);
    da * slope_of_second_and_third(a)
}

activation!(sigmoid3: LIGHT, sigmoid3_backward: LIGHT);

/// a = σ(x), b = σ(a) and y = σ(b), for `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `a`, `b` and `y` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), LIGHT), min_blocks = 3, no_spills)]
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
    map::zip_to_many::<T, T, 1, 0, 3, LIGHT>([(x, x_stride)], outputs, rows, d, |[x]| {
        let (a, _) = sigmoid_and_slope(x);
        let b = second(a);
        [a, b, third(b)]
    });
}

/// dx = dy · y·(1 − y) · b·(1 − b) · a·(1 − a), for `rows` rows of `d` elements.
///
/// # Safety
/// `a`, `b`, `y` and `dy` are valid for reads and `dx` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), LIGHT), min_blocks = 3, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn sigmoid3_saved_backward<T: Element>(
    a: *const T,
    b: *const T,
    y: *const T,
    dy: *const T,
    dx: *mut T,
    rows: u64,
    d: u64,
    a_stride: u64,
    b_stride: u64,
    y_stride: u64,
    dy_stride: u64,
    dx_stride: u64,
) {
    let inputs = [(a, a_stride), (b, b_stride), (y, y_stride), (dy, dy_stride)];
    map::zip::<T, T, 4, 0, LIGHT>(inputs, (dx, dx_stride), rows, d, |[a, b, y, dy]| {
        let slope = a * (1.0 - a) * (b * (1.0 - b)) * (y * (1.0 - y));
        dy * slope
    });
}
