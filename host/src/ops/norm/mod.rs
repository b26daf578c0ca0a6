//! Normalisation of rows.

pub mod add_rms_norm;
pub(in crate::ops) mod columns;
pub mod layer_norm;
pub mod layer_norm_backward;
pub mod rms_norm;
pub mod rms_norm_backward;
pub mod row;

pub use add_rms_norm::{add_rms_norm, add_rms_norm_into};
pub use layer_norm::{layer_norm, layer_norm_into};
pub use layer_norm_backward::{
    LayerNormGradients, LayerNormGradientsMut, layer_norm_backward, layer_norm_backward_into,
};
pub use rms_norm::{rms_norm, rms_norm_into};
pub use rms_norm_backward::{
    RmsNormGradients, RmsNormGradientsMut, add_rms_norm_backward, add_rms_norm_backward_into, rms_norm_backward,
    rms_norm_backward_into,
};
pub use row::{row, row_into};

use super::model::{Case, OpInfo, Tolerance, roundoff};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::view::View;

/// From how many packs on threads hold many, of kernels with one reduction: it costs a barrier, which is soon passed, and more threads that hold
/// two packs each beat fewer that hold eight.
const WIDE: usize = 1025;

/// Fails unless `eps` is zero or more.
pub(in crate::ops) fn require_eps(info: &OpInfo, eps: f32) -> Result<()> {
    if eps.is_nan() || eps < 0.0 {
        return Err(info.param_error("eps", eps, "zero or more"));
    }
    Ok(())
}

/// Fails unless `weight` is contiguous and has as many elements as a row.
pub(in crate::ops) fn require_weight<T: Float>(
    info: &OpInfo,
    arg: &'static str,
    weight: &View<'_, T>,
    d: usize,
) -> Result<()> {
    weight.require_shape(info.name, arg, &[d])?;
    weight.require_contiguous(info.name, arg)
}

/// The tolerance of a result with one rounding to storage after statistics over d columns.
fn tolerance(case: &Case) -> Result<Tolerance> {
    let [d] = case.dims(["d"])?;
    // A sum of d positive f32 terms errs by less than √d·2⁻²⁴ relative at random, of which the root takes half.
    let sum = (d as f64).sqrt() * roundoff(DType::F32);
    Ok(Tolerance::rounded(case.dtype, 0.0, 1e-6 + sum, "one rounding to storage, √d·2⁻²⁴ of the f32 sum of squares"))
}

/// The tolerance of the gradient of x. Factors of up to 4 each, of normal values and of s, make terms of order 100,
/// which may cancel.
fn gradient_tolerance(case: &Case) -> Result<Tolerance> {
    let [d] = case.dims(["d"])?;
    let statistics = (d as f64).sqrt() * roundoff(DType::F32) + 1e-6;
    let why = "one rounding to storage; 2⁻²⁰ and √d·2⁻²⁴ of terms up to 100, which may cancel";
    Ok(Tolerance::rounded(case.dtype, 100.0 * statistics, statistics, why))
}

/// The tolerance of a gradient that is summed over all rows, with terms of order 10.
fn sum_tolerance(case: &Case) -> Result<Tolerance> {
    let [rows, d] = case.dims(["rows", "d"])?;
    // A sum of random terms is of order √rows of theirs. Each addition rounds it, and the errors add up at random as well; each term
    // errs by its statistics.
    let additions = rows as f64 * roundoff(DType::F32);
    let terms = (rows as f64).sqrt() * ((d as f64).sqrt() * roundoff(DType::F32) + 1e-6);
    let why = "one rounding to storage; √rows times, 2⁻²⁴ of a sum of order 10·√rows; √rows times, 2⁻²⁰ and √d·2⁻²⁴ of a term of order 10";
    Ok(Tolerance::rounded(case.dtype, 10.0 * (additions + terms), 1e-6, why))
}
