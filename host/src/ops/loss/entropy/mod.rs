//! Entropy of the softmax of rows of logits.

mod call;
mod exact;
mod operator;

pub use operator::{ENTROPY, ENTROPY_BACKWARD, EntropyOf};

pub(super) use self::call::{Call, scale};
pub(super) use self::exact::Exact;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The entropy −Σ p·ln p of p = softmax(`logits` / `temperature`) for every row.
///
/// `logits` is `[rows, classes]`, or has more dimensions, the last of which is the classes; the elements of a row are
/// contiguous, and rows may be padded. The result, in f32, has the other dimensions. A logit of −∞ has probability 0 and adds
/// nothing; +∞, NaN or a row in which all are −∞ gives NaN. The work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `logits` has fewer than two dimensions or no classes,
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if `temperature` is not positive and finite or its reciprocal not below 2¹²⁷,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let logits = Tensor::from_slice(&stream, [1, 4], &[0.0f32; 4])?;
/// let entropy = ops::entropy(&stream, &logits, 1.0)?;
/// assert!((entropy.to_vec(&stream)?[0] - 4f32.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
pub fn entropy<'a, T: Float>(stream: &Stream, logits: impl Into<View<'a, T>>, temperature: f32) -> Result<Tensor<f32>> {
    let logits = logits.into();
    let outer = logits.shape().split_last().map_or(&[][..], |(_, outer)| outer);
    let mut entropies = Tensor::result(stream, outer)?;
    entropy_into(stream, logits, temperature, &mut entropies)?;
    Ok(entropies)
}

/// [`entropy`] into `entropies`, of the outer dimensions of `logits`, contiguous.
///
/// # Errors
/// Same as [`entropy`].
pub fn entropy_into<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    temperature: f32,
    entropies: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let call = Call::new(&operator::FORWARD, logits.into().into(), temperature)?;
    call.launch(stream, Some(entropies.into()), None)
}

/// The derivative of Σ dentropy · entropy with respect to the logits, as needed for an entropy bonus in an objective.
/// `dentropies` has the outer dimensions of `logits`, contiguous; the result has the shape of the logits and is dense.
///
/// # Errors
/// Same as [`entropy`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// # let stream = Device::open()?.stream()?;
/// let logits = Tensor::from_slice(&stream, [1, 2], &[0.0f32, 1.0])?;
/// let bonus = Tensor::from_slice(&stream, [1], &[0.01f32])?;
/// let gradient = ops::entropy_backward(&stream, &logits, &bonus, 1.0)?.to_vec(&stream)?;
/// // Towards even probabilities.
/// assert!(gradient[0] > 0.0 && (gradient[0] + gradient[1]).abs() < 1e-8);
/// # Ok(())
/// # }
/// ```
pub fn entropy_backward<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    dentropies: impl Into<View<'a, f32>>,
    temperature: f32,
) -> Result<Tensor<T>> {
    let logits = logits.into();
    let mut gradient = Tensor::result(stream, logits.shape())?;
    entropy_backward_into(stream, logits, dentropies.into(), temperature, &mut gradient)?;
    Ok(gradient)
}

/// [`entropy_backward`] into `gradient`, which has the shape of `logits`; its rows may be padded.
///
/// # Errors
/// Same as [`entropy`].
pub fn entropy_backward_into<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    dentropies: impl Into<View<'a, f32>>,
    temperature: f32,
    gradient: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let call = Call::new(&operator::BACKWARD, logits.into().into(), temperature)?;
    call.launch(stream, None, Some((dentropies.into(), Some(gradient.into()))))
}
