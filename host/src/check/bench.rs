//! Times operators on a device, in rows that can be put beside other libraries'.
//!
//! Every launch is timed between two device events, and inputs are rotated over buffers that together exceed twice the L2
//! cache, so that no launch finds its input there.

mod beside;
mod ceiling;
pub mod mlp;
pub mod profiled;
mod spread;
mod sweep;

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use beside::PeerRow;
pub use ceiling::{Ceilings, copy_rate};
pub use spread::{Spread, explain};
pub use sweep::sweep;

use crate::check::peers::Cublas;
use crate::check::verify::AUTO;
use crate::check::{Job, Operands, random, registry};
use crate::ops::model::{self, Arguments, Bound, CaseClass, Operator, Params, Variant};
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;

/// Timed launches a row: as many as fit this, within [`MIN_RUNS`] and [`MAX_RUNS`].
const BUDGET: Duration = Duration::from_millis(150);
const MIN_RUNS: usize = 10;
const MAX_RUNS: usize = 200;
const WARM_UP: usize = 3;
const MAX_SETS: usize = 16;
const SEED: u64 = 1;

/// One timing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The operator's bench name.
    pub op: String,
    /// The case.
    pub case: String,
    /// The variant.
    pub variant: String,
    /// Median milliseconds.
    pub ms: f64,
    /// Least milliseconds.
    pub min_ms: f64,
    /// The least traffic that the case needs.
    pub bytes: u64,
    /// The useful work.
    pub flops: u64,
    /// bytes ÷ ms.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gbps: Option<f64>,
    /// flops ÷ ms.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tflops: Option<f64>,
    /// The rate as a percentage of the ceiling: the measured copy, or the arithmetic peak at the highest clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pct_of_ceiling: Option<f64>,
    /// How the times lie, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spread: Option<Spread>,
}

/// A run: its rows, and where and how they came about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The device.
    pub device: String,
    /// The newest CUDA version that its driver supports.
    pub driver: String,
    /// What ran the kernels.
    pub backend: String,
    /// The commit that was built, where `WARPSMITH_COMMIT` names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<String>,
    /// The command that was run.
    pub command: String,
    /// The device's second-level cache.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l2_bytes: Option<u64>,
    /// The timings.
    pub rows: Vec<Row>,
    /// Those of another library, beside them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peers: Vec<PeerRow>,
    /// What that library is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// What failed, with its message.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<String>,
}

impl Report {
    /// Whether its rows are of cases in many sizes rather than of production shapes, as its command says.
    pub fn is_sweep(&self) -> bool {
        self.command.split_whitespace().any(|word| word == "--sizes")
    }

    /// A report of `device` without rows.
    pub fn new(device: &Device, command: String) -> Self {
        let info = device.info();
        Self {
            device: info.name.clone(),
            driver: info.driver_version.to_string(),
            backend: info.backend.to_string(),
            commit: std::env::var("WARPSMITH_COMMIT").ok().filter(|c| !c.is_empty()),
            command,
            l2_bytes: Some(info.l2_bytes),
            rows: Vec::new(),
            peers: Vec::new(),
            peer: None,
            errors: Vec::new(),
        }
    }
}

/// A case with everything on the device, ready to be launched over and over.
pub struct Prepared {
    job: Job,
    stream: Stream,
    params: Params,
    /// Sets of tensors to rotate over.
    sets: Vec<Operands>,
    next: usize,
}

impl Prepared {
    /// Makes inputs and room for outputs.
    pub fn new(device: &Device, timing: &Timing) -> Result<Self> {
        let Job { op, case } = &timing.job;
        let (stream, params) = (device.stream()?, timing.params()?);
        let inputs = random::inputs(*op, case, SEED)?;
        let make = || Operands::of_case(&stream, *op, case, &inputs, &params);
        let first = make()?;
        let count = (2 * device.info().l2_bytes as usize).div_ceil(first.input_bytes().max(1)).clamp(1, MAX_SETS);
        let mut sets = vec![first];
        for _ in 1..count {
            sets.push(make()?);
        }
        stream.synchronize()?;
        Ok(Self { job: timing.job.clone(), stream, params, sets, next: 0 })
    }

    /// Queues one launch, on the next set of tensors.
    pub fn launch(&mut self) -> Result<()> {
        self.on_next(|stream, op, args, params| model::launch(op, stream, args, params))
    }

    fn on_next(&mut self, launch: impl Launch) -> Result<()> {
        let (op, at) = (self.job.op, self.next);
        self.next = (at + 1) % self.sets.len();
        launch(&self.stream, op, &mut self.sets[at].arguments(op)?, &self.params)
    }

