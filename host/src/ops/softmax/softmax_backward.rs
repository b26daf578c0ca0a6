//! Gradient of the softmax of rows.

use gpu_kernels::ops::softmax::softmax_backward as gk;

use super::backward::{Backward, backward};
use super::softmax::Softmax;
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::launch_rows;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradient of [`softmax`](fn@crate::ops::softmax): dx = scale · y · (dy − Σ dy · y), for every row.
///
/// `y` is the result of the forward operator with this `scale`, `dy` its gradient; both are `[rows, d]`, or have more
/// dimensions, the last of which is `d`. The elements of a row are contiguous, and rows may be padded. Masked columns have y =
/// 0, hence dx = 0: the gradient needs no mask. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ or have fewer than two dimensions,
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if `scale` is not positive and below 2¹²⁷,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn softmax_backward<'a, T: Float>(
    stream: &Stream,
    y: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    scale: f32,
) -> Result<Tensor<T>> {
    let y = y.into();
    let mut dx = Tensor::result(stream, y.shape())?;
    softmax_backward_into(stream, y, dy.into(), scale, &mut dx)?;
    Ok(dx)
}

/// [`softmax_backward`] into `dx`, which has the shape of `y`; its rows may be padded.
///
/// # Errors
/// Same as [`softmax_backward`].
pub fn softmax_backward_into<'a, T: Float>(
    stream: &Stream,
    y: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    scale: f32,
    dx: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    backward(&INFO, stream, [y.into(), dy.into()], scale, dx.into(), |plan, args| {
        // SAFETY: the tensors are live; every row holds d elements at its stride, and dx is borrowed mutably. The plan names a team
        // that holds such rows.
        unsafe { launch_rows!(stream, plan, gk::SoftmaxBackward / SoftmaxBackwardCluster, T, args) }
    })
}

static INFO: OpInfo = OpInfo {
    name: "softmax_backward",
    bench_name: "row.softmax_backward",
    summary: "gradient of softmax",
    math: "dx = scale · y · (dy − Σ dy · y)",
    args: &[
        ArgInfo::input("y", "[rows, d] or more dimensions, what softmax gave, rows may be padded"),
        ArgInfo::input("dy", "the shape of y, rows may be padded"),
        ArgInfo::output("dx", "the shape of y, rows may be padded"),
    ],
    params: &[ParamInfo::float("scale", 1.0, "factor of x, positive")],
    dtypes: DType::FLOATS,
    kernels: &[gk::SOFTMAX_BACKWARD, gk::SOFTMAX_BACKWARD_CLUSTER],
    variants: &[],
};

/// [`softmax_backward`] in the registry.
pub static SOFTMAX_BACKWARD: Backward = Backward {
    info: &INFO,
    forward: &Softmax,
    launch: |stream, args, scale| {
        dispatch!(INFO, args.dtype("y")?, float => |T| {
            softmax_backward_into::<T>(stream, args.input("y")?, args.input("dy")?, scale, args.output("dx")?)
        })
    },
    row: |y, dy| {
        let mean: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
        y.iter().zip(dy).map(|(y, dy)| y * (dy - mean)).collect()
    },
    // Values like those of uniform probabilities.
    values: |d| Values::Uniform { low: 0.0, high: 2.0 / d as f64 },
    accuracy: |d| {
        // dy and the mean, of order 6 and 1, err by 2⁻²⁴ of it and may cancel.
        let abs = 2.0 / d as f64 * (8.0 + (d as f64).sqrt()) * roundoff(DType::F32);
        (abs, "one rounding to storage; y times 2⁻²⁴ of dy and of √d terms of the mean, which may cancel")
    },
};
