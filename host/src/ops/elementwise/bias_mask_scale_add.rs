//! Fused bias, mask, scale and residual add.

use gpu_kernels::ops::elementwise::bias_mask_scale_add as gk;

use super::{Operand, Plan};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = (x + bias) · mask · scale + residual, with one `bias` row for all rows of `x`.
///
/// `x`, `mask` and `residual` are `[rows, d]`, and their rows may be padded; `bias` is `[d]`, contiguous. `mask` is a factor,
/// so dropout passes zeros and ones. Arithmetic is in f32 and rounded once. The result is a new dense tensor; the work is
/// queued on `stream`.
///
/// This is the tail of a transformer's projection: bias, dropout and the residual connection (Vaswani et al.,
/// "Attention Is All You Need", arXiv:1706.03762) in one pass over memory.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if the elements of a
/// row are not adjacent, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn bias_mask_scale_add<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    bias: impl Into<View<'a, T>>,
    mask: impl Into<View<'a, T>>,
    residual: impl Into<View<'a, T>>,
    scale: f32,
) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    bias_mask_scale_add_into(stream, x, bias.into(), mask.into(), residual.into(), scale, &mut y)?;
    Ok(y)
}

/// [`bias_mask_scale_add`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if the elements of a
/// row are not adjacent.
pub fn bias_mask_scale_add_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    bias: impl Into<View<'a, T>>,
    mask: impl Into<View<'a, T>>,
    residual: impl Into<View<'a, T>>,
    scale: f32,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, bias, mask, residual, mut y) = (x.into(), bias.into(), mask.into(), residual.into(), y.into());
    stream.require_devices(
        INFO.name,
        &[("x", &x), ("bias", &bias), ("mask", &mask), ("residual", &residual), ("y", &y)],
    )?;
    let [_, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    bias.require_shape(INFO.name, "bias", &[d])?;
    bias.require_contiguous(INFO.name, "bias")?;
    let operands = [
        Operand::read("x", &x),
        Operand::read("mask", &mask),
        Operand::read("residual", &residual),
        Operand::written("y", &y),
    ];
    let Some(plan) = Plan::by_rows::<gk::BiasMaskScaleAdd<T>>(&INFO, size_of::<T>(), operands)? else { return Ok(()) };
    let [x_stride, mask_stride, residual_stride, y_stride] = plan.strides;
    let args = (
        x.ptr(stream)?,
        bias.ptr(stream)?,
        mask.ptr(stream)?,
        residual.ptr(stream)?,
        y.ptr_mut(stream)?,
        plan.rows,
        plan.d,
        x_stride,
        mask_stride,
        residual_stride,
        y_stride,
        scale,
    );
    // SAFETY: the tensors are live and have these rows at these strides, bias holds d elements, and y is borrowed mutably.
    unsafe { stream.launch::<gk::BiasMaskScaleAdd<T>>(plan.grid, args) }
}

/// The operator's entry in the registry.
pub struct BiasMaskScaleAdd;

static INFO: OpInfo = OpInfo {
    name: "bias_mask_scale_add",
    bench_name: "ew.bias_mask_scale_add",
    summary: "fused bias, mask, scale and residual add",
    math: "y = (x + bias) · mask · scale + residual",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::input("bias", "[d], contiguous"),
        ArgInfo::input("mask", "[rows, d], a factor for every element, rows may be padded"),
        ArgInfo::input("residual", "[rows, d], rows may be padded"),
        ArgInfo::output("y", "[rows, d], rows may be padded"),
    ],
    params: &[ParamInfo::float("scale", 0.5, "factor applied after the mask")],
    dtypes: DType::FLOATS,
    kernels: &[gk::BIAS_MASK_SCALE_ADD],
    variants: &[],
};

impl Operator for BiasMaskScaleAdd {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let mut cases = Vec::new();
        for &dtype in INFO.dtypes {
            let block = super::longest_block(dtype, 4);
            let name = format!("rows=32768 d=8192 {}", dtype.name());
            let padded = |case: Case, pads: [usize; 4]| {
                let rows = ["x", "mask", "residual", "y"].into_iter().zip(pads);
                rows.fold(case, |case, (name, pad)| case.arrange(name, Arrangement::DENSE.row_pad(pad)))
            };
            cases.extend([
                Case::production(&INFO, name, dtype, dims(32768, 8192)),
                Case::odd(&INFO, dtype, dims(127, 1001)),
                padded(Case::odd(&INFO, dtype, dims(33, 4104)), [8, 24, 16, 40]),
                padded(Case::odd(&INFO, dtype, dims(33, 35)), [1, 2, 3, 5]),
                Case::odd(&INFO, dtype, dims(33, 4104)).offset(3),
                Case::odd(&INFO, dtype, dims(409, 5)).param("scale", 1.25),
                Case::tiny(&INFO, dtype, dims(1, 1)),
                Case::tiny(&INFO, dtype, dims(3, 7)),
                Case::empty(&INFO, dtype, dims(0, 64)),
                Case::empty(&INFO, dtype, dims(64, 0)),
                Case::boundary(&INFO, dtype, dims(1, block)),
                Case::boundary(&INFO, dtype, dims(3, block + 8)),
            ]);
        }
        // In the other types, the largest values overflow f32 in intermediate results.
        cases.push(Case::boundary(&INFO, DType::F16, dims(9, 520)).fill(Values::Specials));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let specs = [
            InputSpec::normal("x", case.dtype, [rows, d]),
            InputSpec::normal("bias", case.dtype, [d]),
            InputSpec::new("mask", case.dtype, [rows, d], Values::Bernoulli { p: 0.5 }),
            InputSpec::normal("residual", case.dtype, [rows, d]),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [_, d] = x.dims()?;
        inputs.get("bias")?.has_shape(&[d])?;
        inputs.get("mask")?.has_shape(x.shape())?;
        inputs.get("residual")?.has_shape(x.shape())?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let scale = params.f32("scale")?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            let (x, bias, mask) = (args.input::<T>("x")?, args.input::<T>("bias")?, args.input::<T>("mask")?);
            bias_mask_scale_add_into(stream, x, bias, mask, args.input::<T>("residual")?, scale, args.output::<T>("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, mask, residual) = (inputs.get("x")?, inputs.get("mask")?, inputs.get("residual")?);
        let bias = inputs.get("bias")?.to_f64();
        let scale = f64::from(params.f32("scale")?);
        Ok(reference::by_row(rows, |r| {
            let (x, mask, residual) = (reference::row(x, r), reference::row(mask, r), reference::row(residual, r));
            (0..x.len()).map(|c| (x[c] + bias[c]) * mask[c] * scale + residual[c]).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        // Three f32 operations on operands of order 1 to 10; their rounding errors remain where the operands cancel.
        Ok(Tolerance::rounded(
            case.dtype,
            1e-6,
            1e-6,
            "one rounding to storage after three f32 operations that may cancel",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((4 * rows * d * case.dtype.size()) as u64))
    }
}