    /// Device time of `launches` launches one after the other.
    pub fn elapsed(&mut self, launches: u64) -> Result<Duration> {
        let start = self.stream.record()?;
        for _ in 0..launches {
            self.launch()?;
        }
        let end = self.stream.record()?;
        end.synchronize()?;
        Ok(Duration::from_secs_f64(f64::from(start.elapsed_ms(&end)?) / 1e3))
    }

    /// Median and least milliseconds of single launches.
    pub fn time(&mut self) -> Result<(f64, f64)> {
        self.time_by(|stream, op, args, params| model::launch(op, stream, args, params))
    }

    /// The same of what another library does in place of the operator.
    pub(in crate::check) fn time_of(&mut self, peer: &Cublas) -> Result<(f64, f64)> {
        self.time_by(|stream, op, args, params| peer.launch(stream, op, args, params))
    }

    /// Median milliseconds of launches in a variant, of as many as fit `budget`.
    pub(in crate::check) fn time_variant(&mut self, variant: &'static Variant, budget: Duration) -> Result<f64> {
        let params = self.params.clone().with_variant(variant.name)?;
        let launch = |stream: &Stream, op: &dyn Operator, args: &mut Arguments<'_>, _: &Params| {
            model::launch(op, stream, args, &params)
        };
        for _ in 0..WARM_UP {
            self.on_next(launch)?;
        }
        let stream = self.stream.clone();
        let times = samples(&stream, budget, || self.on_next(launch))?;
        Ok(times[times.len() / 2])
    }

    /// The same of something else that takes an operator's arguments.
    fn time_by(&mut self, launch: impl Launch) -> Result<(f64, f64)> {
        for _ in 0..WARM_UP {
            self.on_next(&launch)?;
        }
        self.stream.synchronize()?;
        let stream = self.stream.clone();
        time(&stream, || self.on_next(&launch))
    }
}

/// What computes an operator.
trait Launch: Fn(&Stream, &dyn Operator, &mut Arguments<'_>, &Params) -> Result<()> {}

impl<F: Fn(&Stream, &dyn Operator, &mut Arguments<'_>, &Params) -> Result<()>> Launch for F {}

/// Median and least milliseconds of what `launch` queues.
fn time(stream: &Stream, launch: impl FnMut() -> Result<()>) -> Result<(f64, f64)> {
    let times = samples(stream, BUDGET, launch)?;
    Ok((times[times.len() / 2], times[0]))
}

/// Milliseconds of many runs of what `launch` queues, the least first.
fn samples(stream: &Stream, budget: Duration, mut launch: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let start = Instant::now();
    launch()?;
    stream.synchronize()?;
    let once = start.elapsed().as_secs_f64().max(1e-5);
    let runs = ((budget.as_secs_f64() / once) as usize).clamp(MIN_RUNS, MAX_RUNS);
    let mut events = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = stream.record()?;
        launch()?;
        events.push((start, stream.record()?));
    }
    stream.synchronize()?;
    let times = events.iter().map(|(start, end)| Ok(f64::from(start.elapsed_ms(end)?)));
    let mut times = times.collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Something to time.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The operator and the case.
    pub job: Job,
    /// The variant; `None` for the operator's own choice.
    pub variant: Option<&'static Variant>,
}

impl Timing {
    /// The case's parameters, with the variant.
    pub fn params(&self) -> Result<Params> {
        let params = self.job.case.params.clone();
        self.variant.map_or(Ok(params.clone()), |variant| params.with_variant(variant.name))
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.job.op.info().bench_name, self.job.case.name)?;
        self.variant.map_or(Ok(()), |variant| write!(f, " {}", variant.name))
    }
}

/// The production cases of `ops` whose names contain `case`, each as its operator picks a variant and in every variant
/// that can run it on `device`.
pub fn plan(device: &Device, ops: &[&'static dyn Operator], case: Option<&str>) -> Result<Vec<Timing>> {
    let mut timings = Vec::new();
    for &op in ops {
        let cases = op.cases().into_iter().filter(|c| c.class == CaseClass::Production);
        for one in cases.filter(|c| case.is_none_or(|text| c.name.contains(text))) {
            let able = op.info().variants.iter().filter(|v| (v.applies)(device.info(), &one));
            let variants = std::iter::once(None).chain(able.map(Some));
            timings.extend(variants.map(|variant| Timing { job: Job { op, case: one.clone() }, variant }));
        }
    }
    match case {
        Some(text) if timings.is_empty() => {
            Err(Error::param("bench", "case", text, "part of a production case's name"))
        }
        _ => Ok(timings),
    }
}

/// What times cases one after the other. It keeps the tensors of the last one for its variants, and for a peer.
pub struct Bench<'d> {
    device: &'d Device,
    /// What the device reaches at most.
    pub ceilings: Ceilings,
    prepared: Option<Prepared>,
}

