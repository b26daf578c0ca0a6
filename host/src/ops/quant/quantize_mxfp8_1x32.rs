//! Quantization to MXFP8 along rows.

use gpu_kernels::ops::quant::quantize_mxfp8_1x32 as gk;

use super::blocks::{Block, Quantization, quantization};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo, ParamInfo};
use crate::runtime::dtype::DType;

quantization! {
    /// Quantizes `x`, `[rows, d]`, to MXFP8 along rows: 8-bit floats with a power-of-two scale for
    /// each 32 adjacent elements of a row.
    ///
    /// Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 6.3.
    quantize_mxfp8_1x32, quantize_mxfp8_1x32_into, QUANTIZE_MXFP8_1X32;
    kernel: QuantizeMxfp81x32 QUANTIZE_MXFP8_1X32, gk::per_block;
    block: [1, 32], "[rows, ⌈d / 32⌉]" of crate::f8e8m0, F8E8M0;
    rules: "scale = 2^(⌊log₂ max |x|⌋ − e), at least 2⁻¹²⁷, with e = 8 or 15, and q = ⌊x / scale⌉, to nearest, ties to even; what is then beyond the largest value saturates. A block of zeros has scale 2⁻¹²⁷; NaN or an infinity in a block makes its scale and all of it NaN.";
    example: "[1, 3]";
    bench: "quant.mxfp8_1x32", "MXFP8: 8-bit floats with a power of two for each 32 neighbours of a row", "scale = 2^(⌊log₂ max |x|⌋ − e), q = ⌊x / scale⌉, for each 1 × 32", [(16384, 8192), (32768, 8192)];
}
