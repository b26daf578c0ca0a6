//! Cross-entropy of rows of logits, with the gradient computed in the same pass.
//!
//! # Math
//! With p = softmax(x), L = ln Σ e^x and the target t of a row:
//! loss = (1 − ε)·wₜ·(L − xₜ) + ε/C · Σ w·(L − x) + z·L², with label smoothing ε, class weights w and C classes. Its derivative by x is
//! A·p − ε/C·w, less B = (1 − ε)·wₜ at the target, where A = B + ε/C · Σ w + 2·z·L: what is multiplied by p is what the parts of the loss
//! that contain L weigh. A soft cap c puts c·tanh(x / c) in place of x, and its slope 1 − tanh² into the gradient.
//!
//! # Layout
//! `logits` and `gradient` are rows of d adjacent elements, `x_stride` and `g_stride` elements apart; they may be the same memory.
//! `targets`, `losses` and `lse` have an element a row.
//!
//! # Mapping
//! One [`Team`] per row, which holds it in registers: logits are read once, and their gradient overwrites them or is
//! written beside them. See [`rows`]. Without a gradient the logits are used only once: rows that would need a cluster
//! to be held are streamed through a block instead. With a gradient, a block with few others on its multiprocessor
//! prefetches the following row, because the first loads of its own row wait for the target.
//!
//! # Shared memory
//! Two values per warp of the team that shares a row, four in the general form; of a cluster, a copy of them in each block.
//!
//! # Numerics
//! Maximum and sum as in [softmax](crate::ops::softmax), f32 in a fixed order; ex2.approx, 2⁻²² relative. A row's loss
//! is composed in f64, so that of its three roundings only the logarithm's and the last remain. A target logit of −∞
//! gives a loss of +∞. +∞, NaN, or a row of only −∞ make the row's loss and gradient NaN; in the last case L is −∞. A
//! row whose target is ignored has loss, L and gradient 0 and is not read; one whose target is not a class has gradient
//! 0 and a loss of NaN. Neither weights nor the upstream gradient change that.
//!
//! # Cost
//! One read and one write of rows × d elements, two exponentials per element: bound by memory bandwidth. Smoothing,
//! weights and a soft cap are handled by a separate, general form, so that the plain form does not pay for them.
//!
//! One exponential would suffice if e^(x − max) replaced x when it is first computed. This was implemented, and is
//! slower. On an H200 two exponentials for each of 8192 × 131072 elements keep the special-function units, 16 results
//! per clock and multiprocessor, busy for 0.6 ms, concurrently with 1.0 ms of memory traffic: saving one of them
//! shortens nothing that is on the critical path. The exponentials also have to be kept in f32, because a rounding to
//! 16 bits would appear in the gradient: 64 registers per thread in place of 32, and rows of 64 KiB on a multiprocessor
//! at a time in place of 128, which load, reduce and store in turn. In bf16 8192 × 131072 then took 1.48 ms in place of
//! 1.09, and 1.36 with half the packs and twice the threads; 8192 × 32768 took 0.38 and 0.34 in place of 0.29; 8192 ×
//! 4096, where registers are left, took 0.054 either way. Keeping them in shared memory would cost 8 bytes per element,
//! which at 128 per clock takes as long as the exponential. Rows of f32 have the room, but at 0.94 of a copy's rate
//! little to gain: the form changed nothing in the time of an earlier, slower kernel, and the gradient's error grew by
//! 14 to 22%, because a thread's values are relative to its own maximum, and converting them to the row's maximum takes
//! one more factor.
//!
//! # Limits
//! 2³¹ − 1 blocks, 2³² − 1 rows, 2³¹ − 1 classes.
//!
//! # Sources
//! Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867); Szegedy et al., "Rethinking the Inception
//! Architecture" (arXiv:1512.00567), for label smoothing; Chowdhery et al., "PaLM" (arXiv:2204.02311), for z·L².

pub mod targets;

use core::f32::consts::LOG2_E;

use cuda_std::float::Element;
use cuda_std::launch::Fields;
use cuda_std::math;

use super::factor_of;
use crate::ops::softmax::{MaxAndSum, Powers, shift};
use crate::rows::{self, Block, Cluster, Lanes, MAX_THREADS, Merge, Stream, Team, Warp};

/// The parameters of a loss.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Terms {
    /// ε.
    pub smoothing: f32,
    /// z.
    pub z: f32,
    /// The soft cap, or 0.
    pub cap: f32,
    /// The target of rows that do not count.
    pub ignored: i32,
}

// SAFETY: four 4-byte numbers.
unsafe impl Fields for Terms {}

/// Maximum, sum of exponentials, Σ w·x and Σ w.
struct Statistics(MaxAndSum);

