//! The plan of a lesson.

use std::fmt;

use super::ladder::Ladder;
use super::results::Results;
use super::run::Run;
use super::text::Facts;
use crate::runtime::device::Device;
use crate::runtime::error::Result;

/// What a lesson runs, its predictions, and its concluding sentence.
pub struct Plan {
    pub(super) facts: Vec<Facts>,
    pub(super) runs: Vec<Run>,
    /// Facts that can only be measured on a GPU.
    pub(super) measured: Option<Measure>,
    pub(super) ladder: Option<Ladder>,
    pub(super) conclusion: Box<Conclude>,
}

/// Measures something on a GPU, if the GPU supports it.
pub(super) type Measure = fn(&Device) -> Result<Option<Facts>>;
type Conclude = dyn Fn(&Results<'_>) -> Result<String>;

impl Plan {
    /// An empty plan with a concluding sentence, which states the results.
    pub(super) fn new(conclusion: impl Fn(&Results<'_>) -> Result<String> + 'static) -> Self {
        Self { facts: Vec::new(), runs: Vec::new(), measured: None, ladder: None, conclusion: Box::new(conclusion) }
    }

    /// Adds facts that are known before anything runs.
    pub(super) fn facts(mut self, facts: Facts) -> Self {
        self.facts.push(facts);
        self
    }

    /// Adds facts that are measured on a GPU, without a prediction of kernels.
    pub(super) fn measured(self, measure: Measure) -> Self {
        Self { measured: Some(measure), ..self }
    }

    /// Adds these products, which are only timed.
    pub(super) fn ladder(mut self, ladder: Ladder) -> Self {
        self.ladder = Some(ladder);
        self
    }

    /// Adds these runs.
    pub(super) fn runs(mut self, runs: impl IntoIterator<Item = Run>) -> Self {
        self.runs.extend(runs);
        self
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("facts", &self.facts).field("runs", &self.runs).finish_non_exhaustive()
    }
}
