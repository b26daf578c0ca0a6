//! A constant.

use gpu_kernels::ops::random::fill as gk;

use super::generator::{ARGS, Generator, generate_into};
use crate::dispatch;
use crate::ops::model::{OpInfo, ParamInfo, ParamValue, Tolerance};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::ViewMut;

/// A new dense tensor with `value` everywhere, rounded once to the storage type. The work is queued on `stream`.
///
/// # Errors
/// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// assert_eq!(ops::fill::<f32>(&stream, [2], 1.5)?.to_vec(&stream)?, [1.5, 1.5]);
/// # Ok(())
/// # }
/// ```
pub fn fill<T: Float>(stream: &Stream, shape: impl AsRef<[usize]>, value: f32) -> Result<Tensor<T>> {
    let mut y = Tensor::result_as(INFO.name, "y", stream, shape)?;
    fill_into(stream, value, &mut y)?;
    Ok(y)
}

/// [`fill`] into `y`, of any shape; its rows may be padded.
///
/// # Errors
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart.
pub fn fill_into<'a, T: Float>(stream: &Stream, value: f32, y: impl Into<ViewMut<'a, T>>) -> Result<()> {
    generate_into::<T, gk::Fill<T>>(&INFO, stream, y.into(), |y, rows, d, stride| (y, rows, d, stride, value))
}

static INFO: OpInfo = OpInfo {
    name: "fill",
    bench_name: "ew.fill",
    summary: "a constant",
    math: "y = value",
    args: ARGS,
    params: &[ParamInfo::float("value", 0.1, "what every element becomes")],
    dtypes: DType::FLOATS,
    kernels: &[gk::FILL],
    variants: &[],
};

/// [`fill`] in the registry.
pub static FILL: Generator = Generator {
    info: &INFO,
    launch: |stream, args, params| {
        let value = params.f32("value")?;
        dispatch!(INFO, args.dtype("y")?, float => |T| fill_into::<T>(stream, value, args.output("y")?))
    },
    reference: |params, elements| {
        let value = f64::from(params.f32("value")?);
        Ok(elements.map(|_| value).collect())
    },
    tolerance: |case| Ok(Tolerance::rounded(case.dtype, 0.0, 0.0, "one rounding to storage")),
    params: &[("value", ParamValue::Float(-1e30)), ("value", ParamValue::Float(0.0))],
};
