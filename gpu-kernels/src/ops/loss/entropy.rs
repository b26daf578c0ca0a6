//! Entropy of the softmax of rows of logits, and its gradient.
//!
//! # Math
//! With p = softmax(x / T), H = −Σ p·ln p. Its gradient by x is −p·(ln p + H) / T.
//!
//! # Layout
//! `logits` and `gradient` are rows of d adjacent elements, each at a stride of its own; they may be the same memory. `entropies` and
//! `dentropies` have an element a row.
//!
//! # Mapping
//! One [`Team`] per row, which holds it in registers so that it is read once: see [`rows`]. Without a gradient the row
//! is used only once: rows that would need a cluster to be held are streamed through a block instead, whose loads wait
//! for no reduction.
//!
//! # Shared memory
//! Three values per warp of the team that shares a row; of a cluster, a copy of them in each block.
//!
//! # Numerics
//! Exponents below the maximum are base 2, ex2.approx of 2⁻²² relative, and H is ln Σ e^(x − max) less their mean: two
//! terms of the same sign, so that nothing cancels. A thread's sums are relative to its own maximum, and are rescaled
//! to the row's maximum when threads combine: one reduction for all three. Sums are f32 in a fixed order. −∞ adds
//! nothing and has gradient 0. +∞, NaN and rows of only −∞ make the entropy and the gradient NaN.
//!
//! # Cost
//! One read of rows × d elements and an exponential of each; with the gradient a write and another exponential: bound
//! by memory bandwidth. Seven instructions per element for the sums, nine where the maximum so far is taken along, six
//! for the gradient.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! The formula; Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867), for sums that move; Williams and Peng,
//! "Function Optimization Using Connectionist Reinforcement Learning Algorithms" (Connection Science, 1991), for the bonus in objectives.

use core::f32::consts::{LN_2, LOG2_E};

use cuda_std::float::Element;
use cuda_std::math;

use crate::ops::softmax::{row_kernels, shift};
use crate::rows::{self, Block, Cluster, Lanes, MAX_THREADS, Merge, Stream, Team, Warp};

/// Maxima, and relative to them Σ p and Σ p·log₂ p, where p is not yet normalised.
#[derive(Clone, Copy)]
struct Moments {
    /// The factor of x, with log₂ e.
    scale: f32,
}

impl Moments {
    /// Those of nothing.
    const NOTHING: [f32; 3] = [f32::NEG_INFINITY, 0.0, 0.0];

    /// log₂ p of x relative to `max`, and p. The logarithm of 0 is kept finite, so that its product with p is 0.
    #[inline(always)]
    fn power(&self, x: f32, max: f32) -> (f32, f32) {
        let power = math::max_nan((x - max) * self.scale, -256.0);
        (power, math::ex2_approx_ftz(power))
    }

    /// The sums after one more element.
    #[inline(always)]
    fn and(&self, [sum, powers]: [f32; 2], x: f32, max: f32) -> [f32; 2] {
        let (power, p) = self.power(x, max);
        [sum + p, math::fma(p, power, powers)]
    }

    /// The sums rescaled to another maximum.
    #[inline(always)]
    fn moved(&self, [own, sum, powers]: [f32; 3], max: f32) -> [f32; 2] {
        let (power, factor) = self.power(own, max);
        [sum * factor, math::fma(power, sum, powers) * factor]
    }
}

impl Merge<f32, 3> for Moments {
    #[inline(always)]
    fn merge(&self, a: [f32; 3], b: [f32; 3]) -> [f32; 3] {
        let max = a[0].max(b[0]);
        let ([a_sum, a_powers], [b_sum, b_powers]) = (self.moved(a, shift(max)), self.moved(b, shift(max)));
        [max, a_sum + b_sum, a_powers + b_powers]
    }

    // Over lanes the maximum is reduced first, so that each lane rescales its sums once.
    #[inline(always)]
    unsafe fn merge_lanes<const W: u32>(&self, own: [f32; 3]) -> [f32; 3] {
        let [max] = rows::butterfly::<W, _, 1>([own[0]], |[a], [b]| [a.max(b)]);
        let moved = self.moved(own, shift(max));
        let [sum, powers] = rows::butterfly::<W, _, 2>(moved, |a, b| [a[0] + b[0], a[1] + b[1]]);
        [max, sum, powers]
    }
}

row_kernels! {
    /// Entropies where `entropies` is not null, and gradients times `dentropies` of the row where `gradient` is not; a team `P` a row.
    ///
    /// # Safety
    /// `logits` is valid for reads and `gradient` null or valid for writes of `rows` rows of `d` elements at their strides, the two the same
    /// rows or apart; `entropies` is null or valid for writes of `rows` elements, and `dentropies` valid for reads of as many if there is a
    /// gradient. rows is at least 1, and rows are such as the team holds.
    entropy, entropy_cluster: 3 partials, 1 inputs;
    |team: P, T| (
        logits: *const T,
        dentropies: *const f32,
        entropies: *mut f32,
        gradient: *mut T,
        x_stride: u64,
        g_stride: u64,
        scale: f32,
    ) {
        let row = team.row() as usize;
        let x = team.load_own_or((logits, x_stride), f32::NEG_INFINITY);
        // Loaded early, so that no thread waits for it between the sums and the gradient.
        let dentropy = if gradient.is_null() { 0.0 } else { *dentropies.add(row) };
        // Rows of f32, with half the work per byte, keep memory busy without prefetching.
        if !gradient.is_null() && size_of::<T>() == 2 {
            team.fetch_ahead((logits, x_stride), 2 * MAX_THREADS, |_| true);
        }
        let moments = Moments { scale: scale * LOG2_E };
        let own = if let Some(own) = team.held_max(x) {
            let max = shift(own);
            let [sum, powers] = team.fold([x], [0.0; 2], |sums, [x]| moments.and(sums, x, max));
            [own, sum, powers]
        } else {
            team.fold_packs([x], Moments::NOTHING, |own, [pack], _| {
                let greatest = pack.iter().fold(own[0], |max, x| max.max(*x));
                let max = shift(greatest);
                let [sum, powers] = pack.iter().fold(moments.moved(own, max), |sums, x| moments.and(sums, *x, max));
                [greatest, sum, powers]
            })
        };
        let [max, sum, powers] = team.merge(own, Moments::NOTHING, 0, moments);
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
        let factor = if entropy.is_nan() { entropy } else { -LN_2 * scale * share * dentropy };
        let max = shift(max);
        team.store([x], [(gradient, g_stride)], |[x]| {
            let (power, p) = moments.power(x, max);
            // The factor comes last: times a logarithm, that of a low temperature may overflow where p is 0.
            [p * (power - mean) * factor]
        });
    }
}
