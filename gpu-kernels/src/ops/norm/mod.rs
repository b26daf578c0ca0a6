//! Normalisation of rows: what the operators share is [`rows`](crate::rows)', and each file is its math.

pub mod add_rms_norm;
pub mod layer_norm;
pub mod layer_norm_backward;
pub mod rms_norm;
pub mod rms_norm_backward;
pub mod row;
