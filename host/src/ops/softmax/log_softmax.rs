//! Logarithm of the softmax of rows.

use gpu_kernels::ops::softmax::log_softmax as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = scale · x − ln Σ e^(scale · x), for every row of `x`: the logarithm of [`softmax`](fn@crate::ops::softmax), without underflow.
///
/// `x` is `[rows, d]`, or has more dimensions, the last of which is `d`; the elements of a row are contiguous, and rows may be
/// padded. Statistics are in f32 whatever `T` is, and the result is rounded once. −∞ gives −∞, also in a row that is all −∞; +∞
/// or NaN makes its row NaN. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has fewer than two dimensions, [`Error::Layout`](crate::Error::Layout) if rows are
/// not contiguous and equally far apart, [`Error::InvalidParam`](crate::Error::InvalidParam) if `scale` is not positive and below 2¹²⁷,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn log_softmax<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, scale: f32) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    log_softmax_into(stream, x, scale, &mut y)?;
    Ok(y)
}

/// [`log_softmax`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// Same as [`log_softmax`].
pub fn log_softmax_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    scale: f32,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, mut y) = (x.into(), y.into());
    stream.require_devices(INFO.name, &[("x", &x), ("y", &y)])?;
    let rows = Rows::of(&INFO, "x", &x)?.and_mut(&y);
    y.require_shape(INFO.name, "y", x.shape())?;
    let x_stride = x.require_row_stride(INFO.name, "x")? as u64;
    let y_stride = y.require_row_stride(INFO.name, "y")? as u64;
    super::require_scale(&INFO, scale)?;
    let Some(plan) = rows.plan_clustered::<T>(&INFO, stream.device())? else { return Ok(()) };
    let args = (x.ptr(stream)?, y.ptr_mut(stream)?, x_stride, y_stride, scale, plan.rows, plan.d);
    // SAFETY: the tensors are live; every row holds d elements at its stride, and y is borrowed mutably. The plan names a team that
    // holds such rows.
    unsafe { launch_rows!(stream, plan, gk::LogSoftmax / LogSoftmaxCluster, T, args) }
}

/// The operator's entry in the registry.
pub struct LogSoftmax;

static INFO: OpInfo = OpInfo {
    name: "log_softmax",
    bench_name: "row.log_softmax",
    summary: "logarithm of the softmax of rows",
    math: "y = scale · x − ln Σ e^(scale · x)",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[ParamInfo::float("scale", 1.0, "factor of x, positive")],
    dtypes: DType::FLOATS,
    kernels: &[gk::LOG_SOFTMAX, gk::LOG_SOFTMAX_CLUSTER],
    variants: &[],
};

impl Operator for LogSoftmax {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let mut cases = Vec::new();
        for (rows, d) in [(32768, 4096), (2048, 131_072)] {
            let name = format!("rows={rows} d={d} bfloat16");
            cases.push(Case::production(&INFO, name, DType::BF16, dims(rows, d)));
        }
        for &dtype in INFO.dtypes {
            cases.extend(rows::cases(&INFO, dtype, rows::CLUSTERED_LIMITS, &[]));
            cases.extend([
                Case::odd(&INFO, dtype, dims(11, 640)).param("scale", 0.125),
                Case::boundary(&INFO, dtype, dims(70, 1)).fill(Values::Specials),
                Case::boundary(&INFO, dtype, dims(70, 2)).fill(Values::Specials),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [rows, d]).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
        params.f32("scale")?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let scale = params.f32("scale")?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            log_softmax_into::<T>(stream, args.input("x")?, scale, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, scale) = (inputs.get("x")?, f64::from(params.f32("scale")?));
        Ok(reference::by_row(rows, |r| {
            let x = reference::row(x, r);
            let max = x.iter().fold(f64::NEG_INFINITY, |max, x| max.max(scale * x));
            if max == f64::NEG_INFINITY && !x.iter().any(|x| x.is_nan()) {
                return x;
            }
            let sum: f64 = x.iter().map(|x| (scale * x - max).exp()).sum();
            x.iter().map(|x| scale * x - max - sum.ln()).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        // The relative error of the sum is an absolute error of its logarithm.
        let [d] = case.dims(["d"])?;
        let abs = (d as f64).sqrt() * roundoff(DType::F32) + 4e-6;
        super::tolerance(
            case,
            abs,
            "one rounding to storage, √d·2⁻²⁴ of the sum, 2⁻²² of exponentials, 2⁻²³ of exponents up to 16",
        )
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
