//! NAME, elementwise.

use gpu_kernels::ops::FAMILY::NAME as gk;

use crate::dispatch;
use crate::ops::elementwise::{Accuracy, Pointwise, launch_map};
use crate::ops::model::{ArgInfo, OpInfo};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = x, elementwise.
///
/// `x` has any shape; its rows may be padded. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Layout`](crate::Error::Layout) if rows are not equally far apart,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [3], &[1.0f32, 2.0, 3.0])?;
/// assert_eq!(ops::NAME(&stream, &x)?.to_vec(&stream)?, [1.0, 2.0, 3.0]);
/// # Ok(())
/// # }
/// ```
pub fn NAME<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    NAME_into(stream, x, &mut y)?;
    Ok(y)
}

/// [`NAME`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not equally far
/// apart.
pub fn NAME_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch_map::<T, gk::TYPE<T>>(&INFO, stream, x.into(), y.into())
}

static INFO: OpInfo = OpInfo {
    name: "NAME",
    bench_name: "ew.NAME",
    summary: "NAME, elementwise",
    math: "y = x",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::CONST],
    variants: &[],
};

/// [`NAME`] in the registry.
pub static CONST: Pointwise = Pointwise {
    info: &INFO,
    launch: |stream, args, _| {
        dispatch!(INFO, args.dtype("x")?, float => |T| NAME_into::<T>(stream, args.input("x")?, args.output("y")?))
    },
    reference: |x| x[0],
    accuracy: Accuracy::EXACT,
    gradient: None,
};
