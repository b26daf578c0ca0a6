//! Product of a matrix of 8-bit integers with one vector or a few.

use cuda_std::launch::DevicePtrMut;
use gpu_kernels::ops::gemv::gemv::{GEMV_SUM, GemvSum};
use gpu_kernels::ops::gemv::gemv_int8 as gk;

use super::{COLUMNS, ColumnsPlan, batch_of, product_shape, products, readings, rows_grid, strip, tolerance, vectors};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::profile;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y\[i\] = scales\[i\] · (A·x)\[i\], where `a` is `[m, n]` of 8-bit integers, `scales` is `[m]` and `x` is `[n]`, or the same
/// for each row of an `x` of `[batch, n]`.
///
/// `a` is row-major or column-major (a [transposed](View::t) row-major matrix); its rows or columns may be padded, and so may
/// the rows of `x`. Up to eight vectors share one read of A if all rows are at multiples of 16 bytes and n is a multiple of 16,
/// or all columns are at multiples of 8 bytes and m is a multiple of 8. Sums are f32 in a fixed order, rounded once. The
/// result, `[m]` or `[batch, m]`, is a new dense tensor; the work is queued on `stream`.
///
/// Dettmers et al., "LLM.int8()" (arXiv:2208.07339).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if `a` is neither row- nor column-major or the elements of a vector are not
/// adjacent, [`Error::TooLarge`] if a size is 2³² or more or there are more than 65535 times eight vectors, of column-major matrices 65535,
/// [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [2, 2], &[1i8, 2, 3, -4])?;
/// let scales = Tensor::from_slice(&stream, [2], &[0.5f32, 2.0])?;
/// let x = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// assert_eq!(ops::gemv_int8(&stream, &a, &scales, &x)?.to_vec(&stream)?, [1.5, -2.0]);
/// # Ok(())
/// # }
/// ```
pub fn gemv_int8<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, i8>>,
    scales: impl Into<View<'a, f32>>,
    x: impl Into<View<'a, T>>,
) -> Result<Tensor<T>> {
    let (a, x) = (a.into(), x.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let mut y = Tensor::result_as(INFO.name, "y", stream, product_shape(x.shape(), m))?;
    gemv_int8_into(stream, a, scales.into(), x, &mut y)?;
    Ok(y)
}

/// [`gemv_int8`] into `y`, `[m]` or `[batch, m]`, rows of which may be padded.
///
/// # Errors
/// Same as [`gemv_int8`].
pub fn gemv_int8_into<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, i8>>,
    scales: impl Into<View<'a, f32>>,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (a, scales, x, mut y) = (a.into(), scales.into(), x.into(), y.into());
    stream.require_devices(INFO.name, &[("a", &a), ("scales", &scales), ("x", &x), ("y", &y)])?;
    let op = INFO.name;
    let [m, n]: [usize; 2] = a.dims(op, "a")?;
    let (batch, _) = batch_of(&INFO, "x", x.shape())?;
    scales.require_shape(op, "scales", &[m])?;
    scales.require_contiguous(op, "scales")?;
    x.require_shape(op, "x", &product_shape(x.shape(), n))?;
    y.require_shape(op, "y", &product_shape(x.shape(), m))?;
    let x_stride = x.require_row_stride(op, "x")? as u64;
    let y_stride = y.require_row_stride(op, "y")? as u64;
    // A single row or column is both row-major and column-major.
    let columns = a.strides()[1] != 1 && a.strides()[0] == 1;
    let lines = if columns { a.t() } else { a };
    let ld = lines.require_row_stride(op, "a")? as u64;
    let pack = if columns { gk::column_pack(batch, 1, size_of::<T>()) } else { 16 };
    let adjacent = if columns { m } else { n };
    let packed = adjacent.is_multiple_of(pack) && lines.rows_aligned(pack) && (columns || x.rows_aligned(16));
    let [shared, readings] = readings(&INFO, batch, packed)?;
    let [Ok(rows), Ok(width), Ok(count)] = [m, n, batch].map(u32::try_from) else {
        return Err(Error::too_large(op, "a", format!("{}: sizes are below 2^32", a.shape())));
    };
    let (a, scales, x) = (a.ptr(stream)?, scales.ptr(stream)?, x.ptr(stream)?);
    let flops = 2 * u64::from(rows) * u64::from(width) * u64::from(count);
    if !columns {
        let Some((grid, small)) = rows_grid(&INFO, [m, n], [1, size_of::<T>()], packed, [shared, readings])? else {
            return Ok(());
        };
        let args = (a, scales, x, y.ptr_mut(stream)?, rows, n as u64, count, ld, x_stride, y_stride);
        profile::work(Bound::Memory, flops);
        // SAFETY: the tensors are live and hold these rows at these strides, y is borrowed mutably, and packs are taken only where they are
        // aligned and whole.
        return unsafe {
            match (packed, shared, small) {
                (false, ..) => stream.launch::<gk::GemvInt8<T, 1, false, false>>(grid, args),
                (true, 1, false) => stream.launch::<gk::GemvInt8<T, 1, false, true>>(grid, args),
                (true, 1, true) => stream.launch::<gk::GemvInt8<T, 1, true, true>>(grid, args),
                (true, ..) => stream.launch::<gk::GemvInt8<T, 8, false, true>>(grid, args),
            }
        };
    }
    let strip = strip(packed, shared, [1, size_of::<T>()]);
    let Some(plan) = ColumnsPlan::new(&INFO, stream.device(), [m, strip, size_of::<T>()], [width, count, readings])?
    else {
        return Ok(());
    };
    let mut workspace = Tensor::<f32>::result(stream, [plan.parts as usize, batch, m])?;
    let parts: DevicePtrMut<f32> = workspace.view_mut().ptr_mut(stream)?;
    let args = (a, x, parts, m as u64, width, count, plan.part, ld, x_stride);
    let add = (parts.into(), scales, y.ptr_mut(stream)?, m as u64, count, plan.parts, y_stride);
    profile::work(Bound::Memory, flops);
    // SAFETY: as above; the workspace holds a sum for each part, vector and row, and lives until the work that is queued here is done.
    unsafe {
        match (packed, shared) {
            (false, _) => stream.launch::<gk::GemvInt8Columns<T, 1, false>>(plan.grid, args)?,
            (true, 1) => stream.launch::<gk::GemvInt8Columns<T, 1, true>>(plan.grid, args)?,
            (true, _) => stream.launch::<gk::GemvInt8Columns<T, 8, true>>(plan.grid, args)?,
        }
        stream.launch::<GemvSum<T>>(plan.sums, add)
    }
}

