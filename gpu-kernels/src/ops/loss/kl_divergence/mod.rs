//! Divergence of the softmaxes of two rows of logits, with the gradient computed in the same pass.
//!
//! # Math
//! With p and q the softmaxes of two rows over a temperature, KL(p‖q) = Σ p·ln(p / q). The gradient by the logits of q is (q − p) / T, by
//! those of p it is p·(ln(p / q) − KL) / T: a student q learns from its teacher p by the former (forward), a student p by the latter
//! (reverse). The Jensen–Shannon divergence of weight β is β·KL(p‖m) + (1 − β)·KL(q‖m) with m = β·p + (1 − β)·q, and its gradient by
//! the logits of q is (1 − β)·q·(ln(q / m) − KL(q‖m)) / T.
//!
//! # Layout
//! `from`, `to` and `gradient` are rows of d adjacent elements, each at a stride of its own; the gradient may be written over the row that
//! it is by. `targets`, `dlosses` and `losses` have an element a row.
//!
//! # Mapping
//! One [`Team`] per row, which holds both rows of it in registers: logits are read once. See [`rows`]. A loss alone,
//! except Jensen–Shannon's, needs no row twice: where both rows are too long for a block to hold, one block streams them
//! instead, with loads in flight while it computes. A block or a cluster that holds 16-bit rows has later ones
//! [fetched](Team::fetch_ahead) into L2, those half a wave of blocks ahead. Gradients of rows that need a cluster, except Jensen–Shannon's, are
//! computed by [`ring`] if it [holds](ring::holds) the rows.
//!
//! # Shared memory
//! Seven values per warp of the team that shares a row; of a cluster, a copy of them in each block.
//!
//! # Numerics
//! Differences of logits are taken between numbers relative to the maxima: large logits and an offset between the rows
//! cost no accuracy. A thread's sums are relative to its own maxima, and are rescaled to the rows' when threads
//! combine: one reduction for maxima and sums. Exponents are base 2, ex2.approx of 2⁻²² relative; sums are f32 in a
//! fixed order. A class whose probability is below 2⁻¹²⁶ of the greatest counts as probability 0: it adds nothing where
//! it is the weight, and makes the divergence +∞ where it is the divisor. The Jensen–Shannon divergence computes ln(p /
//! m) from the difference of the logarithms, ln(q / p), so that nothing overflows.
//!
//! +∞, NaN or nothing but −∞ in either row make loss and gradient NaN. The gradient by q of an infinite divergence is as of any other; the
//! one by p is −∞, and NaN where q is 0. A row whose target is ignored has loss and gradient 0 and is not read; one whose target is no
//! class has gradient 0 and a loss of NaN.
//!
//! # Cost
//! Two reads and one write of rows × d elements, four exponentials per element, seven and two logarithms for
//! Jensen–Shannon: at most memory bandwidth. Two long rows take half of the registers of a cluster, so that few blocks
//! are there at once, and loads, sums and stores overlap in part. A loss alone has two exponentials. Rows that no team
//! holds are read once more for each step: sums, Jensen–Shannon's, the gradient.
//!
//! # Limits
//! 2³¹ − 1 blocks, 2³¹ − 1 classes.
//!
//! # Sources
//! Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network" (arXiv:1503.02531); Milakov and Gimelshein, "Online normalizer
//! calculation for softmax" (arXiv:1805.02867), for sums that move; Gu et al., "MiniLLM" (arXiv:2306.08543), for the reverse; Agarwal
//! et al., "On-Policy Distillation of Language Models" (arXiv:2306.13649), for the weight β.

pub mod ring;

use core::array;
use core::f32::consts::{LN_2, LOG2_E};

use cuda_std::float::Element;
use cuda_std::launch::Fields;
use cuda_std::{kernel, math};

use super::factor_of;
use crate::ops::softmax::{row_kernels, shift};
use crate::rows::{self, Block, Cluster, Lanes, Merge, Stream, Streamed, Team, Warp};

