//! Every operator there is. The command line, the checks, the benches and the documentation table walk this list.

use super::model::Operator;
use super::{activation, attention, elementwise, gemm, gemv, layout, norm, quant};

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
    &gemv::gemv::Gemv,
    &gemv::gemv_int8::GemvInt8,
    &layout::append_kv::APPEND_KV,
    &layout::append_kv::APPEND_KV_PAGED,
    &layout::attention_mask::AttentionMask,
    &layout::embedding::Embedding,
    &layout::embedding::EmbeddingBackward,
    &layout::permute_heads::PermuteHeads,
    &layout::repeat_kv::RepeatKv,
    &layout::rope::ROPE,
    &layout::rope::ROPE_BACKWARD,
    &layout::rope_table::RopeTable,
    &layout::transpose::Transpose,
    &norm::rms_norm::RmsNorm,
    &quant::dequantize_int8::DequantizeInt8,
    &quant::quantize_int8::QuantizeInt8,
    &quant::quantize_rows_int8::QuantizeRowsInt8,
];
