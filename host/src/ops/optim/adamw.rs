//! Steps of AdamW, on parameters and on f32 master weights.

use cuda_std::float::Half;
use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::optim::adamw as gk;

use super::clip_grad::with_norm;
use super::{Clip, clip_scale};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// The constants of a step of AdamW, in f64 because 1 − β of a β in f32 is not exact enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment, from 0 to below 1.
    pub beta1: f64,
    /// Decay of the second moment, from 0 to below 1.
    pub beta2: f64,
    /// What is added to the root of the second moment.
    pub eps: f64,
    /// The share of a weight that a step at learning rate 1 takes away.
    pub weight_decay: f64,
    /// Which step this is, from 1 on.
    pub step: u64,
}

/// The defaults of PyTorch, and the first step.
impl Default for AdamW {
    fn default() -> Self {
        Self { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 1e-2, step: 1 }
    }
}

impl AdamW {
    fn check(&self, info: &OpInfo) -> Result<()> {
        let Self { lr, beta1, beta2, eps, weight_decay, step } = *self;
        for (name, value) in [("lr", lr), ("eps", eps), ("weight_decay", weight_decay)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(info.param_error(name, ParamValue::from(value), "a finite number, not negative"));
            }
        }
        for (name, value) in [("beta1", beta1), ("beta2", beta2)] {
            if !(0.0..1.0).contains(&value) {
                return Err(info.param_error(name, ParamValue::from(value), "from 0 to below 1"));
            }
        }
        if step == 0 {
            return Err(info.param_error("step", step, "at least 1"));
        }
        Ok(())
    }

    /// lr / (1 − β₁ᵗ) and 1 / √(1 − β₂ᵗ).
    fn corrected(&self) -> (f64, f64) {
        let power = |beta: f64| 1.0 - beta.powf(self.step as f64);
        (self.lr / power(self.beta1), 1.0 / power(self.beta2).sqrt())
    }
}

/// A step of AdamW in place, in one launch: with g the gradient, m ← β₁·m + (1 − β₁)·g, v ← β₂·v + (1 − β₂)·g² and
/// w ← w·(1 − lr·weight_decay) − lr·m̂ / (√v̂ + eps), where m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) in step t.
///
/// All tensors have one shape, any, and are contiguous; `m` and `v` start as zeros. With `clip` gradients are clipped on the way, without a
/// pass of their own. Arithmetic is in f32. Parameters in a 16-bit type lose steps below half their spacing: [`adamw_master`] does not. The
/// work is queued on `stream`.
///
/// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv:1711.05101).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ or the norm is not one value, [`Error::Layout`](crate::Error::Layout) if a
/// tensor is not contiguous, [`Error::InvalidParam`](crate::Error::InvalidParam) if a constant is out of its range.
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops::{self, AdamW, Clip}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let mut params = Tensor::filled(&stream, [3], bf16::ONE)?;
/// let grads = Tensor::filled(&stream, [3], bf16::ONE)?;
/// let (mut m, mut v) = (Tensor::zeros(&stream, [3])?, Tensor::zeros(&stream, [3])?);
/// let norm = ops::l2_norm(&stream, &grads)?;
/// let clip = Clip { norm: norm.view(), max_norm: 1.0 };
/// let options = AdamW { lr: 0.25, weight_decay: 0.0, step: 1, ..AdamW::default() };
/// ops::adamw(&stream, &mut params, &grads, &mut m, &mut v, Some(clip), &options)?;
/// // The first step is as long as the learning rate.
/// assert_eq!(params.to_vec(&stream)?, [bf16::from_f32(0.75); 3]);
/// # Ok(())
/// # }
/// ```
pub fn adamw<'a, T: Float>(
    stream: &Stream,
    params: impl Into<ViewMut<'a, T>>,
    grads: impl Into<View<'a, T>>,
    m: impl Into<ViewMut<'a, f32>>,
    v: impl Into<ViewMut<'a, f32>>,
    clip: Option<Clip<'_>>,
    options: &AdamW,
) -> Result<()> {
    let (mut params, grads, mut m, mut v) = (params.into(), grads.into(), m.into(), v.into());
    params.require_device(IN_PLACE.name, "params", stream)?;
    params.require_shape(IN_PLACE.name, "params", grads.shape())?;
    params.require_contiguous(IN_PLACE.name, "params")?;
    let Some(step) = Step::new(&IN_PLACE, stream, &grads, [&m, &v], clip, options)? else { return Ok(()) };
    let [b1, c1, b2, c2, keep, rate, correction, eps] = step.constants;
    let (params, grads) = (params.ptr_mut(stream)?, grads.ptr(stream)?);
    let (m, v, norm) = (m.ptr_mut(stream)?, v.ptr_mut(stream)?, step.norm);
    let args = (params, grads, m, v, norm, step.n, step.max_norm, b1, c1, b2, c2, keep, rate, correction, eps);
    // SAFETY: the tensors are live, each holds n elements, and those that are written are borrowed mutably; the norm is null or a
    // live value.
    unsafe { stream.launch::<gk::Adamw<T>>(step.grid, args) }
}