/// KL(from‖to), its gradient by the logits of `to`.
pub const BY_TO: u32 = 0;
/// KL(from‖to), its gradient by the logits of `from`.
pub const BY_FROM: u32 = 1;
/// The Jensen–Shannon divergence, its gradient by the logits of `to`.
pub const JENSEN_SHANNON: u32 = 2;

/// The parameters of a divergence.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Terms {
    /// One of the above.
    pub kind: u32,
    /// The weight of `from` in the mixture, between 0 and 1.
    pub beta: f32,
    /// 1 / T.
    pub scale: f32,
    /// The target of rows that do not count.
    pub ignored: i32,
}

// SAFETY: four 4-byte numbers.
unsafe impl Fields for Terms {}

/// log₂(m / p) and log₂(m / q) of the mixture m = β·p + (1 − β)·q, where log₂(q / p) = `apart`: what is added to 1 is at most 1.
#[inline(always)]
fn mixture(apart: f32, beta: f32) -> [f32; 2] {
    let less = math::ex2_approx_ftz(-apart.abs());
    let (greater, lesser) = if apart > 0.0 { (1.0 - beta, beta) } else { (beta, 1.0 - beta) };
    let log = math::lg2_approx(math::fma(lesser, less, greater));
    if apart > 0.0 { [log + apart, log] } else { [log, log - apart] }
}

/// `product` if its weight is not 0: zero times infinity counts as zero.
#[inline(always)]
fn weighed(weight: f32, product: f32) -> f32 {
    if weight > 0.0 { product } else { 0.0 }
}

/// The maxima of two rows of logits, and relative to them Σ p, Σ q and Σ p·log₂(p / q), where p and q are not yet
/// normalised.
#[derive(Clone, Copy)]
struct Moments {
    /// The factor of logits, with log₂ e.
    scale: f32,
}

impl Moments {
    /// Those of nothing.
    const NOTHING: [f32; 5] = [f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, 0.0, 0.0];

    /// Logarithms to base 2 of p and q, but for their sums.
    #[inline(always)]
    fn powers(&self, x: [f32; 2], max: [f32; 2]) -> [f32; 2] {
        array::from_fn(|i| (x[i] - max[i]) * self.scale)
    }

    /// Sums with another class.
    #[inline(always)]
    fn and(&self, [from, to, ratios]: [f32; 3], x: [f32; 2], max: [f32; 2]) -> [f32; 3] {
        let [u, v] = self.powers(x, max);
        let p = math::ex2_approx_ftz(u);
        let with = math::fma(p, u - v, ratios);
        [from + p, to + math::ex2_approx_ftz(v), if p > 0.0 { with } else { ratios }]
    }

    /// The sums rescaled to other maxima.
    #[inline(always)]
    fn moved(&self, [p_max, q_max, from, to, ratios]: [f32; 5], max: [f32; 2]) -> [f32; 3] {
        let [u, v] = self.powers([p_max, q_max], max);
        let [of_p, of_q] = [u, v].map(math::ex2_approx_ftz);
        [from * of_p, to * of_q, weighed(of_p, of_p * math::fma(from, u - v, ratios))]
    }

    /// Those of the rows, in every thread of the team.
    #[inline(always)]
    unsafe fn of<T: Element, P: Team>(self, team: &P, rows: [P::Row<T>; 2]) -> [f32; 5] {
        let own = if let (Some(p_max), Some(q_max)) = (team.held_max(rows[0]), team.held_max(rows[1])) {
            let max = [p_max, q_max].map(shift);
            let [from, to, ratios] = team.fold(rows, [0.0; 3], |sums, x| self.and(sums, x, max));
            [p_max, q_max, from, to, ratios]
        } else {
            team.fold_packs(rows, Self::NOTHING, |own, packs, _| {
                let greatest = |i: usize| packs[i].iter().fold(own[i], |max, x| max.max(*x));
                let [p_max, q_max] = [greatest(0), greatest(1)];
                let max = [p_max, q_max].map(shift);
                let mut sums = self.moved(own, max);
                for e in 0..packs[0].len() {
                    sums = self.and(sums, packs.map(|pack| pack[e]), max);
                }
                [p_max, q_max, sums[0], sums[1], sums[2]]
            })
        };
        team.merge(own, Self::NOTHING, 0, self)
    }
}

