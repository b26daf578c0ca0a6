//! Fused bias, mask, scale and residual add.

use gpu_kernels::ops::bias_mask_scale_add as gk;
use half::f16;

use super::elementwise;
use crate::kernels;
use crate::ops::model::params::{ParamInfo, Params};
use crate::ops::model::reference;
use crate::ops::model::*;
use crate::runtime::any::{AnyView, AnyViewMut};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// y = (x + bias) · mask · scale + residual, rows of `x` against one `bias` row.
///
/// `x`, `mask`, `residual` and `y` have shape `[rows, d]`, `bias` has `[d]`; all contiguous. `mask` multiplies, so dropout
/// passes zeros and ones. Arithmetic is in f32 and rounded once. The work is queued on `stream`.
///
/// This is the tail of a transformer's projection: bias, dropout and the residual connection (Vaswani et al.,
/// "Attention Is All You Need", arXiv:1706.03762) in one pass over memory.
///
/// # Errors
/// [`Error::Shape`](crate::runtime::error::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::runtime::error::Error::Layout) if a view is not
/// contiguous.
pub fn bias_mask_scale_add<'a>(
    stream: &Stream,
    x: impl Into<View<'a, f16>>,
    bias: impl Into<View<'a, f16>>,
    mask: impl Into<View<'a, f16>>,
    residual: impl Into<View<'a, f16>>,
    scale: f32,
    y: impl Into<ViewMut<'a, f16>>,
) -> Result<()> {
    let (x, bias, mask, residual, mut y) = (x.into(), bias.into(), mask.into(), residual.into(), y.into());
    let [_, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    bias.require_shape(INFO.name, "bias", &[d])?;
    mask.require_shape(INFO.name, "mask", x.shape())?;
    residual.require_shape(INFO.name, "residual", x.shape())?;
    y.require_shape(INFO.name, "y", x.shape())?;
    for (name, view) in [("x", &x), ("bias", &bias), ("mask", &mask), ("residual", &residual)] {
        view.require_contiguous(INFO.name, name)?;
    }
    y.require_contiguous(INFO.name, "y")?;
    let n = x.len();
    let Some(grid) = elementwise::grid(&INFO, "x", n, gk::PER_BLOCK)? else {
        return Ok(());
    };
    let args = (
        x.ptr(stream),
        bias.ptr(stream),
        mask.ptr(stream),
        residual.ptr(stream),
        y.ptr_mut(stream),
        n as u64,
        d as u64,
        scale,
    );
    // SAFETY: the tensors are live and contiguous, bias holds d elements and the others n, and y is borrowed mutably.
    unsafe { stream.launch::<gk::BiasMaskScaleAdd>(grid, args) }
}

/// The operator's entry in the registry.
pub struct BiasMaskScaleAdd;

static INFO: OpInfo = OpInfo {
    name: "bias_mask_scale_add",
    bench_name: "ew.bias_mask_scale_add",
    summary: "fused bias, mask, scale and residual add",
    math: "y = (x + bias) · mask · scale + residual",
    inputs: &[
        ArgInfo::new("x", "[rows, d], contiguous"),
        ArgInfo::new("bias", "[d]"),
        ArgInfo::new("mask", "[rows, d], a factor for every element"),
        ArgInfo::new("residual", "[rows, d]"),
    ],
    outputs: &[ArgInfo::new("y", "[rows, d]")],
    params: &[ParamInfo::float("scale", 0.5, "factor applied after the mask")],
    dtypes: &[DType::F16],
    kernels: kernels![gk::BiasMaskScaleAdd],
    variants: &[],
};

impl Operator for BiasMaskScaleAdd {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let f16 = DType::F16;
        vec![
            Case::production(&INFO, "rows=32768 d=8192 float16", f16, dims(32768, 8192)),
            Case::odd(&INFO, f16, dims(127, 1001)),
            Case::odd(&INFO, f16, dims(33, 4104)),
            Case::odd(&INFO, f16, dims(33, 4104)).offset(3),
            Case::odd(&INFO, f16, dims(4099, 5)).param("scale", 1.25),
            Case::tiny(&INFO, f16, dims(1, 1)),
            Case::tiny(&INFO, f16, dims(3, 7)),
            Case::empty(&INFO, f16, dims(0, 64)),
            Case::empty(&INFO, f16, dims(64, 0)),
            Case::boundary(&INFO, f16, dims(1, gk::PER_BLOCK)),
            Case::boundary(&INFO, f16, dims(3, gk::PER_BLOCK + 8)),
            Case::boundary(&INFO, f16, dims(9, 520)).fill(Distribution::Specials),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(vec![
            InputSpec::normal("x", case.dtype, [rows, d]),
            InputSpec::normal("bias", case.dtype, [d]),
            InputSpec::new("mask", case.dtype, [rows, d], Distribution::Bernoulli { p: 0.5 }),
            InputSpec::normal("residual", case.dtype, [rows, d]),
        ])
    }

    fn outputs(&self, inputs: &[TensorMeta], _: &Params) -> Result<Vec<TensorMeta>> {
        let [x, bias, mask, residual] = INFO.metas(inputs)?;
        x.has_dtype()?;
        let [_, d] = x.dims()?;
        bias.has_shape(&[d])?;
        mask.has_shape(x.shape())?;
        residual.has_shape(x.shape())?;
        for input in [bias, mask, residual] {
            input.has_dtype_of(&[x.dtype()])?;
        }
        Ok(vec![INFO.output(0, x.dtype(), x.shape())])
    }

    fn launch(
        &self,
        stream: &Stream,
        inputs: &[AnyView<'_>],
        outputs: &mut [AnyViewMut<'_>],
        params: &Params,
    ) -> Result<()> {
        let [x, bias, mask, residual] = INFO.args(inputs)?;
        let [mut y] = INFO.args_mut(outputs)?;
        let scale = params.f32("scale")?;
        bias_mask_scale_add(
            stream,
            x.typed::<f16>()?,
            bias.typed::<f16>()?,
            mask.typed::<f16>()?,
            residual.typed::<f16>()?,
            scale,
            y.typed::<f16>()?,
        )
    }

    fn reference(&self, inputs: &[HostTensor], params: &Params, _: usize, rows: &[usize]) -> Result<Vec<f64>> {
        let [x, bias, mask, residual] = [&inputs[0], &inputs[1], &inputs[2], &inputs[3]];
        let scale = f64::from(params.f32("scale")?);
        let bias = bias.to_f64();
        Ok(reference::by_row(rows, |r| {
            let (x, mask, residual) = (reference::row(x, r), reference::row(mask, r), reference::row(residual, r));
            (0..x.len()).map(|c| (x[c] + bias[c]) * mask[c] * scale + residual[c]).collect()
        }))
    }

    fn tolerance(&self, case: &Case) -> Result<Tolerance> {
        Ok(elementwise::tolerance(
            case.dtype,
            1e-6,
            "one rounding to storage after three f32 operations; 10⁻⁷ covers their roundings where operands of order 1 cancel",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((4 * rows * d * case.dtype.size()) as u64))
    }
}
