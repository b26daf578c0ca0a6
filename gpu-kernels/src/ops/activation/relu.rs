//! Rectified linear unit, elementwise.
//!
//! # Math
//! y = max(x, 0). Backward: dx = dy where x > 0, else 0.
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
//! Exact. NaN in x gives NaN in both directions; where x ≤ 0, dx is 0 whatever dy is.
//!
//! # Cost
//! 2·n elements of traffic forward, 3·n backward, one FLOP per element: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Nair and Hinton, "Rectified linear units improve restricted Boltzmann machines" (ICML 2010).

use super::activation;

#[inline(always)]
fn value(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn gradient(x: f32, dy: f32) -> f32 {
    // A product with 0 would turn an infinite dy into NaN.
    if x <= 0.0 {
        0.0
    } else if x > 0.0 {
        dy
    } else {
        x
    }
}

activation!(relu: LIGHT, relu_backward: LIGHT, |[x, dy]| gradient(x, dy));
