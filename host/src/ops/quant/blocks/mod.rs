//! Shared by block-wise quantization to 8-bit floats: the blocks, their scales, and both directions.

mod dequantize;
mod quantize;

pub use dequantize::Dequantization;
pub(super) use dequantize::{dequantization, dequantize_into, grid};
pub use quantize::Quantization;
pub(super) use quantize::{quantization, quantize_into};

use crate::runtime::dtype::{DType, Dtype};
use crate::{f8e4m3, f8e5m2, f8e8m0};

/// The numbers of rows and columns of the elements that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Block {
    pub(super) const fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns }
    }

    /// The shape of the scales of `rows` × `d` elements.
    pub(super) fn scales(self, rows: usize, d: usize) -> [usize; 2] {
        [rows.div_ceil(self.rows), d.div_ceil(self.columns)]
    }

    /// Whether blocks of contiguous rows of `d` elements are those of a single row.
    pub(super) fn continues(self, d: usize) -> bool {
        self.rows == 1 && d.is_multiple_of(self.columns)
    }
}

/// The largest value of an 8-bit float.
fn largest(dtype: DType) -> f32 {
    if dtype == DType::F8E5M2 { f8e5m2::MAX.to_f32() } else { f8e4m3::MAX.to_f32() }
}

/// The smallest positive value of an 8-bit float.
pub(super) fn least_subnormal(dtype: DType) -> f64 {
    if dtype == DType::F8E5M2 { f8e5m2::from_bits(1).to_f64() } else { f8e4m3::from_bits(1).to_f64() }
}

/// The nearest value of an 8-bit float.
pub(in crate::ops) fn nearest(dtype: DType, x: f64) -> f64 {
    if dtype == DType::F8E5M2 { f8e5m2::from_f64(x).to_f64() } else { f8e4m3::from_f64(x).to_f64() }
}

/// The scale of a block whose greatest magnitude is `max`, and the factor of its elements, as the operators define them.
pub(in crate::ops) fn scale(scales: DType, q: DType, max: f64) -> (f64, f32) {
    if scales == DType::F32 {
        let least = largest(q) * f32::MIN_POSITIVE;
        let max = if max < f64::from(least) { least } else { max as f32 };
        return (f64::from(max / largest(q)), largest(q) / max);
    }
    if !max.is_finite() {
        return (f8e8m0::NAN.to_f64(), f32::NAN);
    }
    let exponent = (max.log2().floor() - largest(q).log2().floor() as f64).max(-127.0);
    (exponent.exp2(), (-exponent).exp2() as f32)
}
