//! Checks of a call's arguments, and its launches.

use cuda_std::float::Half;

use crate::ops::loss::cross_entropy::{self, CrossEntropy};
use crate::ops::loss::dpo::{self, Dpo, DpoLosses, Results};
use crate::ops::loss::linear::{Gradients, Linear};
use crate::ops::loss::linear_cross_entropy as linear;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// A linear layer's input and weight, and the tokens that were chosen.
#[derive(Clone, Copy)]
pub(super) struct Layer<'a, T> {
    pub(super) hidden: View<'a, T>,
    pub(super) weight: View<'a, T>,
    pub(super) targets: View<'a, i32>,
}

/// A call whose arguments fit together.
pub(super) struct Call<'a, T> {
    info: &'static OpInfo,
    layer: Layer<'a, T>,
    loss: dpo::Call<'a>,
    /// The losses whose negatives are log-probabilities.
    tokens: Linear<CrossEntropy<'a>>,
}

impl<'a, T: Float + Half> Call<'a, T> {
    pub(super) fn new(
        info: &'static OpInfo,
        layer: Layer<'a, T>,
        offsets: View<'a, i32>,
        options: &Linear<Dpo<'a>>,
    ) -> Result<Self> {
        let loss = dpo::Call::new(info, layer.targets.len(), offsets, &options.loss)?;
        let [classes, _]: [usize; 2] = layer.weight.dims(info.name, "weight")?;
        let loss = loss.of_targets(layer.targets, classes)?;
        let tokens = CrossEntropy::sum().ignore(options.loss.ignored());
        let tokens = Linear { loss: tokens, memory: options.memory, accumulate: options.accumulate };
        let call = Self { info, layer, loss, tokens };
        call.losses().map(|_| ())?;
        Ok(call)
    }

    fn losses(&self) -> Result<linear::Call<'a, '_, T>> {
        let Layer { hidden, weight, targets } = self.layer;
        linear::Call::new(self.info, hidden, weight, targets, &self.tokens)
    }

    /// New tensors for the losses.
    pub(super) fn uninit(&self, stream: &Stream) -> Result<DpoLosses> {
        self.loss.uninit(stream)
    }

    /// The losses, and the derivatives of their mean or sum.
    pub(super) fn launch(
        &self,
        stream: &Stream,
        mut out: Results<'_>,
        gradients: Option<Gradients<'_, T>>,
    ) -> Result<()> {
        let tokens = self.layer.targets.shape();
        self.loss.require_devices(stream)?;
        let (mut per_token, mut lse) = (Tensor::result(stream, tokens)?, Tensor::result(stream, tokens)?);
        let mut unused = Tensor::result(stream, [1])?;
        let results = cross_entropy::Results {
            per_row: per_token.view_mut(),
            lse: lse.view_mut(),
            total: unused.view_mut(),
            bad: out.rows.bad.take(),
        };
        self.losses()?.launch(stream, results, None)?;
        let Some(gradients) = gradients else {
            return self.loss.launch(stream, (per_token.view(), -1.0), out, None);
        };
        let mut dlosses = Tensor::result(stream, tokens)?;
        // The factor of the mean is left to the products.
        self.loss.launch(stream, (per_token.view(), -1.0), out, Some((dlosses.view_mut(), 1.0)))?;
        self.losses()?.launch_backward(stream, dlosses.view(), gradients, self.loss.share())
    }
}
