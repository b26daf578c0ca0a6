//! Root-mean-square normalisation of rows, and its quantization to 8-bit integers.

use gpu_kernels::ops::quant::rms_norm_quantize_rows_int8 as gk;

use super::is_packed;
use super::norm::{self, NormQuantization};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::{ArgInfo, OpInfo, ParamInfo};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Normalises the rows of `x`, `[rows, d]`, as [`rms_norm`](fn@crate::ops::rms_norm) does and quantizes them as
/// [`quantize_rows_int8`](fn@crate::ops::quantize_rows_int8) does, without rounding in between. Returns 8-bit integers, and a
/// scale for each row.
///
/// `weight` is `[d]`. Rows may be padded. The results are new dense tensors, `[rows, d]` and `[rows]`; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::InvalidParam`](crate::Error::InvalidParam) if `eps` is negative, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 4], &[1.0f32, -1.0, 1.0, -1.0])?;
/// let weight = Tensor::from_slice(&stream, [4], &[127.0f32, 64.0, 2.0, 0.0])?;
/// let (q, _) = ops::rms_norm_quantize_rows_int8(&stream, &x, &weight, 0.0)?;
/// assert_eq!(q.to_vec(&stream)?, [127, -64, 2, 0]);
/// # Ok(())
/// # }
/// ```
pub fn rms_norm_quantize_rows_int8<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<(Tensor<i8>, Tensor<f32>)> {
    let x = x.into();
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    let mut q = Tensor::result(stream, [rows, d])?;
    let mut scales = Tensor::result(stream, [rows])?;
    rms_norm_quantize_rows_int8_into(stream, x, weight.into(), eps, &mut q, &mut scales)?;
    Ok((q, scales))
}

/// [`rms_norm_quantize_rows_int8`] into `q`, `[rows, d]`, whose rows may be padded, and `scales`, `[rows]`, contiguous.
///
/// # Errors
/// Same as [`rms_norm_quantize_rows_int8`].
pub fn rms_norm_quantize_rows_int8_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
    q: impl Into<ViewMut<'a, i8>>,
    scales: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let (x, weight, mut q, mut scales) = (x.into(), weight.into(), q.into(), scales.into());
    stream.require_devices(INFO.name, &[("x", &x), ("weight", &weight), ("q", &q), ("scales", &scales)])?;
    let [rows, _]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [x_stride, q_stride] = norm::check(&INFO, &x, &weight, eps, &q, (&scales, &[rows]))?;
    let Some(grid) = grid(&INFO, "x", rows, 1)? else { return Ok(()) };
    let packed = is_packed(&x, &q) && weight.rows_aligned(16);
    let block = gk::threads(x.cols(), T::DTYPE.size());
    let (q, scales) = (q.ptr_mut(stream)?, scales.ptr_mut(stream)?);
    let args = (x.ptr(stream)?, weight.ptr(stream)?, q, scales, x.cols() as u64, x_stride, q_stride, eps);
    // SAFETY: the tensors are live and hold these rows at these strides, weight holds an element for each of a row's, there are as many scales as the
    // kernel writes, q and scales are borrowed mutably, and packs are taken only where they are aligned and whole.
    unsafe {
        if packed {
            stream.launch_with::<gk::RmsNormQuantizeRowsInt8<T, true>>(grid, block, args)
        } else {
            stream.launch_with::<gk::RmsNormQuantizeRowsInt8<T, false>>(grid, block, args)
        }
    }
}

static INFO: OpInfo = OpInfo {
    name: "rms_norm_quantize_rows_int8",
    bench_name: "quant.rms_norm_int8",
    summary: "RMS norm of rows, as 8-bit integers with a scale each",
    math: "y = rms_norm(x), scale = max |y| / 127, q = ⌊y / scale⌉, for each row",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::output("q", "[rows, d], rows may be padded").of(&[DType::I8]),
        ArgInfo::output("scales", "[rows], contiguous").of(&[DType::F32]),
    ],
    params: &[ParamInfo::float("eps", 1e-6, "added to the mean square")],
    dtypes: DType::FLOATS,
    kernels: &[gk::RMS_NORM_QUANTIZE_ROWS_INT8],
    variants: &[],
};

/// The operator's entry in the registry.
pub static RMS_NORM_QUANTIZE_ROWS_INT8: NormQuantization = NormQuantization {
    info: &INFO,
    integers: true,
    launch: |stream, args, eps| {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let (x, weight) = (args.input("x")?, args.input("weight")?);
            rms_norm_quantize_rows_int8_into::<T>(stream, x, weight, eps, args.output("q")?, args.output("scales")?)
        })
    },
};
