//! Attention in f64 by straightforward loops, as the reference.
//!
//! A reference is asked for many rows at a time. It walks over the other side once and widens each of its rows once, not once
//! for every pair.

use std::collections::BTreeSet;
use std::f64::consts::LOG2_E;

use gpu_kernels::ops::attention::{LIMIT_BF16, LIMIT_E4M3, LIMIT_F16};

use crate::ops::model::{Params, Tensors, reference};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// The inputs and the values derived from them.
pub(super) struct Exact<'a> {
    pub(super) q: &'a HostTensor,
    k: &'a HostTensor,
    v: &'a HostTensor,
    heads: usize,
    kv_heads: usize,
    /// The number of queries and of keys in memory.
    tokens: [usize; 2],
    slopes: Vec<f64>,
    sinks: Vec<f64>,
    /// The scales of Q, K and V: one for every head of K of a sequence, one for all, or none.
    scales: [Vec<f64>; 3],
    key_lengths: Option<Vec<f64>>,
    packed: Option<[Vec<f64>; 2]>,
    pub(super) scale: f64,
    softcap: f64,
    left: Option<usize>,
    right: Option<usize>,
    /// The magnitude of the greatest score, to base 2, from which on the result of a query is NaN.
    limit: f64,
}

/// A sequence: its first query and key in memory, how many it has of each, and how many of the keys are not padding.
#[derive(Clone, Copy, Default)]
struct Sequence {
    q0: usize,
    q_len: usize,
    k0: usize,
    k_len: usize,
    keys: usize,
}

/// A query and its position.
pub(super) struct Query {
    /// Its row of Q.
    pub(super) values: Vec<f64>,
    head: usize,
    /// The key at the query's position, counted within its sequence.
    place: i64,
    /// The row of K where its sequence's keys start, and their number.
    first_key: usize,
    keys: usize,
}

/// A key with its value.
pub(super) struct Key {
    /// Their row of K and V.
    row: usize,
    pub(super) values: Vec<f64>,
    /// The row of V.
    pub(super) value: Vec<f64>,
}

/// The score of a query and a key that it sees, with its derivative.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) score: f64,
    /// The derivative of the score with respect to scale·q·k.
    pub(super) slope: f64,
}

impl<'a> Exact<'a> {
    pub(super) fn new(inputs: &Tensors<'a>, params: &Params) -> Result<Self> {
        let (q, k, v) = (inputs.get("q")?, inputs.get("k")?, inputs.get("v")?);
        let numbers = |name| inputs.optional(name).map(HostTensor::to_f64);
        let causal = params.bool("causal")?;
        let reach = |name| params.i64(name).map(|keys| usize::try_from(keys).ok());
        let scale = f64::from(params.f32("scale")?);
        let d = q.shape()[3].max(1) as f64;
        Ok(Self {
            heads: q.shape()[1],
            kv_heads: k.shape()[1],
            tokens: [q.shape()[2], k.shape()[2]],
            slopes: numbers("slopes").unwrap_or_default(),
            sinks: numbers("sinks").unwrap_or_default(),
            scales: ["q_scales", "k_scales", "v_scales"].map(|name| numbers(name).unwrap_or_default()),
            key_lengths: numbers("key_lengths"),
            packed: numbers("cu_q").zip(numbers("cu_k")).map(|(cu_q, cu_k)| [cu_q, cu_k]),
            scale: if scale == 0.0 { d.sqrt().recip() } else { scale },
            softcap: f64::from(params.f32("softcap")?),
            left: reach("left")?,
            right: if causal { Some(0) } else { reach("right")? },
            limit: f64::from(limit_of(q.dtype())),
            q,
            k,
            v,
        })
    }

    /// All sequences of a batch.
    fn sequences(&self, batch: usize) -> Vec<Sequence> {
        let [q_len, k_len] = self.tokens;
        let Some(cu) = &self.packed else {
            let keys = match &self.key_lengths {
                Some(lengths) => lengths[batch].clamp(0.0, k_len as f64) as usize,
                None => k_len,
            };
            return vec![Sequence { q0: 0, q_len, k0: 0, k_len, keys }];
        };
        let last = cu[0].len() - 2;
        let mut starts = [0; 2];
        (0..=last)
            .map(|i| {
                let end = |side: usize| match i == last {
                    true => self.tokens[side],
                    false => cu[side][i + 1].clamp(starts[side] as f64, self.tokens[side] as f64) as usize,
                };
                let ends = [end(0), end(1)];
                let [q0, k0] = std::mem::replace(&mut starts, ends);
                let k_len = ends[1] - k0;
                Sequence { q0, q_len: ends[0] - q0, k0, k_len, keys: k_len }
            })
            .collect()
    }

