//! Dequantization of 4-bit integers.

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::quant::dequantize_int4 as gk;
use gpu_kernels::ops::quant::quantize_int4::{GROUP, ZERO};

use super::quantize_int4::groups;
use crate::dispatch;
use crate::ops::elementwise::grid_of_rows;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// (q − zero) · scale for rows of `d` 4-bit integers, two per byte of `q`, `[rows, ⌈d/2⌉]`, with a scale and, if `zeros` are
/// given, a zero point for each group of 128 in a row, `[rows, ⌈d/128⌉]`.
///
/// The lower half of byte i of a row is the integer of element 2i, the upper half that of element 2i + 1, from 0 to 15. With an
/// odd `d` the upper half of the last byte is ignored. A zero point is a number from 0 to 15 in the lower four bits of its
/// byte; the upper bits are ignored. Without zero points, each is 8. [`quantize_int4`](crate::ops::quantize_int4()) writes this
/// format. Each result is one f32 product, rounded once. Rows of `q` may be padded. The result, `[rows, d]`, is a new dense
/// tensor; the work is queued on `stream`.
///
/// Frantar et al., "GPTQ" (arXiv:2210.17323); Lin et al., "AWQ" (arXiv:2306.00978).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let q = Tensor::from_slice(&stream, [1, 2], &[0x0fu8, 0x09])?;
/// let scales = Tensor::from_slice(&stream, [1, 1], &[0.5f32])?;
/// let zeros = Tensor::from_slice(&stream, [1, 1], &[1u8])?;
/// assert_eq!(ops::dequantize_int4::<f32>(&stream, &q, &scales, None, 3)?.to_vec(&stream)?, [3.5, -4.0, 0.5]);
/// let y = ops::dequantize_int4::<f32>(&stream, &q, &scales, Some(zeros.view()), 3)?;
/// assert_eq!(y.to_vec(&stream)?, [7.0, -0.5, 4.0]);
/// # Ok(())
/// # }
/// ```
pub fn dequantize_int4<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, u8>>,
    scales: impl Into<View<'a, f32>>,
    zeros: Option<View<'a, u8>>,
    d: usize,
) -> Result<Tensor<T>> {
    let q = q.into();
    let [rows, _]: [usize; 2] = q.dims(INFO.name, "q")?;
    q.require_shape(INFO.name, "q", &[rows, d.div_ceil(2)])?;
    let mut y = Tensor::result_as(INFO.name, "y", stream, [rows, d])?;
    dequantize_int4_into(stream, q, scales.into(), zeros, &mut y)?;
    Ok(y)
}

/// [`dequantize_int4`] into `y`, `[rows, d]`, whose rows may be padded.
///
/// # Errors
/// Same as [`dequantize_int4`].
pub fn dequantize_int4_into<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, u8>>,
    scales: impl Into<View<'a, f32>>,
    zeros: Option<View<'a, u8>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (q, scales, mut y) = (q.into(), scales.into(), y.into());
    stream.require_devices(INFO.name, &[("q", &q), ("scales", &scales), ("zeros", &zeros), ("y", &y)])?;
    let op = INFO.name;
    let [rows, d]: [usize; 2] = y.dims(op, "y")?;
    q.require_shape(op, "q", &[rows, d.div_ceil(2)])?;
    scales.require_shape(op, "scales", &groups(rows, d))?;
    scales.require_contiguous(op, "scales")?;
    if let Some(zeros) = &zeros {
        zeros.require_shape(op, "zeros", &groups(rows, d))?;
        zeros.require_contiguous(op, "zeros")?;
    }
    let q_stride = q.require_row_stride(op, "q")? as u64;
    let y_stride = y.require_row_stride(op, "y")? as u64;
    let Some(grid) = grid_of_rows(&INFO, "y", rows, d, gk::PER_BLOCK)? else { return Ok(()) };
    let zeros = zeros.map_or(Ok(DevicePtr::null()), |zeros| zeros.ptr(stream))?;
    let (q, scales, y) = (q.ptr(stream)?, scales.ptr(stream)?, y.ptr_mut(stream)?);
    let args = (q, scales, zeros, y, rows as u64, d as u64, q_stride, y_stride);
    // SAFETY: the tensors are live and have these rows at these strides, there is a scale and, if there are any, a zero point for each group, and y is borrowed
    // mutably.
    unsafe { stream.launch::<gk::DequantizeInt4<T>>(grid, args) }
}

/// The operator's entry in the registry.
pub struct DequantizeInt4;

