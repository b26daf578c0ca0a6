//! Copy of rows: makes a padded tensor dense, or the other way round.

use gpu_kernels::ops::elementwise::copy as gk;

use super::{Operand, Plan, pointwise};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Copies `x` bit by bit to a new dense tensor.
///
/// `x` has any shape and element type; its rows may be padded. The work is queued on `stream`.
///
/// # Errors
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [6], &[1i32, 2, -1, 3, 4, -1])?;
/// // Two rows of two elements, each with one element of padding behind it.
/// let rows = x.view().strided(0, [2, 2], &[3, 1])?;
/// assert_eq!(ops::copy(&stream, rows)?.to_vec(&stream)?, [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// ```
pub fn copy<'a, T: Dtype>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    copy_into(stream, x, &mut y)?;
    Ok(y)
}

/// [`copy`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart.
pub fn copy_into<'a, T: Dtype>(stream: &Stream, x: impl Into<View<'a, T>>, y: impl Into<ViewMut<'a, T>>) -> Result<()> {
    let (x, y) = (x.into(), y.into());
    match size_of::<T>() {
        1 => copy_words::<T, u8>(stream, x, y),
        2 => copy_words::<T, u16>(stream, x, y),
        4 => copy_words::<T, u32>(stream, x, y),
        _ => copy_words::<T, u64>(stream, x, y),
    }
}

/// Copies elements as words `W` of the same size.
fn copy_words<T, W: gk::CopyRowsDtype>(stream: &Stream, x: View<'_, T>, mut y: ViewMut<'_, T>) -> Result<()> {
    debug_assert_eq!(size_of::<T>(), size_of::<W>());
    stream.require_devices(INFO.name, &[("x", &x), ("y", &y)])?;
    let operands = [Operand::read("x", &x), Operand::written("y", &y)];
    let Some(plan) = Plan::new::<gk::CopyRows<W>>(&INFO, size_of::<T>(), operands)? else { return Ok(()) };
    let [x_stride, y_stride] = plan.strides;
    let (x, y) = (x.ptr(stream)?.cast::<W>(), y.ptr_mut(stream)?.cast::<W>());
    let args = (x, y, plan.rows, plan.d, x_stride, y_stride);
    // SAFETY: both tensors are live and have these rows at these strides, words are as large as elements, and y is borrowed mutably.
    unsafe { stream.launch::<gk::CopyRows<W>>(plan.grid, args) }
}

/// The operator's entry in the registry.
pub struct Copy;

static INFO: OpInfo = OpInfo {
    name: "copy",
    bench_name: "ew.copy",
    summary: "copy of rows, dense or padded",
    math: "y = x",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::ALL,
    kernels: &[gk::COPY_ROWS],
    variants: &[],
};

impl Operator for Copy {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let cases = pointwise::cases(&INFO).into_iter();
        // Production shapes of two types are enough, and integers have no special values.
        let timed = |case: &Case| case.class != CaseClass::Production || matches!(case.dtype, DType::F32 | DType::BF16);
        let cases = cases.filter(|case| timed(case) && (case.dtype.is_float() || case.values_of("x").is_none()));
        // More rows than a grid has; all elementwise kernels loop over them in the same way.
        let rows = Case::boundary(&INFO, DType::BF16, [("rows", 65_539), ("d", 2)]).row_pad(1);
        cases.chain([rows]).collect()
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let values = if case.dtype.is_float() { Values::NORMAL } else { Values::Integers { low: 0, high: 127 } };
        Ok(vec![InputSpec::new("x", case.dtype, pointwise::shape(case)?, values).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, all => |T| {
            copy_into::<T>(stream, args.input("x")?, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::elementwise(inputs.get("x")?, rows, |x| x))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
