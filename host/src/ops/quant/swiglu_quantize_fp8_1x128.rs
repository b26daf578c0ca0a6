//! SwiGLU, and its quantization to 8-bit floats.

use gpu_kernels::ops::quant::swiglu_quantize_fp8_1x128 as gk;

use super::blocks::{Block, Quantization};
use crate::dispatch;
use crate::ops::activation::sigmoid_f64;
use crate::ops::elementwise::{Operand, Plan};
use crate::ops::model::{ArgInfo, OpInfo, ParamInfo};
use crate::runtime::dtype::{DType, Float, Float8};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Computes [`swiglu`](fn@crate::ops::swiglu) of `gate` and `up`, `[rows, d]`, quantized as by
/// [`quantize_fp8_1x128`](fn@crate::ops::quantize_fp8_1x128), without rounding in between. Returns 8-bit floats, and a scale
/// for each 128 adjacent elements.
///
/// `Q` is [`f8e4m3`](struct@crate::f8e4m3) or [`f8e5m2`](struct@crate::f8e5m2). Rows may be padded, so gate and up may be the
/// two halves of one tensor's rows. The results are new dense tensors, `[rows, d]` and `[rows, ⌈d / 128⌉]`; the work is queued
/// on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f8e4m3, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let both = Tensor::from_slice(&stream, [1, 4], &[50.0f32, 50.0, 1.0, -0.5])?;
/// let (gate, up) = (both.view().strided(0, [1, 2], &[4, 1])?, both.view().strided(2, [1, 2], &[4, 1])?);
/// let (q, _) = ops::swiglu_quantize_fp8_1x128::<f32, f8e4m3>(&stream, gate, up)?;
/// assert_eq!(q.to_vec(&stream)?, [448.0, -224.0].map(f8e4m3::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn swiglu_quantize_fp8_1x128<'a, T: Float, Q: Float8>(
    stream: &Stream,
    gate: impl Into<View<'a, T>>,
    up: impl Into<View<'a, T>>,
) -> Result<(Tensor<Q>, Tensor<f32>)> {
    let gate = gate.into();
    let [rows, d]: [usize; 2] = gate.dims(INFO.name, "gate")?;
    let mut q = Tensor::result(stream, [rows, d])?;
    let mut scales = Tensor::result(stream, BLOCK.scales(rows, d))?;
    swiglu_quantize_fp8_1x128_into(stream, gate, up.into(), &mut q, &mut scales)?;
    Ok((q, scales))
}

/// [`swiglu_quantize_fp8_1x128`] into `q`, `[rows, d]`, whose rows may be padded, and `scales`, `[rows, ⌈d / 128⌉]`, contiguous.
///
/// # Errors
/// Same as [`swiglu_quantize_fp8_1x128`].
pub fn swiglu_quantize_fp8_1x128_into<'a, T: Float, Q: Float8>(
    stream: &Stream,
    gate: impl Into<View<'a, T>>,
    up: impl Into<View<'a, T>>,
    q: impl Into<ViewMut<'a, Q>>,
    scales: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let (gate, up, mut q, mut scales) = (gate.into(), up.into(), q.into(), scales.into());
    stream.require_devices(INFO.name, &[("gate", &gate), ("up", &up), ("q", &q), ("scales", &scales)])?;
    let [rows, d]: [usize; 2] = gate.dims(INFO.name, "gate")?;
    scales.require_shape(INFO.name, "scales", &BLOCK.scales(rows, d))?;
    scales.require_contiguous(INFO.name, "scales")?;
    let operands = [Operand::read("gate", &gate), Operand::read("up", &up), Operand::written("q", &q)];
    let per_block = gk::per_block(size_of::<T>());
    let Some(plan) = Plan::of(&INFO, per_block, operands, BLOCK.continues(d))? else { return Ok(()) };
    let [gate_stride, up_stride, q_stride] = plan.strides;
    let (gate, up, q, scales) = (gate.ptr(stream)?, up.ptr(stream)?, q.ptr_mut(stream)?, scales.ptr_mut(stream)?);
    let args = (gate, up, q, scales, plan.rows, plan.d, gate_stride, up_stride, q_stride);
    // SAFETY: the tensors are live and hold these rows at these strides, there is a scale for each block, and q and scales are borrowed mutably.
    unsafe { stream.launch::<gk::SwigluQuantizeFp81x128<T, Q>>(plan.grid, args) }
}

const BLOCK: Block = Block::new(1, gk::WIDTH);

static INFO: OpInfo = OpInfo {
    name: "swiglu_quantize_fp8_1x128",
    bench_name: "quant.swiglu_fp8_1x128",
    summary: "SwiGLU, as 8-bit floats with a scale for each 128 neighbours of a row",
    math: "y = silu(gate) · up, scale = max |y| / MAX, q = ⌊y / scale⌉, for each 1 × 128",
    args: &[
        ArgInfo::input("gate", "[rows, d], rows may be padded"),
        ArgInfo::input("up", "[rows, d], rows may be padded"),
        ArgInfo::output("q", "[rows, d], of the type `to`, rows may be padded").of(DType::FLOAT8S),
        ArgInfo::output("scales", "[rows, ⌈d / 128⌉], contiguous").of(&[DType::F32]),
    ],
    params: &[ParamInfo::choice("to", "float8_e4m3fn", &["float8_e4m3fn", "float8_e5m2"], "the type of q")],
    dtypes: DType::FLOATS,
    kernels: &[gk::SWIGLU_QUANTIZE_FP8_1X128],
    variants: &[],
};

/// The operator's entry in the registry.
pub static SWIGLU_QUANTIZE_FP8_1X128: Quantization = Quantization {
    info: &INFO,
    block: BLOCK,
    scale: DType::F32,
    production: &[(16384, 8192)],
    value: |x| x[0] * sigmoid_f64(x[0]) * x[1],
    // 2⁻²² each of the approximate exponential and reciprocal, and three roundings.
    error: 3e-6,
    launch: |stream, args| {
        dispatch!(INFO, args.dtype("gate")?, float => |T| {
            dispatch!(INFO, args.dtype("q")?, [crate::f8e4m3, crate::f8e5m2] => |Q| {
                let (gate, up) = (args.input("gate")?, args.input("up")?);
                swiglu_quantize_fp8_1x128_into::<T, Q>(stream, gate, up, args.output("q")?, args.output("scales")?)
            })
        })
    },
};
