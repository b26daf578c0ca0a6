//! Three stacked sigmoids, elementwise, with one backward that recomputes them and one that reads saved activations.

use gpu_kernels::ops::activation::sigmoid3 as gk;

use super::prelude::*;
use crate::ops::elementwise::{Operand, Plan, PointwiseMany};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

const ACCURACY: Accuracy = Accuracy {
    abs: 0.0,
    rel: 1e-6,
    why: "storage rounding, plus 2⁻²² each of the approximate exponential and reciprocal; later sigmoids damp the error of earlier ones",
};

activation! {
    /// y = σ(σ(σ(x))) with σ(x) = 1 / (1 + e^(−x)), elementwise, in one pass.
    ///
    /// The backward keeps only x and recomputes the intermediate activations: 2·n elements of traffic forward and 3·n backward.
    /// [`sigmoid3_saved`] shows what saving them costs instead.
    sigmoid3, sigmoid3_into, sigmoid3_backward, sigmoid3_backward_into;
    kernels: Sigmoid3 SIGMOID3, Sigmoid3Backward SIGMOID3_BACKWARD;
    bench_name: "ew.sigmoid3", "ew.sigmoid3_backward";
    summary: "three stacked sigmoids";
    math: "y = σ(σ(σ(x)))", "dx = dy · y · (1 − y) · b · (1 − b) · a · (1 − a), a = σ(x), b = σ(a)";
    value: |x| sigmoid_f64(sigmoid_f64(sigmoid_f64(x))), ACCURACY;
    slope: |x| {
        let (a, b) = (sigmoid_f64(x), sigmoid_f64(sigmoid_f64(x)));
        // Far from 0, 1 − a would cancel.
        a * sigmoid_f64(-x) * b * sigmoid_f64(-a) * sigmoid_f64(b) * sigmoid_f64(-b)
    }, Accuracy { abs: 0.0, rel: 3e-6, why: "storage rounding, plus 2⁻²¹ of each of three positive slopes" };
}

/// Three stacked sigmoids with their intermediate values.
#[derive(Debug)]
pub struct Sigmoid3<T> {
    /// σ(x).
    pub a: Tensor<T>,
    /// σ(a).
    pub b: Tensor<T>,
    /// σ(b).
    pub y: Tensor<T>,
}

/// [`sigmoid3`] with its intermediate activations, for [`sigmoid3_saved_backward`].
///
/// `x` has any shape; its rows may be padded. The results are new dense tensors. The traffic is 4·n elements, against 2·n for
/// [`sigmoid3`]. The work is queued on `stream`.
///
/// # Errors
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let (x, dy) = (Tensor::filled(&stream, [3], 0.5f32)?, Tensor::filled(&stream, [3], 1.0f32)?);
/// let saved = ops::sigmoid3_saved(&stream, &x)?;
/// let dx = ops::sigmoid3_saved_backward(&stream, &saved.a, &saved.b, &saved.y, &dy)?;
/// let again = ops::sigmoid3_backward(&stream, &x, &dy)?;
/// let (dx, again) = (dx.to_vec(&stream)?, again.to_vec(&stream)?);
/// assert!(dx.iter().zip(&again).all(|(saved, again)| (saved - again).abs() < 1e-7));
/// # Ok(())
/// # }
/// ```
pub fn sigmoid3_saved<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Sigmoid3<T>> {
    let x = x.into();
    let new = || Tensor::result(stream, x.shape());
    let mut saved = Sigmoid3 { a: new()?, b: new()?, y: new()? };
    sigmoid3_saved_into(stream, x, &mut saved.a, &mut saved.b, &mut saved.y)?;
    Ok(saved)
}

/// [`sigmoid3_saved`] into `a`, `b` and `y`, which have the shape of `x`; their rows may be padded.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart.
pub fn sigmoid3_saved_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    a: impl Into<ViewMut<'a, T>>,
    b: impl Into<ViewMut<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, mut a, mut b, mut y) = (x.into(), a.into(), b.into(), y.into());
    stream.require_devices(SAVED.name, &[("x", &x), ("a", &a), ("b", &b), ("y", &y)])?;
    let written = [Operand::written("a", &a), Operand::written("b", &b), Operand::written("y", &y)];
    let [first, second, third] = written;
    let operands = [Operand::read("x", &x), first, second, third];
    let Some(plan) = Plan::with_outputs::<gk::Sigmoid3Saved<T>>(&SAVED, size_of::<T>(), operands, 3)? else {
        return Ok(());
    };
    let [of_x, of_a, of_b, of_y] = plan.strides;
    let (a, b, y) = (a.ptr_mut(stream)?, b.ptr_mut(stream)?, y.ptr_mut(stream)?);
    let args = (x.ptr(stream)?, a, b, y, plan.rows, plan.d, of_x, of_a, of_b, of_y);
    // SAFETY: the tensors are live and have these rows at these strides, and a, b and y are borrowed mutably.
    unsafe { stream.launch::<gk::Sigmoid3Saved<T>>(plan.grid, args) }
}