/// [`adamw`] on f32 `master` weights, of which `params` becomes a rounded copy: what mixed precision trains with.
///
/// `T` is f16 or bf16. All five are contiguous and of one shape, whichever. What was in `params` is not read.
///
/// Micikevicius et al., "Mixed Precision Training" (arXiv:1710.03740).
///
/// # Errors
/// As of [`adamw`].
#[allow(clippy::too_many_arguments)] // The tensors of a step.
pub fn adamw_master<'a, T: Float + Half>(
    stream: &Stream,
    master: impl Into<ViewMut<'a, f32>>,
    params: impl Into<ViewMut<'a, T>>,
    grads: impl Into<View<'a, T>>,
    m: impl Into<ViewMut<'a, f32>>,
    v: impl Into<ViewMut<'a, f32>>,
    clip: Option<Clip<'_>>,
    options: &AdamW,
) -> Result<()> {
    let (mut master, mut params, grads) = (master.into(), params.into(), grads.into());
    let (mut m, mut v) = (m.into(), v.into());
    stream.require_devices(MASTER.name, &[("master", &master), ("params", &params)])?;
    master.require_shape(MASTER.name, "master", grads.shape())?;
    master.require_contiguous(MASTER.name, "master")?;
    params.require_shape(MASTER.name, "params", grads.shape())?;
    params.require_contiguous(MASTER.name, "params")?;
    let Some(step) = Step::new(&MASTER, stream, &grads, [&m, &v], clip, options)? else { return Ok(()) };
    let [b1, c1, b2, c2, keep, rate, correction, eps] = step.constants;
    let (master, params, grads) = (master.ptr_mut(stream)?, params.ptr_mut(stream)?, grads.ptr(stream)?);
    let (m, v, norm) = (m.ptr_mut(stream)?, v.ptr_mut(stream)?, step.norm);
    let args = (master, params, grads, m, v, norm, step.n, step.max_norm, b1, c1, b2, c2, keep, rate, correction, eps);
    // SAFETY: as of a step in place.
    unsafe { stream.launch::<gk::AdamwMaster<T>>(step.grid, args) }
}

/// What both kernels take beside the tensors of a step.
struct Step {
    grid: u32,
    n: u64,
    /// Null without clipping.
    norm: DevicePtr<f32>,
    max_norm: f32,
    /// β₁, 1 − β₁, β₂, 1 − β₂, 1 − lr · weight_decay, lr / (1 − β₁ᵗ), 1 / √(1 − β₂ᵗ) and eps.
    constants: [f32; 8],
}

