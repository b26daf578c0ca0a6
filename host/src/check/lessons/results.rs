//! What is known of a lesson after it was run.

use std::fmt;

use serde::Serialize;

use super::ladder::Rung;
use super::quantity::Quantity;
use super::run::{Observation, Prediction};
use super::text::Facts;
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};
use crate::runtime::sim::Profile;

/// A lesson that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Taught {
    /// The lesson.
    pub name: &'static str,
    /// The claim.
    pub claim: [&'static str; 2],
    /// The device that was simulated for the counts.
    pub simulated: String,
    /// The GPU that was timed.
    pub gpu: Option<String>,
    /// What is known before anything runs.
    pub facts: Vec<Facts>,
    /// What was run.
    pub runs: Vec<Measured>,
    /// Products of many sizes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ladder: Vec<Rung>,
    /// The conclusion.
    pub conclusion: String,
}

impl Taught {
    /// Whether all counts are as predicted.
    pub fn holds(&self) -> bool {
        self.runs.iter().flat_map(|run| &run.counts).all(Count::holds)
    }
}

/// A run, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What reports call it.
    pub label: String,
    /// The kernels, in the order of their launches.
    pub kernels: Vec<KernelPlace>,
    /// The symbol of each launch that was counted.
    #[serde(skip)]
    pub launches: Vec<String>,
    /// What was counted in the simulator.
    pub counts: Vec<Count>,
    /// What was timed, if there is a GPU.
    pub time: Option<Time>,
    /// The minimum time that the device's numbers allow for what is timed, in milliseconds.
    pub at_least_ms: Option<f64>,
    /// The same with the rate that a copy reaches instead of the peak of memory: the expected time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_ms: Option<f64>,
}

/// The location of a kernel's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelPlace {
    /// The kernel's symbol.
    pub symbol: String,
    /// Its source.
    pub file: &'static str,
    /// First and last line.
    pub lines: [u32; 2],
}

impl fmt::Display for KernelPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, last] = self.lines;
        write!(f, "{}:{first}", self.file)?;
        if last > first { write!(f, "-{last}") } else { Ok(()) }
    }
}

/// A count with its prediction.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Count {
    /// The quantity.
    pub quantity: &'static str,
    /// The predicted value.
    pub predicted: f64,
    /// The counted value.
    pub counted: f64,
    /// The count of Nsight Compute on a GPU, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ncu: Option<f64>,
    /// The metrics that Nsight Compute was asked for.
    #[serde(skip)]
    pub metrics: &'static [&'static str],
}

impl Count {
    pub(super) fn new(prediction: &Prediction, launches: &[Profile]) -> Self {
        let Prediction { quantity, value } = *prediction;
        let (counted, metrics) = (quantity.of(launches), quantity.ncu);
        Self { quantity: quantity.name, predicted: value, counted, ncu: None, metrics }
    }

    pub(super) fn observed(observation: &Observation, simulated: &Device) -> Result<Self> {
        let Observation { name: quantity, value: predicted, of } = *observation;
        Ok(Self { quantity, predicted, counted: of(simulated)?, ncu: None, metrics: &[] })
    }

    /// Whether the count equals the prediction, up to the rounding of a division.
    pub fn holds(&self) -> bool {
        agree(self.predicted, self.counted) && self.ncu.is_none_or(|ncu| agree(self.predicted, ncu))
    }
}

/// Whether a count is what was predicted.
pub(crate) fn agree(predicted: f64, counted: f64) -> bool {
    (counted - predicted).abs() <= 1e-9 * predicted.abs()
}

/// A time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Time {
    /// The median of many, in milliseconds.
    pub ms: f64,
    /// The least.
    pub min_ms: f64,
}

/// The results that a lesson's sentence is built from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Results<'a> {
    pub(super) name: &'static str,
    pub(super) runs: &'a [Measured],
    pub(super) ladder: &'a [Rung],
}

impl Results<'_> {
    fn run(&self, label: &str) -> Result<&Measured> {
        let labels = || self.runs.iter().map(|run| run.label.as_str()).collect::<Vec<_>>().join(", ");
        let found = self.runs.iter().find(|run| run.label == label);
        found.ok_or_else(|| Error::param(self.name, "run", label, format!("one of {}", labels())))
    }

    /// Products of many sizes.
    pub(super) fn ladder(&self) -> &[Rung] {
        self.ladder
    }

    /// The count of `quantity` in the run with that label.
    pub(super) fn count(&self, label: &str, quantity: &Quantity) -> Result<f64> {
        self.named(label, quantity.name)
    }

    /// The same for the quantity or observation with that name.
    pub(super) fn named(&self, label: &str, quantity: &str) -> Result<f64> {
        let run = self.run(label)?;
        let found = run.counts.iter().find(|count| count.quantity == quantity);
        let names = || run.counts.iter().map(|count| count.quantity).collect::<Vec<_>>().join(", ");
        let missing = || Error::param(self.name, "quantity", quantity, format!("one of {}", names()));
        found.map(|count| count.counted).ok_or_else(missing)
    }

    /// Milliseconds of the run of that label; `None` without a GPU.
    pub(super) fn ms(&self, label: &str) -> Option<f64> {
        self.run(label).ok()?.time.map(|time| time.ms)
    }

    /// The part of the sentence about times: ` (…)` around what `say` makes of two of them.
    pub(super) fn timed(&self, one: &str, other: &str, say: impl Fn(f64, f64) -> String) -> String {
        match (self.ms(one), self.ms(other)) {
            (Some(one), Some(other)) => format!(" ({})", say(one, other)),
            _ => String::new(),
        }
    }
}
