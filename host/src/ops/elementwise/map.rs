//! A user's formula of one input, fused into a kernel.

use gpu_kernels::fuse::Formula;
use gpu_kernels::ops::elementwise::map as gk;

use super::{Accuracy, Pointwise, zip_into};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = f(x), elementwise, in a single kernel for your own formula.
///
/// The formula comes from `map!` of the package `warpsmith-kernels`, in a crate of kernels that was added with
/// [`Device::add_kernels`](crate::Device::add_kernels); `template/` in the repository is such a crate to copy. `x` has any
/// shape; its rows may be padded. Arithmetic is in f32 and rounded once. The result is a new dense tensor; the work is queued
/// on `stream`.
///
/// # Errors
/// Errors name the formula. [`Error::MissingKernel`](crate::Error::MissingKernel) if its kernels were not added,
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// With a formula that comes with the operators:
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// use gpu_kernels::ops::elementwise::map::relu_squared;
///
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [3], &[-1.0f32, 0.5, 3.0])?;
/// assert_eq!(ops::map(&stream, &x, relu_squared)?.to_vec(&stream)?, [0.0, 0.25, 9.0]);
/// # Ok(())
/// # }
/// ```
pub fn map<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, formula: impl Formula<1>) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    map_into(stream, x, formula, &mut y)?;
    Ok(y)
}

/// [`map`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// Same as [`map`], and [`Error::Shape`](crate::Error::Shape) if the shapes differ.
pub fn map_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    formula: impl Formula<1>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    zip_into(stream, [x], formula, y)
}

static INFO: OpInfo = OpInfo {
    name: "map",
    bench_name: "ew.map",
    summary: "a formula of one input, fused: a user's own",
    math: "y = f(x), here max(x, 0)²",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[<gk::relu_squared as Formula<1>>::KERNELS],
    variants: &[],
};

/// [`map`] in the registry, of the squared rectifier.
pub static MAP: Pointwise = Pointwise {
    info: &INFO,
    launch: |stream, args, _| {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            map_into::<T>(stream, args.input::<T>("x")?, gk::relu_squared, args.output::<T>("y")?)
        })
    },
    reference: |x| x[0].max(0.0).powi(2),
    accuracy: Accuracy { abs: 0.0, rel: 6e-8, why: "one f32 product, rounded to storage" },
    gradient: None,
};
