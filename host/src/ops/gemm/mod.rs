//! Matrix products.

pub(crate) mod cost;
mod epilogue;
#[allow(clippy::module_inception, reason = "the family has the name of its first operator")]
pub mod gemm;
pub mod gemm_fp8;
pub mod gemm_fp8_blocks;
pub mod gemm_grouped;
pub mod gemm_grouped_backward;
pub mod gemm_grouped_masked;
pub mod gemm_int8;
pub mod gemm_mxfp8;
pub mod gemm_tf32;
pub mod gemm_w4a16;
pub mod gemm_w8a16;
pub mod linear;
pub mod linear_backward;
pub mod linear_glu;
mod operand;
pub(crate) mod plan;
mod product;
mod scaled;
pub mod sgemm;
mod weight_only;

pub use gemm::{Scalar, gemm, gemm_bf16, gemm_bf16_into, gemm_into, gemm_to_f32, gemm_to_f32_into};
pub use gemm_fp8::{gemm_fp8, gemm_fp8_into};
pub use gemm_fp8_blocks::{gemm_fp8_blocks, gemm_fp8_blocks_into};
pub use gemm_grouped::{gemm_grouped, gemm_grouped_into};
pub use gemm_grouped_backward::{
    GroupedGradients, GroupedGradientsMut, WeightGradient, gemm_grouped_backward, gemm_grouped_backward_into,
};
pub use gemm_grouped_masked::{gemm_grouped_masked, gemm_grouped_masked_into};
pub use gemm_int8::{gemm_int8, gemm_int8_into, matmul_int8};
pub use gemm_mxfp8::{gemm_mxfp8, gemm_mxfp8_into};
pub use gemm_tf32::{gemm_tf32, gemm_tf32_into};
pub use gemm_w4a16::{gemm_w4a16, gemm_w4a16_into};
pub use gemm_w8a16::{gemm_w8a16, gemm_w8a16_into};
pub use linear::{Activation, Epilogue, linear, linear_into};
pub use linear_backward::{LayerGradients, LayerGradientsMut, linear_backward, linear_backward_into};
pub use linear_glu::{linear_glu, linear_glu_into};
pub use scaled::ScaledProduct;
pub use sgemm::{sgemm, sgemm_into};
pub use weight_only::WeightOnly;

use super::model::{Bound, OpInfo};
use crate::runtime::error::{Error, Result};
use crate::runtime::profile;

/// The kernel list of an operator that has kernels of its own and uses those of 16-bit products.
macro_rules! with_products {
    ($($own:expr),* $(,)?) => {
        &[
            gpu_kernels::ops::gemm::gemm::mma::GEMM_MMA,
            gpu_kernels::ops::gemm::gemm::hopper::GEMM_HOPPER,
            gpu_kernels::ops::gemm::gemm::hopper::GEMM_FINE,
            gpu_kernels::ops::gemm::gemm::hopper::GEMM_TALL,
            gpu_kernels::ops::gemm::gemm::hopper::GEMM_SWAPPED,
            gpu_kernels::ops::gemm::gemm::skinny::GEMM_SKINNY,
            gpu_kernels::ops::gemm::gemm::pairs::GEMM_PAIRS,
            gpu_kernels::ops::gemm::gemm::thin::GEMM_THIN,
            gpu_kernels::ops::gemm::gemm::split::GEMM_SUM,
            gpu_kernels::ops::gemm::gemm::pad::GEMM_PAD,
            $($own),*
        ]
    };
}
pub(crate) use with_products;

/// Notes `count` products of m × n × k as the work of the next launch; `sizes` is `[count, m, n, k]`.
fn note_work(bound: Bound, sizes: [u32; 4]) {
    profile::work(bound, sizes.into_iter().map(u64::from).fold(2, u64::saturating_mul));
}

/// Matrix sizes as the kernels take them.
fn sizes<const N: usize>(info: &OpInfo, sizes: [(&'static str, usize); N]) -> Result<[u32; N]> {
    let mut out = [0; N];
    for (out, (arg, size)) in out.iter_mut().zip(sizes) {
        *out = u32::try_from(size).ok().filter(|s| *s <= i32::MAX as u32).ok_or_else(|| {
            let reason = format!("a dimension is {size}, at most {} are supported", i32::MAX);
            Error::too_large(info.name, arg, reason)
        })?;
    }
    Ok(out)
}
