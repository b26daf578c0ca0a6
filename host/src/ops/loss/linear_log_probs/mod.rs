//! Log-probabilities of chosen tokens under the logits of a linear layer, which never exist all at the same time.

mod call;
mod operator;

pub use operator::{LINEAR_LOG_PROBS, LinearLogProbsOf};

use cuda_std::float::Half;

use self::call::Call;
use super::batch::RowLosses;
use super::linear::Linear;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// Which tokens have log-probabilities.
#[derive(Clone, Copy, Debug)]
pub struct LogProbs {
    ignored: i32,
}

impl Default for LogProbs {
    fn default() -> Self {
        Self::new()
    }
}

impl LogProbs {
    /// All tokens except those with the target −100.
    pub fn new() -> Self {
        Self { ignored: -100 }
    }

    /// Sets the target of tokens that do not count; the default is −100.
    pub fn ignore(self, target: i32) -> Self {
        Self { ignored: target }
    }
}

/// The log-probabilities of tokens, on the device.
#[derive(Debug)]
pub struct TokenLogProbs {
    rows: RowLosses,
}

impl TokenLogProbs {
    /// The log-probability of each token, `[tokens]`: 0 where the target is ignored, NaN where it is not a class.
    pub fn per_token(&self) -> &Tensor<f32> {
        self.rows.per_row()
    }

    /// Waits for the log-probabilities and returns an error if a target is not a class.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) names the first that was none.
    pub fn check(&self, stream: &Stream) -> Result<()> {
        self.rows.check(stream)
    }
}

/// The log-probability of each of `targets` under the logits `hidden` · `weight`ᵀ, of which only some rows exist at a time: the
/// inputs of [`Grpo::old`](super::Grpo::old) and [`Grpo::penalty`](super::Grpo::penalty), from the policy that drew the tokens
/// and from a reference model.
///
/// `hidden` is `[tokens, d]` and `weight` is `[classes, d]`, in f16 or bf16 and with any strides; `targets`, `[tokens]` and
/// contiguous, holds the next token at each position. Logits are rounded to that type, as a layer's output is. The work is
/// queued on `stream`; [`TokenLogProbs::check`] waits for it and returns an error if a target is not a class.
///
/// For derivatives with respect to them, use [`linear_cross_entropy_backward`](super::linear_cross_entropy_backward()), whose
/// losses are the negated log-probabilities; [`linear_grpo`](super::linear_grpo()) and [`linear_dpo`](super::linear_dpo())
/// compute objectives over them with their gradients.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit or there is no class, [`Error::Layout`](crate::Error::Layout) if `targets` is not
/// contiguous, [`Error::TooLarge`](crate::Error::TooLarge) beyond 2³¹ − 1 tokens, classes or dimensions,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// A step of the policy, from the log-probabilities before it.
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops};
/// # use warpsmith::ops::{Grpo, Linear, LogProbs};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [3, 8], &[bf16::from_f32(1.0); 24])?;
/// let weight = Tensor::from_slice(&stream, [4, 8], &[bf16::from_f32(0.5); 32])?;
/// let tokens = Tensor::from_slice(&stream, [3], &[-100, 3, 0])?;
/// let old = ops::linear_log_probs(&stream, &hidden, &weight, &tokens, &Linear::new(LogProbs::new()))?;
/// old.check(&stream)?;
/// let log_probs = old.per_token().to_vec(&stream)?;
/// assert_eq!(log_probs[0], 0.0); // of the prompt
/// assert!((log_probs[1] + 4f32.ln()).abs() < 1e-6);
///
/// let advantages = Tensor::from_slice(&stream, [1], &[1.0])?;
/// let offsets = Tensor::from_slice(&stream, [2], &[0, 3])?;
/// let options = Linear::new(Grpo::new().old(old.per_token()));
/// let losses = ops::linear_grpo(&stream, &hidden, &weight, &tokens, &advantages, &offsets, &options)?;
/// assert!((losses.value(&stream)? + 1.0).abs() < 1e-5); // a ratio of 1
/// # Ok(())
/// # }
/// ```
pub fn linear_log_probs<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    targets: impl Into<View<'a, i32>>,
    options: &Linear<LogProbs>,
) -> Result<TokenLogProbs> {
    let call = Call::new(&operator::INFO, [hidden.into(), weight.into()], targets.into(), options)?;
    let mut rows = call.uninit(stream)?;
    call.launch(stream, rows.views())?;
    Ok(TokenLogProbs { rows })
}
