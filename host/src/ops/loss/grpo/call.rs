//! Checks of a call's arguments, and its launches.

use std::ops::Range;

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::loss::grpo::{self as gk, sequences::BLOCK};

use super::{Grpo, Normalisation};
use crate::ops::loss::batch::{Batch, RowLosses, RowResults};
use crate::ops::loss::sequences::Sequences;
use crate::ops::model::OpInfo;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// An objective of tokens whose log-probabilities are still to come.
pub(in crate::ops::loss) struct Objective<'a> {
    info: &'static OpInfo,
    targets: View<'a, i32>,
    advantages: View<'a, f32>,
    sequences: Sequences<'a>,
    options: Grpo<'a>,
    terms: gk::Terms,
}

/// What tokens weigh, and where the first wrong offset is said to be.
pub(in crate::ops::loss) struct Prepared {
    weights: Tensor<f32>,
    bad_offset: Tensor<u32>,
}

/// Log-probabilities of tokens, or what is that times a sign, and what derivatives are multiplied by.
#[derive(Clone, Copy)]
pub(in crate::ops::loss) struct Values<'a> {
    pub(in crate::ops::loss) values: View<'a, f32>,
    pub(in crate::ops::loss) sign: f32,
    pub(in crate::ops::loss) scale: f32,
}

impl<'a> Objective<'a> {
    pub(in crate::ops::loss) fn new(
        info: &'static OpInfo,
        targets: View<'a, i32>,
        advantages: View<'a, f32>,
        offsets: View<'a, i32>,
        options: &Grpo<'a>,
        classes: u32,
    ) -> Result<Self> {
        let [tokens]: [usize; 1] = targets.dims(info.name, "targets")?;
        targets.require_contiguous(info.name, "targets")?;
        let sequences = Sequences::new(info, offsets, tokens)?;
        advantages.require_shape(info.name, "advantages", &[sequences.count as usize])?;
        advantages.require_contiguous(info.name, "advantages")?;
        let reference = options.penalty.map(|(_, reference)| reference);
        for (arg, view) in [("old", options.old), ("reference", reference)] {
            if let Some(view) = view {
                view.require_shape(info.name, arg, &[tokens])?;
                view.require_contiguous(info.name, arg)?;
            }
        }
        let terms = options.terms(info, classes)?;
        Ok(Self { info, targets, advantages, sequences, options: *options, terms })
    }

    /// New tensors for the losses of tokens.
    pub(in crate::ops::loss) fn uninit(&self, stream: &Stream) -> Result<RowLosses> {
        let tokens = self.sequences.tokens as usize;
        let shape = [tokens, self.terms.classes as usize];
        RowLosses::uninit(self.info, stream, &shape, Some(self.options.ignored))?.of_sequences(stream, tokens)
    }

    /// A power of two about the number that weights are a share of: multiplied by it they are of the size of one.
    pub(in crate::ops::loss) fn scale(&self) -> f32 {
        let of = match self.options.normalisation {
            Normalisation::Constant(divisor) => divisor,
            _ => self.sequences.tokens as f32,
        };
        of.max(1.0).log2().floor().exp2()
    }

