//! NAME, elementwise.
//!
//! # Math
//! y = x. Backward: dx = dy.
//!
//! # Layout
//! `x`, `y`, `dy` and `dx` have rows of d elements that may be padded: see [`map`](crate::map).
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes of each operand in flight a thread, in blocks of [`map::block`](crate::map::block) threads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, rounded once to the storage type.
//!
//! # Cost
//! 2·n elements of traffic forward, 3·n backward: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! None.

use super::activation;

#[inline(always)]
fn value(x: f32) -> f32 {
    x
}

#[inline(always)]
fn slope(_: f32) -> f32 {
    1.0
}

activation!(NAME: LIGHT, NAME_backward: LIGHT);
