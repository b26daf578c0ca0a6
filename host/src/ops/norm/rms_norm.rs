//! Root-mean-square normalisation of rows.

use gpu_kernels::ops::norm::rms_norm as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = x / √(mean(x²) + eps) · weight, for every row of `x`.
///
/// `x` is `[rows, d]`, or has more dimensions, the last of which is `d`, such as `[tokens, heads, head_dim]`; the elements of a
/// row are contiguous, and rows may be padded (a leading dimension above `d`). `weight` is `[d]`. The mean and the division are
/// in f32 whatever `T` is, and the result is rounded once. Rows whose packs of 16 bytes are aligned are read from memory once;
/// others, and rows of more than 4096 packs, are read twice. The work is queued on `stream`.
///
/// Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if the elements of
/// a row are not adjacent, [`Error::InvalidParam`](crate::Error::InvalidParam) if `eps` is negative or NaN,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn rms_norm<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    rms_norm_into(stream, x, weight.into(), eps, &mut y)?;
    Ok(y)
}

/// [`rms_norm`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// Same as [`rms_norm`].
pub fn rms_norm_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, weight, mut y) = (x.into(), weight.into(), y.into());
    stream.require_devices(INFO.name, &[("x", &x), ("weight", &weight), ("y", &y)])?;
    let rows = Rows::of(&INFO, "x", &x)?.and(&weight).and_mut(&y).wide_from(super::WIDE);
    super::require_weight(&INFO, "weight", &weight, x.cols())?;
    y.require_shape(INFO.name, "y", x.shape())?;
    let x_stride = x.require_row_stride(INFO.name, "x")?;
    let y_stride = y.require_row_stride(INFO.name, "y")?;
    super::require_eps(&INFO, eps)?;
    let Some(plan) = rows.plan::<T>(&INFO)? else { return Ok(()) };
    let args = (
        x.ptr(stream)?,
        weight.ptr(stream)?,
        y.ptr_mut(stream)?,
        plan.rows,
        plan.d,
        x_stride as u64,
        y_stride as u64,
        eps,
    );
    // SAFETY: the tensors are live; every row holds d elements at its stride, weight holds d, and y is borrowed mutably. The plan
    // names a team that holds such rows.
    unsafe { launch_rows!(stream, plan, gk::RmsNorm, T, args) }
}

/// The operator's entry in the registry.
pub struct RmsNorm;

static INFO: OpInfo = OpInfo {
    name: "rms_norm",
    bench_name: "row.rmsnorm",
    summary: "root-mean-square normalisation of rows",
    math: "y = x / √(mean(x²) + eps) · weight",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[ParamInfo::float("eps", 1e-6, "added to the mean square")],
    dtypes: DType::FLOATS,
    kernels: &[gk::RMS_NORM],
    variants: &[],
};

impl Operator for RmsNorm {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let mut cases = rows::production(&INFO);
        for &dtype in INFO.dtypes {
            cases.push(Case::odd(&INFO, dtype, dims(11, 640)).param("eps", 0.25));
            cases.push(Case::tiny(&INFO, dtype, dims(2, 64)).fill(Values::Constant(0.0)));
            cases.extend(rows::cases(&INFO, dtype, rows::LIMITS, &["weight"]));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let specs = [InputSpec::normal("x", case.dtype, [rows, d]), InputSpec::normal("weight", case.dtype, [d])];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
        inputs.get("weight")?.has_shape(&[reference::row_len(x.shape())])?;
        params.f32("eps")?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let eps = params.f32("eps")?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            rms_norm_into::<T>(stream, args.input("x")?, args.input("weight")?, eps, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight) = (inputs.get("x")?, inputs.get("weight")?.to_f64());
        let eps = f64::from(params.f32("eps")?);
        Ok(reference::by_row(rows, |r| {
            let x = reference::row(x, r);
            let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean + eps).sqrt();
            x.iter().zip(&weight).map(|(x, w)| x * scale * w).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        super::tolerance(case)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