impl<'d> Bench<'d> {
    /// Measures the ceilings.
    pub fn new(device: &'d Device) -> Result<Self> {
        Ok(Self { device, ceilings: Ceilings::measure(device)?, prepared: None })
    }

    /// Times one case.
    pub fn row(&mut self, timing: &Timing) -> Result<Row> {
        let Timing { job: Job { op, case }, variant } = timing;
        let cost = op.cost(case)?;
        let (ms, min_ms) = self.prepare(timing)?.time()?;
        let gbps = cost.bytes as f64 / ms / 1e6;
        let tflops = cost.flops as f64 / ms / 1e9;
        let pct = match cost.bound {
            Bound::Memory => Some(gbps / self.ceilings.copy_gbps),
            bound => self.device.info().peak_flops(bound).map(|peak| tflops * 1e12 / peak),
        };
        Ok(Row {
            op: op.info().bench_name.to_owned(),
            case: case.name.clone(),
            variant: variant.map_or(AUTO, |v| v.name).to_owned(),
            ms,
            min_ms,
            bytes: cost.bytes,
            flops: cost.flops,
            gbps: (cost.bytes > 0).then_some(gbps),
            tflops: (cost.flops > 0).then_some(tflops),
            pct_of_ceiling: pct.map(|p| p * 100.0),
            spread: None,
        })
    }

    /// Times what `peer` does in place of the operator: the same tensors, rotated alike, on the same stream.
    pub fn beside(&mut self, timing: &Timing, peer: &Cublas) -> Result<PeerRow> {
        let Job { op, case } = &timing.job;
        let (ms, min_ms) = self.prepare(timing)?.time_of(peer)?;
        let (op, case) = (op.info().bench_name.to_owned(), case.name.clone());
        Ok(PeerRow { op, case, peer: peer.name().to_owned(), ms, min_ms: Some(min_ms) })
    }

    /// The timing's case, of the variant that it names. What is there of another case is freed first, as both may not fit.
    fn prepare(&mut self, timing: &Timing) -> Result<&mut Prepared> {
        let kept = self.prepared.take().filter(|kept| kept.job.to_string() == timing.job.to_string());
        let prepared = match kept {
            Some(kept) => Prepared { params: timing.params()?, ..kept },
            None => Prepared::new(self.device, timing)?,
        };
        Ok(self.prepared.insert(prepared))
    }
}

/// The smallest case there is of the first operator: what overheads are measured with.
fn smallest() -> Result<Timing> {
    let tiny = |op: &&'static dyn Operator| {
        let case = op.cases().into_iter().find(|c| c.class == CaseClass::Tiny)?;
        Some(Timing { job: Job { op: *op, case }, variant: None })
    };
    let found = registry::OPERATORS.iter().find_map(tiny);
    found.ok_or_else(|| Error::param("bench", "registry", "no tiny case", "at least one"))
}

/// CPU time of queueing a launch of a tiny operator, over 10,000 launches.
pub fn launch_overhead(device: &Device) -> Result<Row> {
    const BATCH: usize = 250;
    let job = smallest()?;
    let mut prepared = Prepared::new(device, &job)?;
    for _ in 0..BATCH {
        prepared.launch()?;
    }
    let mut times = Vec::new();
    for _ in 0..10_000 / BATCH {
        // The queue is empty at the start of a batch and never fills: a full one would make the launch wait.
        prepared.stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..BATCH {
            prepared.launch()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e3 / BATCH as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(plain("launch_overhead", &job.to_string(), times[times.len() / 2], times[0]))
}

/// Opening a device and getting the result of a first tiny operator. Meaningful once in a process, before anything else.
pub fn cold_start(open: impl FnOnce() -> Result<Device>) -> Result<Duration> {
    let start = Instant::now();
    let mut prepared = Prepared::new(&open()?, &smallest()?)?;
    prepared.launch()?;
    prepared.sets[0].outputs(&prepared.stream)?;
    Ok(start.elapsed())
}

/// A row that is a time only.
pub fn plain(op: &str, case: &str, ms: f64, min_ms: f64) -> Row {
    Row {
        op: op.to_owned(),
        case: case.to_owned(),
        variant: AUTO.to_owned(),
        ms,
        min_ms,
        bytes: 0,
        flops: 0,
        gbps: None,
        tflops: None,
        pct_of_ceiling: None,
        spread: None,
    }
}
