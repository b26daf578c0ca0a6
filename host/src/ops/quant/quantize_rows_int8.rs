//! Quantization of rows to 8-bit integers, each with a scale of its own.

use gpu_kernels::ops::quant::quantize_rows_int8 as gk;

use super::{is_packed, max_nan, rounded, scale_of};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Quantizes the rows of `x`, `[rows, d]`, to 8-bit integers, and returns them with the scale of each row: scale = max |x| /
/// 127, q = ⌊x / scale⌉.
///
/// The f32 product x · (127 / max) is rounded to nearest, ties to even. Scales are at least the smallest normal number, which
/// is the scale of a row of zeros; a row with NaN or an infinity has NaN or infinity as its scale, and zeros. Rows may be
/// padded. The results are new dense tensors, `[rows, d]` and `[rows]`; the work is queued on `stream`.
///
/// Dettmers et al., "LLM.int8()" (arXiv:2208.07339).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has other than two dimensions, [`Error::Layout`](crate::Error::Layout) if its rows are not
/// contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 3], &[127.0f32, -63.4, 0.5])?;
/// let (q, scales) = ops::quantize_rows_int8(&stream, &x)?;
/// assert_eq!(q.to_vec(&stream)?, [127, -63, 0]);
/// assert_eq!(scales.to_vec(&stream)?, [1.0]);
/// # Ok(())
/// # }
/// ```
pub fn quantize_rows_int8<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
) -> Result<(Tensor<i8>, Tensor<f32>)> {
    let x = x.into();
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    let mut q = Tensor::result(stream, [rows, d])?;
    let mut scales = Tensor::result(stream, [rows])?;
    quantize_rows_int8_into(stream, x, &mut q, &mut scales)?;
    Ok((q, scales))
}

/// [`quantize_rows_int8`] into `q`, `[rows, d]`, whose rows may be padded, and `scales`, `[rows]`.
///
/// # Errors
/// Same as [`quantize_rows_int8`].
pub fn quantize_rows_int8_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    q: impl Into<ViewMut<'a, i8>>,
    scales: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let (x, mut q, mut scales) = (x.into(), q.into(), scales.into());
    stream.require_devices(INFO.name, &[("x", &x), ("q", &q), ("scales", &scales)])?;
    let op = INFO.name;
    let [rows, d]: [usize; 2] = x.dims(op, "x")?;
    q.require_shape(op, "q", &[rows, d])?;
    scales.require_shape(op, "scales", &[rows])?;
    scales.require_contiguous(op, "scales")?;
    let x_stride = x.require_row_stride(op, "x")? as u64;
    let q_stride = q.require_row_stride(op, "q")? as u64;
    let Some(grid) = grid(&INFO, "x", rows, 1)? else { return Ok(()) };
    let packed = is_packed(&x, &q);
    let block = gk::threads(d, T::DTYPE.size());
    let args = (x.ptr(stream)?, q.ptr_mut(stream)?, scales.ptr_mut(stream)?, d as u64, x_stride, q_stride);
    // SAFETY: the tensors are live and hold these rows at these strides, q and scales are borrowed mutably, and packs are taken only where they
    // are aligned and whole.
    unsafe {
        if packed {
            stream.launch_with::<gk::QuantizeRowsInt8<T, true>>(grid, block, args)
        } else {
            stream.launch_with::<gk::QuantizeRowsInt8<T, false>>(grid, block, args)
        }
    }
}

/// The operator's entry in the registry.
pub struct QuantizeRowsInt8;

static INFO: OpInfo = OpInfo {
    name: "quantize_rows_int8",
    bench_name: "quant.rows_int8",
    summary: "rows as 8-bit integers with a scale each",
    math: "scale = max |x| / 127, q = ⌊x / scale⌉, for each row",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::output("q", "[rows, d], rows may be padded").of(&[DType::I8]),
        ArgInfo::output("scales", "[rows], contiguous").of(&[DType::F32]),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::QUANTIZE_ROWS_INT8],
    variants: &[],
};

impl Operator for QuantizeRowsInt8 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let name = "rows=32768 d=4096 bfloat16";
        let mut cases = vec![Case::production(&INFO, name, DType::BF16, dims(32768, 4096))];
        for &dtype in INFO.dtypes {
            let pads = |case: Case| {
                case.arrange("x", Arrangement::DENSE.row_pad(8)).arrange("q", Arrangement::DENSE.row_pad(16))
            };
            cases.extend([
                Case::odd(&INFO, dtype, dims(7, 1003)),
                Case::odd(&INFO, dtype, dims(5, 4104)),
                // A row with more elements than the threads hold.
                Case::odd(&INFO, dtype, dims(1, 9 * 8192 / dtype.size())),
                pads(Case::odd(&INFO, dtype, dims(5, 96))),
                Case::odd(&INFO, dtype, dims(5, 96)).row_pad(1),
                Case::tiny(&INFO, dtype, dims(1, 1)),
                Case::tiny(&INFO, dtype, dims(2, 16)).fill(Values::Constant(0.0)),
                Case::boundary(&INFO, dtype, dims(9, 24)).values("x", Values::Specials),
                Case::boundary(&INFO, dtype, dims(9, 24)).values("x", Values::Normal { std: super::TINY }),
                Case::boundary(&INFO, dtype, dims(2, 2048)).offset(1),
                Case::empty(&INFO, dtype, dims(0, 8)),
                Case::empty(&INFO, dtype, dims(3, 0)),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["rows", "d"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let [rows, d] = inputs.get("x")?.dims()?;
        Ok(vec![TensorMeta::new("q", DType::I8, [rows, d]), TensorMeta::new("scales", DType::F32, [rows])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            quantize_rows_int8_into::<T>(stream, args.input("x")?, args.output("q")?, args.output("scales")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        Ok(reference::by_row(rows, |r| {
            let row = reference::row(x, r);
            let max = row.iter().map(|x| x.abs()).fold(0.0, max_nan);
            let (scale, inverse) = scale_of(max as f32, 127.0);
            match output {
                "q" => row.iter().map(|x| rounded(*x, inverse, 0.0)).collect(),
                _ => vec![f64::from(scale)],
            }
        }))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((rows * d * (case.dtype.size() + 1) + 4 * rows) as u64))
    }
}
