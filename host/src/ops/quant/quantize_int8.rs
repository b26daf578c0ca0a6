//! Quantization of a tensor to 8-bit integers with one scale.

use cuda_std::launch::Dim3;
use gpu_kernels::ops::quant::quantize_int8 as gk;

use super::{rounded, scale_of};
use crate::dispatch;
use crate::ops::elementwise::{Operand, Plan};
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The integer that stands for 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// 0: integers up to ±127, scale = max |x| / 127.
    Symmetric,
    /// The zero point with which all 256 integers cover the range of x and 0: scale = (high − low) / 255.
    Asymmetric,
}

/// A tensor in 8-bit integers: x ≈ (q − zero) · scale.
#[derive(Debug)]
pub struct QuantizedInt8 {
    /// The integers, of the tensor's shape.
    pub q: Tensor<i8>,
    /// The scale, `[1]`, by which the differences are multiplied.
    pub scale: Tensor<f32>,
    /// The zero point, `[1]`, which is subtracted from the integers first.
    pub zero: Tensor<i32>,
}

/// Quantizes `x` to 8-bit integers with one scale and, if requested, a zero point, which stay on the device.
///
/// In f32: ⌊x · (steps / range)⌉ + zero, rounded to nearest, ties to even, and clamped to −128 and 127. The scale is at least
/// the smallest normal number, which is the scale of zeros; with NaN or an infinity in `x`, or a range beyond the greatest f32
/// number, it is NaN or infinite and every integer is the zero point. `x` has any shape; its rows may be padded. The work is
/// queued on `stream`.
///
/// Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (arXiv:1712.05877).
///
/// # Errors
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, Zero}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [3], &[0.0f32, 127.5, 255.0])?;
/// let quantized = ops::quantize_int8(&stream, &x, Zero::Asymmetric)?;
/// assert_eq!(quantized.q.to_vec(&stream)?, [-128, 0, 127]);
/// let back = ops::dequantize_int8::<f32>(&stream, &quantized.q, &quantized.scale, Some(quantized.zero.view()))?;
/// assert_eq!(back.to_vec(&stream)?, [0.0, 128.0, 255.0]);
/// # Ok(())
/// # }
/// ```
pub fn quantize_int8<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, zero: Zero) -> Result<QuantizedInt8> {
    let x = x.into();
    let mut quantized = QuantizedInt8 {
        q: Tensor::result(stream, x.shape())?,
        scale: Tensor::result(stream, [1])?,
        zero: Tensor::result(stream, [1])?,
    };
    let QuantizedInt8 { q, scale, zero: point } = &mut quantized;
    quantize_int8_into(stream, x, zero, q, scale, point)?;
    Ok(quantized)
}

/// [`quantize_int8`] into `q`, which has the shape of `x` and whose rows may be padded, `scale` and `point`, `[1]` each.
///
/// # Errors
/// Same as [`quantize_int8`], and [`Error::Shape`](crate::Error::Shape) if the shapes do not fit.
pub fn quantize_int8_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    zero: Zero,
    q: impl Into<ViewMut<'a, i8>>,
    scale: impl Into<ViewMut<'a, f32>>,
    point: impl Into<ViewMut<'a, i32>>,
) -> Result<()> {
    let (x, mut q, mut scale, mut point) = (x.into(), q.into(), scale.into(), point.into());
    stream.require_devices(INFO.name, &[("x", &x), ("q", &q), ("scale", &scale), ("zero", &point)])?;
    scale.require_shape(INFO.name, "scale", &[1])?;
    point.require_shape(INFO.name, "zero", &[1])?;
    let operands = [Operand::read("x", &x), Operand::written("q", &q)];
    let Some(plan) = Plan::new::<gk::QuantizeInt8<T>>(&INFO, size_of::<T>(), operands)? else {
        scale.fill(stream, f32::MIN_POSITIVE)?;
        return point.fill(stream, if zero == Zero::Asymmetric { -128 } else { 0 });
    };
    let [x_stride, q_stride] = plan.strides;
    let (rows, d) = (plan.rows, plan.d);
    let mut range = Tensor::<f32>::zeros(stream, [2])?;
    let lanes = gpu_kernels::lanes::<T>() as u64;
    let packed = d.is_multiple_of(lanes) && x.rows_aligned(16);
    // A few blocks per multiprocessor walk all elements.
    let blocks = u64::from(4 * stream.device().info().multiprocessors);
    let along = d.div_ceil(u64::from(gk::BLOCK) * 4 * if packed { lanes } else { 1 }).clamp(1, blocks);
    let down = rows.min((blocks / along).max(1));
    let walk = Dim3::new(along as u32, down as u32, 1);
    let (source, target) = (x.ptr(stream)?, range.view_mut().ptr_mut(stream)?);
    let measure = (source, target, rows, d, x_stride);
    let asymmetric = u32::from(zero == Zero::Asymmetric);
    let (q, scale, point) = (q.ptr_mut(stream)?, scale.ptr_mut(stream)?, point.ptr_mut(stream)?);
    let args = (source, target.into(), q, scale, point, rows, d, x_stride, q_stride, asymmetric);
    // SAFETY: the tensors are live and have these rows at these strides, q, scale and point are borrowed mutably, packs are taken only where they
    // are aligned and whole, and the range lives until the work that is queued here is done.
    unsafe {
        if packed {
            stream.launch::<gk::Minmax<T, true>>(walk, measure)?;
        } else {
            stream.launch::<gk::Minmax<T, false>>(walk, measure)?;
        }
        stream.launch::<gk::QuantizeInt8<T>>(plan.grid, args)
    }
}

