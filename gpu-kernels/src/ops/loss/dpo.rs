//! Direct preference optimisation over log-probabilities of tokens.
//!
//! # Math
//! Sequence s of the first half of 2n sequences is a chosen answer, sequence s + n the rejected one of the same pair, and π is the sum of a
//! sequence's log-probabilities. With h = β·((π_c − π_r) − (ρ_c − ρ_r)), ρ being those of a reference model or 0, the loss of a pair is
//! −(1 − ε)·ln σ(h) − ε·ln σ(−h). Its derivative by each log-probability is β·(ε·σ(h) − (1 − ε)·σ(−h)) in the chosen answer, and that negated in
//! the rejected one.
//!
//! # Layout
//! [Sequences](super::grpo::sequences) in one tensor; `reference` and `sums` have one element per sequence, `losses`
//! one per pair. The per-token values may be losses, −log p, in place of log-probabilities, and the derivative is then
//! by these: `sign` states which. `targets`, one i32 per token, may be null.
//!
//! # Mapping
//! A block a pair, which reads both of its sequences and writes their gradient.
//!
//! # Shared memory
//! Three values per warp.
//!
//! # Numerics
//! f32 in a fixed order. ln σ is a softplus, which neither overflows nor cancels. If the offsets are invalid, no
//! sequence is known: all sums and losses are NaN, and gradients 0. A token whose target is neither a class nor the
//! ignored index has this effect on its pair only: its log-probability is NaN, and it must not contribute to the
//! gradient of a layer's weight, which is a sum over all tokens.
//!
//! # Cost
//! A read and a write of 4 bytes per token: some microseconds.
//!
//! # Limits
//! 2³¹ − 1 tokens, 2³⁰ pairs.
//!
//! # Sources
//! Rafailov et al., "Direct Preference Optimization" (arXiv:2305.18290); Mitchell, "A note on DPO with noisy preferences", for ε.

use cuda_std::launch::Fields;
use cuda_std::{kernel, math, thread};

use super::cross_entropy::targets::FINE;
use super::grpo::sequences::{BLOCK, bounds};
use crate::rows::{BlockThreads, Threads};

/// The parameters of the loss.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Terms {
    /// β.
    pub beta: f32,
    /// ε.
    pub smoothing: f32,
    /// The factor of the pairs' losses in the gradient.
    pub share: f32,
    /// 1 of log-probabilities, −1 of losses.
    pub sign: f32,
    /// The exclusive upper bound of valid targets.
    pub classes: u32,
    /// The target of tokens that do not count.
    pub ignored: i32,
}

// SAFETY: six 4-byte numbers.
unsafe impl Fields for Terms {}

/// Losses of pairs, the sums of their sequences, and the derivative of the losses times `share` where `gradient` is not null; a block a pair.
///
/// # Safety
/// `values` is valid for reads of `tokens` elements, `targets` null or valid for as many, `gradient` null or valid for writes of as many, `offsets` for reads of one more than there are
/// sequences, two a block; `reference` is null or valid for reads and `sums` for writes of as many as sequences, `losses` of as many as
/// blocks, `bad` for a read.
#[kernel(block = BLOCK, shared = <BlockThreads as Threads>::Partials<3>, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn dpo(
    values: *const f32,
    targets: *const i32,
    offsets: *const i32,
    reference: *const f32,
    bad: *const u32,
    losses: *mut f32,
    sums: *mut f32,
    gradient: *mut f32,
    tokens: u32,
    terms: Terms,
) {
    let Terms { beta, smoothing, share, sign, classes, ignored } = terms;
    let (pair, pairs) = (thread::block_idx_x(), thread::grid_dim_x());
    let pair_of = [pair, pair + pairs];
    let is_fine = *bad == FINE;
    let of_nobody = (0, 0);
    let sequences = pair_of.map(|sequence| if is_fine { bounds(offsets, sequence, tokens) } else { of_nobody });
    let mut strangers = 0.0f32;
    let [chosen, rejected] = sequences.map(|(start, end)| {
        let (mut sum, mut token) = (0.0, start + thread::thread_idx_x());
        while token < end {
            sum += *values.add(token as usize);
            if !targets.is_null() {
                let target = *targets.add(token as usize);
                // As an unsigned number, a negative target is above all classes.
                if target != ignored && target as u32 >= classes {
                    strangers = 1.0;
                }
            }
            token += BLOCK;
        }
        sum
    });
    let [chosen, rejected, strangers] = BlockThreads::reduce([chosen, rejected, strangers], [0.0; 3], 0, |a, b| {
        [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
    });
    let [chosen, rejected] = if is_fine { [chosen * sign, rejected * sign] } else { [f32::NAN; 2] };
    let mut margin = chosen - rejected;
    if !reference.is_null() {
        margin -= *reference.add(pair_of[0] as usize) - *reference.add(pair_of[1] as usize);
    }
    let margin = beta * margin;
    if thread::thread_idx_x() == 0 {
        let loss = (1.0 - smoothing) * math::softplus(-margin) + smoothing * math::softplus(margin);
        *losses.add(pair as usize) = loss;
        *sums.add(pair_of[0] as usize) = chosen;
        *sums.add(pair_of[1] as usize) = rejected;
    }
    if gradient.is_null() {
        return;
    }
    if !is_fine {
        let mut token = pair * BLOCK + thread::thread_idx_x();
        while token < tokens {
            *gradient.add(token as usize) = 0.0;
            token += pairs * BLOCK;
        }
        return;
    }
    let slope = beta * (smoothing * math::sigmoid(margin) - (1.0 - smoothing) * math::sigmoid(-margin)) * share * sign;
    let slope = if strangers > 0.0 { 0.0 } else { slope };
    for ((start, end), slope) in [(sequences[0], slope), (sequences[1], -slope)] {
        let mut token = start + thread::thread_idx_x();
        while token < end {
            *gradient.add(token as usize) = slope;
            token += BLOCK;
        }
    }
}
