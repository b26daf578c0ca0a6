//! Product of a matrix with one vector or a few.

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::gemv::gemv as gk;

use super::{COLUMNS, ColumnsPlan, batch_of, product_shape, products, readings, rows_grid, strip, tolerance, vectors};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::profile;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = A·x, where `a` is `[m, n]` and `x` is `[n]`, or y\[b\] = A·x\[b\], where `x` is `[batch, n]`.
///
/// `a` is row-major or column-major (a [transposed](View::t) row-major matrix); its rows or columns may be padded, and so may
/// the rows of `x`. Up to eight vectors share one read of A if it is aligned to 16 bytes. Sums are f32 in a fixed order,
/// rounded once. The result, `[m]` or `[batch, m]`, is a new dense tensor; the work is queued on `stream`.
///
/// GEMV of Dongarra et al. (1988), with α = 1 and β = 0.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if `a` is neither row- nor column-major or the elements of a vector are not
/// adjacent, [`Error::TooLarge`] if a size is 2³² or more or there are more than 65535 vectors, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let x = Tensor::from_slice(&stream, [3], &[1.0f32, 0.0, -1.0])?;
/// assert_eq!(ops::gemv(&stream, &a, &x)?.to_vec(&stream)?, [-2.0, -2.0]);
/// let x = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// assert_eq!(ops::gemv(&stream, a.view().t(), &x)?.to_vec(&stream)?, [5.0, 7.0, 9.0]);
/// # Ok(())
/// # }
/// ```
pub fn gemv<'a, T: Float>(stream: &Stream, a: impl Into<View<'a, T>>, x: impl Into<View<'a, T>>) -> Result<Tensor<T>> {
    let (a, x) = (a.into(), x.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let mut y = Tensor::result_as(INFO.name, "y", stream, product_shape(x.shape(), m))?;
    gemv_into(stream, a, x, &mut y)?;
    Ok(y)
}

/// [`gemv`] into `y`, `[m]` or `[batch, m]`, rows of which may be padded.
///
/// # Errors
/// Same as [`gemv`].
pub fn gemv_into<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (a, x, mut y) = (a.into(), x.into(), y.into());
    stream.require_devices(INFO.name, &[("a", &a), ("x", &x), ("y", &y)])?;
    let op = INFO.name;
    let [m, n]: [usize; 2] = a.dims(op, "a")?;
    let (batch, _) = batch_of(&INFO, "x", x.shape())?;
    x.require_shape(op, "x", &product_shape(x.shape(), n))?;
    y.require_shape(op, "y", &product_shape(x.shape(), m))?;
    let x_stride = x.require_row_stride(op, "x")? as u64;
    let y_stride = y.require_row_stride(op, "y")? as u64;
    // A single row or column is both row-major and column-major.
    let columns = a.strides()[1] != 1 && a.strides()[0] == 1;
    let ld = (if columns { a.t() } else { a }).require_row_stride(op, "a")? as u64;
    let lanes = gpu_kernels::lanes::<T>();
    let adjacent = if columns { m } else { n };
    let aligned = (if columns { a.t() } else { a }).rows_aligned(16) && (columns || x.rows_aligned(16));
    let packed = aligned && adjacent.is_multiple_of(lanes);
    let [shared, readings] = readings(&INFO, batch, packed)?;
    let [Ok(rows), Ok(width), Ok(count)] = [m, n, batch].map(u32::try_from) else {
        return Err(Error::too_large(op, "a", format!("{}: sizes are below 2^32", a.shape())));
    };
    let flops = 2 * u64::from(rows) * u64::from(width) * u64::from(count);
    if !columns {
        let Some((grid, small)) = rows_grid(&INFO, [m, n], [size_of::<T>(); 2], packed, [shared, readings])? else {
            return Ok(());
        };
        let (a, x, y) = (a.ptr(stream)?, x.ptr(stream)?, y.ptr_mut(stream)?);
        let args = (a, x, y, rows, n as u64, count, ld, x_stride, y_stride);
        profile::work(Bound::Memory, flops);
        // SAFETY: the tensors are live and hold these rows at these strides, y is borrowed mutably, and packs are taken only where they are
        // aligned and whole.
        return unsafe {
            match (packed, shared, small) {
                (false, ..) => stream.launch::<gk::Gemv<T, 1, false, false>>(grid, args),
                (true, 1, false) => stream.launch::<gk::Gemv<T, 1, false, true>>(grid, args),
                (true, 1, true) => stream.launch::<gk::Gemv<T, 1, true, true>>(grid, args),
                (true, ..) => stream.launch::<gk::Gemv<T, 8, false, true>>(grid, args),
            }
        };
    }
    let of = [size_of::<T>(); 2];
    let strip = strip(packed, shared, of);
    let Some(plan) = ColumnsPlan::new(&INFO, stream.device(), [m, strip, of[1]], [width, count, readings])? else {
        return Ok(());
    };
    let mut workspace = Tensor::<f32>::result(stream, [plan.parts as usize, batch, m])?;
    let parts = workspace.view_mut().ptr_mut(stream)?;
    let args = (a.ptr(stream)?, x.ptr(stream)?, parts, m as u64, width, count, plan.part, ld, x_stride);
    let add = (parts.into(), DevicePtr::null(), y.ptr_mut(stream)?, m as u64, count, plan.parts, y_stride);
    profile::work(Bound::Memory, flops);
    // SAFETY: as above; the workspace holds a sum for each part, vector and row, and lives until the work that is queued here is done.
    unsafe {
        match (packed, shared) {
            (false, _) => stream.launch::<gk::GemvColumns<T, 1, false>>(plan.grid, args)?,
            (true, 1) => stream.launch::<gk::GemvColumns<T, 1, true>>(plan.grid, args)?,
            (true, _) => stream.launch::<gk::GemvColumns<T, 8, true>>(plan.grid, args)?,
        }
        stream.launch::<gk::GemvSum<T>>(plan.sums, add)
    }
}

