//! The options of a divergence.

use gpu_kernels::ops::loss::kl_divergence as gk;

use crate::ops::loss::batch::{Batch, in_range, reciprocal};
use crate::ops::model::{OpInfo, Params};
use crate::runtime::error::Result;
use crate::runtime::view::View;

/// Which divergence of a student's probabilities q from its teacher's p.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divergence {
    /// KL(p‖q) = Σ p·ln(p / q): the student covers everything that the teacher does.
    Forward,
    /// KL(q‖p) = Σ q·ln(q / p): the student stays within what the teacher does.
    Reverse,
    /// β·KL(p‖m) + (1 − β)·KL(q‖m) with m = β·p + (1 − β)·q, for this β from 0 to 1. At the ends, where that would be 0, it
    /// stands for the forward and the reverse divergence, as in on-policy distillation.
    JensenShannon(f32),
}

impl Divergence {
    /// The one that the parameters name.
    pub(super) fn of(params: &Params) -> Result<Self> {
        Ok(match params.choice("divergence")? {
            "forward" => Self::Forward,
            "reverse" => Self::Reverse,
            _ => Self::JensenShannon(params.f32("beta")?),
        })
    }
}

/// The options of a divergence. The losses of rows that count are reduced to their mean by default.
///
/// ```
/// # use warpsmith::ops::KlDivergence;
/// let options = KlDivergence::reverse().temperature(2.0);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KlDivergence<'a> {
    pub(in crate::ops::loss) divergence: Divergence,
    pub(in crate::ops::loss) temperature: f32,
    pub(in crate::ops::loss) is_mean: bool,
    pub(in crate::ops::loss) ignored: i32,
    pub(in crate::ops::loss) targets: Option<View<'a, i32>>,
}

impl<'a> KlDivergence<'a> {
    /// This divergence of all rows, at temperature 1.
    pub fn new(divergence: Divergence) -> Self {
        Self { divergence, temperature: 1.0, is_mean: true, ignored: -100, targets: None }
    }

    /// KL(teacher‖student).
    pub fn forward() -> Self {
        Self::new(Divergence::Forward)
    }

    /// KL(student‖teacher).
    pub fn reverse() -> Self {
        Self::new(Divergence::Reverse)
    }

    /// The generalised Jensen–Shannon divergence, with this weight of the teacher.
    pub fn jensen_shannon(beta: f32) -> Self {
        Self::new(Divergence::JensenShannon(beta))
    }

    /// Divides the logits of both rows by this temperature. The gradient is that of this loss: multiplying by T², which keeps
    /// its magnitude in mixtures with other losses, is up to the caller.
    pub fn temperature(self, temperature: f32) -> Self {
        Self { temperature, ..self }
    }

    /// Reduces the losses of rows that count to their sum instead of their mean.
    pub fn sum(self) -> Self {
        Self { is_mean: false, ..self }
    }

    /// Restricts the loss to rows whose target, a class as in cross-entropy, is not ignored: `[rows]`, the outer dimensions of
    /// the logits, contiguous.
    pub fn targets(self, targets: impl Into<View<'a, i32>>) -> Self {
        Self { targets: Some(targets.into()), ..self }
    }

    /// Sets the target of rows that do not count; the default is −100.
    pub fn ignore(self, target: i32) -> Self {
        Self { ignored: target, ..self }
    }

    /// The ignored target, if there are targets.
    pub(in crate::ops::loss) fn ignored(&self) -> Option<i32> {
        self.targets.map(|_| self.ignored)
    }

    pub(in crate::ops::loss) fn terms(&self, info: &OpInfo) -> Result<gk::Terms> {
        let (kind, beta) = match self.divergence {
            Divergence::Forward => (gk::BY_TO, 0.0),
            Divergence::Reverse => (gk::BY_FROM, 1.0),
            Divergence::JensenShannon(beta) => {
                in_range(info, "beta", beta, |beta| (0.0..=1.0).contains(&beta), "from 0 to 1")?;
                let kind = if beta == 0.0 {
                    gk::BY_TO
                } else if beta == 1.0 {
                    gk::BY_FROM
                } else {
                    gk::JENSEN_SHANNON
                };
                (kind, beta)
            }
        };
        let scale = reciprocal(info, "temperature", self.temperature)?;
        Ok(gk::Terms { kind, beta, scale, ignored: self.ignored })
    }

    pub(in crate::ops::loss) fn batch(&self, targets: Option<View<'a, i32>>, rows: u32, classes: u32) -> Batch<'a> {
        let Self { is_mean, ignored, .. } = *self;
        Batch { targets, weights: None, rows, classes, ignored, is_mean }
    }
}
