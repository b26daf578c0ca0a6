//! The options of the loss, and its results.

use gpu_kernels::ops::loss::cross_entropy::Terms;

use crate::ops::attention::checked_softcap;
use crate::ops::loss::batch::{Batch, RowLosses, in_range};
use crate::ops::model::OpInfo;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// Options of a cross-entropy: its terms, and how the rows' losses are reduced.
///
/// ```
/// # use warpsmith::ops::CrossEntropy;
/// let options = CrossEntropy::mean().ignore(0).label_smoothing(0.1).z_loss(1e-4);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    pub(in crate::ops::loss) is_mean: bool,
    pub(super) ignored: i32,
    pub(super) smoothing: f32,
    pub(super) z: f32,
    pub(super) softcap: Option<f32>,
    pub(in crate::ops::loss) weights: Option<View<'a, f32>>,
}

impl<'a> CrossEntropy<'a> {
    /// The mean over the rows that count; with class weights, weighted by the weights of the rows' targets. 0 if no row counts
    /// or the weights sum to 0, where PyTorch returns NaN.
    pub fn mean() -> Self {
        Self { is_mean: true, ignored: -100, smoothing: 0.0, z: 0.0, softcap: None, weights: None }
    }

    /// The sum over the rows that count.
    pub fn sum() -> Self {
        Self { is_mean: false, ..Self::mean() }
    }

    /// Sets the target of rows that do not count; the default is −100.
    pub fn ignore(self, target: i32) -> Self {
        Self { ignored: target, ..self }
    }

    /// Spreads this fraction of the target's probability, from 0 to 1, evenly over all classes. The part of each class is
    /// multiplied by its weight, as in PyTorch.
    pub fn label_smoothing(self, share: f32) -> Self {
        Self { smoothing: share, ..self }
    }

    /// Adds `factor` · L² to every row's loss, where L is its logsumexp: this keeps logits from drifting.
    pub fn z_loss(self, factor: f32) -> Self {
        Self { z: factor, ..self }
    }

    /// Replaces each logit x by cap·tanh(x / cap); cap is a positive normal number.
    pub fn softcap(self, cap: f32) -> Self {
        Self { softcap: Some(cap), ..self }
    }

    /// Sets the weight of each class, `[classes]`, contiguous.
    pub fn class_weights(self, weights: impl Into<View<'a, f32>>) -> Self {
        Self { weights: Some(weights.into()), ..self }
    }

    pub(in crate::ops::loss) fn ignored(&self) -> i32 {
        self.ignored
    }

    /// The kernel's terms for that number of classes, which the weights must match.
    pub(in crate::ops::loss) fn terms(&self, info: &OpInfo, classes: usize) -> Result<Terms> {
        let Self { ignored, smoothing, z, softcap, .. } = *self;
        if let Some(weights) = &self.weights {
            weights.require_shape(info.name, "class_weights", &[classes])?;
            weights.require_contiguous(info.name, "class_weights")?;
        }
        let is_share = |share: f32| (0.0..=1.0).contains(&share);
        Ok(Terms {
            smoothing: in_range(info, "label_smoothing", smoothing, is_share, "from 0 to 1")?,
            z: in_range(info, "z_loss", z, |factor| factor >= 0.0, "not negative")?,
            cap: checked_softcap(info, softcap)?,
            ignored,
        })
    }

    /// The batch of rows with these targets.
    pub(in crate::ops::loss) fn batch<'b>(&self, targets: View<'b, i32>, rows: u32, classes: u32) -> Batch<'b>
    where
        'a: 'b,
    {
        let Self { is_mean, ignored, weights, .. } = *self;
        Batch { targets: Some(targets), weights, rows, classes, ignored, is_mean }
    }
}

/// The losses of a batch, on the device.
#[derive(Debug)]
pub struct Losses {
    pub(super) rows: RowLosses,
    pub(super) lse: Tensor<f32>,
}

impl Losses {
    /// The loss of each row, of the targets' shape: 0 where the target is ignored, NaN where it is not a
    /// class or no logit is above −∞.
    pub fn per_row(&self) -> &Tensor<f32> {
        self.rows.per_row()
    }

    /// The logsumexp of each row's logits, of the targets' shape: 0 where the row does not count.
    pub fn lse(&self) -> &Tensor<f32> {
        &self.lse
    }

    /// The mean or sum of the losses, `[1]`.
    pub fn total(&self) -> &Tensor<f32> {
        self.rows.total()
    }

    /// Waits for the losses and returns an error if a target is not a class.
    ///
    /// ```
    /// # use warpsmith::{Device, Tensor, ops, ops::CrossEntropy};
    /// # fn main() -> warpsmith::Result<()> {
    /// # let stream = Device::open()?.stream()?;
    /// let logits = Tensor::from_slice(&stream, [2, 4], &[0.0f32; 8])?;
    /// let targets = Tensor::from_slice(&stream, [2], &[1, 4])?;
    /// let losses = ops::cross_entropy(&stream, &logits, &targets, &CrossEntropy::sum())?;
    /// let error = losses.check(&stream).unwrap_err().to_string();
    /// assert_eq!(error, "cross_entropy: parameter `targets[1]` = 4: expected a class below 4 or -100, which is ignored");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) names the first target that was none.
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
}