    /// Every row of Q that may see one of these rows of K.
    pub(super) fn queries_of(&self, rows: &[usize]) -> impl Iterator<Item = usize> + use<> {
        let [q_len, k_len] = self.tokens;
        let queries = self.heads / self.kv_heads.max(1) * q_len;
        let heads: BTreeSet<_> = rows.iter().map(|row| row / k_len).collect();
        heads.into_iter().flat_map(move |head| head * queries..(head + 1) * queries)
    }

    /// Every row of K that one of these rows of Q may see.
    pub(super) fn keys_of(&self, rows: &[usize]) -> impl Iterator<Item = usize> + use<> {
        let [q_len, k_len] = self.tokens;
        let queries = self.heads / self.kv_heads.max(1) * q_len;
        let heads: BTreeSet<_> = rows.iter().map(|row| row / queries).collect();
        heads.into_iter().flat_map(move |head| head * k_len..(head + 1) * k_len)
    }

    /// Row `row` of Q.
    pub(super) fn query(&self, row: usize) -> Query {
        let [q_len, _] = self.tokens;
        let (batch, head, token) = (row / q_len / self.heads, row / q_len % self.heads, row % q_len);
        let mut sequences = self.sequences(batch).into_iter();
        let sequence = sequences.rfind(|s| s.q0 <= token).unwrap_or_default();
        Query {
            values: reference::row(self.q, row),
            head,
            place: (token + sequence.k_len) as i64 - (sequence.q0 + sequence.q_len) as i64,
            first_key: (batch * self.kv_heads + head * self.kv_heads / self.heads) * self.tokens[1] + sequence.k0,
            keys: sequence.keys,
        }
    }

    /// Row `row` of K and V.
    pub(super) fn key(&self, row: usize) -> Key {
        let scale = self.scale_of(2, row);
        let value = reference::row(self.v, row).into_iter().map(|v| v * scale).collect();
        Key { row, values: reference::row(self.k, row), value }
    }

    /// The score of a query and a key, if the query sees the key.
    pub(super) fn score(&self, query: &Query, key: &Key) -> Option<Seen> {
        let place = key.row.checked_sub(query.first_key).filter(|place| *place < query.keys)? as i64;
        let seen = self.left.is_none_or(|left| query.place - place <= left as i64)
            && self.right.is_none_or(|right| place - query.place <= right as i64);
        if !seen {
            return None;
        }
        let factor = self.scale * (self.scale_of(0, key.row) * self.scale_of(1, key.row)).max(0.0);
        let x = factor * reference::dot(&query.values, &key.values);
        let t = (x / self.softcap).tanh();
        let (capped, slope) = if self.softcap > 0.0 { (self.softcap * t, 1.0 - t * t) } else { (x, 1.0) };
        let penalty = self.slopes.get(query.head).map_or(0.0, |slope| slope * (query.place - place).abs() as f64);
        Some(Seen { score: capped - penalty, slope })
    }

    /// The factor of Q (0), K (1) or V (2) for row `row` of K.
    fn scale_of(&self, which: usize, row: usize) -> f64 {
        match self.scales[which].as_slice() {
            [] => 1.0,
            [all] => *all,
            of_heads => of_heads[row / self.tokens[1]],
        }
    }

    /// Calls `f` for every pair of a query and a key that it sees, with the query's index; `queries` are the rows `rows` of Q.
    pub(super) fn each_seen(&self, rows: &[usize], queries: &[Query], mut f: impl FnMut(usize, &Key, Seen)) {
        for row in self.keys_of(rows) {
            let key = self.key(row);
            for (i, query) in queries.iter().enumerate() {
                if let Some(seen) = self.score(query, &key) {
                    f(i, &key, seen);
                }
            }
        }
    }

