//! Sum of two tensors, elementwise: the residual connection.

use gpu_kernels::ops::elementwise::add as gk;

use super::{Accuracy, Pointwise, launch_zip};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// z = x + y, elementwise: the residual connection.
///
/// `x` and `y` have the same shape; their rows may be padded. The sum is rounded once. The result is a new dense tensor; the
/// work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [3], &[1.0f32, 2.0, 3.0])?;
/// let y = Tensor::from_slice(&stream, [3], &[10.0f32, 20.0, 30.0])?;
/// assert_eq!(ops::add(&stream, &x, &y)?.to_vec(&stream)?, [11.0, 22.0, 33.0]);
/// # Ok(())
/// # }
/// ```
pub fn add<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, y: impl Into<View<'a, T>>) -> Result<Tensor<T>> {
    let x = x.into();
    let mut z = Tensor::result(stream, x.shape())?;
    add_into(stream, x, y.into(), &mut z)?;
    Ok(z)
}

/// [`add`] into `z`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart.
pub fn add_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<View<'a, T>>,
    z: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch_zip::<T, gk::Add<T>>(&INFO, stream, [x.into(), y.into()], z.into())
}

static INFO: OpInfo = OpInfo {
    name: "add",
    bench_name: "ew.add",
    summary: "sum of two tensors, the residual connection",
    math: "z = x + y",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::input("y", "the shape of x, rows may be padded"),
        ArgInfo::output("z", "the shape of x, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::ADD],
    variants: &[],
};

/// [`add`] in the registry.
pub static ADD: Pointwise = Pointwise {
    info: &INFO,
    launch: |stream, args, _| {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            add_into::<T>(stream, args.input("x")?, args.input("y")?, args.output("z")?)
        })
    },
    reference: |x| x[0] + x[1],
    accuracy: Accuracy { abs: 0.0, rel: 6e-8, why: "the sum is rounded to f32, and that to storage" },
    gradient: None,
};