    fn batch(&self) -> Batch<'a> {
        let gk::Terms { classes, ignored, .. } = self.terms;
        let rows = self.sequences.tokens;
        Batch { targets: Some(self.targets), weights: None, rows, classes, ignored, is_mean: true }
    }

    /// Checks what results have to be, looks at the targets and offsets, and weighs the tokens.
    pub(in crate::ops::loss) fn prepare(&self, stream: &Stream, out: &mut RowResults<'_>) -> Result<Prepared> {
        let (name, tokens) = (self.info.name, self.sequences.tokens as usize);
        let Self { targets, advantages, sequences, options, .. } = self;
        let reference = options.penalty.map(|(_, reference)| reference);
        stream.require_devices(
            name,
            &[("targets", targets), ("advantages", advantages), ("offsets", &sequences.offsets)],
        )?;
        stream.require_devices(
            name,
            &[("old", &options.old), ("reference", &reference), ("losses", &out.per_row), ("total", &out.total)],
        )?;
        out.per_row.require_shape(name, "losses", &[tokens])?;
        out.per_row.require_contiguous(name, "losses")?;
        out.total.require_shape(name, "total", &[1])?;
        let share = self.batch().weigh(stream, out.bad.as_mut().map(ViewMut::reborrow))?;
        let weights = match self.options.normalisation {
            Normalisation::Tokens => share,
            Normalisation::Constant(divisor) => Tensor::filled(stream, [1], 1.0 / divisor)?,
            Normalisation::Sequences => {
                let mut weights = Tensor::result(stream, [self.sequences.count as usize])?;
                let known = (self.terms.classes, self.terms.ignored);
                self.sequences.weigh(stream, self.targets, known, weights.view_mut())?;
                weights
            }
        };
        let mut bad_offset = Tensor::result(stream, [2])?;
        self.sequences.check(stream, &mut bad_offset.view_mut())?;
        if let Some(into) = &mut out.offsets {
            into.copy_from(stream, bad_offset.view())?;
        }
        Ok(Prepared { weights, bad_offset })
    }

    /// What those tokens add, and the derivatives of it.
    pub(in crate::ops::loss) fn launch_part(
        &self,
        stream: &Stream,
        prepared: &Prepared,
        tokens: Range<usize>,
        Values { values, sign, scale }: Values<'_>,
        mut losses: ViewMut<'_, f32>,
        mut gradient: Option<ViewMut<'_, f32>>,
    ) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let part = |view: Option<View<'_, f32>>| match view {
            Some(view) => view.slice(tokens.clone())?.ptr(stream),
            None => Ok(DevicePtr::null()),
        };
        let old = part(self.options.old)?;
        let reference = part(self.options.penalty.map(|(_, reference)| reference))?;
        let (targets, offsets) =
            (self.targets.slice(tokens.clone())?.ptr(stream)?, self.sequences.offsets.ptr(stream)?);
        let (weights, bad) = (prepared.weights.view().ptr(stream)?, prepared.bad_offset.view().ptr(stream)?);
        let gradient = gradient.as_mut().map_or(Ok(DevicePtrMut::null()), |gradient| gradient.ptr_mut(stream))?;
        let read = (values.ptr(stream)?, self.advantages.ptr(stream)?);
        let (count, sequences) = (tokens.len() as u32, self.sequences.count);
        let terms = gk::Terms { sign, scale, first: tokens.start as u32, ..self.terms };
        let args = (
            read.0,
            targets,
            offsets,
            read.1,
            old,
            reference,
            weights,
            bad,
            losses.ptr_mut(stream)?,
            gradient,
            count,
            sequences,
            terms,
        );
        // SAFETY: what there is one of a token starts at the first and has as many elements as there are threads that take one; offsets has an
        // element more than there are sequences, of which there is one unless it is said to be bad; what is written is borrowed mutably.
        unsafe { stream.launch::<gk::Grpo>(count.div_ceil(BLOCK), args) }
    }

    /// The sum of what tokens add.
    pub(in crate::ops::loss) fn total(&self, stream: &Stream, out: RowResults<'_>) -> Result<()> {
        let batch = Batch { is_mean: false, ..self.batch() };
        let unused = Tensor::result(stream, [1])?;
        batch.total(stream, &unused, out.per_row.as_view(), out.total)
    }

    /// The losses of log-probabilities, and the derivative of their sum.
    pub(super) fn launch(
        &self,
        stream: &Stream,
        log_probs: View<'_, f32>,
        mut out: RowResults<'_>,
        gradient: ViewMut<'_, f32>,
    ) -> Result<()> {
        let (name, tokens) = (self.info.name, self.sequences.tokens as usize);
        stream.require_devices(name, &[("log_probs", &log_probs), ("gradient", &gradient)])?;
        log_probs.require_shape(name, "log_probs", &[tokens])?;
        log_probs.require_contiguous(name, "log_probs")?;
        gradient.require_shape(name, "gradient", &[tokens])?;
        gradient.require_contiguous(name, "gradient")?;
        let prepared = self.prepare(stream, &mut out)?;
        let values = Values { values: log_probs, sign: 1.0, scale: 1.0 };
        self.launch_part(stream, &prepared, 0..tokens, values, out.per_row.reborrow(), Some(gradient))?;
        self.total(stream, out)
    }
}
