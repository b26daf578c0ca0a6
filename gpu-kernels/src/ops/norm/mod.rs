//! Normalisation of rows: what the operators share is [`rows`](crate::rows)', and each file is its math.

pub mod rms_norm;
