//! Root-mean-square normalisation of rows.

use cuda_std::launch::Dim3;
use gpu_kernels::ops::rms_norm as gk;
use gpu_kernels::ops::rms_norm::{RmsNormAnyDtype, RmsNormBlockDtype, RmsNormWarpDtype};
use half::{bf16, f16};

use super::elementwise::{self, roundoff};
use crate::dispatch;
use crate::kernels;
use crate::ops::model::params::{ParamInfo, Params};
use crate::ops::model::reference;
use crate::ops::model::*;
use crate::runtime::any::{AnyView, AnyViewMut};
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// The element types that [`rms_norm`] has kernels for.
pub trait RmsNormDtype: Dtype + RmsNormWarpDtype + RmsNormBlockDtype + RmsNormAnyDtype {}
impl<T: Dtype + RmsNormWarpDtype + RmsNormBlockDtype + RmsNormAnyDtype> RmsNormDtype for T {}

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
/// [`Error::Shape`](crate::runtime::error::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::runtime::error::Error::Layout) if the elements of
/// a row are not adjacent, [`Error::InvalidParam`](crate::runtime::error::Error::InvalidParam) if `eps` is negative or NaN.
pub fn rms_norm<'a, T: RmsNormDtype>(
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
    let packs = d / gpu_kernels::lanes::<T>();
    let aligned =
        d % gpu_kernels::lanes::<T>() == 0 && x.rows_aligned(16) && y.rows_aligned(16) && weight.rows_aligned(16);
    let plan = Plan::of(packs, aligned);
    let Some(grid) = elementwise::grid(&INFO, "x", if d == 0 { 0 } else { rows }, plan.rows_per_block())? else {
        return Ok(());
    };
    let args = (
        x.ptr(stream),
        weight.ptr(stream),
        y.ptr_mut(stream),
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
            Plan::Warp1 => stream.launch::<gk::RmsNormWarp<T, 1>>(grid, args),
            Plan::Warp4 => stream.launch::<gk::RmsNormWarp<T, 4>>(grid, args),
            Plan::Block2(threads) => stream.launch_with::<gk::RmsNormBlock<T, 2>>(grid, Dim3::from(threads), args),
            Plan::Block4(threads) => stream.launch_with::<gk::RmsNormBlock<T, 4>>(grid, Dim3::from(threads), args),
            Plan::Block8(threads) => stream.launch_with::<gk::RmsNormBlock<T, 8>>(grid, Dim3::from(threads), args),
            Plan::Any => stream.launch::<gk::RmsNormAny<T>>(grid, args),
        }
    }
}

/// Which kernel a row length gets, and how many threads share a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    Warp1,
    Warp4,
    Block2(u32),
    Block4(u32),
    Block8(u32),
    Any,
}

impl Plan {
    /// For rows of `packs` 16-byte packs: the fewest registers that keep a row on chip, in whole warps.
    fn of(packs: usize, aligned: bool) -> Self {
        let threads = |v: usize| packs.div_ceil(v).next_multiple_of(32) as u32;
        match packs {
            _ if !aligned => Self::Any,
            0..=32 => Self::Warp1,
            33..=128 => Self::Warp4,
            129..=1024 => Self::Block2(threads(2)),
            1025..=2048 => Self::Block4(threads(4)),
            2049..=4096 => Self::Block8(threads(8)),
            _ => Self::Any,
        }
    }

