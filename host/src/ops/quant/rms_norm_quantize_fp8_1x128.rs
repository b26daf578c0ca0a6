//! Root-mean-square normalisation of rows, and its quantization to 8-bit floats.

use gpu_kernels::ops::quant::rms_norm_quantize_fp8_1x128 as gk;

use super::is_packed;
use super::norm::{self, NormQuantization};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::{ArgInfo, OpInfo, ParamInfo};
use crate::runtime::dtype::{DType, Float, Float8};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Normalises the rows of `x`, `[rows, d]`, as [`rms_norm`](fn@crate::ops::rms_norm) does and quantizes them as
/// [`quantize_fp8_1x128`](fn@crate::ops::quantize_fp8_1x128) does, without rounding in between. Returns 8-bit floats, and a
/// scale for each 128 adjacent elements.
///
/// `Q` is [`f8e4m3`](struct@crate::f8e4m3) or [`f8e5m2`](struct@crate::f8e5m2). `weight` is `[d]`. Rows may be padded. The results are new dense tensors, `[rows, d]` and `[rows, ⌈d / 128⌉]`; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::InvalidParam`](crate::Error::InvalidParam) if `eps` is negative, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f8e4m3, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 4], &[1.0f32, -1.0, 1.0, -1.0])?;
/// let weight = Tensor::from_slice(&stream, [4], &[448.0f32, 64.0, 2.0, 0.0])?;
/// let (q, _) = ops::rms_norm_quantize_fp8_1x128::<f32, f8e4m3>(&stream, &x, &weight, 0.0)?;
/// assert_eq!(q.to_vec(&stream)?, [448.0, -64.0, 2.0, 0.0].map(f8e4m3::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn rms_norm_quantize_fp8_1x128<'a, T: Float, Q: Float8>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
) -> Result<(Tensor<Q>, Tensor<f32>)> {
    let x = x.into();
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    let mut q = Tensor::result(stream, [rows, d])?;
    let mut scales = Tensor::result(stream, norm::BLOCK.scales(rows, d))?;
    rms_norm_quantize_fp8_1x128_into(stream, x, weight.into(), eps, &mut q, &mut scales)?;
    Ok((q, scales))
}

/// [`rms_norm_quantize_fp8_1x128`] into `q`, `[rows, d]`, whose rows may be padded, and `scales`, `[rows, ⌈d / 128⌉]`, contiguous.
///
/// # Errors
/// Same as [`rms_norm_quantize_fp8_1x128`].
pub fn rms_norm_quantize_fp8_1x128_into<'a, T: Float, Q: Float8>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    eps: f32,
    q: impl Into<ViewMut<'a, Q>>,
    scales: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let (x, weight, mut q, mut scales) = (x.into(), weight.into(), q.into(), scales.into());
    stream.require_devices(INFO.name, &[("x", &x), ("weight", &weight), ("q", &q), ("scales", &scales)])?;
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [x_stride, q_stride] = norm::check(&INFO, &x, &weight, eps, &q, (&scales, &norm::BLOCK.scales(rows, d)))?;
    // Rows without elements have no scales either.
    let Some(grid) = grid(&INFO, "x", if d == 0 { 0 } else { rows }, 1)? else { return Ok(()) };
    let packed = is_packed(&x, &q) && weight.rows_aligned(16);
    let block = gk::threads(x.cols(), T::DTYPE.size());
    let (q, scales) = (q.ptr_mut(stream)?, scales.ptr_mut(stream)?);
    let args = (x.ptr(stream)?, weight.ptr(stream)?, q, scales, x.cols() as u64, x_stride, q_stride, eps);
    // SAFETY: the tensors are live and hold these rows at these strides, weight holds an element for each of a row's, there are as many scales as the
    // kernel writes, q and scales are borrowed mutably, and packs are taken only where they are aligned and whole.
    unsafe {
        if packed {
            stream.launch_with::<gk::RmsNormQuantizeFp81x128<T, Q, true>>(grid, block, args)
        } else {
            stream.launch_with::<gk::RmsNormQuantizeFp81x128<T, Q, false>>(grid, block, args)
        }
    }
}

static INFO: OpInfo = OpInfo {
    name: "rms_norm_quantize_fp8_1x128",
    bench_name: "quant.rms_norm_fp8_1x128",
    summary: "RMS norm of rows, as 8-bit floats with a scale for each 128 neighbours",
    math: "y = rms_norm(x), scale = max |y| / MAX, q = ⌊y / scale⌉, for each 1 × 128",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::input("weight", "[d], contiguous"),
        ArgInfo::output("q", "[rows, d], of the type `to`, rows may be padded").of(DType::FLOAT8S),
        ArgInfo::output("scales", "[rows, ⌈d / 128⌉], contiguous").of(&[DType::F32]),
    ],
    params: &[
        ParamInfo::float("eps", 1e-6, "added to the mean square"),
        ParamInfo::choice("to", "float8_e4m3fn", &["float8_e4m3fn", "float8_e5m2"], "the type of q"),
    ],
    dtypes: DType::FLOATS,
    kernels: &[gk::RMS_NORM_QUANTIZE_FP8_1X128],
    variants: &[],
};

/// The operator's entry in the registry.
pub static RMS_NORM_QUANTIZE_FP8_1X128: NormQuantization = NormQuantization {
    info: &INFO,
    integers: false,
    launch: |stream, args, eps| {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            dispatch!(INFO, args.dtype("q")?, [crate::f8e4m3, crate::f8e5m2] => |Q| {
                let (x, weight) = (args.input("x")?, args.input("weight")?);
                rms_norm_quantize_fp8_1x128_into::<T, Q>(stream, x, weight, eps, args.output("q")?, args.output("scales")?)
            })
        })
    },
};
