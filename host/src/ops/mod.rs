//! The operators: in each file the safe function, its reference, its cases, its tolerance and its cost.

mod elementwise;
pub mod model;

pub mod bias_mask_scale_add;
pub mod gelu;
pub mod gemm_bf16;
pub mod rms_norm;
pub mod sgemm;

pub use bias_mask_scale_add::bias_mask_scale_add;
pub use gelu::gelu;
pub use gemm_bf16::gemm_bf16;
pub use rms_norm::rms_norm;
pub use sgemm::sgemm;
