//! The options of the loss, its results, checks and launches.

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::loss::dpo as gk;

use crate::ops::loss::batch::{Batch, RowLosses, RowResults, in_range, limited};
use crate::ops::loss::sequences::{self, Sequences};
use crate::ops::model::OpInfo;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Options of a preference loss. The losses of pairs are reduced to their mean by default.
///
/// ```
/// # use warpsmith::ops::Dpo;
/// let options = Dpo::new(0.1).label_smoothing(0.05);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dpo<'a> {
    pub(super) beta: f32,
    pub(super) smoothing: f32,
    pub(super) is_mean: bool,
    pub(super) ignored: i32,
    pub(super) reference: Option<View<'a, f32>>,
}

impl<'a> Dpo<'a> {
    /// The loss with this β, above 0, without a reference model.
    pub fn new(beta: f32) -> Self {
        Self { beta, smoothing: 0.0, is_mean: true, ignored: -100, reference: None }
    }

    /// Sets the probability, from 0 to below 1/2, that a preference is the wrong way round.
    pub fn label_smoothing(self, chance: f32) -> Self {
        Self { smoothing: chance, ..self }
    }

    /// Sets the log-probability of each sequence under the reference model, `[2n]`, contiguous: the [`DpoLosses::log_probs`] of
    /// that model.
    pub fn reference(self, log_probs: impl Into<View<'a, f32>>) -> Self {
        Self { reference: Some(log_probs.into()), ..self }
    }

    /// Reduces the losses of pairs to their sum instead of their mean.
    pub fn sum(self) -> Self {
        Self { is_mean: false, ..self }
    }

    /// Sets the target of tokens that do not count, if there are targets; the default is −100.
    pub fn ignore(self, target: i32) -> Self {
        Self { ignored: target, ..self }
    }

    pub(in crate::ops::loss) fn ignored(&self) -> i32 {
        self.ignored
    }
}

/// The losses of pairs, on the device.
#[derive(Debug)]
pub struct DpoLosses {
    rows: RowLosses,
    sums: Tensor<f32>,
}

impl DpoLosses {
    /// The loss of each pair, `[n]`.
    pub fn per_pair(&self) -> &Tensor<f32> {
        self.rows.per_row()
    }

    /// The log-probability of each sequence, `[2n]`. A reward is β times its excess over that of the reference.
    pub fn log_probs(&self) -> &Tensor<f32> {
        &self.sums
    }

    /// The mean or sum of the losses, `[1]`.
    pub fn total(&self) -> &Tensor<f32> {
        self.rows.total()
    }

    /// Waits for the losses and returns an error if the offsets or, if present, the targets are invalid.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) names the first that was not.
    pub fn check(&self, stream: &Stream) -> Result<()> {
        self.rows.check(stream)
    }

    /// Waits for the losses and returns their mean or sum.
    ///
    /// # Errors
    /// Same as [`check`](Self::check).
    pub fn value(&self, stream: &Stream) -> Result<f32> {
        self.rows.value(stream)
    }

    pub(in crate::ops::loss) fn views(&mut self) -> Results<'_> {
        Results { rows: self.rows.views(), sums: self.sums.view_mut() }
    }
}

/// Where to write the losses.
pub(in crate::ops::loss) struct Results<'a> {
    pub(in crate::ops::loss) rows: RowResults<'a>,
    pub(in crate::ops::loss) sums: ViewMut<'a, f32>,
}

/// The number of pairs of sequences that this number of offsets describes.
pub(in crate::ops::loss) fn pairs_of(info: &OpInfo, shape: &[usize], offsets: usize, tokens: usize) -> Result<usize> {
    let sequences = sequences::count(info, shape, offsets, tokens)?;
    if !sequences.is_multiple_of(2) {
        return Err(info.shape_error("offsets", shape, format!("[2 pairs + 1], not {sequences} sequences")));
    }
    Ok(sequences / 2)
}

/// A call with checked arguments.
pub(in crate::ops::loss) struct Call<'a> {
    info: &'static OpInfo,
    sequences: Sequences<'a>,
    options: Dpo<'a>,
    pairs: u32,
    /// The targets of the tokens, and the number of classes that bounds them, if present.
    targets: Option<(View<'a, i32>, u32)>,
}

impl<'a> Call<'a> {
    pub(in crate::ops::loss) fn new(
        info: &'static OpInfo,
        tokens: usize,
        offsets: View<'a, i32>,
        options: &Dpo<'a>,
    ) -> Result<Self> {
        let sequences = Sequences::new(info, offsets, tokens)?;
        pairs_of(info, offsets.shape(), offsets.len(), tokens)?;
        if let Some(reference) = &options.reference {
            reference.require_shape(info.name, "reference", &[sequences.count as usize])?;
            reference.require_contiguous(info.name, "reference")?;
        }
        in_range(info, "beta", options.beta, |beta| beta > 0.0, "above zero")?;
        let fits = |chance: f32| (0.0..0.5).contains(&chance);
        in_range(info, "label_smoothing", options.smoothing, fits, "from 0 to below 0.5")?;
        Ok(Self { info, sequences, options: *options, pairs: sequences.count / 2, targets: None })
    }

