//! Group relative policy optimisation of the logits of a linear layer, which never exist all at the same time.

mod call;
mod operator;

pub use operator::{LINEAR_GRPO, LINEAR_GRPO_WITH_GRADIENT, LinearGrpoOf};

use cuda_std::float::Half;

use self::call::{Answers, Call};
use super::batch::RowLosses;
use super::grpo::Grpo;
use super::linear::{Gradients, Linear, LinearGradients};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// [`grpo`](super::grpo()) of the log-probabilities of `targets` under the logits `hidden` · `weight`ᵀ, of which only some rows exist at a time.
///
/// `hidden` is `[tokens, d]` and `weight` is `[classes, d]`, in f16 or bf16 and with any strides. `targets` holds the next
/// token at each position, or the [ignored](Grpo::ignore) number in the prompt and padding. `advantages` has one number per
/// sequence, and `offsets` holds the start of each; both are contiguous, as is `targets`. See [`grpo`](super::grpo()), also for
/// padded batches. The log-probabilities of other policies are the negated [losses](super::Losses::per_row) of a
/// [`linear_cross_entropy`](super::linear_cross_entropy()). The work is queued on `stream`; [`RowLosses::value`] waits for it
/// and returns an error if targets or offsets are invalid.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if what has to be contiguous is not,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond
/// 2³¹ − 1 tokens, classes or dimensions, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops};
/// # use warpsmith::ops::{Grpo, Linear};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [4, 8], &[bf16::from_f32(1.0); 32])?;
/// let weight = Tensor::from_slice(&stream, [4, 8], &[bf16::from_f32(0.5); 32])?;
/// let targets = Tensor::from_slice(&stream, [4], &[3, 0, -100, 1])?;
/// let advantages = Tensor::from_slice(&stream, [2], &[1.0f32, -1.0])?;
/// let offsets = Tensor::from_slice(&stream, [3], &[0, 2, 4])?;
/// let options = Linear::new(Grpo::new());
/// let (losses, gradients) =
///     ops::linear_grpo_with_gradient(&stream, &hidden, &weight, &targets, &advantages, &offsets, &options)?;
/// assert_eq!(losses.value(&stream)?, 0.0);
/// // Class 3 was a token of the first sequence alone: it is to become likelier.
/// assert!(gradients.dweight.to_vec(&stream)?[24] < 0.0);
/// # Ok(())
/// # }
/// ```
pub fn linear_grpo<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    advantages: impl Into<View<'a, f32>>,
    offsets: impl Into<View<'a, i32>>,
    options: &Linear<Grpo<'_>>,
) -> Result<RowLosses> {
    let answers = Answers { targets: targets.into(), advantages: advantages.into(), offsets: offsets.into() };
    compute(&operator::FORWARD, stream, [hidden.into(), weight.into()], answers, options, None)
}

/// [`linear_grpo`] with its derivatives with respect to `hidden`, `[tokens, d]`, and `weight`,
/// `[classes, d]` in f32, computed while the logits exist: no product is computed twice.
///
/// # Errors
/// Same as [`linear_grpo`].
pub fn linear_grpo_with_gradient<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    advantages: impl Into<View<'a, f32>>,
    offsets: impl Into<View<'a, i32>>,
    options: &Linear<Grpo<'_>>,
) -> Result<(RowLosses, LinearGradients<T>)> {
    let layer = [hidden.into(), weight.into()];
    let answers = Answers { targets: targets.into(), advantages: advantages.into(), offsets: offsets.into() };
    let mut gradients = LinearGradients::of(stream, &layer[0], &layer[1], options.accumulate)?;
    let losses = compute(&operator::WITH_GRADIENT, stream, layer, answers, options, Some(gradients.views()))?;
    Ok((losses, gradients))
}

/// [`linear_grpo_with_gradient`] into tensors of the shapes of `hidden` and `weight`, whose rows may be padded; the weight's
/// gradient is added to the present contents if the options [say so](Linear::accumulate).
///
/// # Errors
/// Same as [`linear_grpo`], and [`Error::Layout`](crate::Error::Layout) if the elements of a gradient's row are not adjacent.
#[expect(clippy::too_many_arguments, reason = "what is read, how, and what is written")]
pub fn linear_grpo_with_gradient_into<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    advantages: impl Into<View<'a, f32>>,
    offsets: impl Into<View<'a, i32>>,
    options: &Linear<Grpo<'_>>,
    dhidden: impl Into<ViewMut<'a, T>>,
    dweight: impl Into<ViewMut<'a, f32>>,
) -> Result<RowLosses> {
    let answers = Answers { targets: targets.into(), advantages: advantages.into(), offsets: offsets.into() };
    let gradients = Gradients { dhidden: dhidden.into(), dweight: dweight.into() };
    compute(&operator::WITH_GRADIENT, stream, [hidden.into(), weight.into()], answers, options, Some(gradients))
}

fn compute<T: Float + Half>(
    info: &'static OpInfo,
    stream: &Stream,
    layer: [View<'_, T>; 2],
    answers: Answers<'_>,
    options: &Linear<Grpo<'_>>,
    gradients: Option<Gradients<'_, T>>,
) -> Result<RowLosses> {
    let call = Call::new(info, layer, answers, options)?;
    let mut losses = call.uninit(stream)?;
    call.launch(stream, losses.views(), gradients)?;
    Ok(losses)
}
