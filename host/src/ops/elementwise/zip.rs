//! A user's formula of several inputs, fused into a kernel.

use std::array;

use cuda_std::launch::Kernel;
use gpu_kernels::fuse::{Formula, MAX_INPUTS, Strides};
use gpu_kernels::map::per_block;
use gpu_kernels::ops::elementwise::zip as gk;

use super::{Accuracy, Operand, Plan, Pointwise};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = f(x₀, x₁, …), elementwise, in a single kernel for your own formula.
///
/// The formula comes from `zip!` of the package `warpsmith-kernels`, in the same way as for [`map`](super::map()). The inputs
/// have the same shape, and their rows may be padded; to use one row for all rows, pass a view that was
/// [`broadcast`](View::broadcast). Arithmetic is in f32 and rounded once. The result is a new dense tensor; the work is queued
/// on `stream`.
///
/// # Errors
/// Errors name the formula and its inputs. [`Error::MissingKernel`](crate::Error::MissingKernel) if its kernels were not added,
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not
/// contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// With a formula that comes with the operators, x + 2·a·b:
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// use gpu_kernels::ops::elementwise::zip::add_product;
///
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// let weight = Tensor::from_slice(&stream, [2], &[10.0f32, 100.0])?;
/// let y = ops::zip(&stream, [x.view(), x.view(), weight.view().broadcast([2, 2])?], add_product(2.0))?;
/// assert_eq!(y.to_vec(&stream)?, [21.0, 402.0, 63.0, 804.0]);
/// # Ok(())
/// # }
/// ```
pub fn zip<'a, T: Float, const K: usize>(
    stream: &Stream,
    inputs: [impl Into<View<'a, T>>; K],
    formula: impl Formula<K>,
) -> Result<Tensor<T>> {
    const { assert!(K >= 1, "a formula has an input") };
    let inputs = inputs.map(Into::into);
    let mut y = Tensor::result(stream, inputs[0].shape())?;
    zip_into(stream, inputs, formula, &mut y)?;
    Ok(y)
}

/// [`zip`] into `y`, which has the shape of the inputs; its rows may be padded.
///
/// # Errors
/// Same as [`zip`].
pub fn zip_into<'a, T: Float, F: Formula<K>, const K: usize>(
    stream: &Stream,
    inputs: [impl Into<View<'a, T>>; K],
    formula: F,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    const { assert!(K >= 1 && K <= MAX_INPUTS, "a formula has one to four inputs") };
    let (inputs, mut y): ([View<'a, T>; K], _) = (inputs.map(Into::into), y.into());
    let info = OpInfo { name: F::NAME, bench_name: F::NAME, ..INFO };
    for (name, input) in F::INPUTS.into_iter().zip(&inputs) {
        input.require_device(F::NAME, name, stream)?;
    }
    y.require_device(F::NAME, "y", stream)?;
    // An array of the maximum length: the output follows the inputs.
    let operands: [_; MAX_INPUTS + 1] = array::from_fn(|i| match inputs.get(i) {
        Some(input) => Operand::read(F::INPUTS[i], input),
        None => Operand::written("y", &y),
    });
    let Some(plan) = Plan::of(&info, per_block(<F::Kernel<T> as Kernel>::BLOCK.x, size_of::<T>(), K), operands, true)?
    else {
        return Ok(());
    };
    let strides = Strides { inputs: array::from_fn(|i| plan.strides[i]), output: plan.strides[MAX_INPUTS] };
    let mut pointers = Vec::with_capacity(K);
    for input in &inputs {
        pointers.push(input.ptr(stream)?);
    }
    let args = formula.args(array::from_fn(|i| pointers[i]), y.ptr_mut(stream)?, plan.rows, plan.d, strides);
    // SAFETY: the tensors are live and have these rows at these strides, and y is borrowed mutably; the rest is the
    // formula's promise.
    unsafe { stream.launch::<F::Kernel<T>>(plan.grid, args) }
}

static INFO: OpInfo = OpInfo {
    name: "zip",
    bench_name: "ew.zip",
    summary: "a formula of several inputs, fused: a user's own",
    math: "y = f(x₀, x₁, …), here x + a · b / 2",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::input("a", "the shape of x, rows may be padded"),
        ArgInfo::input("b", "the shape of x, rows may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[<gk::add_product as Formula<3>>::KERNELS],
    variants: &[],
};

/// [`zip`] in the registry, of a sum with a product.
pub static ZIP: Pointwise = Pointwise {
    info: &INFO,
    launch: |stream, args, _| {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let inputs = [args.input::<T>("x")?, args.input::<T>("a")?, args.input::<T>("b")?];
            zip_into(stream, inputs, gk::add_product(0.5), args.output::<T>("y")?)
        })
    },
    reference: |x| x[0] + 0.5 * x[1] * x[2],
    accuracy: Accuracy { abs: 1e-6, rel: 1e-6, why: "two f32 operations on numbers of order 1 to 10 that may cancel" },
    gradient: None,
};