impl Merge<f32, 5> for Moments {
    #[inline(always)]
    fn merge(&self, a: [f32; 5], b: [f32; 5]) -> [f32; 5] {
        let [p_max, q_max] = array::from_fn(|i| a[i].max(b[i]));
        let [a, b] = [a, b].map(|own| self.moved(own, [p_max, q_max].map(shift)));
        [p_max, q_max, a[0] + b[0], a[1] + b[1], a[2] + b[2]]
    }

    // Over lanes the maxima are reduced first, so that each lane rescales its sums once.
    #[inline(always)]
    unsafe fn merge_lanes<const W: u32>(&self, own: [f32; 5]) -> [f32; 5] {
        let [p_max, q_max] = rows::butterfly::<W, _, 2>([own[0], own[1]], |a, b| array::from_fn(|i| a[i].max(b[i])));
        let moved = self.moved(own, [p_max, q_max].map(shift));
        let [from, to, ratios] = rows::butterfly::<W, _, 3>(moved, |a, b| array::from_fn(|i| a[i] + b[i]));
        [p_max, q_max, from, to, ratios]
    }
}

/// How the loss treats a row.
#[derive(Clone, Copy)]
struct Role {
    counts: bool,
    /// Whether it has no class because its target is the ignored one.
    is_ignored: bool,
}

impl Role {
    #[inline(always)]
    unsafe fn of(targets: *const i32, row: usize, d: usize, ignored: i32) -> Self {
        if targets.is_null() {
            return Self { counts: true, is_ignored: false };
        }
        let target = *targets.add(row);
        let is_class = target >= 0 && (target as usize) < d;
        Self { counts: is_class && target != ignored, is_ignored: target == ignored }
    }

    /// 1 / Σ p and 1 / Σ q, and Σ p·log₂(p / q) without the difference of the sums. A row that does not count has zero
    /// probabilities.
    #[inline(always)]
    fn shares(&self, [from, to, ratios]: [f32; 3]) -> ([f32; 2], f32) {
        let shares = [from, to].map(|sum| if self.counts { math::rcp_approx(sum) } else { 0.0 });
        (shares, ratios * shares[0])
    }

    /// The factor of the gradient, for a row with this loss: a NaN loss makes it NaN.
    #[inline(always)]
    fn factor(&self, factor: f32, loss: f32) -> f32 {
        if self.counts && loss.is_nan() { loss } else { factor }
    }

    /// KL(p‖q).
    #[inline(always)]
    fn loss(&self, from_sum: f32, of_to: f32, mean: f32) -> f32 {
        if self.counts {
            math::fma(LN_2, mean, -math::log(from_sum * of_to))
        } else if self.is_ignored {
            0.0
        } else {
            f32::NAN
        }
    }
}

/// KL(from‖to) of rows that are read once, by a team `P` a row.
///
/// # Safety
/// `from` and `to` are valid for reads of `rows` rows of `d` elements at their strides, `targets` is null or valid for reads and `losses` valid for
/// writes of `rows` elements. rows is at least 1, d below 2³¹.
#[kernel(
    dtypes(T: float),
    types(P: Streamed<2>),
    block = P::THREADS,
    min_blocks = rows::blocks::<P>(2),
    shared = <P as Team>::Partials<5>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn kl_divergence_loss<T: Element, P: Team>(
    from: *const T,
    to: *const T,
    targets: *const i32,
    losses: *mut f32,
    from_stride: u64,
    to_stride: u64,
    terms: Terms,
    rows: u64,
    d: u64,
) {
    let Some(team) = P::of(rows, d) else { return };
    let role = Role::of(targets, team.row() as usize, team.columns(), terms.ignored);
    let team = if role.counts { team } else { team.prefix(0) };
    let x = [(from, from_stride), (to, to_stride)].map(|row| team.load_or(row, f32::NEG_INFINITY));
    let [_, _, from, to, ratios] = Moments { scale: terms.scale * LOG2_E }.of::<T, P>(&team, x);
    let ([_, of_to], mean) = role.shares([from, to, ratios]);
    if team.leads() {
        *losses.add(team.row() as usize) = role.loss(from, of_to, mean);
    }
}

