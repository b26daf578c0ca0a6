//! The weights, and the forward for a step's tokens.

use std::ops::Range;

use warpsmith::ops::{self, Attention, Epilogue, Philox, RopeFrequencies, RopePairs, Rotation};
use warpsmith::{Result, Stream, Tensor, View, bf16};

/// Bytes are tokens; those that are not ASCII count as 0.
pub(crate) const VOCABULARY: usize = 128;
pub(crate) const WIDTH: usize = 64;
pub(crate) const HEADS: usize = 2;
/// Heads of keys and values, which several heads of queries share.
pub(crate) const KV_HEADS: usize = 1;
pub(crate) const HEAD: usize = 32;
/// What a token is projected to: its queries, keys and values.
pub(crate) const PROJECTED: usize = (HEADS + 2 * KV_HEADS) * HEAD;
pub(crate) const HIDDEN: usize = 128;
pub(crate) const LAYERS: usize = 2;
pub(crate) const BATCH: usize = 4;
pub(crate) const TOKENS: usize = 64;
pub(crate) const EPS: f32 = 1e-5;
pub(crate) const SEED: u64 = 42;

/// A matrix, or a vector of one row, among the weights.
#[derive(Clone)]
pub(crate) struct Weight {
    pub(crate) range: Range<usize>,
    pub(crate) shape: [usize; 2],
}

/// What a layer has of them.
#[derive(Clone)]
pub(crate) struct Layer {
    pub(crate) attention_norm: Weight,
    pub(crate) project: Weight,
    pub(crate) output: Weight,
    pub(crate) mlp_norm: Weight,
    /// Rows of the gate, and then of what it is multiplied with.
    pub(crate) gate_up: Weight,
    pub(crate) down: Weight,
}

pub(crate) struct Model {
    pub(crate) stream: Stream,
    pub(crate) embedding: Weight,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Weight,
    pub(crate) head: Weight,
    /// Cosines and sines of positions.
    pub(crate) rope: [Tensor<f32>; 2],
    /// All weights, as products take them and as they are learnt.
    pub(crate) weights: Tensor<bf16>,
    pub(crate) master: Tensor<f32>,
    pub(crate) gradients: Tensor<f32>,
    pub(crate) moments: [Tensor<f32>; 2],
    pub(crate) steps: u64,
}

/// What the backward of a layer needs.
pub(crate) struct Trace {
    /// The residual stream before the layer, normed, projected, with positions.
    pub(crate) before: Tensor<bf16>,
    pub(crate) normed: Tensor<bf16>,
    pub(crate) projected: Tensor<bf16>,
    pub(crate) attended: Tensor<bf16>,
    pub(crate) lse: Tensor<f32>,
    /// The stream between attention and the perceptron.
    pub(crate) between: Tensor<bf16>,
    pub(crate) perceptron: Perceptron,
}

/// What the backward of a layer's second half needs: its input normed, both projections, and those gated.
pub(crate) struct Perceptron {
    pub(crate) normed: Tensor<bf16>,
    pub(crate) gate_up: Tensor<bf16>,
    pub(crate) gated: Tensor<bf16>,
}

impl Model {
    pub(crate) fn new(stream: Stream) -> Result<Self> {
        let mut end = 0;
        let mut weight = |shape: [usize; 2]| {
            // Each begins at 16 bytes, whatever the sizes.
            let start = end;
            end = (start + shape[0] * shape[1]).next_multiple_of(8);
            Weight { range: start..start + shape[0] * shape[1], shape }
        };
        let embedding = weight([VOCABULARY, WIDTH]);
        let layers: Vec<_> = (0..LAYERS)
            .map(|_| Layer {
                attention_norm: weight([1, WIDTH]),
                project: weight([PROJECTED, WIDTH]),
                output: weight([WIDTH, HEADS * HEAD]),
                mlp_norm: weight([1, WIDTH]),
                gate_up: weight([2 * HIDDEN, WIDTH]),
                down: weight([WIDTH, HIDDEN]),
            })
            .collect();
        let (norm, head) = (weight([1, WIDTH]), weight([VOCABULARY, WIDTH]));

        let frequencies = RopeFrequencies { half: HEAD / 2, base: 10_000.0, scaling: None };
        let (cos, sin) = ops::rope_table(&stream, &frequencies, 8 * TOKENS)?;
        // A normal distribution for matrices, ones for norms.
        let mut master = ops::random_normal(&stream, [end], 0.0, 0.02, Philox::new(SEED))?;
        let norms = layers.iter().flat_map(|layer| [&layer.attention_norm, &layer.mlp_norm]).chain([&norm]);
        for norm in norms {
            master.slice_mut(norm.range.clone())?.fill(&stream, 1.0)?;
        }
        Ok(Self {
            rope: [cos, sin],
            weights: ops::cast(&stream, &master)?,
            gradients: Tensor::zeros(&stream, [end])?,
            moments: [Tensor::zeros(&stream, [end])?, Tensor::zeros(&stream, [end])?],
            steps: 0,
            stream,
            embedding,
            layers,
            norm,
            head,
            master,
        })
    }