impl Merge<f32, 4> for Statistics {
    #[inline(always)]
    fn merge(&self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        let [max, sum] = self.0.merge([a[0], a[1]], [b[0], b[1]]);
        [max, sum, a[2] + b[2], a[3] + b[3]]
    }

    #[inline(always)]
    unsafe fn merge_lanes<const W: u32>(&self, values: [f32; 4]) -> [f32; 4] {
        let [max, sum] = self.0.merge_lanes::<W>([values[0], values[1]]);
        let [products, weights] = rows::butterfly::<W, _, 2>([values[2], values[3]], |a, b| [a[0] + b[0], a[1] + b[1]]);
        [max, sum, products, weights]
    }
}

/// c·tanh(x / c), and its slope.
#[inline(always)]
fn capped(x: f32, cap: f32) -> (f32, f32) {
    if cap > 0.0 {
        let t = math::tanh(x * (1.0 / cap));
        (cap * t, 1.0 - t * t)
    } else {
        (x, 1.0)
    }
}

macro_rules! kernel {
    ($name:ident, general: $general:literal, [$($teams:tt)+] $($launch:tt)*) => {
        /// Losses, logsumexps and, where `gradient` is not null, the gradients of the logits, times `share` and `dlosses` of the row where
        /// those are not null; a team `P` a row.
        ///
        /// # Safety
        /// `logits` is valid for reads and `gradient` null or valid for writes of `rows` rows of `d` elements at their strides, the two the
        /// same rows or apart; `targets` is valid for reads and `losses` and `lse` for writes of `rows` elements; `dlosses` is null or valid
        /// for reads of as many, `share` of one, and `weights` of `d`. rows is at least 1, d below 2³¹, and rows are such as the team
        /// holds. Unless the form is the general one, there are neither smoothing nor weights nor a cap.
        #[cuda_std::kernel(
            dtypes(T: float),
            types(P: $($teams)+),
            block = P::THREADS,
            min_blocks = if $general { 1 } else { rows::blocks::<P>(if P::PACKS < 8 { 2 } else { 1 }) },
            shared = <P as Team>::Partials<4>,
            no_spills
            $($launch)*
        )]
        #[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
        pub unsafe fn $name<T: Element, P: Team>(
            logits: *const T,
            targets: *const i32,
            weights: *const f32,
            dlosses: *const f32,
            share: *const f32,
            losses: *mut f32,
            lse: *mut f32,
            gradient: *mut T,
            rows: u64,
            d: u64,
            x_stride: u64,
            g_stride: u64,
            terms: Terms,
        ) {
            let Some(team) = P::of(rows, d) else { return };
            let out = Results { losses, lse, gradient: (gradient, g_stride) };
            row::<T, P, $general>(team, (logits, x_stride), targets, weights, [dlosses, share], out, terms);
        }
    };
}

kernel!(cross_entropy, general: false, [Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream]);
kernel!(cross_entropy_cluster, general: false, [Cluster<8>], cluster = rows::CLUSTER, arch = "sm_90a");
kernel!(cross_entropy_general, general: true, [Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream]);
kernel!(cross_entropy_general_cluster, general: true, [Cluster<8>], cluster = rows::CLUSTER, arch = "sm_90a");

/// 1 / x of a normal x, to half an ulp or nearly so.
#[inline(always)]
fn reciprocal(x: f32) -> f32 {
    let approximate = math::rcp_approx(x);
    math::fma(approximate, math::fma(-x, approximate, 1.0), approximate)
}

/// The destination of the results.
struct Results<T> {
    losses: *mut f32,
    lse: *mut f32,
    gradient: (*mut T, u64),
}

