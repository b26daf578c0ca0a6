//! A step: forward, backward, AdamW.

use warpsmith::ops::{
    self, AdamW, Attention, AttentionGradientsMut, Clip, CrossEntropy, GatedGradientsMut, LayerGradientsMut,
    LinearCrossEntropy, RmsNormGradients, Saved,
};
use warpsmith::{Result, Tensor, ViewMut, bf16};

use crate::model::{
    BATCH, EPS, HEAD, HEADS, HIDDEN, KV_HEADS, Layer, Model, PROJECTED, TOKENS, Trace, VOCABULARY, WIDTH, Weight,
    halves, heads,
};

impl Model {
    /// A step on [`BATCH`] pieces of text, each with the token that follows it; returns the mean loss of a token, in nats.
    pub(crate) fn train(&mut self, tokens: &[i32]) -> Result<f32> {
        let stream = &self.stream.clone();
        let rows = BATCH * TOKENS;
        let column = |offset: usize| -> Vec<i32> {
            tokens.chunks_exact(TOKENS + 1).flat_map(|piece| piece[offset..offset + TOKENS].to_vec()).collect()
        };
        let ids = Tensor::from_slice(stream, [rows], &column(0))?;
        let targets = Tensor::from_slice(stream, [rows], &column(1))?;
        let positions = self.positions()?;
        let (x, traces) = self.forward(&ids, &positions)?;
        let normed = ops::rms_norm(stream, &x, self.vector(&self.norm)?, EPS)?;

        let options = LinearCrossEntropy::new(CrossEntropy::mean());
        let mut dy = Tensor::uninit(stream, [rows, WIDTH])?;
        let head = self.weights.slice(self.head.range.clone())?.reshape(self.head.shape)?;
        let dhead = gradient(&mut self.gradients, &self.head)?;
        let losses =
            ops::linear_cross_entropy_with_gradient_into(stream, &normed, head, &targets, &options, &mut dy, dhead)?;
        let RmsNormGradients { mut dx, dweight } =
            ops::rms_norm_backward(stream, &x, self.vector(&self.norm)?, &dy, EPS)?;
        ops::cast_into(stream, dweight.view().reshape([1, WIDTH])?, gradient(&mut self.gradients, &self.norm)?)?;
        for (layer, trace) in self.layers.clone().iter().zip(&traces).rev() {
            dx = self.layer_backward(layer, trace, &dx, &positions)?;
        }
        let dtable = ops::embedding_backward(stream, &ids, &dx, VOCABULARY)?;
        ops::cast_into(stream, &dtable, gradient(&mut self.gradients, &self.embedding)?)?;

        self.steps += 1;
        let norm = ops::l2_norm(stream, &self.gradients)?;
        let clip = Clip { norm: norm.view(), max_norm: 1.0 };
        let adamw = AdamW { lr: 1e-2, beta2: 0.95, step: self.steps, ..AdamW::default() };
        let [m, v] = &mut self.moments;
        ops::adamw_master(stream, &mut self.master, &mut self.weights, &self.gradients, m, v, Some(clip), &adamw)?;
        losses.value(stream)
    }

