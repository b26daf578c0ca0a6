//! Quantization to MXFP8 along columns.

use gpu_kernels::ops::quant::quantize_mxfp8_32x1 as gk;

use super::blocks::{Block, Quantization, quantization};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo, ParamInfo};
use crate::runtime::dtype::DType;

quantization! {
    /// Quantizes `x`, `[rows, d]`, to MXFP8 along columns: 8-bit floats with a power-of-two scale for each 32 consecutive
    /// elements of a column.
    ///
    /// Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 6.3.
    quantize_mxfp8_32x1, quantize_mxfp8_32x1_into, QUANTIZE_MXFP8_32X1;
    kernel: QuantizeMxfp832x1 QUANTIZE_MXFP8_32X1, gk::per_block;
    block: [32, 1], "[⌈rows / 32⌉, d]" of crate::f8e8m0, F8E8M0;
    rules: "scale = 2^(⌊log₂ max |x|⌋ − e), at least 2⁻¹²⁷, with e = 8 or 15, and q = ⌊x / scale⌉, to nearest, ties to even; what is then beyond the largest value saturates. A block of zeros has scale 2⁻¹²⁷; NaN or an infinity in a block makes its scale and all of it NaN.";
    example: "[3, 1]";
    bench: "quant.mxfp8_32x1", "MXFP8: 8-bit floats with a power of two for each 32 of a column", "scale = 2^(⌊log₂ max |x|⌋ − e), q = ⌊x / scale⌉, for each 32 × 1", [(16384, 8192)];
}
