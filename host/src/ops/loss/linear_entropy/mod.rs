//! Entropy of the logits of a linear layer, which never exist all at the same time.

mod call;
mod operator;

pub use operator::{LINEAR_ENTROPY, LINEAR_ENTROPY_WITH_GRADIENT, LinearEntropyOf};

use cuda_std::float::Half;

use self::call::Call;
use super::linear::{Gradients, Linear, LinearGradients};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The distribution whose entropy is taken, and the factor of its gradients.
///
/// ```
/// # use warpsmith::ops::{Entropy, Linear};
/// let options = Linear::new(Entropy::new().temperature(0.7).factor(1.0 / 8192.0)).memory(256 << 20);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Entropy {
    temperature: f32,
    factor: f32,
}

impl Default for Entropy {
    fn default() -> Self {
        Self::new()
    }
}

impl Entropy {
    /// The entropy of the softmax of the unscaled logits.
    pub fn new() -> Self {
        Self { temperature: 1.0, factor: 1.0 }
    }

    /// Sets the divisor of the logits, above zero.
    pub fn temperature(self, temperature: f32) -> Self {
        Self { temperature, ..self }
    }

    /// Sets a factor of the layer's gradients beside the upstream gradients, in f32: use it for what all rows share, such as 1
    /// / rows for their mean. Upstream gradients as small as that would underflow in f16.
    pub fn factor(self, factor: f32) -> Self {
        Self { factor, ..self }
    }
}

/// [`entropy`](super::entropy()) of the logits `hidden` · `weight`ᵀ, of which only some rows exist at a time.
///
/// `hidden` is `[rows, d]` and `weight` is `[classes, d]`, in f16 or bf16 and with any strides; the result is `[rows]`, in f32.
/// Logits are rounded to that type, as a layer's output is; rows with infinities or NaN are treated as in
/// [`entropy`](super::entropy()). The work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit or there is no class, [`Error::InvalidParam`](crate::Error::InvalidParam) if the
/// temperature is not positive and finite or the factor not finite, [`Error::TooLarge`](crate::Error::TooLarge) beyond 2³¹ − 1 rows, classes or
/// dimensions, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops};
/// # use warpsmith::ops::{Entropy, Linear};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [2, 8], &[bf16::from_f32(1.0); 16])?;
/// let weight = Tensor::from_slice(&stream, [4, 8], &[bf16::from_f32(0.5); 32])?;
/// let entropies = ops::linear_entropy(&stream, &hidden, &weight, &Linear::new(Entropy::new()))?;
/// assert!((entropies.to_vec(&stream)?[1] - 4f32.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
pub fn linear_entropy<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    options: &Linear<Entropy>,
) -> Result<Tensor<f32>> {
    let call = Call::new(&operator::FORWARD, hidden.into(), weight.into(), options)?;
    let mut entropies = call.uninit(stream)?;
    call.launch(stream, entropies.view_mut(), None)?;
    Ok(entropies)
}

/// [`linear_entropy`] into `entropies`, `[rows]` and contiguous.
///
/// # Errors
/// Same as [`linear_entropy`].
pub fn linear_entropy_into<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    options: &Linear<Entropy>,
    entropies: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let call = Call::new(&operator::FORWARD, hidden.into(), weight.into(), options)?;
    call.launch(stream, entropies.into(), None)
}

/// [`linear_entropy`] with the derivatives of Σ dentropy · entropy over the rows with respect to `hidden` and `weight`,
/// computed while the logits exist.
///
/// `dentropies` is `[rows]` and contiguous: −β for a bonus of β in a loss, 0 for prompts and padding. Automatic differentiation
/// passes its upstream gradient here, which makes this its backward pass.
///
/// # Errors
/// Same as [`linear_entropy`], and [`Error::Layout`](crate::Error::Layout) if `dentropies` is not contiguous.
///
/// # Example
/// The mean over two tokens of three, whose entropy is to rise.
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # use warpsmith::ops::{Entropy, Linear};
/// # fn main() -> warpsmith::Result<()> {
/// # let stream = Device::open()?.stream()?;
/// let hidden = Tensor::from_slice(&stream, [3, 1], &[1.0, 2.0, 3.0].map(f16::from_f32))?;
/// let weight = Tensor::from_slice(&stream, [2, 1], &[0.0, 1.0].map(f16::from_f32))?;
/// let dentropies = Tensor::from_slice(&stream, [3], &[0.0, -1.0, -1.0])?;
/// let options = Linear::new(Entropy::new().factor(1.0 / 2.0));
/// let (entropies, gradients) = ops::linear_entropy_with_gradient(&stream, &hidden, &weight, &dentropies, &options)?;
/// let entropies = entropies.to_vec(&stream)?;
/// assert!(entropies[0] > entropies[1] && entropies[1] > entropies[2]);
/// // A step against the gradient brings the classes together; the first token has no part in it.
/// let dweight = gradients.dweight.to_vec(&stream)?;
/// assert!(dweight[0] < 0.0 && dweight[1] > 0.0);
/// assert_eq!(gradients.dhidden.to_vec(&stream)?[0], f16::ZERO);
/// # Ok(())
/// # }
/// ```
pub fn linear_entropy_with_gradient<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dentropies: impl Into<View<'a, f32>>,
    options: &Linear<Entropy>,
) -> Result<(Tensor<f32>, LinearGradients<T>)> {
    let (hidden, weight) = (hidden.into(), weight.into());
    let call = Call::new(&operator::WITH_GRADIENT, hidden, weight, options)?;
    let mut entropies = call.uninit(stream)?;
    let mut gradients = LinearGradients::of(stream, &hidden, &weight, options.accumulate)?;
    call.launch(stream, entropies.view_mut(), Some((dentropies.into(), gradients.views())))?;
    Ok((entropies, gradients))
}

/// [`linear_entropy_with_gradient`] into `entropies`, `[rows]` and contiguous, and tensors of the shapes of `hidden` and
/// `weight`, whose rows may be padded; the weight's gradient is added to the present contents if the options [say
/// so](Linear::accumulate), for example to the gradient of an objective that includes the entropy.
///
/// # Errors
/// Same as [`linear_entropy_with_gradient`], and [`Error::Layout`](crate::Error::Layout) if the elements of a gradient's row are not adjacent.
#[expect(clippy::too_many_arguments, reason = "what is read, how, and what is written")]
pub fn linear_entropy_with_gradient_into<'a, T: Float + Half>(
    stream: &Stream,
    hidden: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    dentropies: impl Into<View<'a, f32>>,
    options: &Linear<Entropy>,
    entropies: impl Into<ViewMut<'a, f32>>,
    dhidden: impl Into<ViewMut<'a, T>>,
    dweight: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let gradients = Gradients { dhidden: dhidden.into(), dweight: dweight.into() };
    let call = Call::new(&operator::WITH_GRADIENT, hidden.into(), weight.into(), options)?;
    call.launch(stream, entropies.into(), Some((dentropies.into(), gradients)))
}