    /// Of tokens with such targets, contiguous and one a token, of that many classes.
    pub(in crate::ops::loss) fn of_targets(self, targets: View<'a, i32>, classes: usize) -> Result<Self> {
        targets.require_shape(self.info.name, "targets", &[self.sequences.tokens as usize])?;
        targets.require_contiguous(self.info.name, "targets")?;
        let classes = limited(self.info, "weight", "classes", classes)?;
        Ok(Self { targets: Some((targets, classes)), ..self })
    }

    /// New tensors for the losses.
    pub(in crate::ops::loss) fn uninit(&self, stream: &Stream) -> Result<DpoLosses> {
        let classes = self.targets.map_or(0, |(_, classes)| classes as usize);
        let ignored = self.targets.map(|_| self.options.ignored);
        let rows = RowLosses::uninit(self.info, stream, &[self.pairs as usize, classes], ignored)?;
        Ok(DpoLosses {
            rows: rows.of_sequences(stream, self.sequences.tokens as usize)?,
            sums: Tensor::result(stream, [self.sequences.count as usize])?,
        })
    }

    /// An error that names the argument unless it is on the stream's device.
    pub(in crate::ops::loss) fn require_devices(&self, stream: &Stream) -> Result<()> {
        let Self { info, sequences, options, targets, .. } = self;
        let targets = targets.map(|(targets, _)| targets);
        stream.require_devices(
            info.name,
            &[("targets", &targets), ("offsets", &sequences.offsets), ("reference", &options.reference)],
        )
    }

    /// What the pairs' losses are multiplied by.
    pub(in crate::ops::loss) fn share(&self) -> f32 {
        if self.options.is_mean && self.pairs > 0 { 1.0 / self.pairs as f32 } else { 1.0 }
    }

    /// The losses of log-probabilities times a sign, and the derivative of their sum times a factor.
    pub(in crate::ops::loss) fn launch(
        &self,
        stream: &Stream,
        (values, sign): (View<'_, f32>, f32),
        out: Results<'_>,
        mut gradient: Option<(ViewMut<'_, f32>, f32)>,
    ) -> Result<()> {
        let Results { rows: RowResults { mut per_row, total, offsets, .. }, mut sums } = out;
        let (name, Sequences { count, tokens, .. }) = (self.info.name, self.sequences);
        let into = gradient.as_ref().map(|(gradient, _)| gradient);
        self.require_devices(stream)?;
        values.require_device(name, "log_probs", stream)?;
        stream
            .require_devices(name, &[("losses", &per_row), ("sums", &sums), ("total", &total), ("gradient", &into)])?;
        for (arg, view, n) in [("losses", &per_row, self.pairs), ("sums", &sums, count)] {
            view.require_shape(name, arg, &[n as usize])?;
            view.require_contiguous(name, arg)?;
        }
        total.require_shape(name, "total", &[1])?;
        if let Some((gradient, _)) = &mut gradient {
            gradient.require_shape(name, "gradient", &[tokens as usize])?;
            gradient.require_contiguous(name, "gradient")?;
        }
        let mut scratch = Tensor::result(stream, [2])?;
        let mut bad = offsets.unwrap_or_else(|| scratch.view_mut());
        self.sequences.check(stream, &mut bad)?;
        let Dpo { beta, smoothing, is_mean, reference, ignored } = self.options;
        let share = gradient.as_ref().map_or(0.0, |(_, factor)| *factor);
        if self.pairs > 0 {
            let reference = reference.map_or(Ok(DevicePtr::null()), |reference| reference.ptr(stream))?;
            let gradient =
                gradient.as_mut().map_or(Ok(DevicePtrMut::null()), |(gradient, _)| gradient.ptr_mut(stream))?;
            let (targets, classes) = match self.targets {
                Some((targets, classes)) => (targets.ptr(stream)?, classes),
                None => (DevicePtr::null(), 0),
            };
            let read = (values.ptr(stream)?, targets, self.sequences.offsets.ptr(stream)?, reference);
            let written = (per_row.ptr_mut(stream)?, sums.ptr_mut(stream)?);
            let bad = bad.as_view().ptr(stream)?;
            let terms = gk::Terms { beta, smoothing, share, sign, classes, ignored };
            let args = (read.0, read.1, read.2, read.3, bad, written.0, written.1, gradient, tokens, terms);
            // SAFETY: values and, where there are such, targets and the gradient have an element a token, offsets, which are bounded in the kernel, one more than
            // there are sequences, sums and the reference one a sequence, of which there are two a block, and losses one a block; what is
            // written is borrowed mutably.
            unsafe { stream.launch::<gk::Dpo>(self.pairs, args)? };
        }
        let batch = Batch { targets: None, weights: None, rows: self.pairs, classes: 0, ignored: 0, is_mean };
        let share = batch.weigh(stream, None)?;
        batch.total(stream, &share, per_row.as_view(), total)
    }
}
