//! Dequantization of MXFP8.

use gpu_kernels::ops::quant::dequantize_mxfp8 as gk;

use super::blocks::{Block, Dequantization, dequantization};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo, ParamInfo};
use crate::runtime::dtype::DType;

dequantization! {
    /// Converts the results of [`quantize_mxfp8_1x32`](fn@crate::ops::quantize_mxfp8_1x32) or
    /// [`quantize_mxfp8_32x1`](fn@crate::ops::quantize_mxfp8_32x1) to wider floats.
    dequantize_mxfp8, dequantize_mxfp8_into, DEQUANTIZE_MXFP8;
    kernel: DequantizeMxfp8 DEQUANTIZE_MXFP8;
    blocks: [Block::new(1, 32), Block::new(32, 1)], crate::f8e8m0, F8E8M0, "[rows, ⌈d / 32⌉] or [⌈rows / 32⌉, d], contiguous", "`scales` are `[rows, ⌈d / 32⌉]` or `[⌈rows / 32⌉, d]`, which says which blocks have one.";
    example: "f8e8m0::from_f32(0.5)";
    bench: "quant.dequantize_mxfp8", "MXFP8, along rows or columns, back to wider floats";
}
