//! Gradient of the root-mean-square normalisation of rows.

mod residual;

pub use residual::{AddRmsNormBackward, add_rms_norm_backward, add_rms_norm_backward_into};

use cuda_std::launch::DevicePtr;
use gpu_kernels::columns::COLUMN_SUMS;
use gpu_kernels::ops::norm::rms_norm_backward as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::ops::norm::rms_norm::RmsNorm;
use crate::ops::norm::{columns, gradient_tolerance, require_eps, require_weight, sum_tolerance};
use crate::ops::rows::{self, PersistentPlan, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradients of [`rms_norm`](fn@crate::ops::rms_norm) with respect to its inputs, or those of
/// [`add_rms_norm`](fn@crate::ops::add_rms_norm).
#[derive(Debug)]
pub struct RmsNormGradients<T> {
    /// The gradient with respect to `x`, of its shape; of `add_rms_norm`, the gradient with respect to `x` and to `residual`.
    pub dx: Tensor<T>,
    /// The gradient with respect to the weight, `[d]`.
    pub dweight: Tensor<T>,
}

/// Where to write [`RmsNormGradients`].
#[derive(Debug)]
pub struct RmsNormGradientsMut<'a, T> {
    /// The gradient with respect to `x`, of its shape; rows may be padded.
    pub dx: ViewMut<'a, T>,
    /// The gradient with respect to the weight, `[d]`, contiguous.
    pub dweight: ViewMut<'a, T>,
}

/// The gradients of [`rms_norm`](fn@crate::ops::rms_norm).
///
/// `x` is the input of the forward, of shape `[rows, d]` or with more dimensions, and `dy` the gradient of its result, of the
/// same shape; `weight` is `[d]`. The elements of a row are contiguous, and rows may be padded. With s = 1 / √(mean(x²) + eps),
/// which is recomputed: dx = s · (dy · weight − x · s² · mean(dy · weight · x)) and dweight = Σ dy · x · s, the latter over all
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
/// let x = Tensor::from_slice(&stream, [2, 2], &[1.0f32, 1.0, -1.0, 1.0])?;
/// let weight = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// let dy = Tensor::from_slice(&stream, [2, 2], &[1.0f32, 1.0, 1.0, 1.0])?;
/// let gradients = ops::rms_norm_backward(&stream, &x, &weight, &dy, 0.0)?;
/// assert_eq!(gradients.dx.to_vec(&stream)?, [0.0, 0.0, 1.0, 1.0]);
/// assert_eq!(gradients.dweight.to_vec(&stream)?, [0.0, 2.0]);
/// # Ok(())
/// # }
/// ```
pub fn rms_norm_backward<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<RmsNormGradients<T>> {
    let (x, weight) = (x.into(), weight.into());
    let (mut dx, mut dweight) = (Tensor::result(stream, x.shape())?, Tensor::result(stream, weight.shape())?);
    let gradients = RmsNormGradientsMut { dx: dx.view_mut(), dweight: dweight.view_mut() };
    rms_norm_backward_into(stream, x, weight, dy.into(), eps, gradients)?;
    Ok(RmsNormGradients { dx, dweight })
}

/// [`rms_norm_backward`] into `gradients`.
///
/// # Errors
/// Same as [`rms_norm_backward`].
pub fn rms_norm_backward_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    eps: f32,
    gradients: RmsNormGradientsMut<'a, T>,
) -> Result<()> {
    let inputs = [x.into(), weight.into(), dy.into()];
    backward(&INFO, stream, inputs, None, eps, gradients)
}

/// The gradient of either form, whose `info` names `x`, `weight` and `dy` in this order, followed by `dr` if there is one.
fn backward<'a, T: Float>(
    info: &OpInfo,
    stream: &Stream,
    [x, weight, dy]: [View<'a, T>; 3],
    dr: Option<View<'a, T>>,
    eps: f32,
    RmsNormGradientsMut { mut dx, mut dweight }: RmsNormGradientsMut<'a, T>,
) -> Result<()> {
    let name = info.args[0].name;
    stream.require_devices(
        info.name,
        &[(name, &x), ("weight", &weight), ("dy", &dy), ("dr", &dr), ("dx", &dx), ("dweight", &dweight)],
    )?;
    let (shape, d) = (x.shape(), x.cols());
    let rows = Rows::of(info, name, &x)?.and(&weight).and(&dy).and_mut(&dx);
    let rows = dr.iter().fold(rows, |rows, dr| rows.and(dr));
    require_weight(info, "weight", &weight, d)?;
    dy.require_shape(info.name, "dy", shape)?;
    dx.require_shape(info.name, "dx", shape)?;
    dweight.require_shape(info.name, "dweight", &[d])?;
    dweight.require_contiguous(info.name, "dweight")?;
    let x_stride = x.require_row_stride(info.name, name)? as u64;
    let dy_stride = dy.require_row_stride(info.name, "dy")? as u64;
    let dx_stride = dx.require_row_stride(info.name, "dx")? as u64;
    require_eps(info, eps)?;
    let (mut dr_ptr, mut dr_stride) = (DevicePtr::null(), 0);
    if let Some(dr) = dr {
        dr.require_shape(info.name, "dr", shape)?;
        (dr_ptr, dr_stride) = (dr.ptr(stream)?, dr.require_row_stride(info.name, "dr")? as u64);
    }
    let plan = rows.plan_persistent::<T>(stream.device());
    let count = plan.map_or(0, |plan| plan.partials);
    let partials = stream.workspace::<f32>(info.name, count * d)?;
    if let Some(PersistentPlan { plan, .. }) = plan {
        let args = (
            x.ptr(stream)?,
            weight.ptr(stream)?,
            dy.ptr(stream)?,
            dr_ptr,
            dx.ptr_mut(stream)?,
            partials.ptr_mut(),
            plan.rows,
            plan.d,
            x_stride,
            dy_stride,
            dr_stride,
            dx_stride,
            eps,
        );
        // SAFETY: the tensors are live; every row holds d elements at its stride, weight holds d, the scratch the rows of partial results,
        // and dx is borrowed mutably. The plan names a team that holds such rows.
        unsafe { launch_rows!(persistent stream, plan, gk::RmsNormBackward, T, args)? };
    }
    columns::sum(info, stream, &partials, [Some(dweight.ptr_mut(stream)?), None], count, d)
}