/// The operator's entry in the registry.
pub struct QuantizeInt8;

static INFO: OpInfo = OpInfo {
    name: "quantize_int8",
    bench_name: "quant.int8",
    summary: "a tensor as 8-bit integers with one scale, symmetric or with a zero point",
    math: "q = ⌊x / scale⌉ + zero",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::output("q", "the shape of x, rows may be padded").of(&[DType::I8]),
        ArgInfo::output("scale", "[1]").of(&[DType::F32]),
        ArgInfo::output("zero", "[1]").of(&[DType::I32]),
    ],
    params: &[ParamInfo::bool(
        "asymmetric",
        false,
        "with a zero point, so that all integers cover the range of x and 0",
    )],
    dtypes: DType::FLOATS,
    kernels: &[gk::MINMAX, gk::QUANTIZE_INT8],
    variants: &[],
};

impl Operator for QuantizeInt8 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let name = "n=2^28 bfloat16";
        let mut cases = vec![Case::production(&INFO, name, DType::BF16, dims(1 << 14, 1 << 14))];
        for &dtype in INFO.dtypes {
            let pads = |case: Case| {
                case.arrange("x", Arrangement::DENSE.row_pad(8)).arrange("q", Arrangement::DENSE.row_pad(16))
            };
            for asymmetric in [false, true] {
                cases.extend(
                    [
                        Case::odd(&INFO, dtype, dims(7, 1003)),
                        Case::odd(&INFO, dtype, dims(3, 4104)).fill(Values::Uniform { low: 1.0, high: 3.0 }),
                        pads(Case::odd(&INFO, dtype, dims(5, 96))),
                        Case::tiny(&INFO, dtype, dims(1, 1)),
                        Case::boundary(&INFO, dtype, dims(2, 24)).values("x", Values::Specials),
                        Case::boundary(&INFO, dtype, dims(2, 16)).fill(Values::Constant(0.0)),
                        // A scale below the normal numbers.
                        Case::boundary(&INFO, dtype, dims(2, 24)).values("x", Values::Normal { std: super::TINY }),
                        Case::empty(&INFO, dtype, dims(3, 0)),
                    ]
                    .map(|case| case.param("asymmetric", asymmetric)),
                );
            }
            cases
                .extend([Case::boundary(&INFO, dtype, dims(2, 2048)).offset(1), Case::empty(&INFO, dtype, dims(0, 8))]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["rows", "d"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let one = |name, dtype| TensorMeta::new(name, dtype, [1]);
        Ok(vec![TensorMeta::new("q", DType::I8, x.shape()), one("scale", DType::F32), one("zero", DType::I32)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let zero = if params.bool("asymmetric")? { Zero::Asymmetric } else { Zero::Symmetric };
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let (q, scale, point) = (args.output("q")?, args.output("scale")?, args.output("zero")?);
            quantize_int8_into::<T>(stream, args.input("x")?, zero, q, scale, point)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        // NaN is the high end, if there is one.
        let ends = |[low, high]: [f64; 2], x: f64| {
            [low.min(x), if high.is_nan() || x.is_nan() { f64::NAN } else { high.max(x) }]
        };
        let [low, high] = x.to_f64().into_iter().fold([0.0; 2], ends).map(|end| end as f32);
        let asymmetric = params.bool("asymmetric")?;
        // Not f32::max, which ignores NaN.
        let greater = if -low > high { -low } else { high };
        let (range, steps) = if asymmetric { (high - low, 255.0) } else { (greater, 127.0) };
        let (scale, inverse) = scale_of(range, steps);
        let lowest = low * inverse;
        let lowest = if lowest.is_nan() { 0.0 } else { f64::from(lowest.round_ties_even()) };
        let zero = if asymmetric { -128.0 - lowest } else { 0.0 };
        Ok(match output {
            "scale" => vec![f64::from(scale); rows.len()],
            "zero" => vec![zero; rows.len()],
            _ => reference::elementwise(x, rows, |x| rounded(x, inverse, zero)),
        })
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        // The range is known once x has been read.
        Ok(Cost::memory((rows * d * (2 * case.dtype.size() + 1) + 8) as u64))
    }
}
