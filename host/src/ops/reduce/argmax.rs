//! Indices of the maxima of rows.

use gpu_kernels::ops::reduce::argmax as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The index of the maximum of every row of `x`: the first of equal ones, or the first NaN if there is one.
///
/// `x` is `[rows, d]`, or has more dimensions, the last of which is `d`; the elements of a row are contiguous, and rows may be
/// padded. The result is a new tensor of the other dimensions; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has fewer than two dimensions, no columns or 2³¹ or more of them,
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 3], &[1.0f32, 4.0, 4.0])?;
/// assert_eq!(ops::argmax_rows(&stream, &x)?.to_vec(&stream)?, [1]);
/// # Ok(())
/// # }
/// ```
pub fn argmax_rows<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Tensor<i32>> {
    let x = x.into();
    let outer = &x.shape()[..x.shape().len().saturating_sub(1)];
    let mut y = Tensor::result(stream, outer)?;
    argmax_rows_into(stream, x, &mut y)?;
    Ok(y)
}

/// [`argmax_rows`] into `y`, which is contiguous and has the outer dimensions of `x`.
///
/// # Errors
/// Same as [`argmax_rows`].
pub fn argmax_rows_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, i32>>,
) -> Result<()> {
    let (x, mut y) = (x.into(), y.into());
    stream.require_devices(INFO.name, &[("x", &x), ("y", &y)])?;
    let rows = Rows::of(&INFO, "x", &x)?;
    y.require_shape(INFO.name, "y", &x.shape()[..x.shape().len() - 1])?;
    y.require_contiguous(INFO.name, "y")?;
    let x_stride = x.require_row_stride(INFO.name, "x")? as u64;
    require_columns(x.shape())?;
    let Some(plan) = rows.plan::<T>(&INFO)? else { return Ok(()) };
    let args = (x.ptr(stream)?, y.ptr_mut(stream)?, plan.rows, plan.d, x_stride);
    // SAFETY: the tensors are live; every row holds d elements at its stride, y an element for each, and y is borrowed mutably. The
    // plan names a team that holds such rows.
    unsafe { launch_rows!(stream, plan, gk::Argmax, T, args) }
}

/// Fails unless the indices of a row's elements fit in an i32, if there are rows.
fn require_columns(shape: &[usize]) -> Result<()> {
    if reference::row_count(shape) > 0 && !(1..=i32::MAX as usize).contains(&reference::row_len(shape)) {
        return Err(INFO.shape_error("x", shape, "1 to 2^31 - 1 columns"));
    }
    Ok(())
}

/// The operator's entry in the registry.
pub struct ArgmaxRows;

static INFO: OpInfo = OpInfo {
    name: "argmax_rows",
    bench_name: "reduce.argmax_rows",
    summary: "index of the maximum of rows",
    math: "y = the least i with x[i] = max x, for each row",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::output("y", "the outer dimensions of x, contiguous").of(&[DType::I32]),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::ARGMAX],
    variants: &[],
};

impl Operator for ArgmaxRows {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let name = "rows=16384 d=8192 bfloat16";
        let mut cases = vec![Case::production(&INFO, name, DType::BF16, dims(16384, 8192))];
        for &dtype in INFO.dtypes {
            let all = rows::cases(&INFO, dtype, rows::LIMITS, &["y"]);
            cases.extend(all.into_iter().filter(|case| case.dims.get("d") != Some(0)));
            let few = Values::Integers { low: -3, high: 3 };
            cases.extend([
                Case::odd(&INFO, dtype, dims(9, 1000)).values("x", few),
                Case::odd(&INFO, dtype, dims(9, 3001)).values("x", few),
                Case::tiny(&INFO, dtype, dims(2, 64)).values("x", Values::Constant(f64::NEG_INFINITY)),
                Case::boundary(&INFO, dtype, dims(70, 3)).fill(Values::Specials),
                Case::boundary(&INFO, dtype, dims(5, 520)).fill(Values::Specials),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [rows, d]).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
        require_columns(x.shape())?;
        Ok(vec![TensorMeta::new("y", DType::I32, &x.shape()[..x.shape().len() - 1])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            argmax_rows_into::<T>(stream, args.input("x")?, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let first = |r: &usize| {
            let x = reference::row(x, *r);
            let better = |best: usize, i: usize| x[i] > x[best] || (x[i].is_nan() && !x[best].is_nan());
            (0..x.len()).fold(0, |best, i| if better(best, i) { i } else { best }) as f64
        };
        Ok(rows.iter().map(first).collect())
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((rows * (d * case.dtype.size() + size_of::<i32>())) as u64))
    }
}
