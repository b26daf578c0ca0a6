//! Attention of a few new queries over a cache of keys and values, contiguous or paged.

mod call;
mod cases;
mod check;
mod exact;
mod operator;
mod tokens;

pub use operator::{ATTENTION_DECODE, ATTENTION_DECODE_APPEND};

use call::Call;
use gpu_kernels::ops::attention::decode::simple::AttentionDecodeSimpleCDtype;
use tokens::Tokens;

use crate::runtime::dtype::{DType, Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};
use crate::{bf16, f8e4m3, f16};

/// The element types that a cache may have for queries of type `T`: `T` itself, or one of 8 bits with scales, `i8` or
/// [`struct@f8e4m3`].
pub trait CacheElement<T: Float>: Dtype + AttentionDecodeSimpleCDtype {}

impl CacheElement<f32> for f32 {}
impl CacheElement<f16> for f16 {}
impl CacheElement<bf16> for bf16 {}
impl<T: Float> CacheElement<T> for i8 {}
impl<T: Float> CacheElement<T> for f8e4m3 {}

/// Keys and values of earlier tokens, read-only.
///
/// `k` and `v` are `[batch, max_len, kv_heads, d]`. With a page table, `[batch, max_pages]`, they are `[pages, page_size,
/// kv_heads, d]`, and `page_table[b, i]` names the page that holds the positions from i · page_size on of sequence b. `lengths`,
/// `[batch]`, counts the keys of each sequence, including those of the queries' own tokens; a number
/// outside 0..=capacity is clamped to that range. A key whose page number is not a page of the cache is not seen. The last
/// dimension of `k` and `v` is contiguous, the others may have any strides; `lengths` and `page_table` are contiguous.
///
/// A cache of `i8` or [`struct@f8e4m3`], as [`append_kv_quantized`](fn@crate::ops::append_kv_quantized) fills it, has a scale
/// for each token and head, by which its vector is to be multiplied. Scales of adjacent positions should be adjacent in memory:
/// stored as `[pages, kv_heads, page_size]` and passed as `scales.view().permute([0, 2, 1])?`.
#[derive(Clone, Copy, Debug)]
pub struct KvCache<'a, T> {
    /// Keys.
    pub k: View<'a, T>,
    /// Values.
    pub v: View<'a, T>,
    /// Scales of keys and of values, of the shape of `k` without d and with any strides. Required for 8-bit elements, not
    /// allowed for others.
    pub scales: Option<[View<'a, f32>; 2]>,
    /// The number of keys of each sequence, including those of the queries' own tokens.
    pub lengths: View<'a, i32>,
    /// The page table of a paged cache.
    pub page_table: Option<View<'a, i32>>,
}

/// A [`KvCache`] to which new keys and values are written.
#[derive(Debug)]
pub struct KvCacheMut<'a, T> {
    /// Keys.
    pub k: ViewMut<'a, T>,
    /// Values.
    pub v: ViewMut<'a, T>,
    /// The number of keys of each sequence after the call, including the new ones; see [`KvCache::lengths`].
    pub lengths_after: View<'a, i32>,
    /// The page table of a paged cache.
    pub page_table: Option<View<'a, i32>>,
}

/// Options of decoding: how scores are formed, which keys a query sees, and how the work is divided.
///
/// ```
/// # use warpsmith::ops::Decoding;
/// let sliding = Decoding::default().window(1023).softcap(50.0);
/// # let _ = sliding;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoding<'a> {
    left: Option<usize>,
    scale: Option<f32>,
    softcap: Option<f32>,
    splits: Option<u32>,
    sinks: Option<View<'a, f32>>,
}

impl<'a> Decoding<'a> {
    /// Limits a query to at most `left` keys before its own.
    pub fn window(self, left: usize) -> Self {
        Self { left: Some(left), ..self }
    }

    /// Sets the factor of the scores, above zero and below 2¹²⁷; the default is 1/√d.
    pub fn scale(self, scale: f32) -> Self {
        Self { scale: Some(scale), ..self }
    }

