//! Checks of a call's arguments, and its launches.

use cuda_std::float::Half;
use gpu_kernels::ops::loss::linear_log_probs as gk;

use super::LogProbs;
use crate::ops::loss::batch::{RowLosses, RowResults};
use crate::ops::loss::cross_entropy::{CrossEntropy, Results};
use crate::ops::loss::linear::Linear;
use crate::ops::loss::linear_cross_entropy as linear;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// A linear layer and the tokens that were chosen.
pub(super) struct Call<'a, T> {
    info: &'static OpInfo,
    layer: [View<'a, T>; 2],
    targets: View<'a, i32>,
    /// The losses whose negatives are log-probabilities.
    losses: Linear<CrossEntropy<'a>>,
}

impl<'a, T: Float + Half> Call<'a, T> {
    pub(super) fn new(
        info: &'static OpInfo,
        layer: [View<'a, T>; 2],
        targets: View<'a, i32>,
        options: &Linear<LogProbs>,
    ) -> Result<Self> {
        let loss = CrossEntropy::sum().ignore(options.loss.ignored);
        let losses = Linear { loss, memory: options.memory, accumulate: false };
        let call = Self { info, layer, targets, losses };
        call.losses().map(|_| ())?;
        Ok(call)
    }

    fn losses(&self) -> Result<linear::Call<'a, '_, T>> {
        let [hidden, weight] = self.layer;
        linear::Call::new(self.info, hidden, weight, self.targets, &self.losses)
    }

    /// New tensors for the log-probabilities, and for what is wrong with targets.
    pub(super) fn uninit(&self, stream: &Stream) -> Result<RowLosses> {
        let [hidden, weight] = self.layer;
        let shape = [hidden.shape()[0], weight.shape()[0]];
        RowLosses::uninit(self.info, stream, &shape, Some(self.losses.loss.ignored()))
    }

    /// The log-probabilities.
    pub(super) fn launch(&self, stream: &Stream, out: RowResults<'_>) -> Result<()> {
        let RowResults { mut per_row, total, bad, .. } = out;
        stream.require_devices(self.info.name, &[("log_probs", &per_row)])?;
        per_row.require_shape(self.info.name, "log_probs", self.targets.shape())?;
        per_row.require_contiguous(self.info.name, "log_probs")?;
        let mut lse = Tensor::result(stream, self.targets.shape())?;
        let results = Results { per_row: per_row.reborrow(), lse: lse.view_mut(), total, bad };
        self.losses()?.launch(stream, results, None)?;
        let tokens = per_row.len() as u32;
        if tokens == 0 {
            return Ok(());
        }
        // SAFETY: the log-probabilities are contiguous, as many as said, and borrowed mutably.
        unsafe { stream.launch::<gk::NegateLosses>(tokens.div_ceil(gk::BLOCK), (per_row.ptr_mut(stream)?, tokens)) }
    }
}
