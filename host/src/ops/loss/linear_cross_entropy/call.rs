//! Checks of a call's arguments, and its chunks.

use cuda_std::float::Half;

use super::LinearCrossEntropy;
use crate::ops::gemm::{Scalar, gemm_into, gemm_to_f32_into};
use crate::ops::loss::batch::limited;
use crate::ops::loss::cross_entropy::{Call, Results};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Rows of a chunk are a multiple of what the product takes at a time, where there are as many.
const ROWS: usize = 256;

/// A linear layer's input and weight, and the classes that are right.
pub(super) struct Layer<'a, 'o, T> {
    info: &'static OpInfo,
    hidden: View<'a, T>,
    weight: View<'a, T>,
    targets: View<'a, i32>,
    options: &'o LinearCrossEntropy<'o>,
    rows: usize,
    classes: usize,
}

/// Where gradients go.
pub(super) struct Gradients<'a, T> {
    pub(super) hidden: ViewMut<'a, T>,
    pub(super) weight: ViewMut<'a, f32>,
}

impl<'a, 'o, T: Float + Half> Layer<'a, 'o, T> {
    pub(super) fn new(
        info: &'static OpInfo,
        hidden: View<'a, T>,
        weight: View<'a, T>,
        targets: View<'a, i32>,
        options: &'o LinearCrossEntropy<'o>,
    ) -> Result<Self> {
        let [rows, d]: [usize; 2] = hidden.dims(info.name, "hidden")?;
        let [classes, _]: [usize; 2] = weight.dims(info.name, "weight")?;
        weight.require_shape(info.name, "weight", &[classes, d])?;
        if classes == 0 {
            return Err(info.shape_error("weight", weight.shape(), "at least one class"));
        }
        targets.require_shape(info.name, "targets", &[rows])?;
        targets.require_contiguous(info.name, "targets")?;
        limited(info, "hidden", "rows", rows)?;
        limited(info, "hidden", "dimensions", d)?;
        limited(info, "weight", "classes", classes)?;
        Ok(Self { info, hidden, weight, targets, options, rows, classes })
    }

    /// From a row of logits to the next: rows at multiples of 16 bytes.
    fn stride(&self) -> usize {
        self.classes.next_multiple_of(16 / size_of::<T>())
    }

    /// Rows of a chunk: as few chunks as the memory allows, of about the same size.
    fn chunk(&self) -> usize {
        let most = (self.options.memory / (self.stride() * size_of::<T>())).max(1);
        let most = if most < ROWS { most } else { most - most % ROWS };
        let rows = self.rows.div_ceil(self.rows.div_ceil(most).max(1));
        if most < ROWS { rows } else { rows.next_multiple_of(ROWS).min(self.rows) }
    }

    /// The losses, and the derivatives of their mean or sum.
    pub(super) fn launch(self, stream: &Stream, out: Results<'_>, gradients: Option<Gradients<'_, T>>) -> Result<()> {
        let Results { mut per_row, mut lse, total, bad } = out;
        for (arg, view) in [("losses", &per_row), ("lse", &lse)] {
            view.require_shape(self.info.name, arg, &[self.rows])?;
            view.require_contiguous(self.info.name, arg)?;
        }
        total.require_shape(self.info.name, "total", &[1])?;
        let options = &self.options.loss;
        let batch = options.batch(self.targets, self.rows as u32, self.classes as u32);
        let share = batch.weigh(stream, bad)?;
        let factor = if options.is_mean { Scalar::from(&share) } else { Scalar::from(1.0) };
        self.chunks(stream, [per_row.reborrow(), lse.reborrow()], None, gradients, factor)?;
        batch.total(stream, &share, per_row.as_view(), total)
    }

    /// The derivatives of Σ upstream · loss.
    pub(super) fn launch_backward(
        self,
        stream: &Stream,
        upstream: View<'_, f32>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        upstream.require_shape(self.info.name, "upstream", &[self.rows])?;
        upstream.require_contiguous(self.info.name, "upstream")?;
        let (mut losses, mut lse) = (Tensor::uninit(stream, [self.rows])?, Tensor::uninit(stream, [self.rows])?);
        let unused = [losses.view_mut(), lse.view_mut()];
        self.chunks(stream, unused, Some(upstream), Some(gradients), 1.0.into())
    }

    fn chunks(
        &self,
        stream: &Stream,
        [mut per_row, mut lse]: [ViewMut<'_, f32>; 2],
        upstream: Option<View<'_, f32>>,
        mut gradients: Option<Gradients<'_, T>>,
        factor: Scalar<'_>,
    ) -> Result<()> {
        let mut beta = 0.0;
        if let Some(gradients) = &mut gradients {
            gradients.hidden.require_shape(self.info.name, "hidden_gradient", self.hidden.shape())?;
            gradients.hidden.require_inner_contiguous(self.info.name, "hidden_gradient")?;
            gradients.weight.require_shape(self.info.name, "weight_gradient", self.weight.shape())?;
            gradients.weight.require_inner_contiguous(self.info.name, "weight_gradient")?;
            if self.options.accumulate {
                beta = 1.0;
            } else if self.rows == 0 {
                gradients.weight.fill(stream, 0.0)?;
            }
        }
        let (chunk, stride) = (self.chunk(), self.stride());
        let mut memory = Tensor::<T>::uninit(stream, [chunk, stride])?;
        for first in (0..self.rows).step_by(chunk.max(1)) {
            let rows = first..self.rows.min(first + chunk);
            let (hidden, targets) = (self.hidden.slice(rows.clone())?, self.targets.slice(rows.clone())?);
            let mut logits = memory.view_mut().strided(0, [rows.len(), self.classes], &[stride, 1])?;
            gemm_into(stream, 1.0, hidden, self.weight.t(), 0.0, logits.reborrow())?;
            let results = (per_row.reborrow().slice(rows.clone())?, lse.reborrow().slice(rows.clone())?);
            let upstream = upstream.map(|upstream| upstream.slice(rows.clone())).transpose()?;
            let of_logits = match &gradients {
                Some(_) => logits.reborrow().into(),
                None => logits.as_view().into(),
            };
            let call = Call::new(self.info, of_logits, targets, &self.options.loss)?;
            call.launch_part(stream, results.0, results.1, upstream)?;
            if let Some(Gradients { hidden: of_hidden, weight: of_weight }) = &mut gradients {
                let g = logits.as_view();
                gemm_into(stream, factor, g, self.weight, 0.0, of_hidden.reborrow().slice(rows)?)?;
                gemm_to_f32_into(stream, factor, g.t(), hidden, beta, of_weight.reborrow())?;
                beta = 1.0;
            }
        }
        Ok(())
    }
}
