//! Attention in f64 by the obvious loops, for references.

use crate::ops::model::{Params, Tensors, reference};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// The inputs and what they amount to.
pub(super) struct Exact<'a> {
    pub(super) q: &'a HostTensor,
    pub(super) k: &'a HostTensor,
    v: &'a HostTensor,
    heads: usize,
    kv_heads: usize,
    /// Queries and keys in memory.
    pub(super) tokens: [usize; 2],
    slopes: Vec<f64>,
    sinks: Vec<f64>,
    /// Of Q, K and V: one for every head of K of a sequence, one for all, or none.
    scales: [Vec<f64>; 3],
    key_lengths: Option<Vec<f64>>,
    packed: Option<[Vec<f64>; 2]>,
    pub(super) scale: f64,
    softcap: f64,
    left: Option<usize>,
    right: Option<usize>,
}

/// A sequence: the first of its queries and keys in memory, and how many they are.
#[derive(Clone, Copy, Default)]
struct Sequence {
    q0: usize,
    q_len: usize,
    k0: usize,
    k_len: usize,
}

/// A query and where it stands.
pub(super) struct Query {
    values: Vec<f64>,
    head: usize,
    /// The key that it stands at, counted in its sequence.
    place: i64,
    /// The row of K where its sequence's keys start, and how many they are.
    first_key: usize,
    keys: usize,
}

impl Query {
    /// Its row of Q.
    pub(super) fn values(&self) -> &[f64] {
        &self.values
    }
}

/// A key that a query sees.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Its row in K and V.
    pub(super) row: usize,
    pub(super) score: f64,
    /// The score's derivative by scale·q·k.
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
            q,
            k,
            v,
        })
    }

    /// All sequences of a batch.
    fn sequences(&self, batch: usize) -> Vec<Sequence> {
        let [q_len, k_len] = self.tokens;
        let Some(cu) = &self.packed else {
            let k_len = match &self.key_lengths {
                Some(lengths) => lengths[batch].clamp(0.0, k_len as f64) as usize,
                None => k_len,
            };
            return vec![Sequence { q0: 0, q_len, k0: 0, k_len }];
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
                Sequence { q0, q_len: ends[0] - q0, k0, k_len: ends[1] - k0 }
            })
            .collect()
    }

    /// Every row of Q that may see row `row` of K.
    pub(super) fn queries_of(&self, row: usize) -> std::ops::Range<usize> {
        let [q_len, k_len] = self.tokens;
        let rows = self.heads / self.kv_heads.max(1) * q_len;
        row / k_len * rows..(row / k_len + 1) * rows
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
            keys: sequence.k_len,
        }
    }

    /// The score of the key in row `row` of K, if the query sees it.
    pub(super) fn score(&self, query: &Query, row: usize) -> Option<Seen> {
        let key = row.checked_sub(query.first_key).filter(|key| *key < query.keys)? as i64;
        let seen = self.left.is_none_or(|left| query.place - key <= left as i64)
            && self.right.is_none_or(|right| key - query.place <= right as i64);
        if !seen {
            return None;
        }
        let factor = self.scale * (self.scale_of(0, row) * self.scale_of(1, row)).max(0.0);
        let x = factor * dot(&query.values, &reference::row(self.k, row));
        let t = (x / self.softcap).tanh();
        let (capped, slope) = if self.softcap > 0.0 { (self.softcap * t, 1.0 - t * t) } else { (x, 1.0) };
        let penalty = self.slopes.get(query.head).map_or(0.0, |slope| slope * (query.place - key).abs() as f64);
        Some(Seen { row, score: capped - penalty, slope })
    }

    /// What Q (0), K (1) or V (2) is multiplied with, for row `row` of K.
    fn scale_of(&self, which: usize, row: usize) -> f64 {
        match self.scales[which].as_slice() {
            [] => 1.0,
            [all] => *all,
            of_heads => of_heads[row / self.tokens[1]],
        }
    }

    /// What row `row` of Q sees.
    pub(super) fn seen(&self, row: usize) -> Vec<Seen> {
        let query = self.query(row);
        (query.first_key..query.first_key + query.keys).filter_map(|row| self.score(&query, row)).collect()
    }

    /// log Σ e^score of what row `row` of Q sees, its head's sink among it.
    pub(super) fn lse(&self, row: usize, seen: &[Seen]) -> f64 {
        let [q_len, _] = self.tokens;
        let sink = self.sinks.get(row / q_len % self.heads);
        logsumexp(seen.iter().map(|key| key.score).chain(sink.copied()))
    }

    /// Row `row` of O.
    pub(super) fn output(&self, row: usize) -> Vec<f64> {
        let seen = self.seen(row);
        let lse = self.lse(row, &seen);
        let mut o = vec![0.0; self.q.shape()[3]];
        for key in &seen {
            let weight = (key.score - lse).exp();
            o.iter_mut().zip(self.value(key.row)).for_each(|(o, v)| *o += weight * v);
        }
        o
    }

    /// Row `row` of V.
    pub(super) fn value(&self, row: usize) -> Vec<f64> {
        let scale = self.scale_of(2, row);
        reference::row(self.v, row).into_iter().map(|v| v * scale).collect()
    }
}

/// log Σ e^score; −∞ of none, or of nothing but −∞.
pub(super) fn logsumexp(scores: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = scores.clone().fold(f64::NEG_INFINITY, f64::max);
    let reference = if max == f64::NEG_INFINITY { 0.0 } else { max };
    reference + scores.map(|score| (score - reference).exp()).sum::<f64>().ln()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
