//! A batch of rows: which rows count, and how their losses are reduced.

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::loss::cross_entropy::targets::{self as gk, FINE};

use crate::ops::model::OpInfo;
use crate::ops::softmax::MAX_SCALE;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The losses of rows, and their mean or sum, on the device.
#[derive(Debug)]
pub struct RowLosses {
    info: &'static OpInfo,
    per_row: Tensor<f32>,
    total: Tensor<f32>,
    /// The first row whose target is not a class, and that target, if there are targets.
    bad: Option<Tensor<u32>>,
    classes: usize,
    ignored: i32,
    /// The first invalid offset of sequences, and its value, if there are sequences; and their number of tokens.
    offsets: Option<(Tensor<u32>, usize)>,
}

/// Where to write the losses.
pub(super) struct RowResults<'a> {
    pub(super) per_row: ViewMut<'a, f32>,
    pub(super) total: ViewMut<'a, f32>,
    pub(super) bad: Option<ViewMut<'a, u32>>,
    pub(super) offsets: Option<ViewMut<'a, u32>>,
}

impl RowLosses {
    /// New tensors for the losses of logits of that shape; if rows have targets, with that target ignored.
    pub(super) fn uninit(
        info: &'static OpInfo,
        stream: &Stream,
        shape: &[usize],
        ignored: Option<i32>,
    ) -> Result<Self> {
        let (classes, outer) = shape.split_last().map_or((0, shape), |(classes, outer)| (*classes, outer));
        Ok(Self {
            info,
            per_row: Tensor::result(stream, outer)?,
            total: Tensor::result(stream, [1])?,
            bad: ignored.map(|_| Tensor::result(stream, [2])).transpose()?,
            classes,
            ignored: ignored.unwrap_or_default(),
            offsets: None,
        })
    }

    /// The losses of sequences with that number of tokens.
    pub(super) fn of_sequences(self, stream: &Stream, tokens: usize) -> Result<Self> {
        Ok(Self { offsets: Some((Tensor::result(stream, [2])?, tokens)), ..self })
    }

    pub(super) fn views(&mut self) -> RowResults<'_> {
        RowResults {
            per_row: self.per_row.view_mut(),
            total: self.total.view_mut(),
            bad: self.bad.as_mut().map(Tensor::view_mut),
            offsets: self.offsets.as_mut().map(|(bad, _)| bad.view_mut()),
        }
    }

    /// The loss of each row, of the shape of the rows: 0 where the target is ignored, NaN where it is not a class.
    pub fn per_row(&self) -> &Tensor<f32> {
        &self.per_row
    }

    /// The mean or sum of the losses, `[1]`.
    pub fn total(&self) -> &Tensor<f32> {
        &self.total
    }

    /// Waits for the losses and returns an error if a target is not a class, or the offsets of sequences are invalid.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] names the first target or offset that was none.
    pub fn check(&self, stream: &Stream) -> Result<()> {
        if let Some([row, target]) = first_bad(stream, self.bad.as_ref())? {
            let wanted = format!("a class below {} or {}, which is ignored", self.classes, self.ignored);
            return Err(self.info.param_error(format!("targets[{row}]"), target as i32, wanted));
        }
        if let Some((bad, tokens)) = &self.offsets
            && let Some([at, offset]) = first_bad(stream, Some(bad))?
        {
            let wanted = format!("offsets that rise from 0 to {tokens}, the number of tokens");
            return Err(self.info.param_error(format!("offsets[{at}]"), offset as i32, wanted));
        }
        Ok(())
    }

    /// Waits for the losses and returns their mean or sum.
    ///
    /// # Errors
    /// Same as [`check`](Self::check).
    pub fn value(&self, stream: &Stream) -> Result<f32> {
        self.check(stream)?;
        Ok(self.total.to_vec(stream)?[0])
    }
}