    fn rows_per_block(self) -> usize {
        match self {
            Self::Warp1 | Self::Warp4 => gk::WARP_ROWS as usize,
            _ => 1,
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
    inputs: &[ArgInfo::new("x", "[rows, d], rows may be padded"), ArgInfo::new("weight", "[d]")],
    outputs: &[ArgInfo::new("y", "[rows, d], rows may be padded")],
    params: &[ParamInfo::float("eps", 1e-6, "added to the mean square")],
    dtypes: &[DType::F32, DType::F16, DType::BF16],
    kernels: kernels![
        gk::RmsNormWarp<f32, 1>, gk::RmsNormWarp<f16, 1>, gk::RmsNormWarp<bf16, 1>,
        gk::RmsNormWarp<f32, 4>, gk::RmsNormWarp<f16, 4>, gk::RmsNormWarp<bf16, 4>,
        gk::RmsNormBlock<f32, 2>, gk::RmsNormBlock<f16, 2>, gk::RmsNormBlock<bf16, 2>,
        gk::RmsNormBlock<f32, 4>, gk::RmsNormBlock<f16, 4>, gk::RmsNormBlock<bf16, 4>,
        gk::RmsNormBlock<f32, 8>, gk::RmsNormBlock<f16, 8>, gk::RmsNormBlock<bf16, 8>,
        gk::RmsNormAny<f32>, gk::RmsNormAny<f16>, gk::RmsNormAny<bf16>,
    ],
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
            let lanes = 16 / dtype.size();
            cases.extend([
                Case::odd(&INFO, dtype, dims(37, 1000)),
                Case::odd(&INFO, dtype, dims(37, 1003)),
                Case::odd(&INFO, dtype, dims(5, 70_001)),
                Case::odd(&INFO, dtype, dims(9, 2048)).offset(1),
                Case::odd(&INFO, dtype, dims(9, 768)).row_pad(16),
                Case::odd(&INFO, dtype, dims(9, 768)).row_pad(3),
                Case::tiny(&INFO, dtype, dims(1, 1)),
                Case::tiny(&INFO, dtype, dims(3, 8)),
                Case::tiny(&INFO, dtype, dims(2, 64)).fill(Distribution::Constant(0.0)),
                Case::empty(&INFO, dtype, dims(0, 128)),
                Case::empty(&INFO, dtype, dims(128, 0)),
                Case::odd(&INFO, dtype, dims(11, 640)).param("eps", 0.25),
            ]);
            // The last row length of every kernel and the first of the next.
            for packs in [32, 33, 128, 129, 1024, 1025, 2048, 2049, 4096, 4097] {
                cases.push(Case::boundary(&INFO, dtype, dims(3, packs * lanes)));
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [rows, d]), InputSpec::normal("weight", case.dtype, [d])])
    }

    fn outputs(&self, inputs: &[TensorMeta], params: &Params) -> Result<Vec<TensorMeta>> {
        let [x, weight] = INFO.metas(inputs)?;
        x.has_dtype()?;
        let [_, d] = x.dims()?;
        weight.has_shape(&[d])?;
        weight.has_dtype_of(&[x.dtype()])?;
        params.f32("eps")?;
        Ok(vec![INFO.output(0, x.dtype(), x.shape())])
    }

    fn launch(
        &self,
        stream: &Stream,
        inputs: &[AnyView<'_>],
        outputs: &mut [AnyViewMut<'_>],
        params: &Params,
    ) -> Result<()> {
        let [x, weight] = INFO.args(inputs)?;
        let [mut y] = INFO.args_mut(outputs)?;
        let eps = params.f32("eps")?;
        dispatch!(INFO, x.dtype(), [f32, f16, bf16] => |T| {
            rms_norm::<T>(stream, x.typed()?, weight.typed()?, eps, y.typed()?)
        })
    }

    fn reference(&self, inputs: &[HostTensor], params: &Params, _: usize, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight) = (&inputs[0], inputs[1].to_f64());
        let eps = f64::from(params.f32("eps")?);
        Ok(reference::by_row(rows, |r| {
            let x = reference::row(x, r);
            let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean + eps).sqrt();
            x.iter().zip(&weight).map(|(x, w)| x * scale * w).collect()
        }))
    }

    fn tolerance(&self, case: &Case) -> Result<Tolerance> {
        let [d] = case.dims(["d"])?;
        // A sum of d positive f32 terms errs by less than √d·2⁻²⁴ relative at random, of which the root takes half.
        let sum = (d as f64).sqrt() * roundoff(DType::F32);
        Ok(elementwise::tolerance(case.dtype, 1e-6 + sum, "one rounding to storage, √d·2⁻²⁴ of the f32 sum of squares"))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
