//! Quantization with scales, and dequantization.

mod blocks;
pub mod dequantize_fp8;
pub mod dequantize_int4;
pub mod dequantize_int8;
pub mod dequantize_mxfp8;
mod norm;
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
pub mod swiglu_quantize_fp8_1x128;

pub use blocks::{Dequantization, Quantization};
pub(super) use blocks::{nearest, scale as scale_of_block};
pub use dequantize_fp8::{dequantize_fp8, dequantize_fp8_into};
pub use dequantize_int4::{dequantize_int4, dequantize_int4_into};
pub use dequantize_int8::{dequantize_int8, dequantize_int8_into};
pub use dequantize_mxfp8::{dequantize_mxfp8, dequantize_mxfp8_into};
pub use norm::NormQuantization;
pub use quantize_columns_int8::{quantize_columns_int8, quantize_columns_int8_into};
pub use quantize_fp8_1x128::{quantize_fp8_1x128, quantize_fp8_1x128_into};
pub use quantize_fp8_128x128::{quantize_fp8_128x128, quantize_fp8_128x128_into};
pub use quantize_int4::{QuantizedInt4, quantize_int4, quantize_int4_into};
pub use quantize_int8::{QuantizedInt8, Zero, quantize_int8, quantize_int8_into};
pub use quantize_mxfp8_1x32::{quantize_mxfp8_1x32, quantize_mxfp8_1x32_into};
pub use quantize_mxfp8_32x1::{quantize_mxfp8_32x1, quantize_mxfp8_32x1_into};
pub use quantize_rows_int8::{quantize_rows_int8, quantize_rows_int8_into};
pub use rms_norm_quantize_fp8_1x128::{rms_norm_quantize_fp8_1x128, rms_norm_quantize_fp8_1x128_into};
pub use rms_norm_quantize_rows_int8::{rms_norm_quantize_rows_int8, rms_norm_quantize_rows_int8_into};
pub use swiglu_quantize_fp8_1x128::{swiglu_quantize_fp8_1x128, swiglu_quantize_fp8_1x128_into};

use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::view::{View, ViewMut};

/// Whether rows of `x` and `q` are whole packs of 16 bytes of `x`, and of as many elements of `q`, at multiples of these.
fn is_packed<T: Float, Q: Dtype>(x: &View<'_, T>, q: &ViewMut<'_, Q>) -> bool {
    let lanes = gpu_kernels::lanes::<T>();
    x.cols().is_multiple_of(lanes) && x.rows_aligned(16) && q.rows_aligned(lanes)
}

/// The quantized value of x: ⌊x · inverse⌉ + zero in 8 bits, in f32 as the operators define it; NaN becomes zero.
pub(super) fn rounded(x: f64, inverse: f32, zero: f64) -> f64 {
    let product = f64::from(x as f32 * inverse);
    let nearest = if product.is_nan() { 0.0 } else { product.round_ties_even() };
    (nearest + zero).clamp(-128.0, 127.0)
}

/// The greater value; NaN if either is, which `f64::max` would ignore.
pub(super) fn max_nan(max: f64, x: f64) -> f64 {
    if x.is_nan() || x > max { x } else { max }
}

/// About the standard deviation of values whose scale would be below the normal numbers.
pub(super) const TINY: f64 = 1e-38;

/// The scale of a range that spans `steps` steps, at least the smallest normal number, and its inverse.
pub(super) fn scale_of(range: f32, steps: f32) -> (f32, f32) {
    let least = steps * f32::MIN_POSITIVE;
    // Not f32::max, which ignores NaN.
    let range = if range < least { least } else { range };
    (range / steps, steps / range)
}
