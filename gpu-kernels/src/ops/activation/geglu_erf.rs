//! GEGLU, a linear unit gated by exact GELU, elementwise.
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
//! As in every elementwise kernel, each thread keeps two 16-byte packs of each operand in flight; blocks have
//! [`map::block`](crate::map::block) threads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, each result rounded once to the storage type. Φ is good to 2⁻²² relative, multiplied by the exponent's size where it
//! tends to 0.
//! NaN gives NaN, +∞ gives +∞, and −∞ gives NaN, as the formula does; the slope there is 1 and 0.
//!
//! # Cost
//! 3·n elements of traffic forward, 5·n backward, about 24 and 32 FLOPs per element: bound by memory bandwidth.
//! Unfused, the product would move 2·n elements more forward and 3·n backward.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Shazeer, "GLU Variants Improve Transformer" (arXiv:2002.05202).

use cuda_std::math;

use super::gated;

/// Φ(x), the cumulative normal distribution at x, and φ(x), its density.
///
/// Φ(−z) = e^(−z²/2)·z'·p(z') for z ≥ 0, where z' = 1/(1 + 0.26·z) brings z between 0 and 1, and p is the polynomial of that degree
/// with the least relative error there, 3·10⁻⁸. The exponential is φ's too, and no branch parts the lanes of a warp.
#[inline(always)]
fn below_and_density(x: f32) -> (f32, f32) {
    const SQRT_1_2_PI: f32 = 0.398_942_3;
    let power = math::ex2_approx(-0.5 * core::f32::consts::LOG2_E * (x * x));
    let t = math::rcp_approx_ftz(1.0 + 0.26 * x.abs());
    let tail = math::polynomial(
        t,
        [
            1.037_570_2e-1,
            1.030_509_7e-1,
            1.027_886_8e-1,
            5.196_480_5e-2,
            1.587_588e-1,
            -1.477_894_2e-1,
            2.487_332_7e-1,
            -1.514_944_4e-1,
            3.023_029_9e-2,
        ],
    );
    let outside = power * (t * tail);
    (if x < 0.0 { outside } else { 1.0 - outside }, power * SQRT_1_2_PI)
}

#[inline(always)]
fn value(x: f32) -> f32 {
    x * below_and_density(x).0
}

#[inline(always)]
fn value_and_slope(x: f32) -> (f32, f32) {
    let (below, density) = below_and_density(x);
    // Beyond this the density underflows f32, and ±∞ · 0 would be NaN.
    (x * below, below + x.clamp(-16.0, 16.0) * density)
}

gated!(geglu_erf: HEAVY, geglu_erf_backward: HEAVY, min_blocks = 4);