/// The gradient of [`sigmoid3`] from the results of [`sigmoid3_saved`]: dx = dy · y · (1 − y) · b · (1 − b) · a · (1 − a),
/// elementwise.
///
/// All tensors have the same shape; rows may be padded. The result is a new dense tensor. The traffic is
/// 5·n elements, against 3·n for [`sigmoid3_backward`], and no exponentials are computed.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn sigmoid3_saved_backward<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
    y: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
) -> Result<Tensor<T>> {
    let a = a.into();
    let mut dx = Tensor::result(stream, a.shape())?;
    sigmoid3_saved_backward_into(stream, a, b.into(), y.into(), dy.into(), &mut dx)?;
    Ok(dx)
}

/// [`sigmoid3_saved_backward`] into `dx`, which has the shape of `a`; its rows may be padded.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart.
pub fn sigmoid3_saved_backward_into<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
    y: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    dx: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (a, b, y, dy, mut dx) = (a.into(), b.into(), y.into(), dy.into(), dx.into());
    stream.require_devices(SAVED_BACKWARD.name, &[("a", &a), ("b", &b), ("y", &y), ("dy", &dy), ("dx", &dx)])?;
    let saved = [Operand::read("a", &a), Operand::read("b", &b), Operand::read("y", &y)];
    let [first, second, third] = saved;
    let operands = [first, second, third, Operand::read("dy", &dy), Operand::written("dx", &dx)];
    let Some(plan) = Plan::new::<gk::Sigmoid3SavedBackward<T>>(&SAVED_BACKWARD, size_of::<T>(), operands)? else {
        return Ok(());
    };
    let [of_a, of_b, of_y, of_dy, of_dx] = plan.strides;
    let (a, b, y, dy) = (a.ptr(stream)?, b.ptr(stream)?, y.ptr(stream)?, dy.ptr(stream)?);
    let args = (a, b, y, dy, dx.ptr_mut(stream)?, plan.rows, plan.d, of_a, of_b, of_y, of_dy, of_dx);
    // SAFETY: the tensors are live and have these rows at these strides, and dx is borrowed mutably.
    unsafe { stream.launch::<gk::Sigmoid3SavedBackward<T>>(plan.grid, args) }
}

static SAVED: OpInfo = OpInfo {
    name: "sigmoid3_saved",
    bench_name: "ew.sigmoid3_saved",
    summary: "three stacked sigmoids, with the activations between them",
    math: "a = σ(x), b = σ(a), y = σ(b)",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::output("a", "the shape of x, rows may be padded"),
        ArgInfo::output("b", "the shape of x, rows may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::SIGMOID3_SAVED],
    variants: &[],
};

static SAVED_BACKWARD: OpInfo = OpInfo {
    name: "sigmoid3_saved_backward",
    bench_name: "ew.sigmoid3_saved_backward",
    summary: "gradient of sigmoid3 from saved activations",
    math: "dx = dy · y · (1 − y) · b · (1 − b) · a · (1 − a)",
    args: &[
        ArgInfo::input("a", "any shape, rows may be padded"),
        ArgInfo::input("b", "the shape of a, rows may be padded"),
        ArgInfo::input("y", "the shape of a, rows may be padded"),
        ArgInfo::input("dy", "the shape of a, rows may be padded"),
        ArgInfo::output("dx", "the shape of a, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::SIGMOID3_SAVED_BACKWARD],
    variants: &[],
};

/// [`sigmoid3_saved`] in the registry.
pub static SIGMOID3_SAVED: PointwiseMany = PointwiseMany {
    first: Pointwise {
        info: &SAVED,
        launch: |stream, args, _| {
            dispatch!(SAVED, args.dtype("x")?, float => |T| {
                let (a, b, y) = (args.output::<T>("a")?, args.output("b")?, args.output("y")?);
                sigmoid3_saved_into(stream, args.input("x")?, a, b, y)
            })
        },
        reference: |x| sigmoid_f64(x[0]),
        accuracy: ACCURACY,
        gradient: None,
    },
    others: &[("b", |x| sigmoid_f64(sigmoid_f64(x[0]))), ("y", |x| VALUE(x[0]))],
};

/// [`sigmoid3_saved_backward`] in the registry.
pub static SIGMOID3_SAVED_BACKWARD: Pointwise = Pointwise {
    info: &SAVED_BACKWARD,
    launch: |stream, args, _| {
        dispatch!(SAVED_BACKWARD, args.dtype("a")?, float => |T| {
            let (a, b, y, dy) = (args.input::<T>("a")?, args.input("b")?, args.input("y")?, args.input("dy")?);
            sigmoid3_saved_backward_into(stream, a, b, y, dy, args.output("dx")?)
        })
    },
    reference: |x| x[..3].iter().fold(x[3], |dx, sigmoid| dx * (sigmoid * (1.0 - sigmoid))),
    accuracy: Accuracy {
        abs: 0.0,
        rel: 1e-6,
        why: "storage rounding, and nine f32 operations of which none cancels what is inexact",
    },
    gradient: Some(Gradient { forward: &SIGMOID3_SAVED, of_outputs: &[("dy", "y")], of_inputs: &[("dx", "x")] }),
};