    /// log Σ e^score over what these rows of Q see, including the sinks of their heads.
    pub(super) fn lse(&self, rows: &[usize]) -> Vec<f64> {
        self.lse_of(rows, &self.queries(rows)).into_iter().map(|[max, log]| max + log).collect()
    }

    /// These rows of Q.
    pub(super) fn queries(&self, rows: &[usize]) -> Vec<Query> {
        rows.iter().map(|row| self.query(*row)).collect()
    }

    /// The two parts of [`lse`](Self::lse), kept apart because a great maximum would absorb the second part in the sum.
    fn lse_of(&self, rows: &[usize], queries: &[Query]) -> Vec<[f64; 2]> {
        let mut scores: Vec<Vec<f64>> =
            queries.iter().map(|query| self.sinks.get(query.head).copied().into_iter().collect()).collect();
        self.each_seen(rows, queries, |i, _, seen| scores[i].push(seen.score));
        scores.iter().map(|scores| limited_parts(scores, self.limit)).collect()
    }

    /// These rows of O.
    pub(super) fn output(&self, rows: &[usize]) -> Vec<f64> {
        let queries = self.queries(rows);
        let lse = self.lse_of(rows, &queries);
        let start = |[_, log]: &[f64; 2]| vec![if log.is_nan() { f64::NAN } else { 0.0 }; self.q.shape()[3]];
        let mut o: Vec<_> = lse.iter().map(start).collect();
        self.each_seen(rows, &queries, |i, key, seen| {
            let [max, log] = lse[i];
            add(&mut o[i], (seen.score - max - log).exp(), &key.value);
        });
        o.concat()
    }
}

/// `sum` += `factor` · `row`.
pub(super) fn add(sum: &mut [f64], factor: f64, row: &[f64]) {
    sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
}

/// The limit for queries of a type.
fn limit_of(dtype: DType) -> f32 {
    match dtype {
        DType::F16 => LIMIT_F16,
        DType::BF16 => LIMIT_BF16,
        DType::F8E4M3 => LIMIT_E4M3,
        _ => f32::INFINITY,
    }
}

/// [`parts`]; NaN if the greatest score, to base 2, has a magnitude of `limit` or more, or is not finite in f32.
fn limited_parts(scores: &[f64], limit: f64) -> [f64; 2] {
    let [max, log] = parts(scores.iter().copied());
    [max, if max.abs() * LOG2_E < limit.min(f64::from(f32::MAX)) { log } else { f64::NAN }]
}

/// log Σ e^score; −∞ if there are no scores or all are −∞.
pub(super) fn logsumexp(scores: impl Iterator<Item = f64> + Clone) -> f64 {
    let [reference, log] = parts(scores);
    reference + log
}

/// The greatest score, or 0 if that is −∞, and log Σ e^(score − greatest).
fn parts(scores: impl Iterator<Item = f64> + Clone) -> [f64; 2] {
    let max = scores.clone().fold(f64::NEG_INFINITY, f64::max);
    let reference = if max == f64::NEG_INFINITY { 0.0 } else { max };
    [reference, scores.map(|score| (score - reference).exp()).sum::<f64>().ln()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_beyond_the_limit_give_nan() {
        let lse = |scores: &[f64], dtype| {
            let [max, log] = limited_parts(scores, f64::from(limit_of(dtype)));
            max + log
        };
        for (dtype, limit) in [(DType::F16, 28), (DType::BF16, 31), (DType::F8E4M3, 24)] {
            let limit = 2f64.powi(limit) / LOG2_E;
            for sign in [1.0, -1.0] {
                let (below, beyond) = (sign * limit * 0.999, sign * limit * 1.001);
                assert_eq!(lse(&[below, -1e30], dtype), below);
                assert!(lse(&[beyond, -1e30], dtype).is_nan());
            }
            assert_eq!(lse(&[-1e30, 0.0], dtype), 0.0, "the greatest decides");
            assert_eq!(lse(&[], dtype), f64::NEG_INFINITY);
            assert!(lse(&[f64::INFINITY, 0.0], dtype).is_nan());
        }
        assert_eq!(lse(&[1e30, 0.0], DType::F32), 1e30);
        assert!(lse(&[f64::INFINITY], DType::F32).is_nan());
    }
}
