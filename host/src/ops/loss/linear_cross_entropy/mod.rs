//! Cross-entropy of the logits of a linear layer, which never exist all at the same time.

mod call;
mod operator;

pub use operator::{
    LINEAR_CROSS_ENTROPY, LINEAR_CROSS_ENTROPY_BACKWARD, LINEAR_CROSS_ENTROPY_WITH_GRADIENT, LinearCrossEntropyOf,
};

use cuda_std::float::Half;

pub(super) use self::call::Call;
use super::cross_entropy::{CrossEntropy, Losses, losses};
use super::linear::{Gradients, Linear, LinearGradients};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// The options of a linear layer's cross-entropy, with the memory that it may use.
///
/// ```
/// # use warpsmith::ops::{CrossEntropy, LinearCrossEntropy};
/// let options = LinearCrossEntropy::new(CrossEntropy::mean().z_loss(1e-4)).memory(256 << 20);
/// # let _ = options;
/// ```
pub type LinearCrossEntropy<'a> = Linear<CrossEntropy<'a>>;

/// [`cross_entropy`](super::cross_entropy()) of the logits `hidden` · `weight`ᵀ, of which only some rows exist at a time.
///
/// `hidden` is `[rows, d]` and `weight` is `[classes, d]`, in f16 or bf16 and with any strides; `targets`, `[rows]` and
/// contiguous, holds the index of the correct class. Logits are rounded to that type, as a layer's output is. The work is
/// queued on `stream`; [`Losses::value`] waits for it and returns an error if a target is not a class.
///
/// Without further terms, the [losses of the rows](Losses::per_row) are the negated log-probabilities of the chosen classes;
/// [`linear_log_probs`](super::linear_log_probs()) gives these without the sign.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit or there is no class, [`Error::Layout`](crate::Error::Layout) if `targets` is not
/// contiguous, [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond
/// 2³¹ − 1 rows, classes or dimensions, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # use warpsmith::ops::{CrossEntropy, LinearCrossEntropy};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [2, 8], &[f16::from_f32(1.0); 16])?;
/// let weight = Tensor::from_slice(&stream, [4, 8], &[f16::from_f32(0.5); 32])?;
/// let targets = Tensor::from_slice(&stream, [2], &[3, 0])?;
/// let options = LinearCrossEntropy::new(CrossEntropy::mean());
/// let (losses, gradients) = ops::linear_cross_entropy_with_gradient(&stream, &hidden, &weight, &targets, &options)?;
/// assert!((losses.value(&stream)? - 4f32.ln()).abs() < 1e-6);
/// assert_eq!(gradients.dweight.to_vec(&stream)?[8], 0.25); // class 1, the target of neither row
/// # Ok(())
/// # }
/// ```
pub fn linear_cross_entropy<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    options: &LinearCrossEntropy<'_>,
) -> Result<Losses> {
    compute(&operator::FORWARD, stream, hidden.into(), weight.into(), targets.into(), options, None)
}

/// [`linear_cross_entropy`] with its derivatives with respect to `hidden`, `[rows, d]`, and `weight`,
/// `[classes, d]` in f32, computed while the logits exist: no product is computed twice.
///
/// # Errors
/// Same as [`linear_cross_entropy`].
pub fn linear_cross_entropy_with_gradient<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    options: &LinearCrossEntropy<'_>,
) -> Result<(Losses, LinearGradients<T>)> {
    let (hidden, weight, targets) = (hidden.into(), weight.into(), targets.into());
    let mut gradients = LinearGradients::of(stream, &hidden, &weight, options.accumulate)?;
    let info = &operator::WITH_GRADIENT;
    let losses = compute(info, stream, hidden, weight, targets, options, Some(gradients.views()))?;
    Ok((losses, gradients))
}