    /// The gradient of what a layer got, from that of what it gave.
    fn layer_backward(
        &mut self,
        layer: &Layer,
        trace: &Trace,
        dy: &Tensor<bf16>,
        positions: &Tensor<i32>,
    ) -> Result<Tensor<bf16>> {
        let stream = &self.stream.clone();
        let rows = BATCH * TOKENS;
        let dgated = self.linear_backward(&layer.down, &trace.perceptron.gated, dy)?;
        let mut dgate_up = Tensor::uninit(stream, [rows, 2 * HIDDEN])?;
        let (dgate, dup) = dgate_up.view_mut().t().split_at(HIDDEN)?;
        let [gate, up] = halves(&trace.perceptron.gate_up)?;
        let gradients = GatedGradientsMut { dgate: dgate.t(), dup: dup.t() };
        ops::swiglu_backward_into(stream, gate, up, &dgated, gradients)?;
        let dnormed = self.linear_backward(&layer.gate_up, &trace.perceptron.normed, &dgate_up)?;
        let dbetween = self.norm_backward(&layer.mlp_norm, &trace.between, &dnormed, dy)?;

        let dattended = self.linear_backward(&layer.output, &trace.attended, &dbetween)?;
        let [q, k, v] = heads(&trace.projected)?;
        let o = trace.attended.view().reshape([BATCH, TOKENS, HEADS, HEAD])?.permute([0, 2, 1, 3])?;
        let d_o = dattended.view().reshape([BATCH, TOKENS, HEADS, HEAD])?.permute([0, 2, 1, 3])?;
        let saved = Saved { q, k, v, o, lse: trace.lse.view() };
        // Values' gradients go where the projection's are, those of turned queries and keys have to be turned back first.
        let mut dturned = Tensor::uninit(stream, [BATCH, TOKENS, HEADS + KV_HEADS, HEAD])?;
        let mut dprojected = Tensor::uninit(stream, [BATCH, TOKENS, HEADS + 2 * KV_HEADS, HEAD])?;
        let (dq, dk) = dturned.view_mut().permute([2, 0, 1, 3])?.split_at(HEADS)?;
        let (_, dv) = dprojected.view_mut().permute([2, 0, 1, 3])?.split_at(HEADS + KV_HEADS)?;
        let [dq, dk, dv] = [dq, dk, dv].map(|part| part.permute([1, 0, 2, 3]));
        let gradients = AttentionGradientsMut { dq: dq?, dk: dk?, dv: dv? };
        ops::attention_backward_into(stream, &saved, d_o, &Attention::causal(), gradients)?;
        let dturned = dturned.reshape([rows, HEADS + KV_HEADS, HEAD])?;
        let turned_back = dprojected.view_mut().strided(0, dturned.shape(), &[PROJECTED, HEAD, 1])?;
        ops::rope_backward_into(stream, &dturned, &self.rotation(positions.view()), turned_back)?;
        let dprojected = dprojected.reshape([rows, PROJECTED])?;
        let dnormed = self.linear_backward(&layer.project, &trace.normed, &dprojected)?;
        self.norm_backward(&layer.attention_norm, &trace.before, &dnormed, &dbetween)
    }

    /// The gradient of a projection's input; that of its weight goes where gradients are.
    fn linear_backward(&mut self, weight: &Weight, x: &Tensor<bf16>, dy: &Tensor<bf16>) -> Result<Tensor<bf16>> {
        let mut dx = Tensor::uninit(&self.stream, x.shape())?;
        let mut dbias = Tensor::uninit(&self.stream, [weight.shape[0]])?;
        let matrix = self.weights.slice(weight.range.clone())?.reshape(weight.shape)?;
        let dweight = gradient(&mut self.gradients, weight)?;
        let gradients = LayerGradientsMut { dx: dx.view_mut(), dweight, dbias: dbias.view_mut() };
        ops::linear_backward_into(&self.stream, x, matrix, dy, false, gradients)?;
        Ok(dx)
    }

    /// The gradient of the residual stream `x` that a norm reads and passes on.
    fn norm_backward(
        &mut self,
        weight: &Weight,
        x: &Tensor<bf16>,
        dnormed: &Tensor<bf16>,
        dy: &Tensor<bf16>,
    ) -> Result<Tensor<bf16>> {
        let RmsNormGradients { dx, dweight } =
            ops::add_rms_norm_backward(&self.stream, x, self.vector(weight)?, dnormed, dy, EPS)?;
        ops::cast_into(&self.stream, dweight.view().reshape(weight.shape)?, gradient(&mut self.gradients, weight)?)?;
        Ok(dx)
    }
}

/// Where a weight's gradient goes.
fn gradient<'a>(gradients: &'a mut Tensor<f32>, weight: &Weight) -> Result<ViewMut<'a, f32>> {
    gradients.slice_mut(weight.range.clone())?.reshape(weight.shape)
}
