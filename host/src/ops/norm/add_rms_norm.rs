//! Residual add and root-mean-square normalisation of rows, in one pass.

use gpu_kernels::ops::norm::add_rms_norm as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// r = x + residual and y = r / √(mean(r²) + eps) · weight, for every row: `(y, r)`.
///
/// `x` and `residual` are `[rows, d]`, or have more dimensions, the last of which is `d`; the elements of a row are contiguous,
/// and rows may be padded. `weight` is `[d]`. r, the residual stream, is rounded to `T` before it is normalised. The results
/// are new dense tensors; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if the elements of
/// a row are not adjacent, [`Error::InvalidParam`](crate::Error::InvalidParam) if `eps` is negative or NaN,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 2], &[1.0f32, 2.0])?;
/// let weight = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// let (y, r) = ops::add_rms_norm(&stream, &x, &x, &weight, 0.0)?;
/// assert_eq!(r.to_vec(&stream)?, [2.0, 4.0]);
/// assert_eq!(y.shape(), x.shape());
/// # Ok(())
/// # }
/// ```
pub fn add_rms_norm<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    residual: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<(Tensor<T>, Tensor<T>)> {
    let x = x.into();
    let (mut y, mut r) = (Tensor::result(stream, x.shape())?, Tensor::result(stream, x.shape())?);
    add_rms_norm_into(stream, x, residual.into(), weight.into(), eps, &mut y, &mut r)?;
    Ok((y, r))
}

/// [`add_rms_norm`] into `y` and `r`, which have the shape of `x`; their rows may be padded.
///
/// # Errors
/// Same as [`add_rms_norm`].
pub fn add_rms_norm_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    residual: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
    y: impl Into<ViewMut<'a, T>>,
    r: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, residual, weight, mut y, mut r) = (x.into(), residual.into(), weight.into(), y.into(), r.into());
    stream
        .require_devices(INFO.name, &[("x", &x), ("residual", &residual), ("weight", &weight), ("y", &y), ("r", &r)])?;
    let rows = Rows::of(&INFO, "x", &x)?.and(&residual).and(&weight).and_mut(&y).and_mut(&r).wide_from(super::WIDE);
    residual.require_shape(INFO.name, "residual", x.shape())?;
    super::require_weight(&INFO, "weight", &weight, x.cols())?;
    y.require_shape(INFO.name, "y", x.shape())?;
    r.require_shape(INFO.name, "r", x.shape())?;
    let x_stride = x.require_row_stride(INFO.name, "x")? as u64;
    let residual_stride = residual.require_row_stride(INFO.name, "residual")? as u64;
    let r_stride = r.require_row_stride(INFO.name, "r")? as u64;
    let y_stride = y.require_row_stride(INFO.name, "y")? as u64;
    super::require_eps(&INFO, eps)?;
    let Some(plan) = rows.plan::<T>(&INFO)? else { return Ok(()) };
    let args = (
        x.ptr(stream)?,
        residual.ptr(stream)?,
        weight.ptr(stream)?,
        r.ptr_mut(stream)?,
        y.ptr_mut(stream)?,
        plan.rows,
        plan.d,
        x_stride,
        residual_stride,
        r_stride,
        y_stride,
        eps,
    );
    // SAFETY: the tensors are live; every row holds d elements at its stride, weight holds d, and y and r are borrowed mutably. The
    // plan names a team that holds such rows.
    unsafe { launch_rows!(stream, plan, gk::AddRmsNorm, T, args) }
}

/// The operator's entry in the registry.
pub struct AddRmsNorm;

static INFO: OpInfo = OpInfo {
    name: "add_rms_norm",
    bench_name: "row.add_rmsnorm",
    summary: "residual add and root-mean-square normalisation of rows, fused",
    math: "r = x + residual, y = r / √(mean(r²) + eps) · weight",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::input("residual", "the shape of x, rows may be padded"),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
        ArgInfo::output("r", "the shape of x, rows may be padded"),
    ],
    params: &[ParamInfo::float("eps", 1e-6, "added to the mean square")],
    dtypes: DType::FLOATS,
    kernels: &[gk::ADD_RMS_NORM],
    variants: &[],
};

impl Operator for AddRmsNorm {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let mut cases = rows::production(&INFO);
        for &dtype in INFO.dtypes {
            cases.extend(rows::cases(&INFO, dtype, rows::LIMITS, &["weight"]));
            // r is aligned otherwise than what it is read from.
            cases.push(Case::odd(&INFO, dtype, dims(1, 3001)).arrange("x", Arrangement::DENSE.offset(1)));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let specs = [
            InputSpec::normal("x", case.dtype, [rows, d]),
            InputSpec::normal("residual", case.dtype, [rows, d]),
            InputSpec::normal("weight", case.dtype, [d]),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
        inputs.get("residual")?.has_shape(x.shape())?;
        inputs.get("weight")?.has_shape(&[reference::row_len(x.shape())])?;
        params.f32("eps")?;
        Ok(["y", "r"].map(|name| TensorMeta::new(name, x.dtype(), x.shape())).into())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let eps = params.f32("eps")?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let (x, residual, weight) = (args.input::<T>("x")?, args.input::<T>("residual")?, args.input::<T>("weight")?);
            add_rms_norm_into(stream, x, residual, weight, eps, args.output::<T>("y")?, args.output::<T>("r")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, residual, weight) = (inputs.get("x")?, inputs.get("residual")?, inputs.get("weight")?.to_f64());
        let eps = f64::from(params.f32("eps")?);
        Ok(reference::by_row(rows, |r| {
            let sum = |(x, residual): (f64, f64)| x + residual;
            let r: Vec<f64> = reference::row(x, r).into_iter().zip(reference::row(residual, r)).map(sum).collect();
            if output == "r" {
                return r;
            }
            let mean = r.iter().map(|v| v * v).sum::<f64>() / r.len() as f64;
            let scale = 1.0 / (mean + eps).sqrt();
            r.iter().zip(&weight).map(|(r, w)| r * scale * w).collect()
        }))
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        if output == "r" {
            return Ok(Tolerance::rounded(case.dtype, 0.0, 0.0, "one rounding to storage"));
        }
        let once = super::tolerance(case)?;
        let why = "three roundings to storage: of y, of r, and the mean of those of r in the root; √d·2⁻²⁴ of the f32 sum of squares";
        Ok(Tolerance::new(once.abs, once.rel + 2.01 * roundoff(case.dtype), why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((4 * rows * d * case.dtype.size()) as u64))
    }
}