row_kernels! {
    /// Divergences and, where `gradient` is not null, their gradients times `share` and `dlosses` of the row where those are not null; a team
    /// `P` a row.
    ///
    /// # Safety
    /// `from` and `to` are valid for reads and `gradient` null or valid for writes of `rows` rows of `d` elements at their strides, the
    /// last the rows of one of them or apart; `targets` and `dlosses` are null or valid for reads and `losses` null or valid for writes of
    /// `rows` elements, `share` null or valid for a read. rows is at least 1, d below 2³¹, and rows are such as the team holds.
    kl_divergence, kl_divergence_cluster: 7 partials, 3 inputs;
    |team: P, T| (
        from: *const T,
        to: *const T,
        targets: *const i32,
        dlosses: *const f32,
        share: *const f32,
        losses: *mut f32,
        gradient: *mut T,
        from_stride: u64,
        to_stride: u64,
        g_stride: u64,
        terms: Terms,
    ) {
        let Terms { kind, beta, scale, ignored } = terms;
        let row = team.row() as usize;
        let role = Role::of(targets, row, team.columns(), ignored);
        let team = if role.counts { team } else { team.prefix(0) };
        let inputs = [(from, from_stride), (to, to_stride)];
        let x = inputs.map(|row| team.load_own_or(row, f32::NEG_INFINITY));
        let counts = |row: usize| Role::of(targets, row, team.columns(), ignored).counts;
        // Rows of f32, with half the work per byte, keep memory busy without prefetching.
        if size_of::<T>() == 2 {
            inputs.into_iter().for_each(|row| team.fetch_ahead(row, rows::half_wave::<P>(2), counts));
        }

        let moments = Moments { scale: scale * LOG2_E };
        let [p_max, q_max, from_sum, to_sum, ratios] = moments.of::<T, P>(&team, x);
        let max = [p_max, q_max].map(shift);
        let powers = |x: [f32; 2]| moments.powers(x, max);
        let (shares, mean) = role.shares([from_sum, to_sum, ratios]);
        let mut loss = role.loss(from_sum, shares[1], mean);

        // log₂ of Σq / Σp: the error of the difference of two powers.
        let offset = math::lg2_approx(from_sum * shares[1]);
        let mut of_to = 0.0;
        if kind == JENSEN_SHANNON {
            let sums = team.fold(x, [0.0; 2], |[from, to], x| {
                let [u, v] = powers(x);
                let [p, q] = [u, v].map(math::ex2_approx_ftz);
                let [of_p, of_q] = mixture(v - u + offset, beta);
                [from - weighed(p, p * of_p), to - weighed(q, q * of_q)]
            });
            let [from, to] = team.sums(sums, 5);
            of_to = to * shares[1];
            if role.counts {
                loss = LN_2 * math::fma(beta, from * shares[0], (1.0 - beta) * of_to);
            }
        }
        if team.leads() && !losses.is_null() {
            *losses.add(row) = loss;
        }
        if gradient.is_null() {
            return;
        }
        let factor = role.factor(scale * factor_of(role.counts, row, [dlosses, share]), loss);
        let out = [(gradient, g_stride)];
        if kind == BY_TO {
            let [of_p, of_q] = shares.map(|share| share * factor);
            team.store(x, out, |x| {
                let [p, q] = powers(x).map(math::ex2_approx_ftz);
                [math::fma(q, of_q, -(p * of_p))]
            });
        } else if kind == BY_FROM {
            let factor = shares[0] * factor * LN_2;
            team.store(x, out, |x| {
                let [u, v] = powers(x);
                let p = math::ex2_approx_ftz(u);
                [weighed(p, p * (u - v - mean)) * factor]
            });
        } else {
            let factor = -(1.0 - beta) * shares[1] * factor * LN_2;
            team.store(x, out, |x| {
                let [u, v] = powers(x);
                let q = math::ex2_approx_ftz(v);
                let [_, of_q] = mixture(v - u + offset, beta);
                [weighed(q, q * (of_q + of_to)) * factor]
            });
        }
    }
}
