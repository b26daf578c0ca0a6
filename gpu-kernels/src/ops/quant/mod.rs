//! Conversion to few bits with scales, and back.

mod blocks;
pub mod dequantize_fp8;
pub mod dequantize_int4;
pub mod dequantize_int8;
pub mod dequantize_mxfp8;
mod norm_row;
pub mod quantize_columns_int8;
pub mod quantize_fp8_128x128;
pub mod quantize_fp8_1x128;
pub mod quantize_int4;
pub mod quantize_int8;
pub mod quantize_mxfp8_1x32;
pub mod quantize_mxfp8_32x1;
pub mod quantize_rows_int8;
pub mod rms_norm_quantize_fp8_1x128;
pub mod rms_norm_quantize_rows_int8;
mod row;
pub mod swiglu_quantize_fp8_1x128;

pub(crate) use blocks::{Scale, narrow};

use cuda_std::math;
use cuda_std::vector::Pack;

/// The 8-bit integers nearest to x + zero, ties to even before zero is added, saturating; NaN gives zero.
#[inline(always)]
pub(crate) fn round<const N: usize>(x: [f32; N], zero: i32) -> Pack<i8, N> {
    Pack(math::saturate_to_i8(x.map(|x| math::round_to_i32(x).saturating_add(zero))))
}

/// 1 / scale of a range that reaches `steps` steps; 0 of an empty one, which makes every integer the zero.
#[inline(always)]
pub(crate) fn inverse(range: f32, steps: f32) -> f32 {
    if range == 0.0 { 0.0 } else { steps / range }
}