impl Step {
    /// Checks what both kernels have in common; `None` when there is nothing to do.
    fn new<T>(
        info: &OpInfo,
        stream: &Stream,
        grads: &View<'_, T>,
        moments: [&ViewMut<'_, f32>; 2],
        clip: Option<Clip<'_>>,
        options: &AdamW,
    ) -> Result<Option<Self>> {
        options.check(info)?;
        stream.require_devices(info.name, &[("grads", grads), ("m", moments[0]), ("v", moments[1])])?;
        grads.require_contiguous(info.name, "grads")?;
        for (name, moment) in ["m", "v"].into_iter().zip(moments) {
            moment.require_shape(info.name, name, grads.shape())?;
            moment.require_contiguous(info.name, name)?;
        }
        let (norm, max_norm) = match &clip {
            Some(clip) => clip.checked(info, stream)?,
            None => (DevicePtr::null(), 1.0),
        };
        let AdamW { lr, beta1, beta2, eps, weight_decay, .. } = *options;
        let (rate, correction) = options.corrected();
        let constants =
            [beta1, 1.0 - beta1, beta2, 1.0 - beta2, 1.0 - lr * weight_decay, rate, correction, eps].map(|c| c as f32);
        // Steps of gradients that are 0 would be NaN.
        if !constants[4].is_finite() || !constants[5].is_finite() {
            let wanted = "a rate that f32 can hold, also times weight_decay and over 1 - beta1^step";
            return Err(info.param_error("lr", ParamValue::from(lr), wanted));
        }
        let grid = grid(info, "grads", grads.len(), gk::PER_BLOCK)?;
        Ok(grid.map(|grid| Self { grid, n: grads.len() as u64, norm, max_norm, constants }))
    }
}

/// AdamW in the registry, on parameters or on master weights.
pub struct Adamw {
    info: &'static OpInfo,
}

/// [`adamw`] in the registry.
pub static ADAMW: Adamw = Adamw { info: &IN_PLACE };

/// [`adamw_master`] in the registry.
pub static ADAMW_MASTER: Adamw = Adamw { info: &MASTER };

const MATH: &str = "m ← β₁·m + (1 − β₁)·g, v ← β₂·v + (1 − β₂)·g², w ← w·(1 − lr·weight_decay) − lr·m̂ / (√v̂ + eps)";
const GRADS: ArgInfo = ArgInfo::input("grads", "the shape of the weights, contiguous");
const M: ArgInfo = ArgInfo::in_out("m", "first moment, the shape of the weights, contiguous").of(&[DType::F32]);
const V: ArgInfo = ArgInfo::in_out("v", "second moment, the shape of the weights, contiguous").of(&[DType::F32]);
const NORM: ArgInfo =
    ArgInfo::input("norm", "[1], the norm of all gradients, to clip them").of(&[DType::F32]).optional();

static IN_PLACE: OpInfo = OpInfo {
    name: "adamw",
    bench_name: "optim.adamw",
    summary: "step of AdamW in place, with gradients clipped on the way",
    math: MATH,
    args: &[ArgInfo::in_out("params", "any shape, contiguous"), GRADS, M, V, NORM],
    params: &[
        ParamInfo::float("lr", 1e-3, "learning rate"),
        ParamInfo::float("beta1", 0.9, "decay of the first moment, from 0 to below 1"),
        ParamInfo::float("beta2", 0.999, "decay of the second moment, from 0 to below 1"),
        ParamInfo::float("eps", 1e-8, "added to the root of the second moment"),
        ParamInfo::float("weight_decay", 1e-2, "share of a weight that a step at learning rate 1 takes away"),
        ParamInfo::int("step", 10, "which step this is, from 1 on"),
        ParamInfo::float("max_norm", 1.0, "the greatest norm that gradients may have"),
    ],
    dtypes: DType::FLOATS,
    kernels: &[gk::ADAMW],
    variants: &[],
};

static MASTER: OpInfo = OpInfo {
    name: "adamw_master",
    bench_name: "optim.adamw_master",
    summary: "step of AdamW on f32 master weights, which parameters in a 16-bit type become a copy of",
    args: &[
        ArgInfo::in_out("master", "any shape, contiguous").of(&[DType::F32]),
        ArgInfo::output("params", "the shape of the weights, contiguous"),
        GRADS,
        M,
        V,
        NORM,
    ],
    dtypes: &[DType::F16, DType::BF16],
    kernels: &[gk::ADAMW_MASTER],
    ..IN_PLACE
};

impl Adamw {
    fn has_master(&self) -> bool {
        std::ptr::eq(self.info, &MASTER)
    }

    /// The argument that is stepped.
    fn weights(&self) -> &'static str {
        self.info.args[0].name
    }
}

fn options(params: &Params) -> Result<AdamW> {
    let step = params.i64("step")?;
    let step = u64::try_from(step).map_err(|_| params.info().param_error("step", step, "at least 1"))?;
    let [lr, beta1, beta2] = [params.f64("lr")?, params.f64("beta1")?, params.f64("beta2")?];
    Ok(AdamW { lr, beta1, beta2, eps: params.f64("eps")?, weight_decay: params.f64("weight_decay")?, step })
}

