//! Dequantization of 8-bit integers.

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::quant::dequantize_int8 as gk;

use super::blocks::grid;
use crate::dispatch;
use crate::ops::elementwise::{Operand, Plan};
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// (q − zero) · scale, where `q` has any shape, `scales` is `[1]`, or has one scale for each row, `[rows]`, or column,
/// `[1, d]`, of `q`, and `zero`, if given, is `[1]`.
///
/// Each result is one f32 product, rounded once, of a difference that does not wrap whatever the zero point is. Rows of `q` may
/// be padded. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let q = Tensor::from_slice(&stream, [2, 2], &[1i8, 2, 3, 4])?;
/// let scales = Tensor::from_slice(&stream, [2], &[0.5f32, 10.0])?;
/// assert_eq!(ops::dequantize_int8::<f32>(&stream, &q, &scales, None)?.to_vec(&stream)?, [0.5, 1.0, 30.0, 40.0]);
/// # Ok(())
/// # }
/// ```
pub fn dequantize_int8<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, i8>>,
    scales: impl Into<View<'a, f32>>,
    zero: Option<View<'a, i32>>,
) -> Result<Tensor<T>> {
    let q = q.into();
    let mut y = Tensor::result(stream, q.shape())?;
    dequantize_int8_into(stream, q, scales.into(), zero, &mut y)?;
    Ok(y)
}

/// [`dequantize_int8`] into `y`, which has the shape of `q`; its rows may be padded.
///
/// # Errors
/// Same as [`dequantize_int8`].
pub fn dequantize_int8_into<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, i8>>,
    scales: impl Into<View<'a, f32>>,
    zero: Option<View<'a, i32>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (q, scales, mut y) = (q.into(), scales.into(), y.into());
    stream.require_devices(INFO.name, &[("q", &q), ("scales", &scales), ("zero", &zero), ("y", &y)])?;
    let Some(spread) = Spread::of(scales.shape(), q.rows(), q.cols()) else {
        return Err(INFO.shape_error("scales", scales.shape(), Spread::wanted(q.rows(), q.cols())));
    };
    scales.require_contiguous(INFO.name, "scales")?;
    if let Some(zero) = &zero {
        zero.require_shape(INFO.name, "zero", &[1])?;
    }
    let operands = [Operand::read("q", &q), Operand::written("y", &y)];
    let Some(plan) = Plan::of(&INFO, gk::PER_BLOCK, operands, spread == Spread::One)? else { return Ok(()) };
    let [q_stride, y_stride] = plan.strides;
    let zero = zero.map_or(Ok(DevicePtr::null()), |zero| zero.ptr(stream))?;
    let (q, scales, y) = (q.ptr(stream)?, scales.ptr(stream)?, y.ptr_mut(stream)?);
    let [row_shift, column_shift] = spread.shifts();
    let grid = grid(&INFO, &plan, column_shift, [gk::PER_BLOCK, gk::ROWS])?;
    let args = (q, scales, zero, y, plan.rows, plan.d, q_stride, y_stride, row_shift, column_shift);
    // SAFETY: the tensors are live and have these rows at these strides, there are as many scales as the shifts say, and y is borrowed mutably.
    unsafe { stream.launch::<gk::DequantizeInt8<T>>(grid, args) }
}

/// The unit that has a scale of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    One,
    Rows,
    Columns,
}

impl Spread {
    /// The unit whose scales have that shape.
    fn of(scales: &[usize], rows: usize, d: usize) -> Option<Self> {
        match *scales {
            [1] => Some(Self::One),
            [n] if n == rows => Some(Self::Rows),
            [1, n] if n == d => Some(Self::Columns),
            _ => None,
        }
    }

    fn wanted(rows: usize, d: usize) -> String {
        format!("[1], [{rows}] or [1, {d}]")
    }

    /// The numbers of rows and columns that share a scale, as powers of two; 63 for all.
    fn shifts(self) -> [u32; 2] {
        match self {
            Self::One => [63, 63],
            Self::Rows => [0, 63],
            Self::Columns => [63, 0],
        }
    }
}

/// The operator's entry in the registry.
pub struct DequantizeInt8;

