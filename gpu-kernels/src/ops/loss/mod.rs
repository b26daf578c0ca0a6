//! Losses over rows of logits.

pub mod cross_entropy;
pub mod entropy;
pub mod kl_divergence;
pub mod linear_cross_entropy;