/// [`linear_cross_entropy_with_gradient`] into tensors of the shapes of `hidden` and `weight`, whose rows may be padded; the
/// weight's gradient is added to the present contents if the options [say so](LinearCrossEntropy::accumulate).
///
/// # Errors
/// Same as [`linear_cross_entropy`], and [`Error::Layout`](crate::Error::Layout) if the elements of a gradient's row are not adjacent.
pub fn linear_cross_entropy_with_gradient_into<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    options: &LinearCrossEntropy<'_>,
    dhidden: impl Into<ViewMut<'a, T>>,
    dweight: impl Into<ViewMut<'a, f32>>,
) -> Result<Losses> {
    let gradients = Gradients { dhidden: dhidden.into(), dweight: dweight.into() };
    let info = &operator::WITH_GRADIENT;
    compute(info, stream, hidden.into(), weight.into(), targets.into(), options, Some(gradients))
}

/// The derivatives of Σ dloss · loss over the losses of the rows: the backward for automatic differentiation when the losses
/// themselves are used, as in objectives over log-probabilities. The logits are recomputed.
///
/// `dlosses` is `[rows]` and contiguous.
///
/// # Errors
/// Same as [`linear_cross_entropy`].
///
/// # Example
/// A policy gradient, of −Σ advantage · log p over the chosen tokens: a row's loss is −log p, so its element of `dlosses` is the advantage.
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops};
/// # use warpsmith::ops::{CrossEntropy, LinearCrossEntropy};
/// # fn main() -> warpsmith::Result<()> {
/// # let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [2, 8], &[bf16::from_f32(1.0); 16])?;
/// let weight = Tensor::from_slice(&stream, [4, 8], &[bf16::from_f32(0.5); 32])?;
/// let chosen = Tensor::from_slice(&stream, [2], &[3, 0])?;
/// let advantage = Tensor::from_slice(&stream, [2], &[1.0f32, -2.0])?;
/// let options = LinearCrossEntropy::new(CrossEntropy::sum());
/// let gradients = ops::linear_cross_entropy_backward(&stream, &hidden, &weight, &chosen, &advantage, &options)?;
/// // Class 1 was chosen in neither row, with p = 1/4 in both: (1 − 2) / 4.
/// assert_eq!(gradients.dweight.to_vec(&stream)?[8], -0.25);
/// # Ok(())
/// # }
/// ```
pub fn linear_cross_entropy_backward<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    dlosses: impl Into<View<'a, f32>>,
    options: &LinearCrossEntropy<'_>,
) -> Result<LinearGradients<T>> {
    let (hidden, weight) = (hidden.into(), weight.into());
    let mut gradients = LinearGradients::of(stream, &hidden, &weight, options.accumulate)?;
    let call = Call::new(&operator::BACKWARD, hidden, weight, targets.into(), options)?;
    call.launch_backward(stream, dlosses.into(), gradients.views(), 1.0)?;
    Ok(gradients)
}

/// [`linear_cross_entropy_backward`] into tensors, as [`linear_cross_entropy_with_gradient_into`] has them.
///
/// # Errors
/// Same as [`linear_cross_entropy_with_gradient_into`].
#[expect(clippy::too_many_arguments, reason = "what is read, how, and what is written")]
pub fn linear_cross_entropy_backward_into<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    dlosses: impl Into<View<'a, f32>>,
    options: &LinearCrossEntropy<'_>,
    dhidden: impl Into<ViewMut<'a, T>>,
    dweight: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let gradients = Gradients { dhidden: dhidden.into(), dweight: dweight.into() };
    let call = Call::new(&operator::BACKWARD, hidden.into(), weight.into(), targets.into(), options)?;
    call.launch_backward(stream, dlosses.into(), gradients, 1.0)
}

fn compute<T: Float + Half>(
    info: &'static OpInfo,
    stream: &Stream,
    hidden: View<'_, T>,
    weight: View<'_, T>,
    targets: View<'_, i32>,
    options: &LinearCrossEntropy<'_>,
    gradients: Option<Gradients<'_, T>>,
) -> Result<Losses> {
    let call = Call::new(info, hidden, weight, targets, options)?;
    // The losses have the shape of the logits' rows.
    let shape = [hidden.shape()[0], weight.shape()[0]];
    losses(stream, info, &shape, &options.loss, |results| call.launch(stream, results, gradients))
}
