//! Normalisation of rows.

pub mod add_rms_norm;
pub mod layer_norm;
pub mod rms_norm;

pub use add_rms_norm::{add_rms_norm, add_rms_norm_into};
pub use layer_norm::{layer_norm, layer_norm_into};
pub use rms_norm::{rms_norm, rms_norm_into};

use super::model::{Case, OpInfo, Tolerance, roundoff};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::view::View;

/// An error unless `eps` is zero or more.
fn require_eps(info: &OpInfo, eps: f32) -> Result<()> {
    if eps.is_nan() || eps < 0.0 {
        return Err(info.param_error("eps", eps, "zero or more"));
    }
    Ok(())
}

/// An error unless `weight` is contiguous and has an element for each of a row's.
fn require_weight<T: Float>(info: &OpInfo, arg: &'static str, weight: &View<'_, T>, d: usize) -> Result<()> {
    weight.require_shape(info.name, arg, &[d])?;
    weight.require_contiguous(info.name, arg)
}

/// One rounding to storage after statistics over d columns.
fn tolerance(case: &Case) -> Result<Tolerance> {
    let [d] = case.dims(["d"])?;
    // A sum of d positive f32 terms errs by less than √d·2⁻²⁴ relative at random, of which the root takes half.
    let sum = (d as f64).sqrt() * roundoff(DType::F32);
    Ok(Tolerance::rounded(case.dtype, 0.0, 1e-6 + sum, "one rounding to storage, √d·2⁻²⁴ of the f32 sum of squares"))
}