impl Operator for Adamw {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let n = |n| [("n", n)];
        let info = self.info;
        let mut cases = Vec::new();
        for &dtype in info.dtypes {
            let name = |what| format!("n=2^27{what} {}", dtype.name());
            let alone = |case: Case| case.without("norm");
            cases.extend([
                Case::production(info, name(" clipped"), dtype, n(1 << 27)),
                alone(Case::production(info, name(""), dtype, n(1 << 27))),
                Case::odd(info, dtype, n(3 * gk::PER_BLOCK + 203)),
                Case::odd(info, dtype, n(700)).offset(1),
                alone(Case::odd(info, dtype, n(700))).arrange("v", Arrangement::DENSE.offset(2)),
                Case::odd(info, dtype, n(600)).arrange("grads", Arrangement::DENSE.offset(1)),
                // What lies behind a vector is nobody's.
                Case::odd(info, dtype, n(600)).arrange("m", Arrangement::DENSE.row_pad(8)),
                Case::tiny(info, dtype, n(1)),
                alone(Case::tiny(info, dtype, n(7))),
                Case::empty(info, dtype, n(0)),
                Case::boundary(info, dtype, n(gk::PER_BLOCK)),
                Case::boundary(info, dtype, n(gk::PER_BLOCK + 1)).param("step", 1),
                Case::boundary(info, dtype, n(600)).param("weight_decay", 0.0).param("lr", 0.5),
                Case::boundary(info, dtype, n(100)).param("beta1", 0.0).param("beta2", 0.0),
                // Nothing has ever happened to these weights.
                ["grads", "m", "v"]
                    .into_iter()
                    .fold(Case::boundary(info, dtype, n(9)), |case, name| case.values(name, Values::Constant(0.0))),
                with_norm(Case::boundary(info, dtype, n(100)), 0.25),
                with_norm(Case::boundary(info, dtype, n(100)), f64::NAN),
            ]);
        }
        // Of the other types squares overflow in f32 on the way.
        cases.push(Case::boundary(info, DType::F16, n(600)).values("grads", Values::Specials));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [n] = case.dims(["n"])?;
        let weights = if self.has_master() { DType::F32 } else { case.dtype };
        let mut specs = vec![
            InputSpec::normal(self.weights(), weights, [n]),
            InputSpec::normal("grads", case.dtype, [n]),
            InputSpec::new("m", DType::F32, [n], Values::Normal { std: 0.1 }),
            // No step is longer than a hundred times the learning rate.
            InputSpec::new("v", DType::F32, [n], Values::Uniform { low: 0.01, high: 1.0 }),
        ];
        if case.has("norm") {
            specs.push(InputSpec::new("norm", DType::F32, [1], Values::Uniform { low: 1.5, high: 4.0 }));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let grads = inputs.get("grads")?;
        for name in [self.weights(), "m", "v"] {
            inputs.get(name)?.has_shape(grads.shape())?;
        }
        if let Some(norm) = inputs.optional("norm") {
            norm.has_shape(&[1])?;
        }
        let copy = self.has_master().then(|| TensorMeta::new("params", grads.dtype(), grads.shape()));
        Ok(copy.into_iter().collect())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (options, max_norm) = (options(params)?, params.f32("max_norm")?);
        let clip = args.optional_input("norm")?.map(|norm| Clip { norm, max_norm });
        let (m, v) = (args.output("m")?, args.output("v")?);
        if self.has_master() {
            return dispatch!(MASTER, args.dtype("grads")?, [crate::f16, crate::bf16] => |T| {
                let (master, params) = (args.output("master")?, args.output("params")?);
                adamw_master::<T>(stream, master, params, args.input("grads")?, m, v, clip, &options)
            });
        }
        dispatch!(IN_PLACE, args.dtype("grads")?, float => |T| {
            adamw::<T>(stream, args.output("params")?, args.input("grads")?, m, v, clip, &options)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let AdamW { lr, beta1, beta2, eps, weight_decay, step } = options(params)?;
        let scale = match inputs.optional("norm") {
            Some(norm) => clip_scale(norm.to_f64()[0], params.f64("max_norm")?),
            None => 1.0,
        };
        let select = |name| Ok(reference::select(inputs.get(name)?, rows));
        let (weights, grads, m, v) = (select(self.weights())?, select("grads")?, select("m")?, select("v")?);
        let unbiased = |moment: f64, beta: f64| moment / (1.0 - beta.powf(step as f64));
        let after = |i: usize| {
            let grad = grads[i] * scale;
            let m = beta1 * m[i] + (1.0 - beta1) * grad;
            let v = beta2 * v[i] + (1.0 - beta2) * grad * grad;
            match output {
                "m" => m,
                "v" => v,
                _ => {
                    weights[i]
                        - lr * weight_decay * weights[i]
                        - lr * unbiased(m, beta1) / (unbiased(v, beta2).sqrt() + eps)
                }
            }
        };
        Ok((0..grads.len()).map(after).collect())
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let rounded = |abs, rel, why| Ok(Tolerance::rounded(DType::F32, abs, rel, why));
        match output {
            // Of order 1 before they cancel, each rounded thrice, and the factor that clips.
            "m" => rounded(
                5e-7,
                5e-7,
                "f32 roundings of two terms of order 1, which may cancel, and of the factor that clips",
            ),
            "v" => rounded(0.0, 1.5e-6, "f32 roundings of two positive terms, and the factor that clips, squared"),
            _ => {
                let dtype = if output == "master" { DType::F32 } else { case.dtype };
                // A moment's error is that of m over its root, at most 10 times as large, and the constants' and the root's are relative.
                let step = 1e-5 * case.params.f64("lr")? * 10.0;
                let why = "three f32 roundings of the weight, 10⁻⁵ of a step of up to ten times the learning rate, and storage";
                Ok(Tolerance::rounded(dtype, step, 3e-7, why))
            }
        }
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n] = case.dims(["n"])?;
        // Both moments, and the weights, read and written; the gradients read; the copy of master weights written.
        let weights = if self.has_master() { 2 * size_of::<f32>() + case.dtype.size() } else { 2 * case.dtype.size() };
        Ok(Cost::memory((n * (4 * size_of::<f32>() + weights + case.dtype.size())) as u64))
    }
}
