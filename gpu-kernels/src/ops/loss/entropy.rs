//! Entropy of the softmax of rows of logits, and its gradient.
//!
//! # Math
//! With p = softmax(x / T), H = −Σ p·ln p. Its gradient by x is −p·(ln p + H) / T.
//!
//! # Layout
//! `logits` and `gradient` are rows of d adjacent elements, each at a stride of its own; they may be the same memory. `entropies` and
//! `upstream` have an element a row.
//!
//! # Mapping
//! A [`Team`] a row, which holds it in registers so that it is read once: see [`rows`](crate::rows).
//!
//! # Shared memory
//! Three values a warp of those that share a row; of a cluster, a copy of them in each block.
//!
//! # Numerics
//! The maximum first; exponents below it are base 2, ex2.approx of 2⁻²² relative, and H is ln Σ e^(x − max) less their mean: two terms of
//! the same sign, so that nothing cancels. Sums are f32 in a fixed order. −∞ adds nothing and has gradient 0. +∞, NaN and rows of
//! nothing but −∞ make the entropy and the gradient NaN.
//!
//! # Cost
//! One read of rows × d elements and an exponential of each; with the gradient a write and another exponential: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! The formula; Williams and Peng, "Function Optimization Using Connectionist Reinforcement Learning Algorithms" (Connection Science, 1991),
//! for the bonus in objectives.

use core::f32::consts::{LN_2, LOG2_E};

use cuda_std::float::Element;
use cuda_std::math;

use crate::ops::softmax::{row_kernels, shift};
use crate::rows::{Block, Cluster, Lanes, Stream, Team, Warp};

row_kernels! {
    /// Entropies where `entropies` is not null, and gradients times `upstream` of the row where `gradient` is not; a team `P` a row.
    ///
    /// # Safety
    /// `logits` is valid for reads and `gradient` null or valid for writes of `rows` rows of `d` elements at their strides, the two the same
    /// rows or apart; `entropies` is null or valid for writes of `rows` elements, and `upstream` valid for reads of as many if there is a
    /// gradient. rows is at least 1, and rows are such as the team holds.
    entropy, entropy_cluster: 3 partials, 1 inputs;
    |team: P, T| (
        logits: *const T,
        upstream: *const f32,
        entropies: *mut f32,
        gradient: *mut T,
        x_stride: u64,
        g_stride: u64,
        scale: f32,
    ) {
        let row = team.row() as usize;
        let x = team.load_own_or((logits, x_stride), f32::NEG_INFINITY);
        if !gradient.is_null() {
            team.fetch_ahead((logits, x_stride));
        }
        let own = match team.held_max(x) {
            Some(max) => max,
            None => team.fold([x], f32::NEG_INFINITY, |max, [x]| max.max(x)),
        };
        let [max] = team.reduce([own], [f32::NEG_INFINITY], 0, |[a], [b]| [a.max(b)]);
        let max = shift(max);
        // The logarithm of p to base 2, but for the sum, and what is left of it.
        let power = |x: f32| {
            let power = (x - max) * (scale * LOG2_E);
            (power, math::ex2_approx_ftz(power))
        };
        // Nothing times infinity is nothing.
        let weighed = |p: f32, product: f32| if p > 0.0 { product } else { 0.0 };
        let sums = team.fold([x], [0.0; 2], |[sum, powers], [x]| {
            let (power, p) = power(x);
            [sum + p, powers + weighed(p, p * power)]
        });
        let [sum, powers] = team.sums(sums, 1);
        let share = math::rcp_approx(sum);
        let mean = powers * share;
        let entropy = math::log(sum) - LN_2 * mean;
        if team.leads() && !entropies.is_null() {
            *entropies.add(row) = entropy;
        }
        if gradient.is_null() {
            return;
        }
        // Rows that are no distribution have no gradient either.
        let factor = if entropy.is_nan() { entropy } else { -LN_2 * scale * share * *upstream.add(row) };
        team.store([x], [(gradient, g_stride)], |[x]| {
            let (power, p) = power(x);
            [weighed(p, p * (power - mean)) * factor]
        });
    }
}
