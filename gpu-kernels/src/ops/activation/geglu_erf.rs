//! GEGLU, a gate of exact GELU, elementwise.
//!
//! # Math
//! y = gate · Φ(gate) · up with Φ(x) = (1 + erf(x/√2)) / 2. Backward: dgate = dy · up · (Φ(gate) + gate · φ(gate)) with
//! φ(x) = e^(−x²/2) / √(2π), and dup = dy · gate · Φ(gate).
//!
//! # Layout
//! `gate`, `up`, `y`, `dy`, `dgate` and `dup` have rows of d elements that may be padded, so that gate and up may be the halves of one
//! tensor's rows: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes of each operand in flight a thread, 256 threads a block.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, each result rounded once to the storage type. erf is good to 2 ulp; where Φ tends to 0 its error is 2⁻²⁵ absolute.
//! NaN gives NaN, +∞ gives +∞, and −∞ gives NaN, as the formula does; the slope there is 1 and 0.
//!
//! # Cost
//! 3·n elements of traffic forward, 5·n backward, about 30 and 50 FLOPs an element: bound by memory bandwidth. Unfused, the product
//! would move 2·n elements more forward and 3·n backward.
//!
//! # Limits
//! d up to (2³¹ − 1) · 8 KiB.
//!
//! # Sources
//! Shazeer, "GLU Variants Improve Transformer" (arXiv:2002.05202).

use cuda_std::math;

use super::gated;

/// Φ(x), the share of a normal distribution below x.
#[inline(always)]
fn below(x: f32) -> f32 {
    0.5 + 0.5 * math::erf(x * core::f32::consts::FRAC_1_SQRT_2)
}

#[inline(always)]
fn value(x: f32) -> f32 {
    x * below(x)
}

#[inline(always)]
fn slope(x: f32) -> f32 {
    const SQRT_1_2_PI: f32 = 0.398_942_3;
    // Beyond this the density is less than f32 has, and ±∞ · 0 would be NaN.
    let near = x.clamp(-16.0, 16.0);
    below(x) + near * SQRT_1_2_PI * math::ex2_approx(-0.5 * core::f32::consts::LOG2_E * near * near)
}

gated!(geglu_erf, geglu_erf_backward);
