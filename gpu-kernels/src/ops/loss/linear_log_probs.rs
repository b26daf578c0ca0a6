//! Log-probabilities of chosen tokens under the logits of a linear layer, by chunks of rows.
//!
//! # Math
//! With hidden states H (t × d), a weight W (c × d) and one target per token, ℓ = −cross_entropy(H·Wᵀ). Losses can
//! replace log-probabilities in the losses that follow, but a policy's objective, and samplers, need the
//! log-probabilities themselves.
//!
//! # Layout
//! As in [`linear_cross_entropy`](super::linear_cross_entropy); the log-probabilities take the place of the losses.
//!
//! # Mapping
//! All chunks of [`linear_cross_entropy`](super::linear_cross_entropy) forward, and one thread per token that negates
//! its loss.
//!
//! # Shared memory
//! That of the kernels.
//!
//! # Numerics
//! As of the losses: f32, of logits that are rounded to the type of H. Tokens that do not count have 0, without a sign; those whose target is no
//! class NaN.
//!
//! # Cost
//! 2·t·c·d FLOPs, and 4 bytes a logit beside the product; the negation takes some microseconds.
//!
//! # Limits
//! 2³¹ − 1 tokens, classes and dimensions.
//!
//! # Sources
//! None.

use cuda_std::{kernel, thread};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// ℓ = −loss, in place; one thread per token.
///
/// # Safety
/// `losses` is valid for reads and writes of `tokens` elements, which are less than 2³¹.
#[kernel(block = BLOCK, no_spills)]
pub unsafe fn negate_losses(losses: *mut f32, tokens: u32) {
    let token = thread::block_idx_x() * BLOCK + thread::thread_idx_x();
    if token < tokens {
        let loss = losses.add(token as usize);
        // This is a difference, so that a loss of 0 gives 0 and not −0.
        *loss = 0.0 - *loss;
    }
}