static INFO: OpInfo = OpInfo {
    name: "dequantize_int8",
    bench_name: "quant.dequantize_int8",
    summary: "8-bit integers back to floats, with one scale or one for each row or column",
    math: "y = (q − zero) · scale",
    args: &[
        ArgInfo::input("q", "[rows, d], rows may be padded").of(&[DType::I8]),
        ArgInfo::input("scales", "[1], [rows] or [1, d], contiguous").of(&[DType::F32]),
        ArgInfo::input("zero", "[1]").of(&[DType::I32]).optional(),
        ArgInfo::output("y", "the shape of q, of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[ParamInfo::choice("to", "bfloat16", &["float32", "float16", "bfloat16"], "the type of y")],
    dtypes: DType::FLOATS,
    kernels: &[gk::DEQUANTIZE_INT8],
    variants: &[],
};

/// The type that a case or a call asks for.
fn target(params: &Params) -> Result<DType> {
    params.choice("to")?.parse()
}

impl Operator for DequantizeInt8 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let by_row = |case: Case| case.without("zero");
        let by_column = |case: Case| {
            let mut case = by_row(case);
            case.dims.push("columns", 1);
            case.name.push_str(" columns");
            case
        };
        let extreme = |case: Case, zero: i32, what| {
            let mut case = case.values("zero", Values::Constant(f64::from(zero)));
            case.name = format!("{} {what}", case.name);
            case
        };
        let name = "rows=32768 d=4096 bfloat16";
        let mut cases = vec![by_row(Case::production(&INFO, name, DType::BF16, dims(32768, 4096)))];
        cases.push(by_column(Case::production(&INFO, name, DType::BF16, dims(32768, 4096))));
        for &dtype in INFO.dtypes {
            let to = |case: Case| case.param("to", ParamValue::Choice(dtype.name()));
            let pads = |case: Case| {
                case.arrange("q", Arrangement::DENSE.row_pad(16)).arrange("y", Arrangement::DENSE.row_pad(8))
            };
            cases.extend(
                [
                    by_row(Case::odd(&INFO, dtype, dims(7, 1003))),
                    by_row(Case::odd(&INFO, dtype, dims(3, 4112))),
                    Case::odd(&INFO, dtype, dims(3, 4112)),
                    by_column(Case::odd(&INFO, dtype, dims(3, 4104))),
                    by_column(Case::odd(&INFO, dtype, dims(7, 203))),
                    by_column(pads(Case::odd(&INFO, dtype, dims(5, 100)))),
                    pads(Case::odd(&INFO, dtype, dims(5, 96))),
                    by_row(pads(Case::odd(&INFO, dtype, dims(5, 48)))),
                    Case::tiny(&INFO, dtype, dims(1, 1)),
                    Case::boundary(&INFO, dtype, dims(2, 40)).values("zero", Values::Constant(-128.0)),
                    // No zero points of 8 bits.
                    extreme(Case::boundary(&INFO, dtype, dims(2, 40)), i32::MIN, "least"),
                    extreme(Case::boundary(&INFO, dtype, dims(2, 40)), i32::MAX, "greatest"),
                    Case::boundary(&INFO, dtype, dims(2, 48)).offset(1),
                    Case::empty(&INFO, dtype, dims(0, 8)),
                    Case::empty(&INFO, dtype, dims(3, 0)),
                ]
                .map(to),
            );
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        // One scale goes with a zero point, one for each row or column without.
        let scales = match (case.dims.get("columns"), case.has("zero")) {
            (Some(_), _) => vec![1, d],
            (None, true) => vec![1],
            (None, false) => vec![rows],
        };
        let specs = [
            InputSpec::new("q", DType::I8, [rows, d], Values::Integers { low: -128, high: 127 }),
            InputSpec::new("scales", DType::F32, scales, Values::Uniform { low: 0.0, high: 1.0 }),
            InputSpec::new("zero", DType::I32, [1], Values::Integers { low: -128, high: 127 }),
        ];
        Ok(specs.into_iter().filter(|spec| case.has(spec.name)).map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let q = inputs.get("q")?;
        let [rows, d] = q.dims()?;
        let scales = inputs.get("scales")?.shape();
        if Spread::of(scales, rows, d).is_none() {
            return Err(INFO.shape_error("scales", scales, Spread::wanted(rows, d)));
        }
        if let Some(zero) = inputs.optional("zero") {
            zero.has_shape(&[1])?;
        }
        Ok(vec![TensorMeta::new("y", target(params)?, q.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("y")?, float => |T| {
            let (scales, zero) = (args.input("scales")?, args.optional_input("zero")?);
            dequantize_int8_into::<T>(stream, args.input("q")?, scales, zero, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (q, scales) = (inputs.get("q")?, inputs.get("scales")?.to_f64());
        let zero = inputs.optional("zero").map_or(0.0, |zero| zero.to_f64()[0]);
        let spread = Spread::of(inputs.get("scales")?.shape(), q.shape()[0], q.shape()[1]);
        let scale = |row: usize, column: usize| match spread {
            Some(Spread::Rows) => scales[row],
            Some(Spread::Columns) => scales[column],
            _ => scales[0],
        };
        let row = |r: usize| reference::row(q, r).into_iter().enumerate();
        Ok(reference::by_row(rows, |r| row(r).map(|(c, q)| (q - zero) * scale(r, c)).collect()))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        // Of what is no zero point of 8 bits also 128 beside 2³¹, and a rounding.
        let whole = match case.values_of("zero") {
            Some(Values::Constant(zero)) if zero.abs() > 128.0 => 2.0,
            _ => 0.0,
        };
        let why = "one f32 product, and one rounding to storage; of large zero points the difference";
        Ok(Tolerance::rounded(target(&case.params)?, 0.0, (1.0 + whole) * roundoff(DType::F32), why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let words: usize = self.inputs(case)?[1..].iter().filter_map(|spec| spec.meta().elements()).sum();
        Ok(Cost::memory((rows * d * (1 + target(&case.params)?.size()) + 4 * words) as u64))
    }
}