/// The operator's entry in the registry.
pub struct GemvInt8;

static INFO: OpInfo = OpInfo {
    name: "gemv_int8",
    bench_name: "gemv.int8",
    summary: "product of a matrix of 8-bit integers with a vector, or a few of them",
    math: "y[b, i] = scales[i] · Σ A[i, j] · x[b, j]",
    args: &[
        ArgInfo::input("a", "[m, n], row- or column-major, rows or columns may be padded").of(&[DType::I8]),
        ArgInfo::input("scales", "[m], contiguous").of(&[DType::F32]),
        ArgInfo::input("x", "[n] or [batch, n], rows may be padded"),
        ArgInfo::output("y", "[m] or [batch, m], rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::GEMV_INT8, gk::GEMV_INT8_COLUMNS, GEMV_SUM],
    variants: &[],
};

impl Operator for GemvInt8 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |batch, m, n| [("batch", batch), ("m", m), ("n", n)];
        let columns = |case: Case| case.arrange("a", COLUMNS);
        let mut cases = vec![
            Case::production(&INFO, "16384x16384 x float16", DType::F16, dims(1, 16384, 16384)),
            Case::production(&INFO, "16384x16384 x float32", DType::F32, dims(1, 16384, 16384)),
            Case::production(&INFO, "14336x4096 x float16", DType::F16, dims(1, 14336, 4096)),
            Case::production(&INFO, "16384x16384 8 vectors x float16", DType::F16, dims(8, 16384, 16384)),
            Case::production(&INFO, "16384x16384 8 vectors x float32", DType::F32, dims(8, 16384, 16384)),
            columns(Case::production(&INFO, "16384x16384 column-major x float16", DType::F16, dims(1, 16384, 16384))),
            columns(Case::production(
                &INFO,
                "16384x16384 column-major 8 vectors x float16",
                DType::F16,
                dims(8, 16384, 16384),
            )),
        ];
        for &dtype in INFO.dtypes {
            cases.extend([
                Case::odd(&INFO, dtype, dims(1, 37, 1600)),
                // A row that occupies all threads of a block: packs that are in flight together, and a remainder.
                Case::odd(&INFO, dtype, dims(1, 3, 20528)),
                Case::odd(&INFO, dtype, dims(3, 5, 203)),
                Case::odd(&INFO, dtype, dims(11, 7, 480)),
                Case::odd(&INFO, dtype, dims(5, 37, 1120)),
                // More f32 stretches than are staged at once.
                Case::odd(&INFO, dtype, dims(3, 34, 3376)),
                Case::odd(&INFO, dtype, dims(2, 6, 4112)).arrange("a", Arrangement::DENSE.row_pad(16)),
                Case::odd(&INFO, dtype, dims(2, 6, 64)).row_pad(3),
                Case::tiny(&INFO, dtype, dims(1, 1, 1)),
                Case::empty(&INFO, dtype, dims(1, 0, 16)),
                Case::empty(&INFO, dtype, dims(1, 8, 0)),
                Case::empty(&INFO, dtype, dims(3, 8, 0)),
                Case::boundary(&INFO, dtype, dims(8, 5, 4096)),
                Case::boundary(&INFO, dtype, dims(9, 4, 64)).offset(1),
                columns(Case::odd(&INFO, dtype, dims(1, 528, 203))),
                columns(Case::odd(&INFO, dtype, dims(1, 37, 203))),
                columns(Case::odd(&INFO, dtype, dims(2, 37, 99))),
                columns(Case::odd(&INFO, dtype, dims(10, 272, 99))),
                // So many rows that a block takes all columns, several per lane.
                columns(Case::odd(&INFO, dtype, dims(3, 1168, 300))),
                Case::odd(&INFO, dtype, dims(3, 48, 40)).arrange("a", COLUMNS.row_pad(16)),
                columns(Case::empty(&INFO, dtype, dims(2, 8, 0))),
                columns(Case::boundary(&INFO, dtype, dims(1, 16, 33))).offset(1),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [batch, m, n] = case.dims(["batch", "m", "n"])?;
        let specs = [
            InputSpec::new("a", DType::I8, [m, n], Values::Integers { low: -127, high: 127 }),
            InputSpec::new("scales", DType::F32, [m], Values::Uniform { low: 0.0, high: 1.0 / 64.0 }),
            InputSpec::normal("x", case.dtype, vectors(batch, n)),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (a, x) = (inputs.get("a")?, inputs.get("x")?);
        let [m, n] = a.dims()?;
        inputs.get("scales")?.has_shape(&[m])?;
        x.has_shape(&product_shape(x.shape(), n))?;
        Ok(vec![TensorMeta::new("y", x.dtype(), product_shape(x.shape(), m))])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let (a, scales) = (args.input("a")?, args.input("scales")?);
            gemv_int8_into::<T>(stream, a, scales, args.input("x")?, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (a, scales, x) = (inputs.get("a")?, inputs.get("scales")?.to_f64(), inputs.get("x")?);
        let scaled = |row: usize| reference::row(a, row).into_iter().map(|value| value * scales[row]).collect();
        Ok(products(x, a.shape()[0], rows, scaled))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [n] = case.dims(["n"])?;
        // Integers up to 127 times scales up to 1/64 are below 2.
        Ok(tolerance(case.dtype, n, 2.0))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [batch, m, n] = case.dims(["batch", "m", "n"])?;
        let bytes = m * n + 4 * m + batch * (m + n) * case.dtype.size();
        Ok(Cost::compute(bytes as u64, 2 * (batch * m * n) as u64, Bound::Memory))
    }
}
