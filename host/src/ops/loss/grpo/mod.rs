//! Group relative policy optimisation over log-probabilities.

mod call;
mod exact;
mod operator;
mod options;

pub use operator::{GRPO, GrpoOf};
pub use options::{Grpo, Normalisation};

pub(super) use self::call::{Objective, Values};
pub(super) use self::exact::Exact;
pub(super) use self::operator::{PARAMS, options};
pub(super) use self::options::{DIVISOR, NORMALISED};
use super::batch::RowLosses;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// The contribution of each token to the clipped objective −min(r·A, clip(r)·A) with its penalty, their sum, and its derivative
/// with respect to each log-probability.
///
/// `log_probs` holds the log-probability of each token of all answers, one sequence after the other: the negated
/// [`per_row`](super::Losses::per_row) of a [`cross_entropy`](super::cross_entropy()). `targets` holds the tokens themselves;
/// those equal to the [ignored](Grpo::ignore) number, prompts and padding, do not count. A mask of ones and zeros works as
/// well, with 0 ignored. `advantages` has one number per sequence, and `offsets` holds the start of each sequence and the end
/// of the last, as in packed attention: integers that ascend from 0 to the number of tokens. A padded batch
/// `[sequences, length]` as in TRL and Liger has the offsets 0, length, 2·length, …
///
/// All tensors are contiguous. The work is queued on `stream`; invalid offsets and targets are known only after it is done:
/// [`RowLosses::value`] reports them. A token whose target is negative has a loss of NaN and gradient 0; if the offsets are
/// invalid, so have all tokens. NaN log-probabilities of tokens that have an old one or a reference's, and ratios that overflow f32
/// with an advantage of 0, give NaN; with neither, the loss of a token is that of the ratio 1 whatever its log-probability is.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if anything is not contiguous,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond 2³¹ − 1
/// tokens, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops, ops::Grpo};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let log_probs = Tensor::from_slice(&stream, [4], &[-1.0f32, -2.0, -1.0, -3.0])?;
/// let tokens = Tensor::from_slice(&stream, [4], &[-100, 7, 8, 9])?;
/// let advantages = Tensor::from_slice(&stream, [2], &[1.0f32, -1.0])?;
/// let offsets = Tensor::from_slice(&stream, [3], &[0, 2, 4])?;
/// let (losses, gradient) = ops::grpo(&stream, &log_probs, &tokens, &advantages, &offsets, &Grpo::new())?;
/// assert_eq!(losses.value(&stream)?, 0.0);
/// // The first sequence has one token that counts, the second two.
/// assert_eq!(gradient.to_vec(&stream)?, [0.0, -0.5, 0.25, 0.25]);
/// # Ok(())
/// # }
/// ```
pub fn grpo<'a>(
    stream: &Stream,
    log_probs: impl Into<View<'a, f32>>,
    targets: impl Into<View<'a, i32>>,
    advantages: impl Into<View<'a, f32>>,
    offsets: impl Into<View<'a, i32>>,
    options: &Grpo<'_>,
) -> Result<(RowLosses, Tensor<f32>)> {
    let (log_probs, info) = (log_probs.into(), &operator::INFO);
    let objective = Objective::new(info, targets.into(), advantages.into(), offsets.into(), options, i32::MAX as u32)?;
    let mut losses = objective.uninit(stream)?;
    let mut gradient = Tensor::result(stream, log_probs.shape())?;
    objective.launch(stream, log_probs, losses.views(), gradient.view_mut())?;
    Ok((losses, gradient))
}
