//! Losses over rows of logits.

pub mod cross_entropy;
