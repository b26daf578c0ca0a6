//! Losses over rows of logits.

pub mod cross_entropy;
pub mod linear_cross_entropy;
