//! Normalisation of rows: [`rows`](crate::rows) has the code that the operators share, and each file is its formula.

pub mod add_rms_norm;
pub mod layer_norm;
pub mod layer_norm_backward;
pub mod rms_norm;
pub mod rms_norm_backward;
pub mod row;
