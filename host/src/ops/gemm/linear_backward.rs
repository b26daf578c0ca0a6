//! Gradient of a linear layer.

use cuda_std::float::Half;
use cuda_std::launch::DevicePtr;
use gpu_kernels::columns::COLUMN_SUMS;
use gpu_kernels::ops::gemm::linear_backward as gk;
use half::{bf16, f16};

use super::linear::LINEAR;
use super::{gemm_into, gemm_to_f32_into, sizes};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::gemm::with_products;
use crate::ops::model::*;
use crate::ops::norm::columns;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradients of [`linear`](fn@crate::ops::linear) without an activation; those of weight and bias are in f32.
///
/// `x` is `[rows, in]`, `weight` is `[out, in]`, and `dy`, the gradient of the result, is `[rows, out]`; all rows may be
/// padded. dx = dy · weight, dweight = dyᵀ · x and dbias = Σ dy over the rows. The gradient of a residual is dy itself. The
/// gradient of an activation needs the activation's input, so a layer in training should be called
/// without an activation and then the activation; its backward calls [`gelu_backward`](fn@crate::ops::gelu_backward) or the
/// like first. Sums are f32 in an order that depends only on the device and the shape. The results are new dense tensors; the
/// work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [2, 1], &[3.0, 4.0].map(f16::from_f32))?;
/// let weight = Tensor::from_slice(&stream, [1, 1], &[2.0].map(f16::from_f32))?;
/// let dy = Tensor::from_slice(&stream, [2, 1], &[1.0, -0.5].map(f16::from_f32))?;
/// let gradients = ops::linear_backward(&stream, &x, &weight, &dy)?;
/// assert_eq!(gradients.dx.to_vec(&stream)?, [2.0, -1.0].map(f16::from_f32));
/// assert_eq!(gradients.dweight.to_vec(&stream)?, [1.0]);
/// assert_eq!(gradients.dbias.to_vec(&stream)?, [0.5]);
/// # Ok(())
/// # }
/// ```
pub fn linear_backward<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
) -> Result<LayerGradients<T>> {
    let (x, weight) = (x.into(), weight.into());
    let [out, _]: [usize; 2] = weight.dims(INFO.name, "weight")?;
    let mut dx = Tensor::result(stream, x.shape())?;
    let mut dweight = Tensor::result(stream, weight.shape())?;
    let mut dbias = Tensor::result(stream, [out])?;
    let gradients =
        LayerGradientsMut { dx: (&mut dx).into(), dweight: (&mut dweight).into(), dbias: (&mut dbias).into() };
    linear_backward_into(stream, x, weight, dy.into(), false, gradients)?;
    Ok(LayerGradients { dx, dweight, dbias })
}

/// The gradients of a linear layer.
#[derive(Debug)]
pub struct LayerGradients<T> {
    /// The gradient with respect to the input, `[rows, in]`.
    pub dx: Tensor<T>,
    /// The gradient with respect to the weight, `[out, in]`, in f32, as it was summed.
    pub dweight: Tensor<f32>,
    /// The gradient with respect to the bias, `[out]`, likewise.
    pub dbias: Tensor<f32>,
}

/// Where to write [`LayerGradients`].
#[derive(Debug)]
pub struct LayerGradientsMut<'a, T> {
    /// The gradient with respect to the input, `[rows, in]`; rows may be padded.
    pub dx: ViewMut<'a, T>,
    /// The gradient with respect to the weight, `[out, in]`; rows may be padded.
    pub dweight: ViewMut<'a, f32>,
    /// The gradient with respect to the bias, `[out]`, contiguous.
    pub dbias: ViewMut<'a, f32>,
}

/// [`linear_backward`] that writes to `gradients`. With `accumulate`, the gradients of weight and bias are added to the present
/// contents; without it, the present contents are ignored.
///
/// # Errors
/// Same as [`linear_backward`].
pub fn linear_backward_into<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dy: impl Into<View<'a, T>>,
    accumulate: bool,
    gradients: LayerGradientsMut<'a, T>,
) -> Result<()> {
    let (x, weight, dy) = (x.into(), weight.into(), dy.into());
    let LayerGradientsMut { dx, dweight, dbias } = gradients;
    stream.require_devices(
        INFO.name,
        &[("x", &x), ("weight", &weight), ("dy", &dy), ("dx", &dx), ("dweight", &dweight), ("dbias", &dbias)],
    )?;
    let [rows, depth]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [out, _]: [usize; 2] = weight.dims(INFO.name, "weight")?;
    weight.require_shape(INFO.name, "weight", &[out, depth])?;
    dy.require_shape(INFO.name, "dy", &[rows, out])?;
    dx.require_shape(INFO.name, "dx", &[rows, depth])?;
    dweight.require_shape(INFO.name, "dweight", &[out, depth])?;
    dbias.require_shape(INFO.name, "dbias", &[out])?;
    dbias.require_contiguous(INFO.name, "dbias")?;
    for (name, view) in [("x", &x), ("weight", &weight), ("dy", &dy)] {
        view.require_row_stride(INFO.name, name)?;
    }
    dx.require_row_stride(INFO.name, "dx")?;
    dweight.require_row_stride(INFO.name, "dweight")?;
    sizes(&INFO, [("x", rows), ("x", depth), ("weight", out)])?;
    let beta = if accumulate { 1.0 } else { 0.0 };
    gemm_into(stream, 1.0, dy, weight, 0.0, dx)?;
    gemm_to_f32_into(stream, 1.0, dy.t(), x, beta, dweight)?;
    sum_columns(stream, dy, accumulate, dbias)
}

