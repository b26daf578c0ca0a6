//! Divergence of a student's probabilities from its teacher's, for rows of logits.

mod call;
mod exact;
mod operator;
mod options;

pub use operator::{KL_DIVERGENCE, KL_DIVERGENCE_BACKWARD, KL_DIVERGENCE_WITH_GRADIENT, KlDivergenceOf};
pub use options::{Divergence, KlDivergence};

pub(super) use self::call::Call;
pub(super) use self::exact::Exact;
pub(super) use self::operator::{JENSEN_SHANNON, PARAMS, REVERSE, options, statistics};
use super::batch::RowLosses;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The divergence of softmax(`student` / T) from softmax(`teacher` / T), for every row of logits, and the mean over the rows.
///
/// Both are `[rows, classes]`, or have more dimensions, the last of which is the classes; the elements of a row are contiguous,
/// and rows may be padded. [`KlDivergence`] sets the divergence, the temperature T, and which rows count. The work is queued on
/// `stream`.
///
/// A logit of −∞ has probability 0. It adds nothing to a divergence that is weighted by it, and makes a divergence that divides
/// by it infinite if the other row's probability is above 2⁻¹²⁶ of that row's maximum. +∞, NaN or only −∞ in either row makes
/// the row's loss and gradient NaN.
///
/// Logits are read once if the packs of 16 bytes of both rows are aligned, up to 4096 packs per row, or 32,768 on GPUs with
/// clusters.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `student` has fewer than two dimensions or no classes, or `teacher` or the targets do not
/// fit it, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart or targets are not contiguous,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if the temperature or the weight of the teacher is out of range,
/// [`Error::TooLarge`](crate::Error::TooLarge) beyond 2³¹ − 1 rows or classes, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops, ops::KlDivergence};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let student = Tensor::from_slice(&stream, [1, 2], &[0.0f32, 0.0])?;
/// let teacher = Tensor::from_slice(&stream, [1, 2], &[0.0f32, f32::NEG_INFINITY])?;
/// let forward = ops::kl_divergence(&stream, &student, &teacher, &KlDivergence::forward())?;
/// assert!((forward.value(&stream)? - 2f32.ln()).abs() < 1e-6);
/// let reverse = ops::kl_divergence(&stream, &student, &teacher, &KlDivergence::reverse())?;
/// assert_eq!(reverse.value(&stream)?, f32::INFINITY);
/// # Ok(())
/// # }
/// ```
pub fn kl_divergence<'a, T: Float>(
    stream: &Stream,
    student: impl Into<View<'a, T>>,
    teacher: impl Into<View<'a, T>>,
    options: &KlDivergence<'_>,
) -> Result<RowLosses> {
    compute(&operator::FORWARD, stream, student.into(), teacher.into(), options, None)
}

/// [`kl_divergence`] with its derivative with respect to the student's logits, of their shape and dense, in the same
/// pass over them.
///
/// # Errors
/// Same as [`kl_divergence`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops, ops::KlDivergence};
/// # fn main() -> warpsmith::Result<()> {
/// # let stream = Device::open()?.stream()?;
/// let student = Tensor::from_slice(&stream, [1, 2], &[0.0f32, 0.0])?;
/// let teacher = Tensor::from_slice(&stream, [1, 2], &[3f32.ln(), 0.0])?;
/// let (_, gradient) = ops::kl_divergence_with_gradient(&stream, &student, &teacher, &KlDivergence::forward())?;
/// // What the student has less what its teacher has: 1/2 − 3/4.
/// assert!((gradient.to_vec(&stream)?[0] + 0.25).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
pub fn kl_divergence_with_gradient<'a, T: Float>(
    stream: &Stream,
    student: impl Into<View<'a, T>>,
    teacher: impl Into<View<'a, T>>,
    options: &KlDivergence<'_>,
) -> Result<(RowLosses, Tensor<T>)> {
    let student = student.into();
    let mut gradient = Tensor::result(stream, student.shape())?;
    let losses = kl_divergence_with_gradient_into(stream, student, teacher.into(), options, &mut gradient)?;
    Ok((losses, gradient))
}

/// [`kl_divergence_with_gradient`] into `gradient`, which has the shape of `student`; its rows may be padded.
///
/// # Errors
/// Same as [`kl_divergence`].
pub fn kl_divergence_with_gradient_into<'a, T: Float>(
    stream: &Stream,
    student: impl Into<View<'a, T>>,
    teacher: impl Into<View<'a, T>>,
    options: &KlDivergence<'_>,
    gradient: impl Into<ViewMut<'a, T>>,
) -> Result<RowLosses> {
    compute(&operator::WITH_GRADIENT, stream, student.into(), teacher.into(), options, Some(gradient.into()))
}

/// The derivative of Σ dloss · loss with respect to the student's logits, over the losses of the rows as in
/// [`RowLosses::per_row`]. `dlosses` has the shape of the rows, contiguous; the result has the shape of `student`, dense.
///
/// # Errors
/// Same as [`kl_divergence`].
pub fn kl_divergence_backward<'a, T: Float>(
    stream: &Stream,
    student: impl Into<View<'a, T>>,
    teacher: impl Into<View<'a, T>>,
    dlosses: impl Into<View<'a, f32>>,
    options: &KlDivergence<'_>,
) -> Result<Tensor<T>> {
    let student = student.into();
    let mut gradient = Tensor::result(stream, student.shape())?;
    kl_divergence_backward_into(stream, student, teacher.into(), dlosses.into(), options, &mut gradient)?;
    Ok(gradient)
}

/// [`kl_divergence_backward`] into `gradient`, which has the shape of `student`; its rows may be padded.
///
/// # Errors
/// Same as [`kl_divergence`].
pub fn kl_divergence_backward_into<'a, T: Float>(
    stream: &Stream,
    student: impl Into<View<'a, T>>,
    teacher: impl Into<View<'a, T>>,
    dlosses: impl Into<View<'a, f32>>,
    options: &KlDivergence<'_>,
    gradient: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let call = Call::new(&operator::BACKWARD, student.into().into(), teacher.into(), options)?;
    call.launch_backward(stream, dlosses.into(), gradient.into())
}

fn compute<T: Float>(
    info: &'static OpInfo,
    stream: &Stream,
    student: View<'_, T>,
    teacher: View<'_, T>,
    options: &KlDivergence<'_>,
    gradient: Option<ViewMut<'_, T>>,
) -> Result<RowLosses> {
    let call = Call::new(info, student.into(), teacher, options)?;
    let mut losses = RowLosses::uninit(info, stream, student.shape(), options.ignored())?;
    call.launch(stream, losses.views(), gradient)?;
    Ok(losses)
}
