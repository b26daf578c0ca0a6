//! Gradient of the logarithm of the softmax of rows.

use gpu_kernels::ops::softmax::log_softmax_backward as gk;

use super::backward::{Backward, backward};
use super::log_softmax::LogSoftmax;
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::launch_rows;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradient of [`log_softmax`](fn@crate::ops::log_softmax): dx = scale · (dy − e^y · Σ dy), for every row.
///
/// `y` is the result of the forward operator with this `scale`, `dy` its gradient; both are `[rows, d]`, or have more
/// dimensions, the last of which is `d`. The elements of a row are contiguous, and rows may be padded. y = −∞ gives scale · dy.
/// The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ or have fewer than two dimensions,
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if `scale` is not positive and below 2¹²⁷,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn log_softmax_backward<'a, T: Float>(
    stream: &Stream,
    y: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    scale: f32,
) -> Result<Tensor<T>> {
    let y = y.into();
    let mut dx = Tensor::result(stream, y.shape())?;
    log_softmax_backward_into(stream, y, dy.into(), scale, &mut dx)?;
    Ok(dx)
}

/// [`log_softmax_backward`] into `dx`, which has the shape of `y`; its rows may be padded.
///
/// # Errors
/// Same as [`log_softmax_backward`].
pub fn log_softmax_backward_into<'a, T: Float>(
    stream: &Stream,
    y: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    scale: f32,
    dx: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    backward(&INFO, stream, [y.into(), dy.into()], scale, dx.into(), |plan, args| {
        // SAFETY: the tensors are live; every row holds d elements at its stride, and dx is borrowed mutably. The plan names a team
        // that holds such rows.
        unsafe { launch_rows!(stream, plan, gk::LogSoftmaxBackward / LogSoftmaxBackwardCluster, T, args) }
    })
}

static INFO: OpInfo = OpInfo {
    name: "log_softmax_backward",
    bench_name: "row.log_softmax_backward",
    summary: "gradient of log_softmax",
    math: "dx = scale · (dy − e^y · Σ dy)",
    args: &[
        ArgInfo::input("y", "[rows, d] or more dimensions, what log_softmax gave, rows may be padded"),
        ArgInfo::input("dy", "the shape of y, rows may be padded"),
        ArgInfo::output("dx", "the shape of y, rows may be padded"),
    ],
    params: &[ParamInfo::float("scale", 1.0, "factor of x, positive")],
    dtypes: DType::FLOATS,
    kernels: &[gk::LOG_SOFTMAX_BACKWARD, gk::LOG_SOFTMAX_BACKWARD_CLUSTER],
    variants: &[],
};

/// [`log_softmax_backward`] in the registry.
pub static LOG_SOFTMAX_BACKWARD: Backward = Backward {
    info: &INFO,
    forward: &LogSoftmax,
    launch: |stream, args, scale| {
        dispatch!(INFO, args.dtype("y")?, float => |T| {
            log_softmax_backward_into::<T>(stream, args.input("y")?, args.input("dy")?, scale, args.output("dx")?)
        })
    },
    row: |y, dy| {
        let sum: f64 = dy.iter().sum();
        y.iter().zip(dy).map(|(y, dy)| dy - y.exp() * sum).collect()
    },
    values: |d| {
        let log = (d as f64).ln();
        Values::Uniform { low: -2.0 - log, high: -log }
    },
    // Σ dy is of order √d and errs by √d·2⁻²⁴ of it; e^y is at most 1/d.
    accuracy: |_| {
        let why = "one rounding to storage; 2⁻²⁴ of a sum of √d times a probability of 1/d, 2⁻²² of its exponential, which may cancel with dy";
        (4e-6, why)
    },
};
