//! NAME of rows.

use gpu_kernels::ops::FAMILY::NAME as gk;

use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::ops::norm::{self, RowPlan};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = x − mean(x), for every row of `x`.
///
/// `x` has shape `[rows, d]` with elements of a row adjacent; rows may be padded. Sums are in f32 whatever `T` is, and the result is
/// rounded once. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has not two dimensions, [`Error::Layout`](crate::Error::Layout) if the elements of
/// a row are not adjacent, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn NAME<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::uninit(stream, x.shape())?;
    NAME_into(stream, x, &mut y)?;
    Ok(y)
}

/// [`NAME`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// As of [`NAME`].
pub fn NAME_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, mut y) = (x.into(), y.into());
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    y.require_shape(INFO.name, "y", x.shape())?;
    let x_stride = x.require_row_stride(INFO.name, "x")?;
    let y_stride = y.require_row_stride(INFO.name, "y")?;
    let plan = RowPlan::new::<T>(d, x.rows_aligned(16) && y.rows_aligned(16));
    let Some(grid) = grid(&INFO, "x", if d == 0 { 0 } else { rows }, plan.rows_per_block())? else {
        return Ok(());
    };
    let args = (x.ptr(stream)?, y.ptr_mut(stream)?, rows as u64, d as u64, x_stride as u64, y_stride as u64);
    // SAFETY: the tensors are live; every row holds d elements at its stride, and y is borrowed mutably. The plan names a kernel
    // only for rows that fit its registers, and the pack kernels only for aligned rows.
    unsafe {
        match plan {
            RowPlan::Warp1 => stream.launch::<gk::TYPEWarp<T, 1>>(grid, args),
            RowPlan::Warp4 => stream.launch::<gk::TYPEWarp<T, 4>>(grid, args),
            RowPlan::Block2(threads) => stream.launch_with::<gk::TYPEBlock<T, 2>>(grid, threads, args),
            RowPlan::Block4(threads) => stream.launch_with::<gk::TYPEBlock<T, 4>>(grid, threads, args),
            RowPlan::Block8(threads) => stream.launch_with::<gk::TYPEBlock<T, 8>>(grid, threads, args),
            RowPlan::Any => stream.launch::<gk::TYPEAny<T>>(grid, args),
        }
    }
}

/// The operator's entry in the registry.
pub struct TYPE;

static INFO: OpInfo = OpInfo {
    name: "NAME",
    bench_name: "row.NAME",
    summary: "NAME of rows",
    math: "y = x − mean(x)",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::output("y", "[rows, d], rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::CONST_WARP, gk::CONST_BLOCK, gk::CONST_ANY],
    variants: &[],
};

impl Operator for TYPE {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = [("rows", 32768), ("d", 4096)];
        let mut cases = vec![Case::production(&INFO, "rows=32768 d=4096 bfloat16", DType::BF16, dims)];
        cases.extend(INFO.dtypes.iter().flat_map(|dtype| norm::cases(&INFO, *dtype, ["x", "y"])));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [rows, d]).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [_, _] = x.dims()?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, float => |T| NAME_into::<T>(stream, args.input("x")?, args.output("y")?))
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        Ok(reference::by_row(rows, |r| {
            let x = reference::row(x, r);
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            x.iter().map(|x| x - mean).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        // The sum of d f32 terms of order 1 errs by √d·2⁻²⁴ of its √d at random, and the mean by a d-th of that.
        Ok(Tolerance::rounded(case.dtype, 1e-6, 1e-6, "one rounding to storage, and that of a mean of order one"))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
