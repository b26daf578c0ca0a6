//! Checks of a call's arguments, and its launches.

use cuda_std::float::Half;

use crate::ops::loss::batch::{RowLosses, RowResults};
use crate::ops::loss::cross_entropy::{self, CrossEntropy};
use crate::ops::loss::grpo::{Grpo, Objective, Values};
use crate::ops::loss::linear::{Chunks, Gradients, Layer, Linear};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// What was answered, and how well.
#[derive(Clone, Copy)]
pub(super) struct Answers<'a> {
    pub(super) targets: View<'a, i32>,
    pub(super) advantages: View<'a, f32>,
    pub(super) offsets: View<'a, i32>,
}

/// A call whose arguments fit together.
pub(super) struct Call<'a, T> {
    info: &'static OpInfo,
    layer: Layer<'a, T>,
    targets: View<'a, i32>,
    objective: Objective<'a>,
    options: Linear<Grpo<'a>>,
}

impl<'a, T: Float + Half> Call<'a, T> {
    pub(super) fn new(
        info: &'static OpInfo,
        [hidden, weight]: [View<'a, T>; 2],
        Answers { targets, advantages, offsets }: Answers<'a>,
        options: &Linear<Grpo<'a>>,
    ) -> Result<Self> {
        let layer = Layer::new(info, ["hidden", "weight"], hidden, weight)?;
        targets.require_shape(info.name, "targets", &[layer.rows])?;
        let objective = Objective::new(info, targets, advantages, offsets, &options.loss, layer.classes as u32)?;
        Ok(Self { info, layer, targets, objective, options: *options })
    }

    /// New tensors for the losses.
    pub(super) fn uninit(&self, stream: &Stream) -> Result<RowLosses> {
        self.objective.uninit(stream)
    }

    /// The losses, and the derivatives of their sum.
    pub(super) fn launch(
        &self,
        stream: &Stream,
        mut out: RowResults<'_>,
        gradients: Option<Gradients<'_, T>>,
    ) -> Result<()> {
        let Self { info, layer, targets, objective, options } = self;
        let prepared = objective.prepare(stream, &mut out)?;
        // What probabilities are multiplied by in 16 bits is of the size of one.
        let scale = objective.scale();
        let chunks = Chunks { memory: options.memory, accumulate: options.accumulate, factor: (1.0 / scale).into() };
        let loss = CrossEntropy::sum().ignore(options.loss.ignored());
        let new = || Tensor::<f32>::result(stream, [layer.rows]);
        let (mut of_token, mut lse, mut dlosses) = (new()?, new()?, new()?);
        let has_gradients = gradients.is_some();
        layer.by_chunks(stream, chunks, gradients, |rows, mut logits| {
            let targets = targets.slice(rows.clone())?;
            let call = cross_entropy::Call::new(info, logits.as_view().into(), targets, &loss)?;
            let (into, of_lse) = (of_token.view_mut().slice(rows.clone())?, lse.view_mut().slice(rows.clone())?);
            call.launch_part(stream, into, of_lse, None)?;
            let values = Values { values: of_token.view().slice(rows.clone())?, sign: -1.0, scale };
            let losses = out.per_row.reborrow().slice(rows.clone())?;
            let by_loss = has_gradients.then(|| dlosses.view_mut().slice(rows.clone())).transpose()?;
            objective.launch_part(stream, &prepared, rows.clone(), values, losses, by_loss)?;
            if !has_gradients {
                return Ok(());
            }
            let call = cross_entropy::Call::new(info, logits.reborrow().into(), targets, &loss)?;
            let (into, of_lse) = (of_token.view_mut().slice(rows.clone())?, lse.view_mut().slice(rows.clone())?);
            call.launch_part(stream, into, of_lse, Some(dlosses.view().slice(rows)?))
        })?;
        objective.total(stream, out)
    }
}
