use crate::ops::model::OpInfo;
use crate::ops::softmax::MAX_SCALE;
use crate::runtime::error::Result;
use crate::runtime::view::View;

/// How attention's scores are formed, and which keys a query sees.
///
/// The diagonal ends at the last query and the last key: query i of a sequence has the position of key i + k_len − q_len, so
/// the same call serves training, chunked prefill and decoding.
///
/// ```
/// # use warpsmith::ops::Attention;
/// let sliding = Attention::causal().window(1023, 0).softcap(50.0);
/// # let _ = sliding;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Attention<'a> {
    pub(super) left: Option<usize>,
    pub(super) right: Option<usize>,
    pub(super) scale: Option<f32>,
    pub(super) softcap: Option<f32>,
    pub(super) key_lengths: Option<View<'a, i32>>,
    pub(super) packed: Option<[View<'a, i32>; 2]>,
    pub(super) slopes: Option<View<'a, f32>>,
    pub(super) sinks: Option<View<'a, f32>>,
    pub(super) deterministic: bool,
}

impl<'a> Attention<'a> {
    /// Every query sees every key.
    pub fn full() -> Self {
        Self::default()
    }

    /// A query sees the keys up to and including the one at its position.
    pub fn causal() -> Self {
        Self { right: Some(0), ..Self::default() }
    }

    /// A query sees at most `left` keys before and `right` keys after the one at its position.
    pub fn window(self, left: usize, right: usize) -> Self {
        Self { left: Some(left), right: Some(right.min(self.right.unwrap_or(right))), ..self }
    }

    /// Sets the factor of the scores, above zero and below 2¹²⁷; the default is 1/√d.
    pub fn scale(self, scale: f32) -> Self {
        Self { scale: Some(scale), ..self }
    }

    /// Replaces each score x by cap·tanh(x / cap); cap is a positive normal number.
    pub fn softcap(self, cap: f32) -> Self {
        Self { softcap: Some(cap), ..self }
    }

    /// Requires the backward to give bitwise the same results every time, which reduces its speed to less than half on Hopper
    /// and to two thirds elsewhere.
    pub fn deterministic(self) -> Self {
        Self { deterministic: true, ..self }
    }

    /// ALiBi: subtracts slopes\[h\] from the scores of head h for each key of distance from the diagonal. `slopes` is
    /// `[heads]`, contiguous.
    pub fn alibi(self, slopes: impl Into<View<'a, f32>>) -> Self {
        Self { slopes: Some(slopes.into()), ..self }
    }

    /// Sinks: beside its keys, every query of head h sees a score sinks\[h\] without a value, so that the weights of its keys
    /// add up to less than one. The logsumexps include it. `sinks` is `[heads]`, contiguous; −∞ has no effect.
    pub fn sinks(self, sinks: impl Into<View<'a, f32>>) -> Self {
        Self { sinks: Some(sinks.into()), ..self }
    }

    /// Padding: only the first `lengths[b]` keys of sequence b are real. The others count for the positions of queries, but are
    /// not seen. `lengths` is `[batch]`, contiguous; a number outside 0..=k_len is clamped to that range.
    pub fn key_lengths(self, lengths: impl Into<View<'a, i32>>) -> Self {
        Self { key_lengths: Some(lengths.into()), ..self }
    }

    /// Packs sequences of different lengths, one after the other, into a single batch. Sequence i has the queries
    /// `cu_q[i]..cu_q[i + 1]` and the keys `cu_k[i]..cu_k[i + 1]`. Both are `[sequences + 1]`, contiguous. Whatever the numbers
    /// are, the first sequence starts at 0 and the last one ends with the tokens; a number that is below the one before it, or
    /// past the tokens, is clamped to the nearest valid one.
    pub fn packed(self, cu_q: impl Into<View<'a, i32>>, cu_k: impl Into<View<'a, i32>>) -> Self {
        Self { packed: Some([cu_q.into(), cu_k.into()]), ..self }
    }
}

/// The factor of scores that are sums of `d` products: 1 / √d by default.
pub(super) fn checked_scale(info: &OpInfo, scale: Option<f32>, d: usize) -> Result<f32> {
    let scale = scale.unwrap_or_else(|| (d.max(1) as f32).sqrt().recip());
    match scale > 0.0 && scale <= MAX_SCALE {
        true => Ok(scale),
        false => Err(info.param_error("scale", scale, "a number above zero and below 2^127")),
    }
}

/// The soft cap, or 0 if there is none. It must be normal, so that it has an inverse.
pub(in crate::ops) fn checked_softcap(info: &OpInfo, cap: Option<f32>) -> Result<f32> {
    match cap {
        None => Ok(0.0),
        Some(cap) if cap.is_normal() && cap > 0.0 => Ok(cap),
        Some(cap) => Err(info.param_error("softcap", cap, "a normal number above zero")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::forward::INFO;

    #[test]
    fn a_soft_cap_is_a_normal_number_above_zero() {
        assert_eq!(checked_softcap(&INFO, None).unwrap(), 0.0);
        assert_eq!(checked_softcap(&INFO, Some(f32::MIN_POSITIVE)).unwrap(), f32::MIN_POSITIVE);
        for cap in [0.0, -0.0, -1.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, f32::NAN] {
            let error = checked_softcap(&INFO, Some(cap)).unwrap_err().to_string();
            let wanted = format!("attention: parameter `softcap` = {cap}: expected a normal number above zero");
            assert_eq!(error, wanted);
        }
    }
}