    pub(crate) fn matrix(&self, weight: &Weight) -> Result<View<'_, bf16>> {
        self.weights.slice(weight.range.clone())?.reshape(weight.shape)
    }

    pub(crate) fn vector(&self, weight: &Weight) -> Result<View<'_, bf16>> {
        self.weights.slice(weight.range.clone())
    }

    pub(crate) fn rotation<'a>(&'a self, positions: View<'a, i32>) -> Rotation<'a> {
        let [cos, sin] = &self.rope;
        Rotation { cos: cos.view(), sin: sin.view(), positions, pairs: RopePairs::Halves }
    }

    /// Tokens normed, and their queries, keys and values, of which the first two are turned by what `positions` say; any number of them.
    pub(crate) fn project(
        &self,
        layer: &Layer,
        x: &Tensor<bf16>,
        positions: &Tensor<i32>,
    ) -> Result<(Tensor<bf16>, Tensor<bf16>)> {
        let stream = &self.stream;
        let normed = ops::rms_norm(stream, x, self.vector(&layer.attention_norm)?, EPS)?;
        let mut projected = ops::linear(stream, &normed, self.matrix(&layer.project)?, Epilogue::new())?;
        let turned = [projected.shape()[0], HEADS + KV_HEADS, HEAD];
        let turned = projected.view_mut().strided(0, turned, &[PROJECTED, HEAD, 1])?;
        ops::rope_in_place(stream, turned, &self.rotation(positions.view()))?;
        Ok((normed, projected))
    }

    /// Where the tokens of a step stand in their pieces of text.
    pub(crate) fn positions(&self) -> Result<Tensor<i32>> {
        let positions: Vec<_> = (0..BATCH * TOKENS).map(|row| (row % TOKENS) as i32).collect();
        Tensor::from_slice(&self.stream, [BATCH * TOKENS], &positions)
    }

    /// The residual stream of a step's tokens after all layers, and what came up in each.
    pub(crate) fn forward(&self, ids: &Tensor<i32>, positions: &Tensor<i32>) -> Result<(Tensor<bf16>, Vec<Trace>)> {
        let mut x = ops::embedding(&self.stream, ids, self.matrix(&self.embedding)?)?;
        let mut traces = Vec::new();
        for layer in &self.layers {
            let (after, trace) = self.layer(layer, x, positions)?;
            x = after;
            traces.push(trace);
        }
        Ok((x, traces))
    }

    /// A layer's tokens after it, and what came up on the way.
    pub(crate) fn layer(
        &self,
        layer: &Layer,
        before: Tensor<bf16>,
        positions: &Tensor<i32>,
    ) -> Result<(Tensor<bf16>, Trace)> {
        let stream = &self.stream;
        let (normed, projected) = self.project(layer, &before, positions)?;
        let [q, k, v] = heads(&projected)?;
        let mut attended = Tensor::uninit(stream, [BATCH, TOKENS, HEADS, HEAD])?;
        let mut lse = Tensor::uninit(stream, [BATCH, HEADS, TOKENS])?;
        let o = attended.view_mut().permute([0, 2, 1, 3])?;
        ops::attention_into(stream, q, k, v, &Attention::causal(), o, &mut lse)?;
        let attended = attended.reshape([BATCH * TOKENS, HEADS * HEAD])?;
        let epilogue = Epilogue::new().residual(&before);
        let between = ops::linear(stream, &attended, self.matrix(&layer.output)?, epilogue)?;
        let (after, perceptron) = self.perceptron(layer, &between)?;
        Ok((after, Trace { before, normed, projected, attended, lse, between, perceptron }))
    }

    /// The second half of a layer, for any number of tokens.
    pub(crate) fn perceptron(&self, layer: &Layer, x: &Tensor<bf16>) -> Result<(Tensor<bf16>, Perceptron)> {
        let stream = &self.stream;
        let normed = ops::rms_norm(stream, x, self.vector(&layer.mlp_norm)?, EPS)?;
        let gate_up = ops::linear(stream, &normed, self.matrix(&layer.gate_up)?, Epilogue::new())?;
        let [gate, up] = halves(&gate_up)?;
        let gated = ops::swiglu(stream, gate, up)?;
        let y = ops::linear(stream, &gated, self.matrix(&layer.down)?, Epilogue::new().residual(x))?;
        Ok((y, Perceptron { normed, gate_up, gated }))
    }

    pub(crate) fn logits(&self, x: &Tensor<bf16>) -> Result<Tensor<bf16>> {
        let normed = ops::rms_norm(&self.stream, x, self.vector(&self.norm)?, EPS)?;
        ops::linear(&self.stream, &normed, self.matrix(&self.head)?, Epilogue::new())
    }
}

/// Queries, keys and values of projected tokens, `[batch, heads, tokens, d]`.
pub(crate) fn heads(projected: &Tensor<bf16>) -> Result<[View<'_, bf16>; 3]> {
    let part = |first: usize, heads: usize| {
        let strides = [TOKENS * PROJECTED, HEAD, PROJECTED, 1];
        projected.view().strided(first * HEAD, [BATCH, heads, TOKENS, HEAD], &strides)
    };
    Ok([part(0, HEADS)?, part(HEADS, KV_HEADS)?, part(HEADS + KV_HEADS, KV_HEADS)?])
}

/// The left and the right half of rows.
pub(crate) fn halves(x: &Tensor<bf16>) -> Result<[View<'_, bf16>; 2]> {
    let shape = [x.shape()[0], HIDDEN];
    let half = |at: usize| x.view().strided(at * HIDDEN, shape, &[2 * HIDDEN, 1]);
    Ok([half(0)?, half(1)?])
}
