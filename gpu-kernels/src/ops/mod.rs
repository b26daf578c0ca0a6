//! One operator a file.

pub mod bias_mask_scale_add;
pub mod gelu;
pub mod gemm_bf16;
pub mod rms_norm;
pub mod sgemm;
