//! Gradient of the residual add and root-mean-square normalisation of rows.

use gpu_kernels::columns::COLUMN_SUMS;
use gpu_kernels::ops::norm::rms_norm_backward as gk;

use super::{RmsNormGradients, RmsNormGradientsMut, backward, gradients};
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::norm::add_rms_norm::AddRmsNorm;
use crate::ops::norm::{gradient_tolerance, sum_tolerance};
use crate::ops::rows;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// The gradients of [`add_rms_norm`](fn@crate::ops::add_rms_norm).
///
/// `r` is the residual stream from the forward operator, of shape `[rows, d]` or with more dimensions; `dy` is the gradient of
/// y and `dr` the gradient of r from its other uses, both of the same shape; dx is the gradient of both `x` and `residual`.
/// `weight` is `[d]`. The elements of a row are contiguous, and rows may be padded. With s = 1 / √(mean(r²) + eps), which is
/// recomputed: dx = s · (dy · weight − r · s² · mean(dy · weight · r)) + dr and dweight = Σ dy · r · s, the latter over all
/// rows, in f32 in an order that depends only on the device and the shape. Rows of up to 1024 aligned packs of 16 bytes are
/// read once. The results are new dense tensors; the work is queued on `stream`.
///
/// Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467.
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
/// let r = Tensor::from_slice(&stream, [2, 2], &[1.0f32, 1.0, -1.0, 1.0])?;
/// let weight = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// let dy = Tensor::from_slice(&stream, [2, 2], &[1.0f32, 1.0, 1.0, 1.0])?;
/// let gradients = ops::add_rms_norm_backward(&stream, &r, &weight, &dy, &dy, 0.0)?;
/// assert_eq!(gradients.dx.to_vec(&stream)?, [1.0, 1.0, 2.0, 2.0]);
/// assert_eq!(gradients.dweight.to_vec(&stream)?, [0.0, 2.0]);
/// # Ok(())
/// # }
/// ```
pub fn add_rms_norm_backward<'a, T: Float>(
    stream: &Stream,
    r: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    dr: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<RmsNormGradients<T>> {
    let (r, weight) = (r.into(), weight.into());
    let (mut dx, mut dweight) = (Tensor::result(stream, r.shape())?, Tensor::result(stream, weight.shape())?);
    let gradients = RmsNormGradientsMut { dx: dx.view_mut(), dweight: dweight.view_mut() };
    add_rms_norm_backward_into(stream, r, weight, dy.into(), dr.into(), eps, gradients)?;
    Ok(RmsNormGradients { dx, dweight })
}

/// [`add_rms_norm_backward`] into `gradients`.
///
/// # Errors
/// Same as [`add_rms_norm_backward`].
pub fn add_rms_norm_backward_into<'a, T: Float>(
    stream: &Stream,
    r: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    dr: impl Into<View<'a, T>>,
    eps: f32,
    gradients: RmsNormGradientsMut<'a, T>,
) -> Result<()> {
    let inputs = [r.into(), weight.into(), dy.into()];
    backward(&INFO, stream, inputs, Some(dr.into()), eps, gradients)
}

/// The operator's entry in the registry.
pub struct AddRmsNormBackward;

static INFO: OpInfo = OpInfo {
    name: "add_rms_norm_backward",
    bench_name: "row.add_rmsnorm_backward",
    summary: "gradient of add_rms_norm",
    math: "dx = s · (dy · weight − r · s² · mean(dy · weight · r)) + dr, dweight = Σ dy · r · s, s = 1 / √(mean(r²) + eps)",
    args: &[
        ArgInfo::input(
            "r",
            "[rows, d] or more dimensions, the residual stream that add_rms_norm gave, rows may be padded",
        ),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::input("dy", "the shape of r, rows may be padded"),
        ArgInfo::input("dr", "the shape of r, the gradient of r from elsewhere, rows may be padded"),
        ArgInfo::output("dx", "the shape of r, the gradient of x and of residual, rows may be padded"),
        ArgInfo::output("dweight", "[d], contiguous"),
    ],
    params: &[ParamInfo::float("eps", 1e-6, "added to the mean square")],
    dtypes: DType::FLOATS,
    kernels: &[gk::RMS_NORM_BACKWARD, COLUMN_SUMS],
    variants: &[],
};

impl Operator for AddRmsNormBackward {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let name = "rows=16384 d=4096 bfloat16";
        let mut cases = vec![Case::production(&INFO, name, DType::BF16, dims(16384, 4096))];
        for &dtype in INFO.dtypes {
            cases.extend(rows::persistent_cases(&INFO, dtype, &["weight", "dweight"]));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        // Rows with a root mean square near 1, however short: the formula divides by it.
        let x = Values::Uniform { low: 0.25, high: 2.0 };
        let specs = [
            InputSpec::new("r", case.dtype, [rows, d], x),
            InputSpec::normal("weight", case.dtype, [d]),
            InputSpec::normal("dy", case.dtype, [rows, d]),
            InputSpec::normal("dr", case.dtype, [rows, d]),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("r")?;
        rows::require(&INFO, "r", x.shape())?;
        let d = [reference::row_len(x.shape())];
        inputs.get("weight")?.has_shape(&d)?;
        inputs.get("dy")?.has_shape(x.shape())?;
        inputs.get("dr")?.has_shape(x.shape())?;
        params.f32("eps")?;
        Ok(vec![TensorMeta::new("dx", x.dtype(), x.shape()), TensorMeta::new("dweight", x.dtype(), d)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let eps = params.f32("eps")?;
        dispatch!(INFO, args.dtype("r")?, float => |T| {
            let inputs = [args.input::<T>("r")?, args.input("weight")?, args.input("dy")?];
            let dr = Some(args.input("dr")?);
            let gradients = RmsNormGradientsMut { dx: args.output("dx")?, dweight: args.output("dweight")? };
            backward(&INFO, stream, inputs, dr, eps, gradients)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        gradients(inputs, "r", params, output, rows)
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        if output == "dx" { gradient_tolerance(case) } else { sum_tolerance(case) }
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((4 * rows * d * case.dtype.size()) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient {
            forward: &AddRmsNorm,
            of_outputs: &[("dy", "y"), ("dr", "r")],
            of_inputs: &[("dx", "x"), ("dx", "residual"), ("dweight", "weight")],
        })
    }
}
