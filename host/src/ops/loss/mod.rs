//! Losses over rows of logits, and over the log-probabilities of tokens.

mod batch;
pub mod cross_entropy;
pub mod dpo;
pub mod entropy;
pub mod grpo;
pub mod kl_divergence;
mod linear;
pub mod linear_cross_entropy;
pub mod linear_dpo;
pub mod linear_entropy;
pub mod linear_grpo;
pub mod linear_kl_divergence;
pub mod linear_log_probs;
mod logits;
mod sequences;

pub use batch::RowLosses;
pub use cross_entropy::{
    CrossEntropy, Losses, cross_entropy, cross_entropy_backward, cross_entropy_backward_into, cross_entropy_in_place,
    cross_entropy_with_gradient, cross_entropy_with_gradient_into,
};
pub use dpo::{Dpo, DpoLosses, dpo};
pub use entropy::{entropy, entropy_backward, entropy_backward_into, entropy_into};
pub use grpo::{Grpo, Normalisation, grpo};
pub use kl_divergence::{
    Divergence, KlDivergence, kl_divergence, kl_divergence_backward, kl_divergence_backward_into,
    kl_divergence_with_gradient, kl_divergence_with_gradient_into,
};
pub use linear::{Linear, LinearGradients};
pub use linear_cross_entropy::{
    LinearCrossEntropy, linear_cross_entropy, linear_cross_entropy_backward, linear_cross_entropy_backward_into,
    linear_cross_entropy_with_gradient, linear_cross_entropy_with_gradient_into,
};
pub use linear_dpo::{linear_dpo, linear_dpo_with_gradient, linear_dpo_with_gradient_into};
pub use linear_entropy::{
    Entropy, linear_entropy, linear_entropy_into, linear_entropy_with_gradient, linear_entropy_with_gradient_into,
};
pub use linear_grpo::{linear_grpo, linear_grpo_with_gradient, linear_grpo_with_gradient_into};
pub use linear_kl_divergence::{
    linear_kl_divergence, linear_kl_divergence_backward, linear_kl_divergence_backward_into,
    linear_kl_divergence_with_gradient, linear_kl_divergence_with_gradient_into,
};
pub use linear_log_probs::{LogProbs, TokenLogProbs, linear_log_probs};
