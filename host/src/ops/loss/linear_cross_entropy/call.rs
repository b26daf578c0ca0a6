//! Checks of a call's arguments, and its launches.

use cuda_std::float::Half;

use super::LinearCrossEntropy;
use crate::ops::gemm::Scalar;
use crate::ops::loss::cross_entropy::{self, Results};
use crate::ops::loss::linear::{Chunks, Gradients, Layer};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// A linear layer, and the classes that are right.
pub(in crate::ops::loss) struct Call<'a, 'o, T> {
    info: &'static OpInfo,
    layer: Layer<'a, T>,
    targets: View<'a, i32>,
    options: &'o LinearCrossEntropy<'o>,
}

impl<'a, 'o, T: Float + Half> Call<'a, 'o, T> {
    pub(in crate::ops::loss) fn new(
        info: &'static OpInfo,
        hidden: View<'a, T>,
        weight: View<'a, T>,
        targets: View<'a, i32>,
        options: &'o LinearCrossEntropy<'o>,
    ) -> Result<Self> {
        let layer = Layer::new(info, ["hidden", "weight"], hidden, weight)?;
        targets.require_shape(info.name, "targets", &[layer.rows])?;
        targets.require_contiguous(info.name, "targets")?;
        // Ahead of all launches, which weigh rows by their classes, and without rows too.
        options.loss.terms(info, layer.classes)?;
        Ok(Self { info, layer, targets, options })
    }

    /// The losses, and the derivatives of their mean or sum.
    pub(in crate::ops::loss) fn launch(
        self,
        stream: &Stream,
        out: Results<'_>,
        gradients: Option<Gradients<'_, T>>,
    ) -> Result<()> {
        let Results { mut per_row, mut lse, total, bad } = out;
        let (name, options) = (self.info.name, &self.options.loss);
        stream.require_devices(name, &[("targets", &self.targets), ("class_weights", &options.weights)])?;
        stream.require_devices(name, &[("losses", &per_row), ("lse", &lse), ("total", &total)])?;
        for (arg, view) in [("losses", &per_row), ("lse", &lse)] {
            view.require_shape(self.info.name, arg, &[self.layer.rows])?;
            view.require_contiguous(self.info.name, arg)?;
        }
        total.require_shape(self.info.name, "total", &[1])?;
        let options = &self.options.loss;
        let batch = options.batch(self.targets, self.layer.rows as u32, self.layer.classes as u32);
        let share = batch.weigh(stream, bad)?;
        let factor = if options.is_mean { Scalar::from(&share) } else { Scalar::from(1.0) };
        self.chunks(stream, [per_row.reborrow(), lse.reborrow()], None, gradients, factor)?;
        batch.total(stream, &share, per_row.as_view(), total)
    }

    /// The derivatives of Σ dloss · loss, times a factor.
    pub(in crate::ops::loss) fn launch_backward(
        self,
        stream: &Stream,
        dlosses: View<'_, f32>,
        gradients: Gradients<'_, T>,
        factor: impl Into<Scalar<'o>>,
    ) -> Result<()> {
        let rows = self.layer.rows;
        stream.require_devices(
            self.info.name,
            &[("targets", &self.targets), ("class_weights", &self.options.loss.weights), ("dlosses", &dlosses)],
        )?;
        dlosses.require_shape(self.info.name, "dlosses", &[rows])?;
        dlosses.require_contiguous(self.info.name, "dlosses")?;
        let (mut losses, mut lse) = (Tensor::result(stream, [rows])?, Tensor::result(stream, [rows])?);
        let unused = [losses.view_mut(), lse.view_mut()];
        self.chunks(stream, unused, Some(dlosses), Some(gradients), factor.into())
    }

    fn chunks(
        &self,
        stream: &Stream,
        [mut per_row, mut lse]: [ViewMut<'_, f32>; 2],
        dlosses: Option<View<'_, f32>>,
        gradients: Option<Gradients<'_, T>>,
        factor: Scalar<'_>,
    ) -> Result<()> {
        let Self { info, targets, options, .. } = self;
        let chunks = Chunks { memory: options.memory, accumulate: options.accumulate, factor };
        let has_gradients = gradients.is_some();
        self.layer.by_chunks(stream, chunks, gradients, |rows, logits| {
            let results = (per_row.reborrow().slice(rows.clone())?, lse.reborrow().slice(rows.clone())?);
            let dlosses = dlosses.map(|dlosses| dlosses.slice(rows.clone())).transpose()?;
            let of_logits = if has_gradients { logits.into() } else { logits.as_view().into() };
            let call = cross_entropy::Call::new(info, of_logits, targets.slice(rows)?, &options.loss)?;
            call.launch_part(stream, results.0, results.1, dlosses)
        })
    }
}