/// The operator's entry in the registry.
pub struct Gemv;

static INFO: OpInfo = OpInfo {
    name: "gemv",
    bench_name: "gemv",
    summary: "product of a matrix with a vector, or a few of them",
    math: "y[b] = A·x[b]",
    args: &[
        ArgInfo::input("a", "[m, n], row- or column-major, rows or columns may be padded"),
        ArgInfo::input("x", "[n] or [batch, n], rows may be padded"),
        ArgInfo::output("y", "[m] or [batch, m], rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::GEMV, gk::GEMV_COLUMNS, gk::GEMV_SUM],
    variants: &[],
};

impl Operator for Gemv {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |batch, m, n| [("batch", batch), ("m", m), ("n", n)];
        let production =
            |name: &str, dtype: DType, dims| Case::production(&INFO, format!("{name} {dtype}"), dtype, dims);
        let (f32, f16) = (DType::F32, DType::F16);
        let mut cases = vec![
            production("16384x16384", f32, dims(1, 16384, 16384)),
            production("16384x16384", f16, dims(1, 16384, 16384)),
            production("14336x4096", f16, dims(1, 14336, 4096)),
            production("4096x14336", f16, dims(1, 4096, 14336)),
            production("16384x16384 8 vectors", f32, dims(8, 16384, 16384)),
            production("16384x16384 8 vectors", f16, dims(8, 16384, 16384)),
            production("16384x16384 column-major", f32, dims(1, 16384, 16384)).arrange("a", COLUMNS),
            production("16384x16384 column-major", f16, dims(1, 16384, 16384)).arrange("a", COLUMNS),
            production("16384x16384 column-major 8 vectors", f16, dims(8, 16384, 16384)).arrange("a", COLUMNS),
        ];
        for &dtype in INFO.dtypes {
            let lanes = 16 / dtype.size();
            let columns = |case: Case| case.arrange("a", COLUMNS);
            cases.extend([
                Case::odd(&INFO, dtype, dims(1, 37, 100 * lanes)),
                Case::odd(&INFO, dtype, dims(1, 3, 1100 * lanes)),
                Case::odd(&INFO, dtype, dims(1, 5, 1003)),
                Case::odd(&INFO, dtype, dims(3, 5, 203)),
                Case::odd(&INFO, dtype, dims(11, 7, 30 * lanes)),
                Case::odd(&INFO, dtype, dims(5, 37, 70 * lanes)),
                // More f32 stretches than are staged at once.
                Case::odd(&INFO, dtype, dims(3, 34, 420 * lanes)),
                Case::odd(&INFO, dtype, dims(2, 6, 300 * lanes)).arrange("a", Arrangement::DENSE.row_pad(16)),
                Case::odd(&INFO, dtype, dims(2, 6, 70)).row_pad(3),
                columns(Case::odd(&INFO, dtype, dims(1, 40 * lanes, 203))),
                columns(Case::odd(&INFO, dtype, dims(1, 37, 203))),
                columns(Case::odd(&INFO, dtype, dims(2, 37, 99))),
                columns(Case::odd(&INFO, dtype, dims(10, 40 * lanes, 99))),
                // So many rows that a block takes all columns, several per lane.
                columns(Case::odd(&INFO, dtype, dims(3, 1160, 300))),
                Case::odd(&INFO, dtype, dims(3, 2 * lanes, 40)).arrange("a", COLUMNS.row_pad(16)),
                Case::tiny(&INFO, dtype, dims(1, 1, 1)),
                Case::empty(&INFO, dtype, dims(1, 0, 8)),
                Case::empty(&INFO, dtype, dims(1, 8, 0)),
                Case::empty(&INFO, dtype, dims(3, 8, 0)),
                columns(Case::empty(&INFO, dtype, dims(2, 8, 0))),
                Case::boundary(&INFO, dtype, dims(1, 4, 256 * lanes)).offset(1),
                Case::boundary(&INFO, dtype, dims(8, 5, 256 * lanes)),
                Case::boundary(&INFO, dtype, dims(9, 4, 257 * lanes)),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [batch, m, n] = case.dims(["batch", "m", "n"])?;
        let specs = [InputSpec::normal("a", case.dtype, [m, n]), InputSpec::normal("x", case.dtype, vectors(batch, n))];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (a, x) = (inputs.get("a")?, inputs.get("x")?);
        let [m, n] = a.dims()?;
        x.has_shape(&product_shape(x.shape(), n))?;
        Ok(vec![TensorMeta::new("y", a.dtype(), product_shape(x.shape(), m))])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("a")?, float => |T| {
            gemv_into::<T>(stream, args.input("a")?, args.input("x")?, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (a, x) = (inputs.get("a")?, inputs.get("x")?);
        Ok(products(x, a.shape()[0], rows, |row| reference::row(a, row)))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [n] = case.dims(["n"])?;
        Ok(tolerance(case.dtype, n, 1.0))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [batch, m, n] = case.dims(["batch", "m", "n"])?;
        let bytes = (m * n + batch * (m + n)) * case.dtype.size();
        Ok(Cost::compute(bytes as u64, 2 * (batch * m * n) as u64, Bound::Memory))
    }
}
