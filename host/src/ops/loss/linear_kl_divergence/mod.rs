//! Divergence of the logits of a student's linear layer from those of its teacher's, which never exist all at the same time.

mod call;
mod operator;

pub use operator::{
    LINEAR_KL_DIVERGENCE, LINEAR_KL_DIVERGENCE_BACKWARD, LINEAR_KL_DIVERGENCE_WITH_GRADIENT, LinearKlDivergenceOf,
};

use cuda_std::float::Half;

use self::call::Call;
use super::batch::RowLosses;
use super::kl_divergence::KlDivergence;
use super::linear::{Gradients, Linear, LinearGradients};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// [`kl_divergence`](super::kl_divergence()) of a student's logits `hidden` · `weight`ᵀ from its teacher's `teacher_hidden` · `teacher_weight`ᵀ, of
/// which only some rows exist at a time.
///
/// `hidden` is `[rows, d]` and `weight` is `[classes, d]`, in f16 or bf16 and with any strides; the teacher has the same rows
/// and classes, and may have another d. The memory of the options holds the logits of both. Logits are rounded to that type, as
/// a layer's output is. The work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit or there is no class, [`Error::Layout`](crate::Error::Layout) if targets are not
/// contiguous, [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond
/// 2³¹ − 1 rows, classes or dimensions, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # use warpsmith::ops::{KlDivergence, Linear};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [1, 8], &[f16::ONE; 8])?;
/// let weight = Tensor::from_slice(&stream, [2, 8], &[f16::ONE; 16])?;
/// // A larger teacher, that knows as little.
/// let teacher_hidden = Tensor::from_slice(&stream, [1, 16], &[f16::ONE; 16])?;
/// let teacher_weight = Tensor::from_slice(&stream, [2, 16], &[f16::ONE; 32])?;
/// let options = Linear::new(KlDivergence::forward().temperature(2.0));
/// let teacher = (&teacher_hidden, &teacher_weight);
/// let (losses, gradients) =
///     ops::linear_kl_divergence_with_gradient(&stream, &hidden, &weight, teacher.0, teacher.1, &options)?;
/// assert_eq!(losses.value(&stream)?, 0.0);
/// assert_eq!(gradients.dweight.to_vec(&stream)?, [0.0; 16]);
/// # Ok(())
/// # }
/// ```
pub fn linear_kl_divergence<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    teacher_hidden: impl Into<View<'a, T>>,
    teacher_weight: impl Into<View<'a, T>>,
    options: &Linear<KlDivergence<'_>>,
) -> Result<RowLosses> {
    let layers = [[hidden.into(), weight.into()], [teacher_hidden.into(), teacher_weight.into()]];
    compute(&operator::FORWARD, stream, layers, options, None)
}

/// [`linear_kl_divergence`] with its derivatives with respect to `hidden`, `[rows, d]`, and `weight`,
/// `[classes, d]` in f32, computed while the logits exist: no product is computed twice.
///
/// # Errors
/// Same as [`linear_kl_divergence`].
pub fn linear_kl_divergence_with_gradient<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    teacher_hidden: impl Into<View<'a, T>>,
    teacher_weight: impl Into<View<'a, T>>,
    options: &Linear<KlDivergence<'_>>,
) -> Result<(RowLosses, LinearGradients<T>)> {
    let layers = [[hidden.into(), weight.into()], [teacher_hidden.into(), teacher_weight.into()]];
    let mut gradients = LinearGradients::of(stream, &layers[0][0], &layers[0][1], options.accumulate)?;
    let losses = compute(&operator::WITH_GRADIENT, stream, layers, options, Some(gradients.views()))?;
    Ok((losses, gradients))
}

/// [`linear_kl_divergence_with_gradient`] into tensors of the shapes of `hidden` and `weight`, whose rows may be padded; the
/// weight's gradient is added to the present contents if the options [say so](Linear::accumulate).
///
/// # Errors
/// Same as [`linear_kl_divergence`], and [`Error::Layout`](crate::Error::Layout) if the elements of a gradient's row are not adjacent.
#[expect(clippy::too_many_arguments, reason = "what is read, how, and what is written")]
pub fn linear_kl_divergence_with_gradient_into<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    teacher_hidden: impl Into<View<'a, T>>,
    teacher_weight: impl Into<View<'a, T>>,
    options: &Linear<KlDivergence<'_>>,
    dhidden: impl Into<ViewMut<'a, T>>,
    dweight: impl Into<ViewMut<'a, f32>>,
) -> Result<RowLosses> {
    let layers = [[hidden.into(), weight.into()], [teacher_hidden.into(), teacher_weight.into()]];
    let gradients = Gradients { dhidden: dhidden.into(), dweight: dweight.into() };
    compute(&operator::WITH_GRADIENT, stream, layers, options, Some(gradients))
}

/// The derivatives of Σ dloss · loss with respect to `hidden` and `weight`, over the losses of the rows. The logits are recomputed.
///
/// `dlosses` is `[rows]` and contiguous.
///
/// # Errors
/// Same as [`linear_kl_divergence`].
pub fn linear_kl_divergence_backward<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    teacher_hidden: impl Into<View<'a, T>>,
    teacher_weight: impl Into<View<'a, T>>,
    dlosses: impl Into<View<'a, f32>>,
    options: &Linear<KlDivergence<'_>>,
) -> Result<LinearGradients<T>> {
    let layers = [[hidden.into(), weight.into()], [teacher_hidden.into(), teacher_weight.into()]];
    let mut gradients = LinearGradients::of(stream, &layers[0][0], &layers[0][1], options.accumulate)?;
    Call::new(&operator::BACKWARD, layers, options)?.launch_backward(stream, dlosses.into(), gradients.views())?;
    Ok(gradients)
}

/// [`linear_kl_divergence_backward`] into tensors, as [`linear_kl_divergence_with_gradient_into`] has them.
///
/// # Errors
/// Same as [`linear_kl_divergence_with_gradient_into`].
#[expect(clippy::too_many_arguments, reason = "what is read, how, and what is written")]
pub fn linear_kl_divergence_backward_into<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    teacher_hidden: impl Into<View<'a, T>>,
    teacher_weight: impl Into<View<'a, T>>,
    dlosses: impl Into<View<'a, f32>>,
    options: &Linear<KlDivergence<'_>>,
    dhidden: impl Into<ViewMut<'a, T>>,
    dweight: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let layers = [[hidden.into(), weight.into()], [teacher_hidden.into(), teacher_weight.into()]];
    let gradients = Gradients { dhidden: dhidden.into(), dweight: dweight.into() };
    Call::new(&operator::BACKWARD, layers, options)?.launch_backward(stream, dlosses.into(), gradients)
}

fn compute<T: Float + Half>(
    info: &'static OpInfo,
    stream: &Stream,
    layers: [[View<'_, T>; 2]; 2],
    options: &Linear<KlDivergence<'_>>,
    gradients: Option<Gradients<'_, T>>,
) -> Result<RowLosses> {
    let call = Call::new(info, layers, options)?;
    let mut losses = RowLosses::uninit(info, stream, &call.shape(), options.loss.ignored())?;
    call.launch(stream, losses.views(), gradients)?;
    Ok(losses)
}
