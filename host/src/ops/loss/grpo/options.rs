//! The options of the objective.

use gpu_kernels::ops::loss::grpo as gk;

use crate::ops::loss::batch::{finite, in_range, reciprocal};
use crate::ops::model::{OpInfo, Params};
use crate::runtime::error::Result;
use crate::runtime::view::View;

/// The parameters that a [`Normalisation`] is read from.
pub(in crate::ops::loss) const NORMALISED: &str = "normalised";
pub(in crate::ops::loss) const DIVISOR: &str = "divisor";

/// How the tokens' losses are reduced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Normalisation {
    /// The mean over sequences of the means over their tokens that count: GRPO. A sequence without such tokens counts as a
    /// sequence and adds 0.
    Sequences,
    /// The mean over all tokens that count: DAPO.
    Tokens,
    /// The sum over all tokens that count, divided by this: Dr. GRPO, with sequences × greatest length.
    Constant(f32),
}

impl Normalisation {
    /// The one that the parameters name.
    pub(super) fn of(params: &Params) -> Result<Self> {
        Ok(match params.choice(NORMALISED)? {
            "sequences" => Self::Sequences,
            "tokens" => Self::Tokens,
            _ => Self::Constant(params.f32(DIVISOR)?),
        })
    }
}

/// The options of the objective.
///
/// ```
/// # use warpsmith::ops::{Grpo, Normalisation};
/// let options = Grpo::new().clip(0.2, 0.28).normalisation(Normalisation::Tokens);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Grpo<'a> {
    pub(super) clip: [f32; 2],
    pub(super) normalisation: Normalisation,
    pub(super) ignored: i32,
    pub(super) old: Option<View<'a, f32>>,
    pub(super) penalty: Option<(f32, View<'a, f32>)>,
}

impl Default for Grpo<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Grpo<'a> {
    /// The objective for tokens drawn by the policy itself, with ratios clipped to within 0.2 of 1 and no penalty.
    pub fn new() -> Self {
        Self { clip: [0.2; 2], normalisation: Normalisation::Sequences, ignored: -100, old: None, penalty: None }
    }

    /// Sets how far below 1, at most by 1, and above 1 the ratio may go before it is clipped.
    pub fn clip(self, below: f32, above: f32) -> Self {
        Self { clip: [below, above], ..self }
    }

    /// Sets how the tokens' losses are reduced.
    pub fn normalisation(self, normalisation: Normalisation) -> Self {
        Self { normalisation, ..self }
    }

    /// Sets the log-probabilities under the policy that drew the tokens, `[tokens]`, contiguous. By default that is the policy
    /// itself: the ratio is 1, and its derivative is still taken.
    pub fn old(self, log_probs: impl Into<View<'a, f32>>) -> Self {
        Self { old: Some(log_probs.into()), ..self }
    }

    /// Adds `beta` times an estimate of the divergence from a reference model with these log-probabilities, `[tokens]`, contiguous.
    pub fn penalty(self, beta: f32, reference: impl Into<View<'a, f32>>) -> Self {
        Self { penalty: Some((beta, reference.into())), ..self }
    }

    /// Sets the target of tokens that do not count; the default is −100.
    pub fn ignore(self, target: i32) -> Self {
        Self { ignored: target, ..self }
    }

    pub(in crate::ops::loss) fn ignored(&self) -> i32 {
        self.ignored
    }

    /// The kernel's terms, except those that differ between calls.
    pub(super) fn terms(&self, info: &OpInfo, classes: u32) -> Result<gk::Terms> {
        let [below, above] = self.clip;
        in_range(info, "clip_low", below, |below| (0.0..=1.0).contains(&below), "from 0 to 1")?;
        in_range(info, "clip_high", above, |above| above >= 0.0, "not negative")?;
        let beta = self.penalty.map_or(Ok(0.0), |(beta, _)| finite(info, "beta", beta))?;
        if let Normalisation::Constant(divisor) = self.normalisation {
            reciprocal(info, "divisor", divisor)?;
        }
        let weight_stride = u32::from(self.normalisation == Normalisation::Sequences);
        let (bounds, ignored) = ([1.0 - below, 1.0 + above], self.ignored);
        Ok(gk::Terms { bounds, beta, sign: 1.0, scale: 1.0, classes, ignored, weight_stride, first: 0 })
    }
}
