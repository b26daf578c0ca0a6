//! Steps of AdamW, on parameters and on f32 master weights.

mod operator;

use cuda_std::float::Half;
use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::optim::adamw as gk;

pub use self::operator::{ADAMW, ADAMW_MASTER};
use self::operator::{IN_PLACE, MASTER};
use super::Clip;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// The constants of an AdamW step, in f64 because 1 − β is not accurate enough for a β in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment, from 0 to below 1.
    pub beta1: f64,
    /// Decay of the second moment, from 0 to below 1.
    pub beta2: f64,
    /// The number that is added to the root of the second moment.
    pub eps: f64,
    /// The fraction of a weight that a step with learning rate 1 removes.
    pub weight_decay: f64,
    /// The number of this step, from 1 on.
    pub step: u64,
}

/// The defaults of PyTorch, for the first step.
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

/// An AdamW step in place, in one launch: with g the gradient, m ← β₁·m + (1 − β₁)·g, v ← β₂·v + (1 − β₂)·g² and w
/// ← w·(1 − lr·weight_decay) − lr·m̂ / (√v̂ + eps), where m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) in step t.
///
/// All tensors have the same shape, of any rank, and are contiguous; `m` and `v` start as zeros. With `clip`, gradients are
/// clipped on the way, without a separate pass. Arithmetic is in f32. Parameters in a 16-bit type lose steps below half their
/// spacing; [`adamw_master`] does not. The work is queued on `stream`.
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

/// The types that gradients of parameters of type `T` may have: `T` itself, or f32, in which the gradients of weights are summed.
pub trait GradientOf<T: Float + Half>: Float {}

impl GradientOf<crate::f16> for crate::f16 {}
impl GradientOf<crate::bf16> for crate::bf16 {}
impl<T: Float + Half> GradientOf<T> for f32 {}

/// [`adamw`] on f32 `master` weights, with a rounded copy written to `params`: the step of mixed-precision training.
///
/// `T` is f16 or bf16, and `grads` have that type or f32, as [`linear_backward`](crate::ops::linear_backward()) returns them.
/// All five tensors are contiguous and have the same shape. The previous contents of `params` are not read.
///
/// Micikevicius et al., "Mixed Precision Training" (arXiv:1710.03740).
///
/// # Errors
/// Same as [`adamw`].
#[allow(clippy::too_many_arguments)] // The tensors of a step.
pub fn adamw_master<'a, T: Float + Half, G: GradientOf<T>>(
    stream: &Stream,
    master: impl Into<ViewMut<'a, f32>>,
    params: impl Into<ViewMut<'a, T>>,
    grads: impl Into<View<'a, G>>,
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
    unsafe { stream.launch::<gk::AdamwMaster<T, G>>(step.grid, args) }
}

/// The arguments of both kernels beside the tensors.
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
    /// The checks that both kernels share; `None` if there is nothing to do.
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
        // A step with a gradient of 0 would be NaN.
        if !constants[5].is_finite() {
            let wanted = "a rate that f32 can hold, also over 1 - beta1^step";
            return Err(info.param_error("lr", ParamValue::from(lr), wanted));
        }
        if !constants[4].is_finite() {
            let wanted = format!("a share that f32 can hold times `lr` = {}", ParamValue::from(lr));
            return Err(info.param_error("weight_decay", ParamValue::from(weight_decay), wanted));
        }
        let grid = grid(info, "grads", grads.len(), gk::PER_BLOCK)?;
        Ok(grid.map(|grid| Self { grid, n: grads.len() as u64, norm, max_norm, constants }))
    }
}
