//! Quantization of columns to 8-bit integers, each with a scale of its own.

use cuda_std::launch::Dim3;
use gpu_kernels::ops::quant::quantize_columns_int8 as gk;

use super::{max_nan, rounded, scale_of};
use crate::dispatch;
use crate::ops::elementwise::grid_of_rows;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Quantizes the columns of `x`, `[rows, d]`, to 8-bit integers, and returns them with the scale of each column: scale = max
/// |x| / 127, q = ⌊x / scale⌉.
///
/// The f32 product x · (127 / max) is rounded to nearest, ties to even. Scales are at least the smallest normal number, which
/// is the scale of a column of zeros; a column with NaN or an infinity has NaN or infinity as its scale, and zeros. Rows may be
/// padded. The results are new dense tensors, `[rows, d]` and `[d]`; the work is queued on `stream`.
///
/// Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference" (arXiv:1806.08342).
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
/// let x = Tensor::from_slice(&stream, [3, 1], &[127.0f32, -63.4, 0.5])?;
/// let (q, scales) = ops::quantize_columns_int8(&stream, &x)?;
/// assert_eq!(q.to_vec(&stream)?, [127, -63, 0]);
/// assert_eq!(scales.to_vec(&stream)?, [1.0]);
/// # Ok(())
/// # }
/// ```
pub fn quantize_columns_int8<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
) -> Result<(Tensor<i8>, Tensor<f32>)> {
    let x = x.into();
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    let mut q = Tensor::result(stream, [rows, d])?;
    let mut scales = Tensor::result(stream, [d])?;
    quantize_columns_int8_into(stream, x, &mut q, &mut scales)?;
    Ok((q, scales))
}

/// [`quantize_columns_int8`] into `q`, `[rows, d]`, whose rows may be padded, and `scales`, `[d]`.
///
/// # Errors
/// Same as [`quantize_columns_int8`].
pub fn quantize_columns_int8_into<'a, T: Float>(
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
    scales.require_shape(op, "scales", &[d])?;
    scales.require_contiguous(op, "scales")?;
    let x_stride = x.require_row_stride(op, "x")? as u64;
    let q_stride = q.require_row_stride(op, "q")? as u64;
    let per_block = gk::per_block(size_of::<T>());
    let Some(grid) = grid_of_rows(&INFO, "x", rows.div_ceil(gk::ROWS), d, per_block)? else {
        return scales.fill(stream, f32::MIN_POSITIVE);
    };
    let mut maxima = Tensor::<u32>::zeros(stream, [d])?;
    // A few blocks per multiprocessor walk down the rows.
    let blocks = 8 * stream.device().info().multiprocessors;
    let walk = Dim3::new(grid.x, grid.y.min(blocks.div_ceil(grid.x)), 1);
    let (source, target) = (x.ptr(stream)?, maxima.view_mut().ptr_mut(stream)?);
    let (rows, d) = (rows as u64, d as u64);
    let args = (source, target.cast().into(), q.ptr_mut(stream)?, scales.ptr_mut(stream)?, rows, d, x_stride, q_stride);
    // SAFETY: the tensors are live and hold these rows at these strides, there is a maximum and a scale for each column, q and scales are borrowed
    // mutably, and the maxima live until the work that is queued here is done.
    unsafe {
        stream.launch::<gk::ColumnMax<T>>(walk, (source, target, rows, d, x_stride))?;
        stream.launch::<gk::QuantizeColumnsInt8<T>>(grid, args)
    }
}

/// The operator's entry in the registry.
pub struct QuantizeColumnsInt8;

static INFO: OpInfo = OpInfo {
    name: "quantize_columns_int8",
    bench_name: "quant.columns_int8",
    summary: "columns as 8-bit integers with a scale each",
    math: "scale = max |x| / 127, q = ⌊x / scale⌉, for each column",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::output("q", "[rows, d], rows may be padded").of(&[DType::I8]),
        ArgInfo::output("scales", "[d], contiguous").of(&[DType::F32]),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::COLUMN_MAX, gk::QUANTIZE_COLUMNS_INT8],
    variants: &[],
};

impl Operator for QuantizeColumnsInt8 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let name = "16384x8192 bfloat16";
        let mut cases = vec![Case::production(&INFO, name, DType::BF16, dims(16384, 8192))];
        for &dtype in INFO.dtypes {
            let pads = |case: Case| {
                case.arrange("x", Arrangement::DENSE.row_pad(8)).arrange("q", Arrangement::DENSE.row_pad(16))
            };
            cases.extend([
                // Blocks of more turns than one, and grids of several.
                Case::odd(&INFO, dtype, dims(601, 40)),
                Case::odd(&INFO, dtype, dims(64, 256)),
                Case::odd(&INFO, dtype, dims(37, 203)),
                pads(Case::odd(&INFO, dtype, dims(5, 96))),
                Case::odd(&INFO, dtype, dims(5, 96)).row_pad(1),
                Case::tiny(&INFO, dtype, dims(1, 1)),
                Case::tiny(&INFO, dtype, dims(2, 16)).fill(Values::Constant(0.0)),
                Case::boundary(&INFO, dtype, dims(9, 24)).values("x", Values::Specials),
                Case::boundary(&INFO, dtype, dims(9, 24)).values("x", Values::Normal { std: super::TINY }),
                Case::boundary(&INFO, dtype, dims(33, 264)).offset(1),
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
        Ok(vec![TensorMeta::new("q", DType::I8, [rows, d]), TensorMeta::new("scales", DType::F32, [d])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            quantize_columns_int8_into::<T>(stream, args.input("x")?, args.output("q")?, args.output("scales")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let mut maxima = vec![0.0f64; x.shape()[1]];
        for row in 0..x.shape()[0] {
            for (max, x) in maxima.iter_mut().zip(reference::row(x, row)) {
                *max = max_nan(*max, x.abs());
            }
        }
        if output == "scales" {
            return Ok(rows.iter().map(|c| f64::from(scale_of(maxima[*c] as f32, 127.0).0)).collect());
        }
        let quantized = |(x, max): (f64, &f64)| rounded(x, scale_of(*max as f32, 127.0).1, 0.0);
        Ok(reference::by_row(rows, |r| reference::row(x, r).into_iter().zip(&maxima).map(quantized).collect()))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        // The maxima are known once x has been read.
        Ok(Cost::memory((rows * d * (2 * case.dtype.size() + 1) + 4 * d) as u64))
    }
}
