//! Group relative policy optimisation over log-probabilities of tokens.
//!
//! # Math
//! With the ratio r = e^(ℓ − ℓ′) of a token's probability to that under the policy which drew it, and its sequence's advantage A, the token's
//! loss is −min(r·A, clip(r, 1 − ε₁, 1 + ε₂)·A) + β·(e^(ℓ″ − ℓ) − (ℓ″ − ℓ) − 1), where ℓ″ is the log-probability under a reference model; times
//! the token's weight. Its derivative by ℓ is −r·A, or 0 where the clipped product is the smaller, and β·(1 − e^(ℓ″ − ℓ)); times the weight.
//!
//! # Layout
//! [Sequences](sequences) in one tensor; `values`, `old`, `reference`, `losses` and `gradient` have one element per
//! token, `advantages` one per sequence, `weights` one per sequence or one for all. A call may cover a part of the
//! tokens, from `first` on. The per-token values may be losses, −log p, in place of log-probabilities, and the
//! derivative is then by these: `sign` states which.
//!
//! # Mapping
//! One thread per token, which finds its sequence by bisection of the offsets.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32; e^x within 2 ulp, and the penalty is computed from e^x − 1, which loses nothing near equal probabilities.
//! Without probabilities of the policy that drew the tokens, r is 1, and its derivative still follows ℓ. A token that
//! does not count has loss and gradient 0 and is not read. A token whose target is not a class, and every token if the
//! offsets are invalid, has a loss of NaN and gradient 0.
//!
//! # Cost
//! 24 bytes per token: some microseconds.
//!
//! # Limits
//! 2³¹ − 1 tokens and sequences.
//!
//! # Sources
//! Shao et al., "DeepSeekMath" (arXiv:2402.03300); Schulman, "Approximating KL Divergence" (2020), for the penalty; Yu et al., "DAPO"
//! (arXiv:2503.14476), for two bounds.

pub mod sequences;

use cuda_std::launch::Fields;
use cuda_std::{kernel, math, thread};

use self::sequences::{BLOCK, sequence_of};
use super::cross_entropy::targets::FINE;

/// The parameters of the loss.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Terms {
    /// 1 − ε₁ and 1 + ε₂.
    pub bounds: [f32; 2],
    /// β.
    pub beta: f32,
    /// 1 of log-probabilities, −1 of losses.
    pub sign: f32,
    /// The factor of the derivatives.
    pub scale: f32,
    /// The exclusive upper bound of valid targets.
    pub classes: u32,
    /// The target of tokens that do not count.
    pub ignored: i32,
    /// The distance of weights: 0 if there is one for all.
    pub weight_stride: u32,
    /// The first token.
    pub first: u32,
}

// SAFETY: nine 4-byte numbers.
unsafe impl Fields for Terms {}

/// Losses of `tokens` tokens from the first on, and their derivatives where `gradient` is not null; one thread per
/// token.
///
/// # Safety
/// `values`, `targets`, `losses`, and where they are not null `old`, `reference` and `gradient` are valid for reads and writes of `tokens`
/// elements: they start at the first. `offsets` is valid for reads of sequences + 1 elements, `advantages` of as many as sequences, of which there
/// is one, `weights` of as many or of one, `bad` of one.
#[kernel(block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn grpo(
    values: *const f32,
    targets: *const i32,
    offsets: *const i32,
    advantages: *const f32,
    old: *const f32,
    reference: *const f32,
    weights: *const f32,
    bad: *const u32,
    losses: *mut f32,
    gradient: *mut f32,
    tokens: u32,
    sequences: u32,
    terms: Terms,
) {
    let token = thread::block_idx_x() * BLOCK + thread::thread_idx_x();
    if token >= tokens {
        return;
    }
    let at = token as usize;
    let target = *targets.add(at);
    let (mut loss, mut slope) = (0.0, 0.0);
    if *bad != FINE {
        loss = f32::NAN;
    } else if target != terms.ignored {
        if target < 0 || target as u32 >= terms.classes {
            loss = f32::NAN;
        } else {
            let sequence = sequence_of(offsets, sequences, terms.first + token);
            let value = *values.add(at) * terms.sign;
            let advantage = *advantages.add(sequence as usize);
            let ratio = if old.is_null() { 1.0 } else { math::exp(value - *old.add(at)) };
            let [low, high] = terms.bounds;
            let (free, clipped) = (ratio * advantage, ratio.max(low).min(high) * advantage);
            loss = -math::min_nan(free, clipped);
            // NaN compares as not greater than anything.
            slope = if free > clipped { 0.0 } else { -free };
            if !reference.is_null() {
                let apart = *reference.add(at) - value;
                let power = math::expm1(apart);
                loss += terms.beta * (power - apart);
                slope -= terms.beta * power;
            }
            let weight = *weights.add((sequence * terms.weight_stride) as usize);
            (loss, slope) = (loss * weight, slope * weight * terms.sign * terms.scale);
        }
    }
    *losses.add(at) = loss;
    if !gradient.is_null() {
        *gradient.add(at) = slope;
    }
}
