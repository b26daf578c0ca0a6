//! Conversion between float types, elementwise.

use gpu_kernels::ops::elementwise::cast as gk;

use super::{Operand, Plan, pointwise};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Converts `x` to type `U`, to the nearest value with ties to even; overflow gives infinity, NaN stays NaN.
///
/// `x` has any shape; its rows may be padded. The result is a new dense tensor; the work is
/// queued on `stream`.
///
/// # Errors
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [2], &[1.0f32, 1.001])?;
/// let y: Tensor<bf16> = ops::cast(&stream, &x)?;
/// assert_eq!(y.to_vec(&stream)?, [bf16::ONE; 2]);
/// # Ok(())
/// # }
/// ```
pub fn cast<'a, T: Float, U: Float>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Tensor<U>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    cast_into(stream, x, &mut y)?;
    Ok(y)
}

/// [`cast`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart.
pub fn cast_into<'a, T: Float, U: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, U>>,
) -> Result<()> {
    let (x, mut y) = (x.into(), y.into());
    stream.require_devices(INFO.name, &[("x", &x), ("y", &y)])?;
    let operands = [Operand::read("x", &x), Operand::written("y", &y)];
    let Some(plan) = Plan::new::<gk::Cast<T, U>>(&INFO, size_of::<T>().max(size_of::<U>()), operands)? else {
        return Ok(());
    };
    let [x_stride, y_stride] = plan.strides;
    let args = (x.ptr(stream)?, y.ptr_mut(stream)?, plan.rows, plan.d, x_stride, y_stride);
    // SAFETY: both tensors are live and have these rows at these strides, and y is borrowed mutably.
    unsafe { stream.launch::<gk::Cast<T, U>>(plan.grid, args) }
}

/// The operator's entry in the registry.
pub struct Cast;

static INFO: OpInfo = OpInfo {
    name: "cast",
    bench_name: "ew.cast",
    summary: "conversion between float types",
    math: "y = x, rounded to the nearest value of another type",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::output("y", "the shape of x, of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[ParamInfo::choice("to", "bfloat16", &["float32", "float16", "bfloat16"], "the type of y")],
    dtypes: DType::FLOATS,
    kernels: &[gk::CAST],
    variants: &[],
};

/// The type that a case or a call asks for.
fn target(params: &Params) -> Result<DType> {
    params.choice("to")?.parse()
}

impl Operator for Cast {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let to = |case: &Case, dtype: &DType| {
            let mut to = case.clone().param("to", ParamValue::Choice(dtype.name()));
            if to.class == CaseClass::Production {
                to.name = format!("{} to {dtype}", case.name);
            }
            to
        };
        let cases = pointwise::cases(&INFO);
        cases.iter().flat_map(|case| DType::FLOATS.iter().map(move |dtype| to(case, dtype))).collect()
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, pointwise::shape(case)?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        Ok(vec![TensorMeta::new("y", target(params)?, inputs.get("x")?.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            dispatch!(INFO, args.dtype("y")?, float => |U| {
                cast_into::<T, U>(stream, args.input("x")?, args.output("y")?)
            })
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::elementwise(inputs.get("x")?, rows, |x| x))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let to = target(&case.params)?;
        // Half of f16's smallest spacing, and of bf16's: what is below rounds to one or the other.
        let abs = if to == DType::F16 { 2f64.powi(-25) } else { 2f64.powi(-134) };
        Ok(Tolerance::new(abs, roundoff(to), "one rounding"))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((rows * d * (case.dtype.size() + target(&case.params)?.size())) as u64))
    }
}
