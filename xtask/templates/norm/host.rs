//! NAME of rows.

use gpu_kernels::ops::FAMILY::NAME as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = x − mean(x), for every row of `x`.
///
/// `x` has shape `[rows, d]`, or any other of two dimensions or more whose last is `d`; the elements of a row are adjacent, and rows may
/// be padded. Sums are in f32 whatever `T` is, and the result is rounded once. The result is a new dense tensor; the work is queued on
/// `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has fewer than two dimensions, [`Error::Layout`](crate::Error::Layout) if the elements of
/// a row are not adjacent, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn NAME<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
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
    let rows = Rows::of(&INFO, "x", &x)?.and_mut(&y);
    y.require_shape(INFO.name, "y", x.shape())?;
    let x_stride = x.require_row_stride(INFO.name, "x")? as u64;
    let y_stride = y.require_row_stride(INFO.name, "y")? as u64;
    let Some(plan) = rows.plan::<T>(&INFO)? else { return Ok(()) };
    let args = (x.ptr(stream)?, y.ptr_mut(stream)?, plan.rows, plan.d, x_stride, y_stride);
    // SAFETY: the tensors are live; every row holds d elements at its stride, and y is borrowed mutably. The plan names a team that
    // holds such rows.
    unsafe { launch_rows!(stream, plan, gk::TYPE, T, args) }
}

/// The operator's entry in the registry.
pub struct TYPE;

static INFO: OpInfo = OpInfo {
    name: "NAME",
    bench_name: "row.NAME",
    summary: "NAME of rows",
    math: "y = x − mean(x)",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::output("y", "[rows, d] or more dimensions, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::CONST],
    variants: &[],
};

impl Operator for TYPE {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = [("rows", 32768), ("d", 4096)];
        let mut cases = vec![Case::production(&INFO, "rows=32768 d=4096 bfloat16", DType::BF16, dims)];
        cases.extend(INFO.dtypes.iter().flat_map(|dtype| rows::cases(&INFO, *dtype, rows::LIMITS, &[])));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [rows, d]).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
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
