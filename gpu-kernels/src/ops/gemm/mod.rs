//! Matrix products.

pub mod gemm_bf16;
pub mod sgemm;