/// The sums of the columns of `dy`, in two launches: blocks sum parts of the rows, then the parts are summed.
fn sum_columns<T: Float + Half>(
    stream: &Stream,
    dy: View<'_, T>,
    accumulate: bool,
    mut dbias: ViewMut<'_, f32>,
) -> Result<()> {
    let [rows, d]: [usize; 2] = dy.dims(INFO.name, "dy")?;
    let stride = dy.require_row_stride(INFO.name, "dy")? as u64;
    let packed = d.is_multiple_of(8) && dy.rows_aligned(16);
    let columns = gk::columns(if packed { 8 } else { 1 }) as usize;
    let Some(strips) = grid(&INFO, "dy", d, columns)? else { return Ok(()) };
    // Enough blocks that every multiprocessor has several, each with more than a few rows.
    let blocks = stream.device().info().multiprocessors.max(1) as usize * BLOCKS_EACH;
    let parts = (blocks / strips as usize).clamp(1, rows.div_ceil(ROWS_EACH).max(1)).min(MAX_PARTS);
    let rows_each = rows.div_ceil(parts);
    let partials = stream.workspace::<f32>(INFO.name, parts * d)?;
    let dbias = dbias.ptr_mut(stream)?;
    let before = if accumulate { DevicePtr::from(dbias) } else { DevicePtr::null() };
    let args = (dy.ptr(stream)?, before, partials.ptr_mut(), rows as u64, d as u64, stride, rows_each as u64);
    let grid = (strips, parts as u32);
    // SAFETY: dy is live and has these rows at this stride, packs are read only from rows that are aligned for them, dbias
    // holds d elements, and the scratch memory holds a row of d for each part.
    unsafe {
        if packed {
            stream.launch::<gk::LinearBackwardBias<T, 8>>(grid, args)?;
        } else {
            stream.launch::<gk::LinearBackwardBias<T, 1>>(grid, args)?;
        }
    }
    columns::sum(&INFO, stream, &partials, [Some(dbias), None], parts, d)
}

/// Blocks of the first launch per multiprocessor.
const BLOCKS_EACH: usize = 4;
/// The minimum number of rows per block.
const ROWS_EACH: usize = 64;
/// The maximum number of blocks of a grid along y.
const MAX_PARTS: usize = 65_535;

/// The operator's entry in the registry.
pub struct LinearBackward;

static INFO: OpInfo = OpInfo {
    name: "linear_backward",
    bench_name: "gemm.linear_backward",
    summary: "gradient of linear without an activation",
    math: "dx = dy·W, dW (+)= dyᵀ·x, dbias (+)= Σ dy",
    args: &[
        ArgInfo::input("x", "[rows, in], rows may be padded"),
        ArgInfo::input("weight", "[out, in], rows may be padded"),
        ArgInfo::input("dy", "[rows, out], rows may be padded"),
        ArgInfo::output("dx", "[rows, in], rows may be padded"),
        ArgInfo::in_out("dweight", "[out, in], rows may be padded").of(&[DType::F32]),
        ArgInfo::in_out("dbias", "[out], contiguous").of(&[DType::F32]),
    ],
    params: &[ParamInfo::bool(ACCUMULATE, false, "whether dweight and dbias are added to")],
    dtypes: &[DType::F16, DType::BF16],
    // Sums of columns are in f32, which is the first in the list.
    kernels: with_products![gk::LINEAR_BACKWARD_BIAS, COLUMN_SUMS.split_at(1).0,],
    variants: &[],
};

const ACCUMULATE: &str = "accumulate";

