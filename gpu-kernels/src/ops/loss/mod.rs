//! Losses over rows of logits, and over the log-probabilities of tokens.

pub mod cross_entropy;
pub mod dpo;
pub mod entropy;
pub mod grpo;
pub mod kl_divergence;
pub mod linear_cross_entropy;
pub mod linear_dpo;
pub mod linear_entropy;
pub mod linear_grpo;
pub mod linear_kl_divergence;
pub mod linear_log_probs;
