//! Direct preference optimisation over log-probabilities.

mod call;
mod exact;
mod operator;

pub use call::{Dpo, DpoLosses};
pub use operator::{DPO, DpoOf};

pub(super) use self::call::{Call, Results, pairs_of};
pub(super) use self::exact::Exact;
pub(super) use self::operator::{PARAMS, options};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// The preference loss −ln σ(β·((π_c − π_r) − (ρ_c − ρ_r))) of pairs of answers, their mean, and its derivative with respect to
/// each log-probability.
///
/// `log_probs` holds the log-probability of each token of all answers, one sequence after the other, with 0 for tokens that do
/// not count: the negated [`per_row`](super::Losses::per_row) of a [`cross_entropy`](super::cross_entropy()) that ignores the
/// targets of such tokens. `offsets` holds the start of each sequence and the end of the last, as in packed attention: 2n + 1
/// integers that ascend from 0 to the number of tokens. The first n sequences are the chosen answers and the other n the
/// rejected ones, in the same order, as in the concatenated batch of TRL and Liger. A padded batch `[2n, length]` of theirs has
/// the offsets 0, length, 2·length, …
///
/// π is the sum over a sequence, and ρ that of a [reference](Dpo::reference) model. Both tensors are contiguous. The work is
/// queued on `stream`; invalid offsets are known only after it is done: [`DpoLosses::value`] reports them, and the losses are
/// then NaN and the gradient 0.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit or the number of sequences is odd,
/// [`Error::Layout`](crate::Error::Layout) if anything is not contiguous, [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out
/// of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond 2³¹ − 1 tokens, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops, ops::Dpo};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let log_probs = Tensor::from_slice(&stream, [4], &[-1.0f32, -1.0, -0.5, -1.5])?;
/// // A chosen answer of two tokens, and a rejected one.
/// let offsets = Tensor::from_slice(&stream, [3], &[0, 2, 4])?;
/// let (losses, gradient) = ops::dpo(&stream, &log_probs, &offsets, &Dpo::new(0.1))?;
/// assert_eq!(losses.log_probs().to_vec(&stream)?, [-2.0, -2.0]);
/// assert!((losses.value(&stream)? - 2f32.ln()).abs() < 1e-6);
/// assert_eq!(gradient.to_vec(&stream)?, [-0.05, -0.05, 0.05, 0.05]);
/// # Ok(())
/// # }
/// ```
pub fn dpo<'a>(
    stream: &Stream,
    log_probs: impl Into<View<'a, f32>>,
    offsets: impl Into<View<'a, i32>>,
    options: &Dpo<'_>,
) -> Result<(DpoLosses, Tensor<f32>)> {
    let log_probs = log_probs.into();
    let [tokens] = log_probs.dims(operator::INFO.name, "log_probs")?;
    log_probs.require_contiguous(operator::INFO.name, "log_probs")?;
    let call = Call::new(&operator::INFO, tokens, offsets.into(), options)?;
    let mut losses = call.uninit(stream)?;
    let mut gradient = Tensor::result(stream, log_probs.shape())?;
    call.launch(stream, (log_probs, 1.0), losses.views(), Some((gradient.view_mut(), call.share())))?;
    Ok((losses, gradient))
}
