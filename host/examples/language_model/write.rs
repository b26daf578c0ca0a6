//! Token after token, with what came before in caches.

use warpsmith::ops::{self, Decoding, Epilogue, KvCacheMut, Philox, Sampling};
use warpsmith::{Result, Tensor, bf16};

use crate::model::{HEAD, HEADS, KV_HEADS, LAYERS, Model, PROJECTED, SEED};

impl Model {
    /// Logits of what follows `id`, a token at `position` whose predecessors are in the caches.
    pub(crate) fn next(
        &self,
        id: &Tensor<i32>,
        position: usize,
        caches: &mut [[Tensor<bf16>; 2]],
    ) -> Result<Tensor<bf16>> {
        let stream = &self.stream;
        let positions = Tensor::from_slice(stream, [1], &[position as i32])?;
        let lengths_after = Tensor::from_slice(stream, [1], &[position as i32 + 1])?;
        let mut x = ops::embedding(stream, id, self.matrix(&self.embedding)?)?;
        for (layer, [keys, values]) in self.layers.iter().zip(caches) {
            let (_, projected) = self.project(layer, &x, &positions)?;
            let part = |first: usize, heads: usize| {
                projected.view().strided(first * HEAD, [1, 1, heads, HEAD], &[PROJECTED, PROJECTED, HEAD, 1])
            };
            let (q, k, v) = (part(0, HEADS)?, part(HEADS, KV_HEADS)?, part(HEADS + KV_HEADS, KV_HEADS)?);
            let cache = KvCacheMut {
                k: keys.view_mut(),
                v: values.view_mut(),
                lengths_after: lengths_after.view(),
                page_table: None,
            };
            let attended = ops::attention_decode_append(stream, q, k, v, cache, &Decoding::default())?;
            let attended = attended.reshape([1, HEADS * HEAD])?;
            let epilogue = Epilogue::new().residual(&x);
            let between = ops::linear(stream, &attended, self.matrix(&layer.output)?, epilogue)?;
            x = self.perceptron(layer, &between)?.0;
        }
        self.logits(&x)
    }

    pub(crate) fn caches(&self, tokens: usize) -> Result<Vec<[Tensor<bf16>; 2]>> {
        let cache = || Tensor::zeros(&self.stream, [1, tokens, KV_HEADS, HEAD]);
        (0..LAYERS).map(|_| Ok([cache()?, cache()?])).collect()
    }

    /// A prompt and what the model writes after it, so many tokens in all.
    pub(crate) fn write(&self, prompt: &[i32], tokens: usize, sampling: Sampling) -> Result<Vec<i32>> {
        let mut caches = self.caches(tokens)?;
        let mut written = Vec::new();
        for position in 0..tokens {
            let id = match prompt.get(position) {
                Some(&id) => Tensor::from_slice(&self.stream, [1], &[id])?,
                None => {
                    let logits = self.next(written.last().expect("a prompt has a token"), position - 1, &mut caches)?;
                    ops::sample(&self.stream, &logits, sampling, Philox::new(SEED).at(position as u64))?
                }
            };
            // Of a prompt's tokens but the last the caches are all that is wanted.
            if position + 1 < prompt.len() {
                self.next(&id, position, &mut caches)?;
            }
            written.push(id);
        }
        written.iter().map(|id| Ok(id.to_vec(&self.stream)?[0])).collect()
    }
}
