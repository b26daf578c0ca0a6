//! Hyperbolic tangent, elementwise.
//!
//! # Math
//! y = tanh(x). Backward: dx = dy · (1 − tanh²(x)), computed as 4·σ(2x)·σ(−2x).
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
//! f32 arithmetic, rounded once to the storage type. The value is good to 2 ulp of f32 ([`cuda_std::math::tanh`]); ex2.approx and
//! rcp.approx of backward err by about 2⁻²² relative, multiplied by the exponent's size where the result is tiny. NaN gives NaN.
//!
//! # Cost
//! 2·n elements of traffic forward, 3·n backward, about 15 and 6 FLOPs per element: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! LeCun, Bottou, Orr and Müller, "Efficient BackProp" (1998).

use super::{activation, sigmoid_and_slope};

#[inline(always)]
fn value(x: f32) -> f32 {
    cuda_std::math::tanh(x)
}

#[inline(always)]
fn slope(x: f32) -> f32 {
    4.0 * sigmoid_and_slope(2.0 * x).1
}

activation!(tanh: LIGHT, tanh_backward: LIGHT);
