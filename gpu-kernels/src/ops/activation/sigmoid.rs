//! Logistic sigmoid, elementwise.
//!
//! # Math
//! y = σ(x) = 1 / (1 + e^(−x)). Backward: dx = dy · σ(x)·σ(−x).
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
//! f32 arithmetic, rounded once to the storage type. ex2.approx and rcp.approx err by about 2⁻²² relative, multiplied by the
//! exponent's size where the result is tiny. Both are computed from e^(−|x|), so that neither overflows. NaN gives NaN.
//!
//! # Cost
//! 2·n elements of traffic forward, 3·n backward, about 5 FLOPs per element: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Rumelhart, Hinton and Williams, "Learning representations by back-propagating errors" (Nature 323, 1986).

use super::{activation, sigmoid_and_slope};

#[inline(always)]
fn value(x: f32) -> f32 {
    sigmoid_and_slope(x).0
}

#[inline(always)]
fn slope(x: f32) -> f32 {
    sigmoid_and_slope(x).1
}

activation!(sigmoid: LIGHT, sigmoid_backward: LIGHT);
