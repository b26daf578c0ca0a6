//! Dequantization of 8-bit floats with a scale for each block.

use gpu_kernels::ops::quant::dequantize_fp8 as gk;

use super::blocks::{Block, Dequantization, dequantization};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo, ParamInfo};
use crate::runtime::dtype::DType;

dequantization! {
    /// Converts the results of [`quantize_fp8_1x128`](fn@crate::ops::quantize_fp8_1x128) or
    /// [`quantize_fp8_128x128`](fn@crate::ops::quantize_fp8_128x128) to wider floats.
    dequantize_fp8, dequantize_fp8_into, DEQUANTIZE_FP8;
    kernel: DequantizeFp8 DEQUANTIZE_FP8;
    blocks: [Block::new(1, 128), Block::new(128, 128)], f32, F32, "[rows, ⌈d / 128⌉] or [⌈rows / 128⌉, ⌈d / 128⌉], contiguous", "`scales` are `[rows, ⌈d / 128⌉]` or `[⌈rows / 128⌉, ⌈d / 128⌉]`, which says which blocks have one.";
    example: "0.5f32";
    bench: "quant.dequantize_fp8", "8-bit floats with a scale for each 1 × 128 or 128 × 128 back to wider ones";
}