#[inline(always)]
unsafe fn row<T: Element, P: Team, const GENERAL: bool>(
    team: P,
    (logits, x_stride): (*const T, u64),
    targets: *const i32,
    weights: *const f32,
    factors: [*const f32; 2],
    out: Results<T>,
    Terms { smoothing, z, cap, ignored }: Terms,
) {
    let row = team.row() as usize;
    let classes = team.columns();
    let counts = |target: i32| target >= 0 && (target as usize) < classes && target != ignored;
    let target = *targets.add(row);
    let is_wanted = |row: usize| counts(*targets.add(row));
    let counts = counts(target);
    let team = if counts { team } else { team.prefix(0) };
    let target = target as usize;

    let x = team.load_own_or((logits, x_stride), f32::NEG_INFINITY);
    // Rows that are only read keep memory busy without prefetching.
    if !out.gradient.0.is_null() {
        team.fetch_ahead((logits, x_stride), 2 * MAX_THREADS, is_wanted);
    }
    let cap_of = |x: f32| if GENERAL { capped(x, cap) } else { (x, 1.0) };
    let weight_of = |class: usize| if GENERAL && !weights.is_null() { *weights.add(class) } else { 1.0 };
    let spread = if GENERAL && counts { smoothing / team.columns() as f32 } else { 0.0 };
    let statistics = MaxAndSum { scale: LOG2_E };
    let nothing = [f32::NEG_INFINITY, 0.0, 0.0, 0.0];
    // The thread that has the target's logit writes the row's loss.
    let nobody = (false, 0.0);
    let chosen_of = |chosen: (bool, f32), pack: &[f32], at: usize| {
        // There are less than 2³¹ classes: a difference of 32 bits suffices.
        let place = (target as u32).wrapping_sub(at as u32) as usize;
        if place >= pack.len() {
            return chosen;
        }
        // Comparisons replace an index, because registers cannot be indexed.
        (true, (0..pack.len()).fold(0.0, |chosen, e| if e == place { pack[e] } else { chosen }))
    };
    let held = if GENERAL { None } else { team.held_max(x) };
    let (state, (has_target, chosen)) = if let Some(own) = held {
        let powers = Powers::of::<T>(shift(own), LOG2_E);
        let (sum, chosen) = team.fold_packs([x], (0.0, nobody), |(sum, chosen), [pack], at| {
            (pack.iter().fold(sum, |sum, x| sum + powers.at(*x)), chosen_of(chosen, pack, at))
        });
        ([own, sum * powers.correction, 0.0, 0.0], chosen)
    } else {
        team.fold_packs([x], (nothing, nobody), |(state, chosen), [pack], at| {
            let [max, sum, mut products, mut total] = state;
            // A soft cap preserves the order.
            let greatest = max.max(cap_of(pack.iter().fold(f32::NEG_INFINITY, |max, x| max.max(*x))).0);
            let shift = shift(greatest);
            let mut sum = sum * statistics.exp(max - shift);
            for e in 0..pack.len() {
                let x = cap_of(pack[e]).0;
                sum += statistics.exp(x - shift);
                if spread > 0.0 {
                    let weight = weight_of(at + e);
                    products += weight * x;
                    total += weight;
                }
            }
            ([greatest, sum, products, total], chosen_of(chosen, pack, at))
        })
    };
    let [max, sum, products, total] = if GENERAL {
        team.merge(state, nothing, 0, Statistics(MaxAndSum { scale: LOG2_E }))
    } else {
        let [max, sum] = team.merge([state[0], state[1]], [nothing[0], 0.0], 0, MaxAndSum { scale: LOG2_E });
        [max, sum, 0.0, 0.0]
    };
    let max = shift(max);
    // In a row of −∞ the sum is 0: its logarithm is −∞, which makes loss and gradient NaN.
    let (log, share) = if counts { (math::log(sum), reciprocal(sum)) } else { (0.0, 0.0) };
    let lse = max + log;

    let on_target = if !GENERAL {
        1.0
    } else if counts {
        (1.0 - smoothing) * weight_of(target)
    } else {
        0.0
    };
    if has_target {
        let chosen = cap_of(chosen).0;
        // The difference is taken first, and is exact: adding the logarithm to large logits would lose it.
        let apart = (f64::from(max) - f64::from(chosen)) + f64::from(log);
        let mut loss = on_target * apart as f32 + z * lse * lse;
        if spread > 0.0 {
            loss += spread * (total * lse - products);
        }
        *out.losses.add(row) = loss;
        *out.lse.add(row) = lse;
    } else if !counts && team.leads() {
        *out.losses.add(row) = if target as i32 == ignored { 0.0 } else { f32::NAN };
        *out.lse.add(row) = 0.0;
    }
    if out.gradient.0.is_null() {
        return;
    }
    let factor = factor_of(counts, row, factors);
    let of_p = (on_target + spread * total + 2.0 * z * lse) * share * factor;
    let on_target = on_target * factor;
    if !GENERAL {
        let powers = Powers::of::<T>(max, LOG2_E);
        let of_p = of_p * powers.correction;
        let gradient = |[x]: [f32; 1]| [powers.at(x) * of_p];
        team.store_but_one([x], [out.gradient], target, gradient, |[of_p]| [of_p - on_target]);
        return;
    }
    team.store_places([x], [out.gradient], |class, [x]| {
        let (x, slope) = cap_of(x);
        let mut gradient = statistics.exp(x - max) * of_p;
        if class == target {
            gradient -= on_target;
        }
        if spread > 0.0 {
            gradient -= spread * weight_of(class) * factor;
        }
        [gradient * slope]
    });
}
