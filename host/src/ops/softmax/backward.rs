//! Shared by the two gradients, which are both computed from `y` and `dy` with a sum over the row.

use cuda_std::launch::{DevicePtr, DevicePtrMut};

use crate::ops::model::*;
use crate::ops::rows::{self, RowPlan, Rows};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Arguments of both kernels.
type Args<T> = (DevicePtr<T>, DevicePtr<T>, DevicePtrMut<T>, u64, u64, u64, f32, u64, u64);

/// Checks the operands and passes the kernel's arguments to `launch`.
pub(super) fn backward<'a, T: Float>(
    info: &OpInfo,
    stream: &Stream,
    [y, dy]: [View<'a, T>; 2],
    scale: f32,
    mut dx: ViewMut<'a, T>,
    launch: impl Fn(RowPlan, Args<T>) -> Result<()>,
) -> Result<()> {
    stream.require_devices(info.name, &[("y", &y), ("dy", &dy), ("dx", &dx)])?;
    let rows = Rows::of(info, "y", &y)?.and(&dy).and_mut(&dx);
    dy.require_shape(info.name, "dy", y.shape())?;
    dx.require_shape(info.name, "dx", y.shape())?;
    let strides = [y.require_row_stride(info.name, "y")?, dy.require_row_stride(info.name, "dy")?];
    let [y_stride, dy_stride] = strides.map(|stride| stride as u64);
    let dx_stride = dx.require_row_stride(info.name, "dx")? as u64;
    super::require_scale(info, scale)?;
    let Some(plan) = rows.plan_clustered::<T>(info, stream.device())? else { return Ok(()) };
    let (y, dy, dx) = (y.ptr(stream)?, dy.ptr(stream)?, dx.ptr_mut(stream)?);
    launch(plan, (y, dy, dx, y_stride, dy_stride, dx_stride, scale, plan.rows, plan.d))
}

/// A gradient in the registry.
pub struct Backward {
    pub(super) info: &'static OpInfo,
    pub(super) forward: &'static dyn Operator,
    pub(super) launch: fn(&Stream, &mut Arguments<'_>, f32) -> Result<()>,
    /// A row of dx without the scale, from rows of `y` and `dy`.
    pub(super) row: fn(&[f64], &[f64]) -> Vec<f64>,
    /// The input values for rows of `d` elements of `y`.
    pub(super) values: fn(usize) -> Values,
    /// The absolute error for rows of `d` elements, with its justification.
    pub(super) accuracy: fn(usize) -> (f64, &'static str),
}

impl Operator for Backward {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let mut cases = rows::production(self.info);
        for &dtype in self.info.dtypes {
            cases.extend(rows::cases(self.info, dtype, rows::CLUSTERED_LIMITS, &[]));
            cases.push(Case::odd(self.info, dtype, dims(11, 88)).param("scale", 0.5));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let y = InputSpec::new("y", case.dtype, [rows, d], (self.values)(d.max(1)));
        let specs = [y, InputSpec::normal("dy", case.dtype, [rows, d])];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let y = inputs.get("y")?;
        rows::require(self.info, "y", y.shape())?;
        inputs.get("dy")?.has_shape(y.shape())?;
        params.f32("scale")?;
        Ok(vec![TensorMeta::new("dx", y.dtype(), y.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        (self.launch)(stream, args, params.f32("scale")?)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (y, dy, scale) = (inputs.get("y")?, inputs.get("dy")?, f64::from(params.f32("scale")?));
        let scaled = |dx: Vec<f64>| dx.into_iter().map(|dx| scale * dx).collect();
        Ok(reference::by_row(rows, |r| scaled((self.row)(&reference::row(y, r), &reference::row(dy, r)))))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [d] = case.dims(["d"])?;
        let (abs, why) = (self.accuracy)(d.max(1));
        super::tolerance(case, abs, why)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((3 * rows * d * case.dtype.size()) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient { forward: self.forward, of_outputs: &[("dy", "y")], of_inputs: &[("dx", "x")] })
    }
}