/// The operator's entry in the registry.
pub struct RmsNormBackward;

static INFO: OpInfo = OpInfo {
    name: "rms_norm_backward",
    bench_name: "row.rmsnorm_backward",
    summary: "gradient of rms_norm",
    math: "dx = s · (dy · weight − x · s² · mean(dy · weight · x)), dweight = Σ dy · x · s, s = 1 / √(mean(x²) + eps)",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::input("dy", "the shape of x, rows may be padded"),
        ArgInfo::output("dx", "the shape of x, rows may be padded"),
        ArgInfo::output("dweight", "[d], contiguous"),
    ],
    params: &[ParamInfo::float("eps", 1e-6, "added to the mean square")],
    dtypes: DType::FLOATS,
    kernels: &[gk::RMS_NORM_BACKWARD, COLUMN_SUMS],
    variants: &[],
};

impl Operator for RmsNormBackward {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let heads = "rows=524288 d=128 bfloat16";
        let mut cases = rows::production(&INFO);
        cases.push(Case::production(&INFO, heads, DType::BF16, dims(524_288, 128)));
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
            InputSpec::new("x", case.dtype, [rows, d], x),
            InputSpec::normal("weight", case.dtype, [d]),
            InputSpec::normal("dy", case.dtype, [rows, d]),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
        let d = [reference::row_len(x.shape())];
        inputs.get("weight")?.has_shape(&d)?;
        inputs.get("dy")?.has_shape(x.shape())?;
        params.f32("eps")?;
        Ok(vec![TensorMeta::new("dx", x.dtype(), x.shape()), TensorMeta::new("dweight", x.dtype(), d)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let eps = params.f32("eps")?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let inputs = [args.input::<T>("x")?, args.input("weight")?, args.input("dy")?];
            let gradients = RmsNormGradientsMut { dx: args.output("dx")?, dweight: args.output("dweight")? };
            backward(&INFO, stream, inputs, None, eps, gradients)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        gradients(inputs, "x", params, output, rows)
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        if output == "dx" { gradient_tolerance(case) } else { sum_tolerance(case) }
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((3 * rows * d * case.dtype.size()) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient {
            forward: &RmsNorm,
            of_outputs: &[("dy", "y")],
            of_inputs: &[("dx", "x"), ("dweight", "weight")],
        })
    }
}

/// The reference of either form: `x` is the input of the normalisation.
fn gradients(inputs: &Tensors<'_>, x: &str, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
    let (x, dy, weight) = (inputs.get(x)?, inputs.get("dy")?, inputs.get("weight")?.to_f64());
    let dr = inputs.optional("dr");
    let eps = f64::from(params.f32("eps")?);
    let scale = |x: &[f64]| 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + eps).sqrt();
    if output == "dweight" {
        let mut sums = vec![0.0; weight.len()];
        for r in 0..reference::row_count(x.shape()) {
            let (x, dy) = (reference::row(x, r), reference::row(dy, r));
            let scale = scale(&x);
            (0..x.len()).for_each(|c| sums[c] += dy[c] * x[c] * scale);
        }
        return Ok(rows.iter().map(|c| sums[*c]).collect());
    }
    Ok(reference::by_row(rows, |r| {
        let (x, dy) = (reference::row(x, r), reference::row(dy, r));
        let dr = dr.map_or_else(|| vec![0.0; x.len()], |dr| reference::row(dr, r));
        let scale = scale(&x);
        let mean = (0..x.len()).map(|c| dy[c] * weight[c] * x[c]).sum::<f64>() / x.len() as f64;
        (0..x.len()).map(|c| scale * (dy[c] * weight[c] - x[c] * scale * scale * mean) + dr[c]).collect()
    }))
}
