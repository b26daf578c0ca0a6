//! A run of a lesson: what is counted and timed, and its predictions.

use super::quantity::Quantity;
use crate::check::Job;
use crate::check::bench::Timing;
use crate::check::registry;
use crate::ops::model::{Case, CaseClass, Dims, OpInfo, ParamValue};
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// One of the alternatives that a lesson compares: operators that run one after the other.
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) label: String,
    pub(super) counted: Vec<Timing>,
    pub(super) predictions: Vec<Prediction>,
    pub(super) observations: Vec<Observation>,
    pub(super) timed: Vec<Timing>,
    pub(super) seconds: Option<f64>,
}

/// A property of results, which launches do not show, with its predicted value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// The name in reports.
    pub(super) name: &'static str,
    pub(super) value: f64,
    /// Computes on a device, and returns the count.
    pub(super) of: fn(&Device) -> Result<f64>,
}

/// A prediction of a count.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// The quantity.
    pub quantity: &'static Quantity,
    /// The predicted value.
    pub value: f64,
}

impl Run {
    /// An empty run with the label that reports use.
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

    /// Predicts the value that `of` finds in what the simulator computes.
    pub(super) fn observe(mut self, name: &'static str, value: impl Count, of: fn(&Device) -> Result<f64>) -> Self {
        self.observations.push(Observation { name, value: value.value(), of });
        self
    }

    /// Times this if there is a GPU.
    pub(super) fn time(mut self, part: Timing) -> Self {
        self.timed.push(part);
        self
    }

    /// Predicts a minimum time for all that is timed; `None` if the device does not report the numbers that it needs.
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

/// An operator on a problem of the lesson, with the kernel that the operator selects.
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
