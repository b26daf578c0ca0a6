//! Gradient of the layer normalisation of rows.

use gpu_kernels::columns::COLUMN_SUMS;
use gpu_kernels::ops::norm::layer_norm_backward as gk;

use super::columns;
use super::layer_norm::LayerNorm;
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, PersistentPlan, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradients of [`layer_norm`](fn@crate::ops::layer_norm) with respect to its inputs.
#[derive(Debug)]
pub struct LayerNormGradients<T> {
    /// The gradient with respect to `x`, of its shape.
    pub dx: Tensor<T>,
    /// The gradient with respect to the weight, `[d]`.
    pub dweight: Tensor<T>,
    /// The gradient with respect to the bias, `[d]`.
    pub dbias: Tensor<T>,
}

/// Where to write [`LayerNormGradients`].
#[derive(Debug)]
pub struct LayerNormGradientsMut<'a, T> {
    /// The gradient with respect to `x`, of its shape; rows may be padded.
    pub dx: ViewMut<'a, T>,
    /// The gradient with respect to the weight, `[d]`, contiguous.
    pub dweight: ViewMut<'a, T>,
    /// The gradient with respect to the bias, `[d]`, contiguous.
    pub dbias: ViewMut<'a, T>,
}

/// The gradients of [`layer_norm`](fn@crate::ops::layer_norm).
///
/// `x` is the input of the forward, of shape `[rows, d]` or with more dimensions, and `dy` the gradient of its result, of the
/// same shape; `weight` is `[d]`. The elements of a row are contiguous, and rows may be padded. With s = 1 / √(variance(x) +
/// eps) and z = (x − mean(x)) · s, which are recomputed: dx = s · (dy · weight − mean(dy · weight) − z · mean(dy · weight ·
/// z)), and over all rows dweight = Σ dy · z and dbias = Σ dy, in f32 in an order that depends only on the device and the
/// shape. Rows of up to 1024 aligned packs of 16 bytes are read once. The results are new dense tensors; the work is queued on
/// `stream`.
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
/// let x = Tensor::from_slice(&stream, [1, 2], &[-1.0f32, 1.0])?;
/// let weight = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// let gradients = ops::layer_norm_backward(&stream, &x, &weight, &x, 0.0)?;
/// assert_eq!(gradients.dx.to_vec(&stream)?, [0.0, 0.0]);
/// assert_eq!(gradients.dweight.to_vec(&stream)?, [1.0, 1.0]);
/// assert_eq!(gradients.dbias.to_vec(&stream)?, [-1.0, 1.0]);
/// # Ok(())
/// # }
/// ```
pub fn layer_norm_backward<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<LayerNormGradients<T>> {
    let (x, weight) = (x.into(), weight.into());
    let mut dx = Tensor::result(stream, x.shape())?;
    let (mut dweight, mut dbias) = (Tensor::result(stream, weight.shape())?, Tensor::result(stream, weight.shape())?);
    let gradients = LayerNormGradientsMut { dx: dx.view_mut(), dweight: dweight.view_mut(), dbias: dbias.view_mut() };
    layer_norm_backward_into(stream, x, weight, dy.into(), eps, gradients)?;
    Ok(LayerNormGradients { dx, dweight, dbias })
}

/// [`layer_norm_backward`] into `gradients`.
///
/// # Errors
/// Same as [`layer_norm_backward`].
pub fn layer_norm_backward_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    eps: f32,
    gradients: LayerNormGradientsMut<'a, T>,
) -> Result<()> {
    let (x, weight, dy) = (x.into(), weight.into(), dy.into());
    let LayerNormGradientsMut { mut dx, mut dweight, mut dbias } = gradients;
    stream.require_devices(
        INFO.name,
        &[("x", &x), ("weight", &weight), ("dy", &dy), ("dx", &dx), ("dweight", &dweight), ("dbias", &dbias)],
    )?;
    let d = x.cols();
    let rows = Rows::of(&INFO, "x", &x)?.and(&weight).and(&dy).and_mut(&dx);
    super::require_weight(&INFO, "weight", &weight, d)?;
    dy.require_shape(INFO.name, "dy", x.shape())?;
    dx.require_shape(INFO.name, "dx", x.shape())?;
    for (name, gradient) in [("dweight", &dweight), ("dbias", &dbias)] {
        gradient.require_shape(INFO.name, name, &[d])?;
        gradient.require_contiguous(INFO.name, name)?;
    }
    let x_stride = x.require_row_stride(INFO.name, "x")? as u64;
    let dy_stride = dy.require_row_stride(INFO.name, "dy")? as u64;
    let dx_stride = dx.require_row_stride(INFO.name, "dx")? as u64;
    super::require_eps(&INFO, eps)?;
    let plan = rows.plan_persistent::<T>(stream.device());
    let count = plan.map_or(0, |plan| plan.partials);
    let partials = stream.workspace::<f32>(INFO.name, 2 * count * d)?;
    if let Some(PersistentPlan { plan, .. }) = plan {
        let args = (
            x.ptr(stream)?,
            weight.ptr(stream)?,
            dy.ptr(stream)?,
            dx.ptr_mut(stream)?,
            partials.ptr_mut(),
            count as u64,
            plan.rows,
            plan.d,
            x_stride,
            dy_stride,
            dx_stride,
            eps,
        );
        // SAFETY: the tensors are live; every row holds d elements at its stride, weight holds d, the scratch the rows of partial results,
        // and dx is borrowed mutably. The plan names a team that holds such rows.
        unsafe { launch_rows!(persistent stream, plan, gk::LayerNormBackward, T, args)? };
    }
    let gradients = [Some(dweight.ptr_mut(stream)?), Some(dbias.ptr_mut(stream)?)];
    columns::sum(&INFO, stream, &partials, gradients, count, d)
}

