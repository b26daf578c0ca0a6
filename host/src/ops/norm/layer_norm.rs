//! Layer normalisation of rows.

use gpu_kernels::ops::norm::layer_norm as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = (x − mean(x)) / √(variance(x) + eps) · weight + bias, for every row of `x`.
///
/// `x` is `[rows, d]`, or has more dimensions, the last of which is `d`; the elements of a row are contiguous, and rows may be
/// padded. `weight` and `bias` are `[d]`. The variance is the biased one: the sum of squared deviations divided by d.
/// Statistics are in f32 whatever `T` is, and the result is rounded once. The result is a new dense tensor; the work is queued
/// on `stream`.
///
/// Ba, Kiros and Hinton, "Layer Normalization", arXiv:1607.06450.
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
/// let x = Tensor::from_slice(&stream, [1, 2], &[3.0f32, 3.0])?;
/// let weight = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// let y = ops::layer_norm(&stream, &x, &weight, &weight, 1e-5)?;
/// assert_eq!(y.to_vec(&stream)?, [1.0, 1.0]);
/// # Ok(())
/// # }
/// ```
pub fn layer_norm<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    bias: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    layer_norm_into(stream, x, weight.into(), bias.into(), eps, &mut y)?;
    Ok(y)
}

/// [`layer_norm`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// Same as [`layer_norm`].
pub fn layer_norm_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    bias: impl Into<View<'a, T>>,
    eps: f32,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, weight, bias, mut y) = (x.into(), weight.into(), bias.into(), y.into());
    stream.require_devices(INFO.name, &[("x", &x), ("weight", &weight), ("bias", &bias), ("y", &y)])?;
    let rows = Rows::of(&INFO, "x", &x)?.and(&weight).and(&bias).and_mut(&y);
    super::require_weight(&INFO, "weight", &weight, x.cols())?;
    super::require_weight(&INFO, "bias", &bias, x.cols())?;
    y.require_shape(INFO.name, "y", x.shape())?;
    let x_stride = x.require_row_stride(INFO.name, "x")? as u64;
    let y_stride = y.require_row_stride(INFO.name, "y")? as u64;
    super::require_eps(&INFO, eps)?;
    let Some(plan) = rows.plan::<T>(&INFO)? else { return Ok(()) };
    let args = (
        x.ptr(stream)?,
        weight.ptr(stream)?,
        bias.ptr(stream)?,
        y.ptr_mut(stream)?,
        plan.rows,
        plan.d,
        x_stride,
        y_stride,
        eps,
    );
    // SAFETY: the tensors are live; every row holds d elements at its stride, weight and bias hold d, and y is borrowed mutably. The
    // plan names a team that holds such rows.
    unsafe { launch_rows!(stream, plan, gk::LayerNorm, T, args) }
}

/// The operator's entry in the registry.
pub struct LayerNorm;

static INFO: OpInfo = OpInfo {
    name: "layer_norm",
    bench_name: "row.layernorm",
    summary: "layer normalisation of rows",
    math: "y = (x − mean(x)) / √(variance(x) + eps) · weight + bias",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::input("bias", "[d], contiguous"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[ParamInfo::float("eps", 1e-5, "added to the variance")],
    dtypes: DType::FLOATS,
    kernels: &[gk::LAYER_NORM],
    variants: &[],
};

impl Operator for LayerNorm {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let mut cases = rows::production(&INFO);
        for &dtype in INFO.dtypes {
            cases.extend(rows::cases(&INFO, dtype, rows::LIMITS, &["weight", "bias"]));
            // A mean much larger than the deviation.
            let far = Values::Uniform { low: 100.0, high: 108.0 };
            cases.push(Case::odd(&INFO, dtype, dims(11, 640)).values("x", far));
            cases.push(Case::tiny(&INFO, dtype, dims(2, 64)).values("x", Values::Constant(3.0)));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let specs = [
            InputSpec::normal("x", case.dtype, [rows, d]),
            InputSpec::normal("weight", case.dtype, [d]),
            InputSpec::normal("bias", case.dtype, [d]),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
        for name in ["weight", "bias"] {
            inputs.get(name)?.has_shape(&[reference::row_len(x.shape())])?;
        }
        params.f32("eps")?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let eps = params.f32("eps")?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let (x, weight, bias) = (args.input::<T>("x")?, args.input::<T>("weight")?, args.input::<T>("bias")?);
            layer_norm_into(stream, x, weight, bias, eps, args.output::<T>("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let (weight, bias) = (inputs.get("weight")?.to_f64(), inputs.get("bias")?.to_f64());
        let eps = f64::from(params.f32("eps")?);
        Ok(reference::by_row(rows, |r| {
            let x = reference::row(x, r);
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (variance + eps).sqrt();
            (0..x.len()).map(|c| (x[c] - mean) * scale * weight[c] + bias[c]).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let once = super::tolerance(case)?;
        // The mean errs by √d·2⁻²⁴ of itself at most, which is up to 100 here, over a deviation of 2; a bias may cancel the rest.
        let [d] = case.dims(["d"])?;
        let abs = 200.0 * (1.0 + (d as f64).sqrt() / 16.0) * roundoff(DType::F32);
        // Few values may lie so close together that eps is all there is to divide by.
        let abs = if d > 4 { abs } else { abs + 6.0 / case.params.f64("eps")?.sqrt() * roundoff(DType::F32) };
        let why = "one rounding to storage, √d·2⁻²⁴ of the f32 sums, and a mean of up to 100 standard deviations";
        Ok(Tolerance::new(once.abs + abs, once.rel, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