    /// Replaces each score x by cap·tanh(x / cap); cap is a positive normal number.
    pub fn softcap(self, cap: f32) -> Self {
        Self { softcap: Some(cap), ..self }
    }

    /// Sinks, `[heads]` and contiguous: see [`Attention::sinks`](super::Attention::sinks).
    pub fn sinks(self, sinks: impl Into<View<'a, f32>>) -> Self {
        Self { sinks: Some(sinks.into()), ..self }
    }

    /// Divides the keys of a sequence among at most `splits` blocks, at least 1; the default is as many as keep memory busy.
    /// Results are bitwise the same for the same number.
    pub fn splits(self, splits: u32) -> Self {
        Self { splits: Some(splits), ..self }
    }
}

/// O = softmax(Q·Kᵀ·scale)·V of the last tokens of each sequence over all its keys in `cache`.
///
/// `lengths` of the cache counts the keys of each sequence, including those of the queries' own tokens, which are already
/// there, and is not changed: [`append_kv`](fn@crate::ops::append_kv), which puts them there, takes `lengths_before`, which
/// does not include them.
///
/// `q` is `[batch, q_len, heads, d]` with any strides but contiguous d, at most 256; kv_heads of the cache divides heads (GQA,
/// MQA). Query n of q_len has the position key length − q_len + n, and sees the keys at that position and before: there is one
/// query per step, or several in speculative decoding. The result has the shape of `q` and is dense. The result of a query that
/// sees no key is zeros.
///
/// f16 and bf16 with d a multiple of 8 and rows at multiples of 16 bytes run on the tensor cores, reading K and V once for up
/// to 16 queries that share them (32 at d up to 64); keys are divided among the multiprocessors. Everything else, including
/// f32, takes a correct path that is much slower. The work is queued on `stream`.
///
/// A cache of 8-bit elements runs on the tensor cores for d a multiple of 16 up to 128. Its elements are converted to 16-bit
/// floats exactly. The scale of a key multiplies the score, and the scale of a value multiplies the weight, which is then
/// rounded to bf16 whatever the type of the queries.
///
/// Dao et al., "Flash-Decoding for long-context inference" (2023).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if d, `lengths` or the page table
/// are not contiguous, [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, or the cache
/// has scales that it should not have, or lacks those it should, [`Error::TooLarge`](crate::Error::TooLarge) beyond 2²⁸ keys a sequence or queries of all heads.
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops::{self, Decoding, KvCache}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let q = Tensor::from_slice(&stream, [2, 1, 4, 16], &[f16::ONE; 128])?;
/// let k = Tensor::from_slice(&stream, [2, 10, 1, 16], &[f16::ONE; 320])?;
/// let lengths = Tensor::from_slice(&stream, [2], &[10, 0])?;
/// let cache = KvCache { k: k.view(), v: k.view(), scales: None, lengths: lengths.view(), page_table: None };
/// let o = ops::attention_decode(&stream, &q, &cache, &Decoding::default())?;
/// assert_eq!(o.to_vec(&stream)?, [[f16::ONE; 64], [f16::ZERO; 64]].concat());
/// # Ok(())
/// # }
/// ```
pub fn attention_decode<'a, T: Float, C: CacheElement<T>>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    cache: &KvCache<'_, C>,
    options: &Decoding<'_>,
) -> Result<Tensor<T>> {
    let q = q.into();
    let (mut o, mut lse) = results(stream, ATTENTION_DECODE.name(), q)?;
    attention_decode_into(stream, q, cache, options, &mut o, &mut lse)?;
    Ok(o)
}

