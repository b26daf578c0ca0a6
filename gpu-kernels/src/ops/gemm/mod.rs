//! Matrix products.

#[allow(clippy::module_inception, reason = "the family has the name of its first operator")]
pub mod gemm;
pub mod gemm_int8;
mod operand;
pub mod sgemm;
