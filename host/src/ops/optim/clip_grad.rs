//! Gradient clipping by norm.

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::optim::clip_grad as gk;

use super::clip_scale;
use crate::dispatch;
use crate::ops::elementwise::{Operand, Plan, longest_block, pointwise_shape};
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Gradient clipping: multiplies gradients by min(1, `max_norm` / (norm + 10⁻⁶)).
#[derive(Clone, Copy, Debug)]
pub struct Clip<'a> {
    /// The norm of all gradients, `[1]`, as [`l2_norm`](crate::ops::l2_norm()) computes it.
    pub norm: View<'a, f32>,
    /// The maximum norm of the clipped gradients.
    pub max_norm: f32,
}

impl Clip<'_> {
    /// Checks the options, and returns the norm's address.
    pub(super) fn checked(&self, info: &OpInfo, stream: &Stream) -> Result<(DevicePtr<f32>, f32)> {
        self.norm.require_device(info.name, "norm", stream)?;
        self.norm.require_shape(info.name, "norm", &[1])?;
        if !(self.max_norm.is_finite() && self.max_norm >= 0.0) {
            return Err(info.param_error("max_norm", self.max_norm, "a finite number, not negative"));
        }
        Ok((self.norm.ptr(stream)?, self.max_norm))
    }
}

/// g ← g · min(1, max_norm / (norm + 10⁻⁶)), elementwise, where the norm is the norm of all gradients.
///
/// `grads` has any shape; its rows may be padded. The norm is read on the device, so the host does not wait for it. Gradients
/// do not change if the norm is within the limit; a norm of NaN makes all of them NaN. The work is queued on `stream`.
///
/// Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (arXiv:1211.5063), section 3.2.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the norm is not one value, [`Error::InvalidParam`](crate::Error::InvalidParam) if the limit is
/// negative or not finite, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart.
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, Clip}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let mut grads = Tensor::from_slice(&stream, [2], &[3.0f32, 4.0])?;
/// let norm = ops::l2_norm(&stream, &grads)?;
/// ops::clip_grad(&stream, &mut grads, Clip { norm: norm.view(), max_norm: 1.0 })?;
/// let clipped = grads.to_vec(&stream)?;
/// assert!((clipped[0] - 0.6).abs() < 1e-5 && (clipped[1] - 0.8).abs() < 1e-5);
/// # Ok(())
/// # }
/// ```
pub fn clip_grad<'a, T: Float>(stream: &Stream, grads: impl Into<ViewMut<'a, T>>, clip: Clip<'_>) -> Result<()> {
    let mut grads = grads.into();
    grads.require_device(INFO.name, "grads", stream)?;
    let (norm, max_norm) = clip.checked(&INFO, stream)?;
    // In place, it is read as well as written.
    let Some(plan) =
        Plan::with_outputs::<gk::ClipGrad<T>>(&INFO, size_of::<T>(), [Operand::written("grads", &grads)], 0)?
    else {
        return Ok(());
    };
    let args = (grads.ptr_mut(stream)?, norm, plan.rows, plan.d, plan.strides[0], max_norm);
    // SAFETY: the gradients are live, have these rows at this stride and are borrowed mutably; the norm is a live value.
    unsafe { stream.launch::<gk::ClipGrad<T>>(plan.grid, args) }
}

/// The operator's entry in the registry.
pub struct ClipGrad;

static INFO: OpInfo = OpInfo {
    name: "clip_grad",
    bench_name: "optim.clip_grad",
    summary: "gradients clipped to a norm, in place",
    math: "g ← g · min(1, max_norm / (norm + 10⁻⁶))",
    args: &[
        ArgInfo::in_out("grads", "any shape, rows may be padded"),
        ArgInfo::input("norm", "[1], the norm of all gradients").of(&[DType::F32]),
    ],
    params: &[ParamInfo::float("max_norm", 1.0, "the greatest norm that they may have")],
    dtypes: DType::FLOATS,
    kernels: &[gk::CLIP_GRAD],
    variants: &[],
};

/// The case with this norm.
pub(super) fn with_norm(case: Case, norm: f64) -> Case {
    let mut case = case.values("norm", Values::Constant(norm));
    case.name = format!("{} {norm}", case.name);
    case
}

impl Operator for ClipGrad {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let mut cases = Vec::new();
        for &dtype in INFO.dtypes {
            let block = longest_block(dtype, 1);
            let name = format!("n=2^28 {}", dtype.name());
            let norm = |norm| with_norm(Case::boundary(&INFO, dtype, dims(2, 100)), norm);
            cases.extend([
                Case::production(&INFO, name, dtype, dims(1, 1 << 28)),
                Case::odd(&INFO, dtype, dims(1, block + 1003)),
                Case::odd(&INFO, dtype, dims(1, 1003)).offset(1),
                Case::odd(&INFO, dtype, dims(5, 203)).arrange("grads", Arrangement::DENSE.row_pad(5)),
                Case::odd(&INFO, dtype, dims(7, 40)).arrange("grads", Arrangement::DENSE.row_pad(8)),
                Case::tiny(&INFO, dtype, dims(1, 1)),
                Case::tiny(&INFO, dtype, dims(3, 5)),
                Case::empty(&INFO, dtype, dims(0, 8)),
                Case::empty(&INFO, dtype, dims(8, 0)),
                Case::boundary(&INFO, dtype, dims(2, 100)).values("grads", Values::Specials),
                // Within the limit; nothing; no number.
                norm(0.5),
                norm(0.0),
                norm(f64::INFINITY),
                norm(f64::NAN),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let specs = [
            InputSpec::normal("grads", case.dtype, pointwise_shape(case)?),
            InputSpec::new("norm", DType::F32, [1], Values::Uniform { low: 2.0, high: 9.0 }),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        inputs.get("norm")?.has_shape(&[1])?;
        Ok(Vec::new())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let clip = Clip { norm: args.input("norm")?, max_norm: params.f32("max_norm")? };
        dispatch!(INFO, args.dtype("grads")?, float => |T| clip_grad::<T>(stream, args.output("grads")?, clip))
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let norm = inputs.get("norm")?.to_f64();
        let scale = clip_scale(norm[0], params.f64("max_norm")?);
        Ok(reference::elementwise(inputs.get("grads")?, rows, |g| g * scale))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::rounded(
            case.dtype,
            0.0,
            5e-7,
            "2 ulp of the factor's quotient, its sum and a product, and storage",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size() + size_of::<f32>()) as u64))
    }
}
