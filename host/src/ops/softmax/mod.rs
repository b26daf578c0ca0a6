//! Exponentials of rows, normalised.

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

use cuda_std::launch::{DevicePtr, DevicePtrMut};

use super::model::{Case, InputSpec, OpInfo, Tolerance, Values, roundoff};
use super::rows::{RowPlan, Rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// An error unless `scale` is positive and finite.
fn require_scale(info: &OpInfo, scale: f32) -> Result<()> {
    if scale.is_finite() && scale > 0.0 {
        return Ok(());
    }
    Err(info.param_error("scale", scale, "a positive finite number"))
}

/// What the kernels of both gradients take.
type BackwardArgs<T> = (DevicePtr<T>, DevicePtr<T>, DevicePtrMut<T>, u64, u64, u64, f32, u64, u64);

/// Checks a gradient's operands and passes the kernel's arguments to `launch`.
fn backward<'a, T: Float>(
    info: &OpInfo,
    stream: &Stream,
    [y, dy]: [View<'a, T>; 2],
    scale: f32,
    mut dx: ViewMut<'a, T>,
    launch: impl Fn(RowPlan, BackwardArgs<T>) -> Result<()>,
) -> Result<()> {
    let rows = Rows::of(info, "y", &y)?.and(&dy).and_mut(&dx);
    dy.require_shape(info.name, "dy", y.shape())?;
    dx.require_shape(info.name, "dx", y.shape())?;
    let strides = [y.require_row_stride(info.name, "y")?, dy.require_row_stride(info.name, "dy")?];
    let [y_stride, dy_stride] = strides.map(|stride| stride as u64);
    let dx_stride = dx.require_row_stride(info.name, "dx")? as u64;
    require_scale(info, scale)?;
    let Some(plan) = rows.plan_clustered::<T>(info, stream.device())? else { return Ok(()) };
    let pointers = (y.ptr(stream)?, dy.ptr(stream)?, dx.ptr_mut(stream)?);
    let (y, dy, dx) = pointers;
    launch(plan, (y, dy, dx, y_stride, dy_stride, dx_stride, scale, plan.rows, plan.d))
}

/// What a gradient is fed: `y` with these values, and a normal `dy`.
fn backward_inputs(case: &Case, y: Values) -> Result<Vec<InputSpec>> {
    let [rows, d] = case.dims(["rows", "d"])?;
    let specs = [InputSpec::new("y", case.dtype, [rows, d], y), InputSpec::normal("dy", case.dtype, [rows, d])];
    Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
}

/// One rounding to storage, and what the f32 arithmetic of statistics over d columns adds.
fn tolerance(case: &Case, abs: f64, why: &'static str) -> Result<Tolerance> {
    let [d] = case.dims(["d"])?;
    // A sum of d positive f32 terms errs by less than √d·2⁻²⁴ relative at random. Exponents up to 16 err by 2⁻²⁴ of that twice.
    let statistics = (d as f64).sqrt() * roundoff(DType::F32) + 4e-6;
    Ok(Tolerance::rounded(case.dtype, abs, statistics, why))
}
