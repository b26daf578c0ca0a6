//! SwiGLU, a gate of SiLU, elementwise.
//!
//! # Math
//! y = gate · σ(gate) · up. Backward: dgate = dy · up · (σ(gate) + gate · σ(gate)·σ(−gate)) and dup = dy · gate · σ(gate).
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
//! f32 arithmetic, each result rounded once to the storage type. ex2.approx and rcp.approx err by about 2⁻²² relative. Infinities and
//! NaN behave as in [silu](super::silu).
//!
//! # Cost
//! 3·n elements of traffic forward, 5·n backward, about 7 and 14 FLOPs per element: bound by memory bandwidth. Unfused,
//! the product would move 2·n elements more forward and 3·n backward.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Shazeer, "GLU Variants Improve Transformer" (arXiv:2002.05202).

use super::gated;
use super::silu::{value, value_and_slope};

gated!(swiglu: LIGHT, swiglu_backward: LIGHT, min_blocks = 2);
