//! Decoding in f64 by straightforward loops.

use std::collections::HashMap;

use super::tokens::lengths_name;
use crate::ops::attention::exact::logsumexp;
use crate::ops::model::{Params, Tensors, reference};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// The inputs and the values derived from them.
pub(super) struct Exact<'a> {
    q: &'a HostTensor,
    caches: [&'a HostTensor; 2],
    /// The scales of every token and head.
    scales: Option<[Vec<f64>; 2]>,
    new: Option<[&'a HostTensor; 2]>,
    lengths: Vec<f64>,
    /// The number of pages of a sequence, and the page table.
    table: Option<(usize, Vec<f64>)>,
    sinks: Option<Vec<f64>>,
    scale: f64,
    softcap: f64,
    left: Option<usize>,
}

impl<'a> Exact<'a> {
    pub(super) fn new(inputs: &Tensors<'a>, params: &Params) -> Result<Self> {
        let q = inputs.get("q")?;
        let scale = f64::from(params.f32("scale")?);
        let numbers = |name| inputs.optional(name).map(HostTensor::to_f64);
        let d = q.shape()[3].max(1) as f64;
        let new = inputs.optional("k").zip(inputs.optional("v")).map(|(k, v)| [k, v]);
        Ok(Self {
            q,
            caches: [inputs.get("k_cache")?, inputs.get("v_cache")?],
            scales: numbers("k_scales").zip(numbers("v_scales")).map(|(k, v)| [k, v]),
            new,
            lengths: inputs.get(lengths_name(new.is_some()))?.to_f64(),
            table: inputs.optional("page_table").map(|table| (table.shape()[1], table.to_f64())),
            sinks: numbers("sinks"),
            scale: if scale == 0.0 { d.sqrt().recip() } else { scale },
            softcap: f64::from(params.f32("softcap")?),
            left: usize::try_from(params.i64("left")?).ok(),
        })
    }

    /// The number of keys that a sequence has room for.
    fn capacity(&self) -> f64 {
        let pages = self.table.as_ref().map_or(1, |(max_pages, _)| *max_pages);
        (pages * self.caches[0].shape()[1]) as f64
    }

    /// The number of keys of a sequence.
    fn len(&self, batch: usize) -> usize {
        self.lengths[batch].clamp(0.0, self.capacity()) as usize
    }

    /// The position of new token `token`, if it has one.
    fn position(&self, batch: usize, token: usize) -> Option<usize> {
        (self.len(batch) + token).checked_sub(self.q.shape()[1])
    }

    /// The index of a position, counted over all pages, if it has one.
    fn place(&self, batch: usize, position: usize) -> Option<usize> {
        let (pages, size) = (self.caches[0].shape()[0], self.caches[0].shape()[1]);
        let page = match &self.table {
            Some((max_pages, table)) => table[batch * max_pages + position / size],
            None => batch as f64,
        };
        (page >= 0.0 && page < pages as f64).then(|| page as usize * size + position % size)
    }

    /// The row of the cache of keys (0) or values (1) at a position, after the new tokens have been written.
    fn row(&self, side: usize, batch: usize, head: usize, position: usize) -> Option<Vec<f64>> {
        let (q_len, kv_heads) = (self.q.shape()[1], self.caches[0].shape()[2]);
        let place = self.place(batch, position)?;
        let token = (position + q_len).checked_sub(self.len(batch));
        Some(match (self.new, token) {
            (Some(new), Some(token)) => reference::row(new[side], (batch * q_len + token) * kv_heads + head),
            _ => {
                let row = place * kv_heads + head;
                let scale = self.scales.as_ref().map_or(1.0, |scales| scales[side][row]);
                reference::row(self.caches[side], row).into_iter().map(|x| x * scale).collect()
            }
        })
    }

    /// The positions that query `token` of a head sees, and their scores.
    fn seen(&self, batch: usize, token: usize, head: usize) -> Vec<(usize, f64)> {
        let [_, q_len, heads, _] = *self.q.shape().dims() else { return Vec::new() };
        let Some(own) = self.position(batch, token) else { return Vec::new() };
        let first = self.left.map_or(0, |left| own.saturating_sub(left));
        let query = reference::row(self.q, (batch * q_len + token) * heads + head);
        let score = |position| {
            let x = self.scale * reference::dot(&query, &self.row(0, batch, self.kv_head(head), position)?);
            Some((position, if self.softcap > 0.0 { self.softcap * (x / self.softcap).tanh() } else { x }))
        };
        (first..=own).filter_map(score).collect()
    }

    fn kv_head(&self, head: usize) -> usize {
        head / (self.q.shape()[2] / self.caches[0].shape()[2])
    }

    /// Row `row` of O.
    pub(super) fn output(&self, row: usize) -> Vec<f64> {
        let [_, q_len, heads, d] = *self.q.shape().dims() else { return Vec::new() };
        let (batch, token, head) = (row / heads / q_len, row / heads % q_len, row % heads);
        let seen = self.seen(batch, token, head);
        let lse = self.logsumexp(head, &seen);
        let mut o = vec![0.0; d];
        for (position, score) in seen {
            let weight = (score - lse).exp();
            let value = self.row(1, batch, self.kv_head(head), position).unwrap_or_default();
            o.iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
        }
        o
    }

    /// Element `row` of the logsumexps.
    pub(super) fn lse(&self, row: usize) -> f64 {
        let [_, q_len, heads, _] = *self.q.shape().dims() else { return f64::NAN };
        let head = row / q_len % heads;
        self.logsumexp(head, &self.seen(row / q_len / heads, row % q_len, head))
    }

    /// The logsumexp of the scores that a query of a head sees, including the head's sink.
    fn logsumexp(&self, head: usize, seen: &[(usize, f64)]) -> f64 {
        let sink = self.sinks.as_ref().map(|sinks| sinks[head]);
        logsumexp(seen.iter().map(|(_, score)| *score).chain(sink))
    }

    /// These rows of the cache of keys (0) or values (1) after the call.
    pub(super) fn cache(&self, side: usize, rows: &[usize]) -> Vec<f64> {
        let (batches, q_len, kv_heads) = (self.q.shape()[0], self.q.shape()[1], self.caches[side].shape()[2]);
        let mut tokens = HashMap::new();
        let with_room = (0..batches).filter(|batch| self.lengths[*batch] <= self.capacity());
        for (batch, token) in with_room.flat_map(|batch| (0..q_len).map(move |token| (batch, token))) {
            if let Some(place) = self.position(batch, token).and_then(|position| self.place(batch, position)) {
                tokens.insert(place, batch * q_len + token);
            }
        }
        reference::by_row(rows, |row| match (self.new, tokens.get(&(row / kv_heads))) {
            (Some(new), Some(token)) => reference::row(new[side], token * kv_heads + row % kv_heads),
            _ => reference::row(self.caches[side], row),
        })
    }
}