static INFO: OpInfo = OpInfo {
    name: "dequantize_int4",
    bench_name: "quant.dequantize_int4",
    summary: "4-bit integers back to floats, with a scale and a zero point for each 128 of a row",
    math: "y = (q − zero) · scale, zero 8 if there are none",
    args: &[
        ArgInfo::input("q", "[rows, ⌈d/2⌉], two integers a byte, rows may be padded").of(&[DType::U8]),
        ArgInfo::input("scales", "[rows, ⌈d/128⌉], contiguous").of(&[DType::F32]),
        ArgInfo::input("zeros", "[rows, ⌈d/128⌉], the lower four bits of a byte, contiguous")
            .of(&[DType::U8])
            .optional(),
        ArgInfo::output("y", "[rows, d], of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[
        ParamInfo::choice("to", "bfloat16", &["float32", "float16", "bfloat16"], "the type of y"),
        ParamInfo::bool("odd", false, "whether d is odd, so that the last byte of a row has one integer"),
    ],
    dtypes: DType::FLOATS,
    kernels: &[gk::DEQUANTIZE_INT4],
    variants: &[],
};

/// The type that a case or a call asks for.
fn target(params: &Params) -> Result<DType> {
    params.choice("to")?.parse()
}

impl Operator for DequantizeInt4 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let name = "rows=32768 d=4096 bfloat16";
        let production = |name| Case::production(&INFO, name, DType::BF16, dims(32768, 4096));
        let mut cases = vec![production("rows=32768 d=4096 bfloat16 zeros"), production(name).without("zeros")];
        for &dtype in INFO.dtypes {
            let pads = |case: Case, q, y| {
                case.arrange("q", Arrangement::DENSE.row_pad(q)).arrange("y", Arrangement::DENSE.row_pad(y))
            };
            let odd = |case: Case| case.param("odd", true);
            let of_dtype = [
                odd(Case::odd(&INFO, dtype, dims(7, 1003))),
                odd(Case::odd(&INFO, dtype, dims(2, 129))).without("zeros"),
                Case::odd(&INFO, dtype, dims(3, 4232)),
                Case::odd(&INFO, dtype, dims(3, 4232)).without("zeros"),
                pads(Case::odd(&INFO, dtype, dims(5, 168)), 12, 8),
                odd(pads(Case::odd(&INFO, dtype, dims(5, 97)), 1, 3)),
                odd(Case::tiny(&INFO, dtype, dims(1, 1))),
                Case::tiny(&INFO, dtype, dims(2, 8)).without("zeros"),
                Case::boundary(&INFO, dtype, dims(2, 4096)),
                Case::boundary(&INFO, dtype, dims(2, 272)).values("zeros", Values::Constant(255.0)),
                Case::boundary(&INFO, dtype, dims(2, 40)).values("scales", Values::Specials),
                Case::boundary(&INFO, dtype, dims(2, 4096)).offset(1),
                Case::empty(&INFO, dtype, dims(0, 8)),
                Case::empty(&INFO, dtype, dims(3, 0)),
            ];
            cases.extend(of_dtype.map(|case| case.param("to", ParamValue::Choice(dtype.name()))));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let bytes = Values::Integers { low: 0, high: 255 };
        let specs = [
            InputSpec::new("q", DType::U8, [rows, d.div_ceil(2)], bytes),
            InputSpec::new("scales", DType::F32, groups(rows, d), Values::Uniform { low: 0.0, high: 1.0 }),
            // The upper bits are ignored.
            InputSpec::new("zeros", DType::U8, groups(rows, d), bytes),
        ];
        Ok(specs.into_iter().filter(|spec| case.has(spec.name)).map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let q = inputs.get("q")?;
        let [rows, bytes] = q.dims()?;
        let d = elements(bytes, params)?;
        inputs.get("scales")?.has_shape(&groups(rows, d))?;
        if let Some(zeros) = inputs.optional("zeros") {
            zeros.has_shape(&groups(rows, d))?;
        }
        Ok(vec![TensorMeta::new("y", target(params)?, [rows, d])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("y")?, float => |T| {
            let (q, scales, zeros) = (args.input("q")?, args.input("scales")?, args.optional_input("zeros")?);
            let y = args.output::<T>("y")?;
            // The shape of `q` does not distinguish an even d from an odd one.
            y.require_shape(INFO.name, "y", &[q.rows(), elements(q.cols(), params)?])?;
            dequantize_int4_into(stream, q, scales, zeros, y)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (q, scales) = (inputs.get("q")?, inputs.get("scales")?);
        let d = elements(q.shape()[1], params)?;
        Ok(reference::by_row(rows, |r| {
            let (bytes, scales) = (reference::row(q, r), reference::row(scales, r));
            let zeros = inputs.optional("zeros").map(|zeros| reference::row(zeros, r));
            let zero = |group: usize| zeros.as_ref().map_or(f64::from(ZERO), |zeros| zeros[group] % 16.0);
            let code = |c: usize| if c.is_multiple_of(2) { bytes[c / 2] % 16.0 } else { (bytes[c / 2] / 16.0).floor() };
            (0..d).map(|c| (code(c) - zero(c / GROUP)) * scales[c / GROUP]).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let why = "one f32 product, and one rounding to storage";
        Ok(Tolerance::rounded(target(&case.params)?, 0.0, roundoff(DType::F32), why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let of_group = if case.has("zeros") { 5 } else { 4 };
        let of_row = d.div_ceil(2) + d * target(&case.params)?.size() + of_group * d.div_ceil(GROUP);
        Ok(Cost::memory((rows * of_row) as u64))
    }
}

/// The number of elements of a row of this number of bytes.
fn elements(bytes: usize, params: &Params) -> Result<usize> {
    Ok((2 * bytes).saturating_sub(usize::from(params.bool("odd")?)))
}