impl Operator for LinearBackward {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, depth, out| [("rows", rows), ("in", depth), ("out", out)];
        let production = |name: &str| Case::production(&INFO, name, DType::BF16, dims(8192, 4096, 14336));
        let mut cases = vec![
            production("m=8192 n=14336 k=4096"),
            production("m=8192 n=14336 k=4096 accumulated").param(ACCUMULATE, true).timed_only(),
        ];
        for &dtype in INFO.dtypes {
            let odd = |rows, depth, out| Case::odd(&INFO, dtype, dims(rows, depth, out));
            cases.extend([
                odd(200, 24, 40).param(ACCUMULATE, true),
                odd(33, 21, 35),
                odd(70, 16, 264),
                odd(24, 24, 16)
                    .arrange("x", Arrangement::DENSE.row_pad(8))
                    .arrange("weight", Arrangement::DENSE.row_pad(16))
                    .arrange("dy", Arrangement::DENSE.row_pad(24))
                    .arrange("dx", Arrangement::DENSE.row_pad(32))
                    .arrange("dweight", Arrangement::DENSE.row_pad(4)),
                odd(20, 16, 24).arrange("dy", Arrangement::DENSE.row_pad(1)).param(ACCUMULATE, true),
                odd(16, 8, 24).offset(1),
                Case::tiny(&INFO, dtype, dims(1, 1, 1)),
                Case::tiny(&INFO, dtype, dims(3, 5, 2)).param(ACCUMULATE, true),
                Case::empty(&INFO, dtype, dims(0, 8, 8)),
                Case::empty(&INFO, dtype, dims(0, 8, 8)).param(ACCUMULATE, true),
                Case::empty(&INFO, dtype, dims(8, 0, 8)),
                Case::empty(&INFO, dtype, dims(8, 8, 0)),
                Case::boundary(&INFO, dtype, dims(65, 8, 256)),
                Case::boundary(&INFO, dtype, dims(16, 8, 8)).values("dbias", Values::Specials),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, depth, out] = case.dims(["rows", "in", "out"])?;
        let specs = [
            InputSpec::normal("x", case.dtype, [rows, depth]),
            InputSpec::normal("weight", case.dtype, [out, depth]),
            InputSpec::normal("dy", case.dtype, [rows, out]),
            InputSpec::normal("dweight", DType::F32, [out, depth]),
            InputSpec::normal("dbias", DType::F32, [out]),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (x, weight) = (inputs.get("x")?, inputs.get("weight")?);
        let [rows, depth] = x.dims()?;
        let [out, _] = weight.dims()?;
        weight.has_shape(&[out, depth])?;
        inputs.get("dy")?.has_shape(&[rows, out])?;
        inputs.get("dweight")?.has_shape(&[out, depth])?;
        inputs.get("dbias")?.has_shape(&[out])?;
        Ok(vec![TensorMeta::new("dx", x.dtype(), [rows, depth])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let accumulate = params.bool(ACCUMULATE)?;
        dispatch!(INFO, args.dtype("x")?, [f16, bf16] => |T| {
            let (x, weight, dy) = (args.input::<T>("x")?, args.input::<T>("weight")?, args.input::<T>("dy")?);
            let (dx, dweight, dbias) = (args.output("dx")?, args.output("dweight")?, args.output("dbias")?);
            linear_backward_into(stream, x, weight, dy, accumulate, LayerGradientsMut { dx, dweight, dbias })
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight, dy) = (inputs.get("x")?, inputs.get("weight")?, inputs.get("dy")?);
        if output == "dx" {
            return Ok(reference::matmul_nn(dy, weight, rows));
        }
        let of_bias = output == "dbias";
        let d = if of_bias { 1 } else { x.shape()[1] };
        let mut sums = vec![0.0; rows.len() * d];
        for row in 0..x.shape()[0] {
            let (dy, x) = (reference::row(dy, row), if of_bias { vec![1.0] } else { reference::row(x, row) });
            for (sums, column) in sums.chunks_mut(d.max(1)).zip(rows) {
                sums.iter_mut().zip(&x).for_each(|(sum, x)| *sum += dy[*column] * x);
            }
        }
        if params.bool(ACCUMULATE)? {
            let before = inputs.get(output)?;
            let before = reference::by_row(rows, |row| before.range_f64(row * d..(row + 1) * d).unwrap_or_default());
            sums.iter_mut().zip(before).for_each(|(sum, before)| *sum += before);
        }
        Ok(sums)
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [rows, out] = case.dims(["rows", "out"])?;
        let ulp = roundoff(DType::F32);
        if output == "dbias" {
            // Each addition rounds a sum of size √rows, plus what was there.
            let abs = rows as f64 * ((rows as f64).sqrt() + 6.0) * ulp;
            return Ok(Tolerance::new(
                abs + 1e-7,
                2.0 * ulp,
                "as many roundings of sums of size √rows, the worst of them",
            ));
        }
        // As in gemm: truncations of a running sum of size √k for each step of 16 products, all towards zero; and what was there is added.
        let (k, dtype) = if output == "dx" { (out, case.dtype) } else { (rows, DType::F32) };
        let abs = ((k as f64).sqrt() * ((k as f64 / 16.0).max(1.0) * 4.0 + 6.0) + 6.0) * ulp;
        Ok(Tolerance::rounded(
            dtype,
            abs,
            2.0 * ulp,
            "one rounding of the result, and k/16 truncations of sums of size √k",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, depth, out] = case.dims(["rows", "in", "out"])?;
        let of_f32 = if case.params.bool(ACCUMULATE)? { 8 } else { 4 };
        let bytes = case.dtype.size() * (2 * rows * depth + out * depth + rows * out) + of_f32 * (out * depth + out);
        Ok(Cost::compute(bytes as u64, 4 * (rows * depth * out) as u64, Bound::Tensor(case.dtype)))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient {
            forward: &LINEAR,
            of_outputs: &[("dy", "y")],
            of_inputs: &[("dx", "x"), ("dweight", "weight"), ("dbias", "bias")],
        })
    }
}