/// [`attention_decode`] that writes to `o`, of the shape of `q` with any strides but contiguous d, and to `lse`, `[batch,
/// heads, q_len]`, contiguous: the logsumexp of each query's scores, −∞ where it sees no key.
///
/// `lengths` of the cache counts the keys of each sequence, including those of the queries' own tokens, and is not changed.
///
/// # Errors
/// Same as [`attention_decode`].
pub fn attention_decode_into<'a, T: Float, C: CacheElement<T>>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    cache: &KvCache<'_, C>,
    options: &Decoding<'_>,
    o: impl Into<ViewMut<'a, T>>,
    lse: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let &KvCache { k, v, scales, lengths, page_table } = cache;
    let scales = scales.map(|scales| scales.map(|scale| View::of(scale.part)));
    let tokens: Tokens<'_, C> = Tokens::Read([View::of(k.part), View::of(v.part)], scales);
    let (lengths, page_table) = (View::of(lengths.part), page_table.map(|table| View::of(table.part)));
    Call::new(ATTENTION_DECODE.facts(), q.into(), tokens, lengths, page_table, options, o.into(), lse.into())?
        .launch(stream)
}

/// [`attention_decode`] for new tokens: the launch first writes `k` and `v`, `[batch, q_len, kv_heads, d]`, to the
/// positions from lengths_after\[b\] − q_len on of the cache, then attends to them.
///
/// `lengths_after` of the cache counts the keys of each sequence, including the new ones, and is not changed. The
/// `lengths_before` of [`append_kv`](fn@crate::ops::append_kv) does not include them.
///
/// A length beyond the capacity counts as the capacity: the new tokens are then seen at the last positions but not written,
/// because that would overwrite others. A token whose position is negative, or whose page number is not a page of the cache, is
/// neither written nor seen. No two sequences may share the pages that they write to. The last dimension of `k` and `v` is
/// contiguous.
///
/// # Errors
/// Same as [`attention_decode`].
pub fn attention_decode_append<'a, T: CacheElement<T> + Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    v: impl Into<View<'a, T>>,
    cache: KvCacheMut<'_, T>,
    options: &Decoding<'_>,
) -> Result<Tensor<T>> {
    let (q, k, v) = (q.into(), k.into(), v.into());
    let (mut o, mut lse) = results(stream, ATTENTION_DECODE_APPEND.name(), q)?;
    attention_decode_append_into(stream, q, k, v, cache, options, &mut o, &mut lse)?;
    Ok(o)
}

/// [`attention_decode_append`] that writes to `o` and `lse`, which are as for [`attention_decode_into`].
///
/// `lengths_after` of the cache counts the keys of each sequence, including the new ones, and is not changed.
///
/// # Errors
/// Same as [`attention_decode`].
#[allow(clippy::too_many_arguments)] // The step's tensors.
pub fn attention_decode_append_into<'a, T: CacheElement<T> + Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    v: impl Into<View<'a, T>>,
    cache: KvCacheMut<'_, T>,
    options: &Decoding<'_>,
    o: impl Into<ViewMut<'a, T>>,
    lse: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let (k, v): (View<'a, T>, View<'a, T>) = (k.into(), v.into());
    let tokens: Tokens<'_, T> = Tokens::Append {
        caches: [ViewMut::of(cache.k.part), ViewMut::of(cache.v.part)],
        new: [View::of(k.part), View::of(v.part)],
    };
    let (lengths, page_table) = (cache.lengths_after, cache.page_table);
    let info = ATTENTION_DECODE_APPEND.facts();
    Call::new(info, q.into(), tokens, lengths, page_table, options, o.into(), lse.into())?.launch(stream)
}

/// New tensors for O and its logsumexps.
fn results<T: Float>(stream: &Stream, op: &'static str, q: View<'_, T>) -> Result<(Tensor<T>, Tensor<f32>)> {
    let [batch, q_len, heads, _] = q.dims(op, "q")?;
    Ok((Tensor::result(stream, q.shape())?, Tensor::result(stream, [batch, heads, q_len])?))
}

/// Whether a cache's elements have scales.
fn scaled(cache: DType) -> bool {
    !cache.is_float()
}

/// Whether the tensor-core kernels take vectors of `d` elements: whole chunks of 16 bytes of the cache, and at most 128
/// elements if there are scales.
fn fits_d(cache: DType, d: usize) -> bool {
    d > 0 && if scaled(cache) { d.is_multiple_of(16) && d <= 128 } else { d.is_multiple_of(8) }
}
