//! GELU activation in its tanh form, elementwise.
//!
//! # Math
//! y = x/2 · (1 + tanh u) with u = √(2/π)·(x + 0.044715·x³). Since 1 + tanh u = 2·σ(2u), this is y = x·σ(2u): one exponential and
//! one reciprocal. Backward: dx = dy · (σ(2u) + x · 2u' · σ(2u)·σ(−2u)) with u' = √(2/π)·(1 + 3 · 0.044715·x²).
//!
//! # Layout
//! `x`, `y`, `dy` and `dx` have rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As in every elementwise kernel, each thread keeps two 16-byte packs of each operand in flight; blocks have
//! [`map::block`](crate::map::block) threads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, rounded once to the storage type. ex2.approx and rcp.approx err by about 2⁻²² relative, multiplied
//! by the exponent's size where y tends to zero. Backward's two terms cancel around x = −0.75, where the error is absolute. NaN
//! gives NaN, +∞ gives +∞, and −∞ gives NaN, as the formula does; the slope there is 1 and 0.
//!
//! # Cost
//! 2·n elements of traffic forward, 3·n backward, about 10 and 18 FLOPs per element: bound by memory bandwidth. Of the
//! special-function units it needs two results an element, half of what they deliver at full bandwidth for 16-bit
//! types.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Hendrycks and Gimpel, "Gaussian Error Linear Units" (arXiv:1606.08415).

use super::{activation, sigmoid_and_slope, times_sigmoid};

const SQRT_2_OVER_PI: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// The coefficients a and b that [`times_sigmoid`] takes, for 2u.
pub(crate) const EXPONENT: [f32; 2] = {
    const LINEAR: f32 = -2.0 * core::f32::consts::LOG2_E * SQRT_2_OVER_PI;
    [LINEAR, LINEAR * CUBIC]
};

#[inline(always)]
pub(crate) fn value(x: f32) -> f32 {
    times_sigmoid(x, EXPONENT)
}

/// Computes both from one exponential and one reciprocal.
#[inline(always)]
pub(super) fn value_and_slope(x: f32) -> (f32, f32) {
    let u = SQRT_2_OVER_PI * x * (1.0 + CUBIC * x * x);
    let (sigmoid, slope) = sigmoid_and_slope(2.0 * u);
    // Beyond this the slope underflows f32, and ±∞ · 0 would be NaN.
    let near = x.clamp(-16.0, 16.0);
    (x * sigmoid, sigmoid + near * (2.0 * SQRT_2_OVER_PI) * (1.0 + 3.0 * CUBIC * near * near) * slope)
}

#[inline(always)]
fn slope(x: f32) -> f32 {
    value_and_slope(x).1
}

activation!(gelu: LIGHT, gelu_backward: HEAVY);