/// The operator's entry in the registry.
pub struct LayerNormBackward;

static INFO: OpInfo = OpInfo {
    name: "layer_norm_backward",
    bench_name: "row.layernorm_backward",
    summary: "gradient of layer_norm",
    math: "dx = s · (dy · weight − mean(dy · weight) − z · mean(dy · weight · z)), dweight = Σ dy · z, dbias = Σ dy, z = (x − mean(x)) · s",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::input("dy", "the shape of x, rows may be padded"),
        ArgInfo::output("dx", "the shape of x, rows may be padded"),
        ArgInfo::output("dweight", "[d], contiguous"),
        ArgInfo::output("dbias", "[d], contiguous"),
    ],
    params: &[ParamInfo::float("eps", 1e-5, "added to the variance")],
    dtypes: DType::FLOATS,
    kernels: &[gk::LAYER_NORM_BACKWARD, COLUMN_SUMS],
    variants: &[],
};

impl Operator for LayerNormBackward {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = rows::production(&INFO);
        for &dtype in INFO.dtypes {
            cases.extend(rows::persistent_cases(&INFO, dtype, &["weight", "dweight", "dbias"]));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let specs = [
            InputSpec::normal("x", case.dtype, [rows, d]),
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
        let of = |name, shape: &[usize]| TensorMeta::new(name, x.dtype(), shape);
        Ok(vec![of("dx", x.shape()), of("dweight", &d), of("dbias", &d)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let eps = params.f32("eps")?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let (x, weight, dy) = (args.input::<T>("x")?, args.input::<T>("weight")?, args.input::<T>("dy")?);
            let (dx, dweight, dbias) = (args.output("dx")?, args.output("dweight")?, args.output("dbias")?);
            let gradients = LayerNormGradientsMut { dx, dweight, dbias };
            layer_norm_backward_into(stream, x, weight, dy, eps, gradients)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, dy, weight) = (inputs.get("x")?, inputs.get("dy")?, inputs.get("weight")?.to_f64());
        let eps = f64::from(params.f32("eps")?);
        // A normalised row, and its factor s.
        let normalised = |r: usize| {
            let x = reference::row(x, r);
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (variance + eps).sqrt();
            (x.iter().map(|x| (x - mean) * scale).collect::<Vec<_>>(), scale)
        };
        if output != "dx" {
            let mut sums = vec![0.0; weight.len()];
            for r in 0..reference::row_count(x.shape()) {
                let ((z, _), dy) = (normalised(r), reference::row(dy, r));
                (0..dy.len()).for_each(|c| sums[c] += if output == "dbias" { dy[c] } else { dy[c] * z[c] });
            }
            return Ok(rows.iter().map(|c| sums[*c]).collect());
        }
        Ok(reference::by_row(rows, |r| {
            let ((z, scale), dy) = (normalised(r), reference::row(dy, r));
            let g: Vec<f64> = dy.iter().zip(&weight).map(|(dy, weight)| dy * weight).collect();
            let mean = g.iter().sum::<f64>() / g.len() as f64;
            let pull = g.iter().zip(&z).map(|(g, z)| g * z).sum::<f64>() / g.len() as f64;
            g.iter().zip(&z).map(|(g, z)| scale * (g - mean - z * pull)).collect()
        }))
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [d] = case.dims(["d"])?;
        if output != "dx" {
            return super::sum_tolerance(case);
        }
        let dx = super::gradient_tolerance(case)?;
        if d > 4 {
            return Ok(dx);
        }
        // Few values may lie so close together that eps is all there is to divide by: the rounding of x, of size 3, is multiplied by
        // 1/√eps in what is normalised, and that by 1/√eps and gradients of size 3.
        let abs = dx.abs + 9.0 / case.params.f64("eps")? * roundoff(DType::F32);
        Ok(Tolerance::new(abs, dx.rel, "as for more columns; rounding over deviations of √eps, twice"))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((3 * rows * d * case.dtype.size()) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient {
            forward: &LayerNorm,
            of_outputs: &[("dy", "y")],
            of_inputs: &[("dx", "x"), ("dweight", "weight"), ("dbias", "bias")],
        })
    }
}
