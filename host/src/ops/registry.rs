//! Every operator there is. The command line, the checks, the benches and the documentation table walk this list.

use super::model::Operator;
use super::{activation, attention, elementwise, gemm, norm};

/// All operators, one a line, by family and file.
pub static OPERATORS: &[&dyn Operator] = &[
    &activation::gelu::GELU,
    &activation::gelu::GELU_BACKWARD,
    &activation::relu::RELU,
    &activation::relu::RELU_BACKWARD,
    &activation::sigmoid::SIGMOID,
    &activation::sigmoid::SIGMOID_BACKWARD,
    &activation::silu::SILU,
    &activation::silu::SILU_BACKWARD,
    &activation::tanh::TANH,
    &activation::tanh::TANH_BACKWARD,
    &attention::backward::AttentionBackward,
    &attention::forward::AttentionForward,
    &elementwise::add::ADD,
    &elementwise::bias_mask_scale_add::BiasMaskScaleAdd,
    &elementwise::cast::Cast,
    &elementwise::copy::Copy,
    &gemm::gemm_bf16::GemmBf16,
    &gemm::sgemm::Sgemm,
    &norm::rms_norm::RmsNorm,
];