/// The index of the first bad value, and that value.
fn first_bad(stream: &Stream, bad: Option<&Tensor<u32>>) -> Result<Option<[u32; 2]>> {
    let bad = bad.map_or(Ok(Vec::new()), |bad| bad.to_vec(stream))?;
    Ok(bad.try_into().ok().filter(|[at, _]: &[u32; 2]| *at != FINE))
}

/// Which rows count, and how their losses are reduced.
pub(super) struct Batch<'a> {
    /// Without targets, all rows count.
    pub(super) targets: Option<View<'a, i32>>,
    /// The weights of the classes, 1 by default.
    pub(super) weights: Option<View<'a, f32>>,
    pub(super) rows: u32,
    pub(super) classes: u32,
    pub(super) ignored: i32,
    pub(super) is_mean: bool,
}

impl Batch<'_> {
    /// Writes the factor of a row's loss in the mean, and to `bad` the first target that is not a class.
    pub(super) fn weigh(&self, stream: &Stream, bad: Option<ViewMut<'_, u32>>) -> Result<Tensor<f32>> {
        let Some(targets) = self.targets else {
            return Tensor::filled(stream, [1], if self.rows == 0 { 0.0 } else { 1.0 / self.rows as f32 });
        };
        let (mut share, scratch) = (Tensor::result(stream, [1])?, stream.scratch::<u32>(2)?);
        let bad = bad.map_or(Ok(scratch.ptr_mut()), |mut bad| bad.ptr_mut(stream))?;
        let weights = self.weights.map_or(Ok(DevicePtr::null()), |weights| weights.ptr(stream))?;
        let into = share.view_mut().ptr_mut(stream)?;
        let args = (targets.ptr(stream)?, weights, into, bad, self.rows, self.classes, self.ignored);
        // SAFETY: targets has an element a row, weights one a class, and there is room for a share, a row and a target.
        unsafe { stream.launch::<gk::WeighTargets>(1, args)? };
        Ok(share)
    }

    /// The factor of the rows' losses; null if there is none.
    pub(super) fn factor_of(&self, stream: &Stream, share: &Tensor<f32>) -> Result<DevicePtr<f32>> {
        if self.is_mean { share.view().ptr(stream) } else { Ok(DevicePtr::null()) }
    }

    /// The mean or the sum of the rows' losses.
    pub(super) fn total(
        &self,
        stream: &Stream,
        share: &Tensor<f32>,
        losses: View<'_, f32>,
        mut total: ViewMut<'_, f32>,
    ) -> Result<()> {
        let args = (losses.ptr(stream)?, self.factor_of(stream, share)?, total.ptr_mut(stream)?, self.rows);
        // SAFETY: losses has an element a row, and total is borrowed mutably.
        unsafe { stream.launch::<gk::TotalLoss>(1, args) }
    }
}

/// A number of rows or classes in the type that kernels take.
pub(super) fn limited(info: &OpInfo, arg: &'static str, what: &str, n: usize) -> Result<u32> {
    u32::try_from(n)
        .ok()
        .filter(|n| *n <= i32::MAX as u32)
        .ok_or_else(|| Error::too_large(info.name, arg, format!("{n} {what}, at most {} are supported", i32::MAX)))
}

/// A parameter that must be finite and satisfy `fits`.
pub(super) fn in_range(info: &OpInfo, name: &str, value: f32, fits: impl Fn(f32) -> bool, wanted: &str) -> Result<f32> {
    match value.is_finite() && fits(value) {
        true => Ok(value),
        false => Err(info.param_error(name, value, format!("a finite number {wanted}"))),
    }
}

/// A parameter that must be finite.
pub(super) fn finite(info: &OpInfo, name: &str, value: f32) -> Result<f32> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(info.param_error(name, value, "a finite number")),
    }
}

/// The reciprocal of a positive parameter: the factor of logits at a temperature, or of sums with a divisor.
pub(super) fn reciprocal(info: &OpInfo, name: &str, value: f32) -> Result<f32> {
    let fits = |value: f32| value > 0.0 && value.recip() <= MAX_SCALE;
    in_range(info, name, value, fits, "above zero with a reciprocal below 2^127").map(f32::recip)
}
