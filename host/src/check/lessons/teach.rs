//! Runs a lesson: its runs are counted in the simulator, and timed if there is a GPU.

use std::fmt;

use serde::Serialize;

use super::Lesson;
use super::ladder::{Ladder, Rung};
use super::plan::{Facts, Observation, Prediction, Run};
use super::quantity::Quantity;
use crate::check::bench::{Prepared, Timing, copy_rate};
use crate::check::verify::offline;
use crate::check::{Operands, profile};
use crate::runtime::device::{Device, DeviceInfo};
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
    fn new(prediction: &Prediction, launches: &[Profile]) -> Self {
        let Prediction { quantity, value } = *prediction;
        let (counted, metrics) = (quantity.of(launches), quantity.ncu);
        Self { quantity: quantity.name, predicted: value, counted, ncu: None, metrics }
    }

    fn observed(observation: &Observation, simulated: &Device) -> Result<Self> {
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
    name: &'static str,
    runs: &'a [Measured],
    ladder: &'a [Rung],
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

/// Runs a lesson: counts come from the `simulated` device, times from the GPU that it models, if there is one.
pub fn teach(lesson: &Lesson, simulated: &Device, gpu: Option<&Device>) -> Result<Taught> {
    let plan = (lesson.plan)(simulated.info())?;
    let as_measured = gpu.map(|gpu| (lesson.plan)(&with_memory_as_measured(simulated.info(), gpu)?)).transpose()?;
    let mut runs = Vec::new();
    for (i, run) in plan.runs.iter().enumerate() {
        let expected = as_measured.as_ref().and_then(|plan| plan.runs.get(i)?.seconds);
        let time = gpu.map_or(Ok(None), |gpu| timed(run, gpu))?;
        runs.push(Measured { time, expected_ms: expected.map(|seconds| seconds * 1e3), ..counted(run, simulated)? });
    }
    let mut ladder = plan.ladder.as_ref().map(Ladder::rungs).unwrap_or_default();
    let mut facts = plan.facts;
    if let Some((gpu, measure)) = gpu.zip(plan.measured) {
        facts.extend(measure(gpu)?);
    }
    if let Some((gpu, measured)) = gpu.zip(as_measured.as_ref().and_then(|plan| plan.ladder.as_ref())) {
        facts.push(measured.climb(gpu, &mut ladder)?);
    }
    let conclusion = (plan.conclusion)(&Results { name: lesson.name, runs: &runs, ladder: &ladder })?;
    Ok(Taught {
        name: lesson.name,
        claim: lesson.claim,
        simulated: simulated.info().name.clone(),
        gpu: gpu.map(|gpu| gpu.info().name.clone()),
        facts,
        runs,
        ladder,
        conclusion,
    })
}

/// The device with the memory rate that a copy reaches, instead of the theoretical peak of the bus.
fn with_memory_as_measured(info: &DeviceInfo, gpu: &Device) -> Result<DeviceInfo> {
    let (rate, peak) = (copy_rate(gpu)?, info.peak_bandwidth());
    let clock = peak.map(|peak| f64::from(info.memory_clock_khz) * rate / peak);
    Ok(DeviceInfo { memory_clock_khz: clock.map_or(info.memory_clock_khz, |khz| khz as u32), ..info.clone() })
}

/// Launches on a GPU what is counted in the simulator, in the same order and nothing else, for a profiler.
pub fn launch_counted(lesson: &Lesson, simulated: &Device, gpu: &Device) -> Result<()> {
    let stream = gpu.stream()?;
    for part in (lesson.plan)(simulated.info())?.runs.iter().flat_map(|run| &run.counted) {
        let params = part.params()?;
        let mut operands = Operands::random(&stream, part.job.op, &part.job.case, &params, 0)?;
        operands.launch(&stream, part.job.op, &params)?;
        stream.synchronize()?;
    }
    Ok(())
}

fn counted(run: &Run, simulated: &Device) -> Result<Measured> {
    let (mut launches, mut kernels) = (Vec::new(), Vec::new());
    for part in &run.counted {
        let mut profiles = profile::profile(simulated, &part.job, &part.params()?)?;
        profile::set_registers(&mut profiles, simulated, &offline::kernels(part.job.op.info(), None)?);
        kernels.extend(profiles.iter().filter_map(|profile| place(part, profile)));
        launches.extend(profiles);
    }
    kernels.dedup();
    let mut counts: Vec<_> = run.predictions.iter().map(|prediction| Count::new(prediction, &launches)).collect();
    for observation in &run.observations {
        counts.push(Count::observed(observation, simulated)?);
    }
    let at_least_ms = run.seconds.map(|seconds| seconds * 1e3);
    let launches = launches.into_iter().map(|launch| launch.kernel).collect();
    Ok(Measured { label: run.label.clone(), kernels, launches, counts, time: None, at_least_ms, expected_ms: None })
}

/// The source of a kernel that was launched.
fn place(part: &Timing, profile: &Profile) -> Option<KernelPlace> {
    let kernel = part.job.op.info().instances().find(|kernel| kernel.symbol == profile.kernel)?;
    Some(KernelPlace { symbol: profile.kernel.clone(), file: kernel.file, lines: kernel.lines })
}

/// Times each part by itself, as `bench` does: inputs are in no cache.
fn timed(run: &Run, device: &Device) -> Result<Option<Time>> {
    let mut total = Time { ms: 0.0, min_ms: 0.0 };
    for part in &run.timed {
        let (ms, min_ms) = Prepared::new(device, part)?.time()?;
        total = Time { ms: total.ms + ms, min_ms: total.min_ms + min_ms };
    }
    Ok((!run.timed.is_empty()).then_some(total))
}
