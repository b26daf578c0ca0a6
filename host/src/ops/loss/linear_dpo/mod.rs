//! Direct preference optimisation of the logits of a linear layer, which never exist all at the same time.

mod call;
mod operator;

pub use operator::{LINEAR_DPO, LINEAR_DPO_WITH_GRADIENT, LinearDpoOf};

use cuda_std::float::Half;

use self::call::{Call, Layer};
use super::dpo::{Dpo, DpoLosses};
use super::linear::{Gradients, Linear, LinearGradients};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// [`dpo`](super::dpo()) of the log-probabilities of `targets` under the logits `hidden` · `weight`ᵀ, of which only some rows exist at a time.
///
/// `hidden` is `[tokens, d]` and `weight` is `[classes, d]`, in f16 or bf16 and with any strides. `targets` holds the next
/// token at each position, or the [ignored](Dpo::ignore) number in the prompt and padding, and `offsets` holds the start of
/// each answer, the chosen ones first; both are contiguous. See [`dpo`](super::dpo()), also for padded batches. The
/// [reference](Dpo::reference) to pass is the [log-probabilities](DpoLosses::log_probs) of this operator over the reference
/// model, called without a reference. The work is queued on `stream`; [`DpoLosses::value`] waits for it and returns an error if
/// targets or offsets are invalid. A pair with a target that is not a class has a loss of NaN and gradient 0; if the offsets
/// are invalid, so have all pairs.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if what has to be contiguous is not,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond
/// 2³¹ − 1 tokens, classes or dimensions, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops};
/// # use warpsmith::ops::{Dpo, Linear};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [4, 8], &[bf16::from_f32(1.0); 32])?;
/// let weight = Tensor::from_slice(&stream, [4, 8], &[bf16::from_f32(0.5); 32])?;
/// let targets = Tensor::from_slice(&stream, [4], &[3, 0, -100, 1])?;
/// // A chosen answer of two tokens, and a rejected one.
/// let offsets = Tensor::from_slice(&stream, [3], &[0, 2, 4])?;
/// let options = Linear::new(Dpo::new(1.0));
/// let (losses, gradients) =
///     ops::linear_dpo_with_gradient(&stream, &hidden, &weight, &targets, &offsets, &options)?;
/// // Two tokens against one, each of probability 1/4.
/// assert!((losses.value(&stream)? - 5f32.ln()).abs() < 1e-5);
/// assert!(gradients.dweight.to_vec(&stream)?[0] < 0.0);
/// # Ok(())
/// # }
/// ```
pub fn linear_dpo<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    offsets: impl Into<View<'a, i32>>,
    options: &Linear<Dpo<'_>>,
) -> Result<DpoLosses> {
    let layer = Layer { hidden: hidden.into(), weight: weight.into(), targets: targets.into() };
    compute(&operator::FORWARD, stream, layer, offsets.into(), options, None)
}

/// [`linear_dpo`] with its derivatives with respect to `hidden`, `[tokens, d]`, and `weight`,
/// `[classes, d]` in f32, for which the logits are computed twice.
///
/// # Errors
/// Same as [`linear_dpo`].
///
/// # Example
/// A target that is not a class removes the gradient of its pair, and of no other.
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # use warpsmith::ops::{Dpo, Linear};
/// # fn main() -> warpsmith::Result<()> {
/// # let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [4, 1], &[f16::ONE; 4])?;
/// let weight = Tensor::from_slice(&stream, [2, 1], &[f16::ZERO, f16::ONE])?;
/// let targets = Tensor::from_slice(&stream, [4], &[1, 2, 0, 0])?;
/// // Two pairs of one token each: 0 against 2, and 1 against 3.
/// let offsets = Tensor::from_slice(&stream, [5], &[0, 1, 2, 3, 4])?;
/// let (losses, gradients) =
///     ops::linear_dpo_with_gradient(&stream, &hidden, &weight, &targets, &offsets, &Linear::new(Dpo::new(0.1)))?;
/// let error = losses.check(&stream).unwrap_err().to_string();
/// assert!(error.ends_with("`targets[1]` = 2: expected a class below 2 or -100, which is ignored"));
/// assert!(gradients.dweight.to_vec(&stream)?[0] > 0.0);
/// assert_eq!(gradients.dhidden.to_vec(&stream)?[1], f16::ZERO);
/// # Ok(())
/// # }
/// ```
pub fn linear_dpo_with_gradient<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    offsets: impl Into<View<'a, i32>>,
    options: &Linear<Dpo<'_>>,
) -> Result<(DpoLosses, LinearGradients<T>)> {
    let layer = Layer { hidden: hidden.into(), weight: weight.into(), targets: targets.into() };
    let mut gradients = LinearGradients::of(stream, &layer.hidden, &layer.weight, options.accumulate)?;
    let views = Some(gradients.views());
    let losses = compute(&operator::WITH_GRADIENT, stream, layer, offsets.into(), options, views)?;
    Ok((losses, gradients))
}

/// [`linear_dpo_with_gradient`] into tensors of the shapes of `hidden` and `weight`, whose rows may be padded; the weight's
/// gradient is added to the present contents if the options [say so](Linear::accumulate).
///
/// # Errors
/// Same as [`linear_dpo`], and [`Error::Layout`](crate::Error::Layout) if the elements of a gradient's row are not adjacent.
#[expect(clippy::too_many_arguments, reason = "what is read, how, and what is written")]
pub fn linear_dpo_with_gradient_into<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    offsets: impl Into<View<'a, i32>>,
    options: &Linear<Dpo<'_>>,
    dhidden: impl Into<ViewMut<'a, T>>,
    dweight: impl Into<ViewMut<'a, f32>>,
) -> Result<DpoLosses> {
    let layer = Layer { hidden: hidden.into(), weight: weight.into(), targets: targets.into() };
    let gradients = Gradients { dhidden: dhidden.into(), dweight: dweight.into() };
    compute(&operator::WITH_GRADIENT, stream, layer, offsets.into(), options, Some(gradients))
}

fn compute<T: Float + Half>(
    info: &'static OpInfo,
    stream: &Stream,
    layer: Layer<'_, T>,
    offsets: View<'_, i32>,
    options: &Linear<Dpo<'_>>,
    gradients: Option<Gradients<'_, T>>,
) -> Result<DpoLosses> {
    let call = Call::new(info, layer, offsets, options)?;
    let mut losses = call.uninit(stream)?;
    call.launch(stream, losses.views(), gradients)?;
    Ok(losses)
}
