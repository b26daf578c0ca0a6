//! Root-mean-square normalisation of rows.

use cuda_std::launch::Dim3;
use gpu_kernels::ops::norm::rms_norm as gk;

use super::RowPlan;
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = x / √(mean(x²) + eps) · weight, for every row of `x`.
///
/// `x` and `y` have shape `[rows, d]` with elements of a row adjacent; rows may be padded (a leading dimension above `d`).
/// `weight` has `[d]`. The mean and the division are in f32 whatever `T` is, and the result is rounded once. Rows whose
/// packs of 16 bytes are aligned are read from memory once; others, and rows beyond 4096 packs, are read twice. The work is queued on
/// `stream`.
///
/// Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if the elements of
/// a row are not adjacent, [`Error::InvalidParam`](crate::Error::InvalidParam) if `eps` is negative or NaN.
pub fn rms_norm<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::uninit(stream, x.shape())?;
    rms_norm_into(stream, x, weight.into(), eps, &mut y)?;
    Ok(y)
}

/// [`rms_norm`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// As of [`rms_norm`].
pub fn rms_norm_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, weight, mut y) = (x.into(), weight.into(), y.into());
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    weight.require_shape(INFO.name, "weight", &[d])?;
    weight.require_contiguous(INFO.name, "weight")?;
    y.require_shape(INFO.name, "y", x.shape())?;
    let x_stride = x.require_row_stride(INFO.name, "x")?;
    let y_stride = y.require_row_stride(INFO.name, "y")?;
    if eps.is_nan() || eps < 0.0 {
        return Err(INFO.param_error("eps", eps, "zero or more"));
    }
    let aligned = x.rows_aligned(16) && y.rows_aligned(16) && weight.rows_aligned(16);
    let plan = RowPlan::new::<T>(d, aligned);
    let Some(grid) = grid(&INFO, "x", if d == 0 { 0 } else { rows }, plan.rows_per_block())? else {
        return Ok(());
    };
    let args = (
        x.ptr(stream)?,
        weight.ptr(stream)?,
        y.ptr_mut(stream)?,
        rows as u64,
        d as u64,
        x_stride as u64,
        y_stride as u64,
        eps,
    );
    // SAFETY: the tensors are live; every row holds d elements at its stride, weight holds d, and y is borrowed mutably.
    // The plan names a kernel only for rows that fit its registers, and the pack kernels only for aligned rows.
    unsafe {
        match plan {
            RowPlan::Warp1 => stream.launch::<gk::RmsNormWarp<T, 1>>(grid, args),
            RowPlan::Warp4 => stream.launch::<gk::RmsNormWarp<T, 4>>(grid, args),
            RowPlan::Block2(threads) => stream.launch_with::<gk::RmsNormBlock<T, 2>>(grid, Dim3::from(threads), args),
            RowPlan::Block4(threads) => stream.launch_with::<gk::RmsNormBlock<T, 4>>(grid, Dim3::from(threads), args),
            RowPlan::Block8(threads) => stream.launch_with::<gk::RmsNormBlock<T, 8>>(grid, Dim3::from(threads), args),
            RowPlan::Any => stream.launch::<gk::RmsNormAny<T>>(grid, args),
        }
    }
}

/// The operator's entry in the registry.
pub struct RmsNorm;

static INFO: OpInfo = OpInfo {
    name: "rms_norm",
    bench_name: "row.rmsnorm",
    summary: "root-mean-square normalisation of rows",
    math: "y = x / √(mean(x²) + eps) · weight",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::output("y", "[rows, d], rows may be padded"),
    ],
    params: &[ParamInfo::float("eps", 1e-6, "added to the mean square")],
    dtypes: DType::FLOATS,
    kernels: &[gk::RMS_NORM_WARP, gk::RMS_NORM_BLOCK, gk::RMS_NORM_ANY],
    variants: &[],
};

impl Operator for RmsNorm {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let mut cases = Vec::new();
        for (rows, d) in [(32768, 4096), (16384, 8192)] {
            let name = format!("rows={rows} d={d} bfloat16");
            cases.push(Case::production(&INFO, name, DType::BF16, dims(rows, d)));
        }
        for &dtype in INFO.dtypes {
            cases.push(Case::odd(&INFO, dtype, dims(11, 640)).param("eps", 0.25));
            cases.push(Case::tiny(&INFO, dtype, dims(2, 64)).fill(Values::Constant(0.0)));
            cases.extend(super::cases(&INFO, dtype, ["x", "y"]));
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
        let [_, d] = x.dims()?;
        inputs.get("weight")?.has_shape(&[d])?;
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
        let [d] = case.dims(["d"])?;
        // A sum of d positive f32 terms errs by less than √d·2⁻²⁴ relative at random, of which the root takes half.
        let sum = (d as f64).sqrt() * roundoff(DType::F32);
        let why = "one rounding to storage, √d·2⁻²⁴ of the f32 sum of squares";
        Ok(Tolerance::rounded(case.dtype, 0.0, 1e-6 + sum, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
