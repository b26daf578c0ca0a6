//! What a lesson is going to do, and what it expects.

use std::fmt;

use super::ladder::Ladder;
use super::quantity::Quantity;
use super::teach::Results;
use crate::check::Job;
use crate::check::bench::Timing;
use crate::check::registry;
use crate::ops::model::{Case, CaseClass, Dims, OpInfo, ParamValue};
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// What a lesson runs, with what it expects of it, and the sentence that it ends with.
pub struct Plan {
    pub(super) facts: Vec<Facts>,
    pub(super) runs: Vec<Run>,
    /// What can be found out on a GPU alone.
    pub(super) measured: Option<Measure>,
    pub(super) ladder: Option<Ladder>,
    pub(super) conclusion: Box<Conclude>,
}

/// Finds something out on a GPU, if it has it.
pub(super) type Measure = fn(&Device) -> Result<Option<Facts>>;
type Conclude = dyn Fn(&Results<'_>) -> Result<String>;

impl Plan {
    /// Nothing yet but the sentence, which says what was found.
    pub(super) fn new(conclusion: impl Fn(&Results<'_>) -> Result<String> + 'static) -> Self {
        Self { facts: Vec::new(), runs: Vec::new(), measured: None, ladder: None, conclusion: Box::new(conclusion) }
    }

    /// With something that is known before anything runs.
    pub(super) fn facts(mut self, facts: Facts) -> Self {
        self.facts.push(facts);
        self
    }

    /// With something that is found out on a GPU, without a prediction of kernels.
    pub(super) fn measured(self, measure: Measure) -> Self {
        Self { measured: Some(measure), ..self }
    }

    /// With these products, which are timed alone.
    pub(super) fn ladder(mut self, ladder: Ladder) -> Self {
        self.ladder = Some(ladder);
        self
    }

    /// With these runs.
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

/// Numbers with headings.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Facts {
    /// What it shows.
    pub title: String,
    /// Headings; one that starts with `>` is over numbers.
    pub headings: Vec<&'static str>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
}

/// One of the ways that a lesson compares: operators that run one after the other.
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) label: String,
    pub(super) counted: Vec<Timing>,
    pub(super) predictions: Vec<Prediction>,
    pub(super) observations: Vec<Observation>,
    pub(super) timed: Vec<Timing>,
    pub(super) seconds: Option<f64>,
}

/// Something to be seen in results, which no launch tells, and how much of it there is going to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// What reports call it.
    pub(super) name: &'static str,
    pub(super) value: f64,
    /// Computes on a device, and counts.
    pub(super) of: fn(&Device) -> Result<f64>,
}

/// What a count is going to be.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// Of what.
    pub quantity: &'static Quantity,
    /// How much.
    pub value: f64,
}

impl Run {
    /// Nothing yet but what reports call it.
    pub(super) fn new(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            counted: Vec::new(),
            predictions: Vec::new(),
            observations: Vec::new(),
            timed: Vec::new(),
            seconds: None,
        }
    }

    /// Counts this in the simulator.
    pub(super) fn count(mut self, part: Timing) -> Self {
        self.counted.push(part);
        self
    }

    /// Expects that count.
    pub(super) fn expect(mut self, quantity: &'static Quantity, value: impl Count) -> Self {
        self.predictions.push(Prediction { quantity, value: value.value() });
        self
    }

    /// Expects `of` to find that much in what the simulator computes.
    pub(super) fn observe(mut self, name: &'static str, value: impl Count, of: fn(&Device) -> Result<f64>) -> Self {
        self.observations.push(Observation { name, value: value.value(), of });
        self
    }

    /// Times this where there is a GPU.
    pub(super) fn time(mut self, part: Timing) -> Self {
        self.timed.push(part);
        self
    }

    /// Expects all that is timed to take that long at least; `None` where the device does not tell what it would need to know.
    pub(super) fn at_least(mut self, seconds: Option<f64>) -> Self {
        self.seconds = seconds;
        self
    }
}

/// A number that may be counted.
pub(super) trait Count {
    fn value(self) -> f64;
}

impl Count for usize {
    fn value(self) -> f64 {
        self as f64
    }
}

impl Count for f64 {
    fn value(self) -> f64 {
        self
    }
}

/// An operator on a problem of a lesson's own, as the operator picks its kernel.
pub(super) fn part(op: &str, dtype: DType, dims: impl Into<Dims>) -> Result<Timing> {
    let op = registry::find(op)?;
    Ok(Timing { job: Job { op, case: case(op.info(), dtype, dims) }, variant: None })
}

/// [`part`] with optional inputs left out.
pub(super) fn plain_part(op: &str, dtype: DType, dims: impl Into<Dims>) -> Result<Timing> {
    let mut part = part(op, dtype, dims)?;
    part.job.case = part.job.case.only(&[]);
    Ok(part)
}

/// [`part`] in a variant.
pub(super) fn variant(op: &str, variant: &str, dtype: DType, dims: impl Into<Dims>) -> Result<Timing> {
    let part = part(op, dtype, dims)?;
    Ok(Timing { variant: Some(part.job.op.info().variant(variant)?), ..part })
}

/// [`part`] with a parameter.
pub(super) fn with(mut part: Timing, param: &'static str, value: impl Into<ParamValue>) -> Timing {
    part.job.case = part.job.case.param(param, value);
    part
}

fn case(info: &'static OpInfo, dtype: DType, dims: impl Into<Dims>) -> Case {
    Case::new(info, CaseClass::Boundary, dtype, dims)
}
