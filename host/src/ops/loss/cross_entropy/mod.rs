//! Cross-entropy of logits with target classes.

mod call;
mod exact;
mod operator;
mod options;

pub use operator::{
    CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD, CROSS_ENTROPY_IN_PLACE, CROSS_ENTROPY_WITH_GRADIENT, CrossEntropyOf,
};
pub use options::{CrossEntropy, Losses};

pub(super) use self::call::{Call, Results};
pub(super) use self::exact::Exact;
pub(super) use self::operator::{PARAMS, options};
use super::batch::{RowLosses, RowResults};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The cross-entropy of `logits` against `targets`: ln Σ e^x − x\[target\] for every row, and the mean over the rows.
///
/// `logits` is `[rows, classes]`, or has more dimensions, the last of which is the classes; the elements of a row are
/// contiguous, and rows may be padded. `targets`, contiguous, has the other dimensions and holds the index of the correct
/// class. [`CrossEntropy`] holds the options of the loss. The work is queued on `stream`; invalid targets are known only after
/// it is done: [`Losses::value`] reports them, and the loss of a row whose target is not a class is NaN.
///
/// Logits are read once if the rows' packs of 16 bytes are aligned, up to 4096 packs per row, or 32,768 on GPUs with clusters.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `logits` has fewer than two dimensions or no classes, or `targets` or the class weights do not
/// fit it, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart or `targets` is not contiguous,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond
/// 2³¹ − 1 rows or classes, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops, ops::CrossEntropy};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let logits = Tensor::from_slice(&stream, [2, 4], &[0.0f32; 8])?;
/// let targets = Tensor::from_slice(&stream, [2], &[3, -100])?;
/// let losses = ops::cross_entropy(&stream, &logits, &targets, &CrossEntropy::mean())?;
/// assert!((losses.value(&stream)? - 4f32.ln()).abs() < 1e-6);
/// assert_eq!(losses.per_row().to_vec(&stream)?[1], 0.0);
/// # Ok(())
/// # }
/// ```
pub fn cross_entropy<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    options: &CrossEntropy<'_>,
) -> Result<Losses> {
    let logits = logits.into();
    losses(stream, &operator::FORWARD, logits.shape(), options, |results| {
        Call::new(&operator::FORWARD, logits.into(), targets.into(), options)?.launch(stream, results, None)
    })
}

/// [`cross_entropy`] with its derivative with respect to the logits, of the logits' shape and dense, in the same pass over them.
///
/// # Errors
/// Same as [`cross_entropy`].
pub fn cross_entropy_with_gradient<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    options: &CrossEntropy<'_>,
) -> Result<(Losses, Tensor<T>)> {
    let (logits, targets) = (logits.into(), targets.into());
    let mut gradient = Tensor::result(stream, logits.shape())?;
    let losses = cross_entropy_with_gradient_into(stream, logits, targets, options, &mut gradient)?;
    Ok((losses, gradient))
}

/// [`cross_entropy_with_gradient`] into `gradient`, which has the shape of `logits`; its rows may be padded.
///
/// # Errors
/// Same as [`cross_entropy`].
pub fn cross_entropy_with_gradient_into<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    options: &CrossEntropy<'_>,
    gradient: impl Into<ViewMut<'a, T>>,
) -> Result<Losses> {
    let (logits, gradient) = (logits.into(), gradient.into());
    losses(stream, &operator::WITH_GRADIENT, logits.shape(), options, |results| {
        let call = Call::new(&operator::WITH_GRADIENT, logits.into(), targets.into(), options)?;
        call.launch(stream, results, Some(gradient))
    })
}

/// [`cross_entropy_with_gradient`] with the gradient in place of the logits.
///
/// # Errors
/// Same as [`cross_entropy`].
pub fn cross_entropy_in_place<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<ViewMut<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    options: &CrossEntropy<'_>,
) -> Result<Losses> {
    let logits = logits.into();
    let shape = logits.shape().to_vec();
    losses(stream, &operator::IN_PLACE, &shape, options, |results| {
        Call::new(&operator::IN_PLACE, logits.into(), targets.into(), options)?.launch(stream, results, None)
    })
}

/// The derivative of Σ dloss · loss with respect to the logits, over the losses of the rows as in [`Losses::per_row`]:
/// the backward for automatic differentiation when the losses themselves are used. `dlosses` has the shape of `targets`,
/// contiguous.
///
/// # Errors
/// Same as [`cross_entropy`].
pub fn cross_entropy_backward<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    dlosses: impl Into<View<'a, f32>>,
    options: &CrossEntropy<'_>,
) -> Result<Tensor<T>> {
    let (logits, targets) = (logits.into(), targets.into());
    let mut gradient = Tensor::result(stream, logits.shape())?;
    cross_entropy_backward_into(stream, logits, targets, dlosses.into(), options, &mut gradient)?;
    Ok(gradient)
}

/// [`cross_entropy_backward`] into `gradient`, which has the shape of `logits`; its rows may be padded.
///
/// # Errors
/// Same as [`cross_entropy`].
pub fn cross_entropy_backward_into<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    dlosses: impl Into<View<'a, f32>>,
    options: &CrossEntropy<'_>,
    gradient: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let call = Call::new(&operator::BACKWARD, logits.into().into(), targets.into(), options)?;
    call.launch_backward(stream, dlosses.into(), gradient.into())
}

/// New tensors for the losses of logits of that shape, which `launch` fills.
pub(super) fn losses(
    stream: &Stream,
    info: &'static OpInfo,
    shape: &[usize],
    options: &CrossEntropy<'_>,
    launch: impl FnOnce(Results<'_>) -> Result<()>,
) -> Result<Losses> {
    let outer = shape.split_last().map_or(shape, |(_, outer)| outer);
    let mut losses = Losses {
        rows: RowLosses::uninit(info, stream, shape, Some(options.ignored))?,
        lse: Tensor::result(stream, outer)?,
    };
    let (RowResults { per_row, total, bad, .. }, lse) = (losses.rows.views(), losses.lse.view_mut());
    launch(Results { per_row, lse, total, bad })?;
    Ok(losses)
}
