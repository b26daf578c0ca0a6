//! Sigmoid Linear Unit, elementwise.
//!
//! # Math
//! y = x · σ(x) with σ(x) = 1 / (1 + e^(−x)). Backward: dx = dy · (σ(x) + x · σ(x)·σ(−x)).
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
//! f32 arithmetic, rounded once to the storage type. ex2.approx and rcp.approx err by about 2⁻²² relative. Backward's two terms
//! cancel around x = −1.28, where the error is absolute. NaN gives NaN; −∞ gives NaN forward, as the formula does, and 0 backward.
//!
//! # Cost
//! 2·n elements of traffic forward, 3·n backward, about 6 and 10 FLOPs per element: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units" (arXiv:1702.03118).

use super::{activation, sigmoid_and_slope};

/// The coefficients that [`times_sigmoid`](super::times_sigmoid) takes.
pub(crate) const EXPONENT: [f32; 2] = [-core::f32::consts::LOG2_E, 0.0];

#[inline(always)]
pub(crate) fn value(x: f32) -> f32 {
    x * sigmoid_and_slope(x).0
}

#[inline(always)]
pub(super) fn value_and_slope(x: f32) -> (f32, f32) {
    let (sigmoid, slope) = sigmoid_and_slope(x);
    // Beyond this the slope underflows f32, and ±∞ · 0 would be NaN.
    (x * sigmoid, sigmoid + x.clamp(-128.0, 128.0) * slope)
}

#[inline(always)]
fn slope(x: f32) -> f32 {
    value_and_slope(x).1
}

activation!(silu: LIGHT, silu_backward: LIGHT);
