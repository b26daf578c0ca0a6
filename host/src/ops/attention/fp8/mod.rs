//! Attention forward of 8-bit floats.

mod call;
mod operator;

use cuda_std::float::Half;

use self::call::Call;
pub use self::operator::AttentionFp8;
use self::operator::INFO;
use super::Attention;
use crate::f8e4m3;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The inputs of [`attention_fp8`]: 8-bit floats and their scales.
///
/// Scales are `[batch, kv_heads]`, contiguous, with a number for every head of keys, or `[1]` for all heads. A number in
/// `q_scales` is for the queries of all heads that share a head of keys. Scales must not be negative.
#[derive(Clone, Copy, Debug)]
pub struct Fp8Heads<'a> {
    /// The queries, `[batch, heads, q_len, d]`.
    pub q: View<'a, f8e4m3>,
    /// The scales of the queries.
    pub q_scales: View<'a, f32>,
    /// The keys, `[batch, kv_heads, k_len, d]`.
    pub k: View<'a, f8e4m3>,
    /// The scales of the keys.
    pub k_scales: View<'a, f32>,
    /// The values, of the same shape as the keys.
    pub v: View<'a, f8e4m3>,
    /// The scales of the values.
    pub v_scales: View<'a, f32>,
}

/// O = softmax(Q·Kᵀ·scale)·V for 8-bit floats with separate scales for every head, without ever storing the scores in memory.
///
/// `q` is `[batch, heads, q_len, d]`, `k` and `v` are `[batch, kv_heads, k_len, d]` with kv_heads dividing heads (GQA, MQA),
/// all [`f8e4m3`](struct@crate::f8e4m3) with any strides but contiguous d, which is at most 256. Each element stands for its
/// value times the scale of its head; if the product of the scales of queries and keys is negative, it counts as zero. The
/// result is `[batch, heads, q_len, d]` in f16 or bf16, dense. The result of a query that sees no key is zeros.
///
/// On Hopper, d of 64 and 128 with rows at multiples of 16 bytes run on the tensor cores in 8 bits, unless sequences are packed
/// or scores have a soft cap or slopes; this path takes memory for a copy of V while it runs. It rounds weights to 3 bits of
/// mantissa: for independent values, the standard deviation of the error is 2.6 % of that of the result. Everything else, and
/// every other GPU, takes a path of f32 arithmetic that is some hundred times slower. The work is queued on `stream`.
///
/// Shah et al., "FlashAttention-3", arXiv:2407.08608.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if d or scales are not contiguous,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond
/// 2²⁸ tokens, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f8e4m3, f16, ops, ops::{Attention, Fp8Heads}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let [q, k, v] = [1.0, 0.5, 3.0].map(|x| Tensor::from_slice(&stream, [1, 2, 5, 16], &[f8e4m3::from_f32(x); 160]).unwrap());
/// // A scale for each head of keys, or one for all.
/// let ones = Tensor::from_slice(&stream, [1], &[1.0f32])?;
/// let of_heads = Tensor::from_slice(&stream, [1, 2], &[0.5f32, 2.0])?;
/// let [q_scales, k_scales, v_scales] = [ones.view(), ones.view(), of_heads.view()];
/// let heads = Fp8Heads { q: q.view(), q_scales, k: k.view(), k_scales, v: v.view(), v_scales };
/// let o = ops::attention_fp8::<f16>(&stream, &heads, &Attention::causal())?.to_vec(&stream)?;
/// assert_eq!([o[0], o[80]], [1.5, 6.0].map(f16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn attention_fp8<T: Float + Half>(
    stream: &Stream,
    heads: &Fp8Heads<'_>,
    options: &Attention<'_>,
) -> Result<Tensor<T>> {
    Ok(attention_fp8_with_lse(stream, heads, options)?.0)
}

/// [`attention_fp8`], with the logsumexp of each query's scores, `[batch, heads, q_len]`: −∞ where a query sees no key.
///
/// # Errors
/// Same as [`attention_fp8`].
pub fn attention_fp8_with_lse<T: Float + Half>(
    stream: &Stream,
    heads: &Fp8Heads<'_>,
    options: &Attention<'_>,
) -> Result<(Tensor<T>, Tensor<f32>)> {
    let [batch, of_q, q_len, _] = heads.q.dims(INFO.name, "q")?;
    let mut o = Tensor::result(stream, heads.q.shape())?;
    let mut lse = Tensor::result(stream, [batch, of_q, q_len])?;
    attention_fp8_into(stream, heads, options, &mut o, &mut lse)?;
    Ok((o, lse))
}

/// [`attention_fp8_with_lse`] that writes to `o`, of the shape of `q` with any strides but contiguous d, and `lse`, contiguous.
///
/// # Errors
/// Same as [`attention_fp8`].
pub fn attention_fp8_into<'a, T: Float + Half>(
    stream: &Stream,
    heads: &Fp8Heads<'a>,
    options: &Attention<'a>,
    o: impl Into<ViewMut<'a, T>>,
    lse: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    Call::new(stream, heads, options, o.into(), lse.into())?.launch(stream)
}
