//! Quantization to 8-bit floats with a scale for each 128 adjacent elements of a row.

use gpu_kernels::ops::quant::quantize_fp8_1x128 as gk;

use super::blocks::{Block, Quantization, quantization};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo, ParamInfo};
use crate::runtime::dtype::DType;

quantization! {
    /// Quantizes `x`, `[rows, d]`, to 8-bit floats, with a scale for each 128 adjacent elements of a row: for activations of
    /// fp8 matrix products.
    ///
    /// DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437), section 3.3.
    quantize_fp8_1x128, quantize_fp8_1x128_into, QUANTIZE_FP8_1X128;
    kernel: QuantizeFp81x128 QUANTIZE_FP8_1X128, gk::per_block;
    block: [1, 128], "[rows, ⌈d / 128⌉]" of f32, F32;
    rules: "In f32: scale = max |x| / MAX, at least 2⁻¹²⁶, and q = ⌊x · (MAX / max)⌉, to nearest, ties to even, with MAX = 448 or 57344. A block of zeros has scale 2⁻¹²⁶; NaN in a block makes its scale and all of it NaN; an infinity makes an infinite scale, zeros of what is finite, and NaN.";
    example: "[1, 3]";
    bench: "quant.fp8_1x128", "8-bit floats with a scale for each 128 neighbours of a row", "scale = max |x| / MAX, q = ⌊x / scale⌉, for each 1 × 128", [(16384, 8192), (8192, 7168)];
}
