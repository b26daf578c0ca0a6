//! A formula over rows, as [`row!`](crate::row!) fuses it; a user's own ones are made in the same way.
//!
//! # Math
//! y\[c\] = f(x₀\[c\], x₁\[c\], …, reductions of the row), here gelu(x · weight / √(mean(x²) + eps)), gelu in its tanh form.
//!
//! # Layout
//! Inputs and output have rows of d adjacent elements, each at its own stride. An input at stride 0 is one row that all share.
//!
//! # Mapping
//! A [`Team`](crate::rows::Team) a row, which holds it in registers so that each input is read once: see [`rows`](crate::rows). A
//! cluster of blocks for rows that no block holds.
//!
//! # Shared memory
//! For each of up to eight reductions, one f32 per warp of the team that shares a row.
//!
//! # Numerics
//! f32, rounded once to the storage type. Reductions are each thread's in order, then a butterfly over the warp, then over the
//! warps in order: results are reproducible.
//!
//! # Cost
//! One read of each input and one write: bound by memory bandwidth. What follows rms_norm here costs no traffic; a kernel of its own
//! would read and write everything once more.
//!
//! # Limits
//! Four inputs, eight reductions. Of three and four inputs a block holds rows of 2048 packs, of fewer 4096. A formula may need
//! 128 registers a thread with its rows; `warpsmith inspect` shows what it takes.
//!
//! # Sources
//! Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467); Hendrycks and Gimpel, "Gaussian Error Linear Units"
//! (arXiv:1606.08415).

use cuda_std::math;

use crate::ops::activation::gelu;

crate::row! {
    /// y = gelu(x · weight / √(mean(x²) + eps)).
    pub fn rms_norm_gelu([x, weight]: [f32; 2], eps: f32) -> f32 {
        let square = mean(x * x);
        let scale = math::rsqrt_approx(square + eps);
        gelu::value(x * scale * weight)
    }
}
