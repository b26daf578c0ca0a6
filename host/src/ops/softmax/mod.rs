//! Softmax and its logarithm, with their backwards.

mod backward;
pub mod log_softmax;
pub mod log_softmax_backward;
mod mask;
#[allow(clippy::module_inception, reason = "the family has the name of its first operator")]
pub mod softmax;
pub mod softmax_backward;

pub use log_softmax::{log_softmax, log_softmax_into};
pub use log_softmax_backward::{log_softmax_backward, log_softmax_backward_into};
pub use mask::{Causal, SoftmaxMask};
pub use softmax::{softmax, softmax_into, softmax_masked, softmax_masked_into};
pub use softmax_backward::{softmax_backward, softmax_backward_into};

use super::model::{Case, OpInfo, Tolerance, roundoff};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// The maximum factor of exponents: base-2 exponents, which are log₂ e times as large, must be finite in f32 too. Below 2¹²⁷.
pub(super) const MAX_SCALE: f32 = f32::MAX / 2.0;

/// Fails unless `scale` is positive and permitted as a factor of exponents.
fn require_scale(info: &OpInfo, scale: f32) -> Result<()> {
    if scale > 0.0 && scale <= MAX_SCALE {
        return Ok(());
    }
    Err(info.param_error("scale", scale, "a positive number below 2^127"))
}

/// The tolerance of one rounding to storage, plus that of the f32 arithmetic of statistics over d columns.
fn tolerance(case: &Case, abs: f64, why: &'static str) -> Result<Tolerance> {
    let [d] = case.dims(["d"])?;
    // A sum of d positive f32 terms errs by less than √d·2⁻²⁴ relative at random. Exponents up to 16 err by 2⁻²⁴ of that twice.
    let statistics = (d as f64).sqrt() * roundoff(DType::F32) + 4e-6;
    Ok(Tolerance::rounded(case.dtype, abs, statistics, why))
}
