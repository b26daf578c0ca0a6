//! Times operators on a device; the rows can be compared with those of other libraries.
//!
//! Every launch is timed between two device events. Inputs are rotated over buffers that together exceed twice the L2 cache, so
//! no launch finds its input there. The variants of a case and its peer take turns, so that they all run at the same clock.

mod beside;
mod ceiling;
pub mod mlp;
mod prepared;
pub mod profiled;
mod spread;
mod sweep;
mod turns;

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use beside::PeerRow;
pub use ceiling::{Ceilings, copy_rate};
pub use prepared::Prepared;
pub use spread::{Spread, explain};
pub use sweep::sweep;

use prepared::Contender;

use crate::check::peers::Cublas;
use crate::check::verify::AUTO;
use crate::check::{Job, Selection, registry};
use crate::ops::model::{Bound, CaseClass, Cost, Operator, Params, Variant};
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};

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
    /// Minimum milliseconds.
    pub min_ms: f64,
    /// The minimum traffic of the case, in bytes.
    pub bytes: u64,
    /// The useful work, in operations.
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
    /// For memory-bound cases: the time of a copy that reads and writes as many bytes, as a percentage of `ms`. Small copies
    /// reach less than the ceiling.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pct_of_copy: Option<f64>,
    /// The distribution of the times, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spread: Option<Spread>,
}

/// A run: its rows, and how and on what they were measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The device.
    pub device: String,
    /// The newest CUDA version that its driver supports.
    pub driver: String,
    /// The backend that ran the kernels.
    pub backend: String,
    /// The commit that was built, if `WARPSMITH_COMMIT` names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<String>,
    /// The command that was run.
    pub command: String,
    /// The size of the device's L2 cache.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l2_bytes: Option<u64>,
    /// The timings.
    pub rows: Vec<Row>,
    /// The timings of another library.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peers: Vec<PeerRow>,
    /// The description of that library.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// The failures, with their messages.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<String>,
}

impl Report {
    /// Whether the rows are those of a sweep over sizes rather than of production shapes, as the command says.
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

/// The selected cases of `ops`: each with the variant that its operator selects (`auto`) and in every variant that can run it
/// on `device`, or only in the one called `variant`.
pub fn plan(
    device: &Device,
    ops: &[&'static dyn Operator],
    selection: &Selection,
    variant: Option<&str>,
) -> Result<Vec<Timing>> {
    let mut timings = Vec::new();
    for &op in ops {
        for job in selection.of("bench", op)? {
            let able = op.info().variants.iter().filter(|v| (v.applies)(device.info(), &job.case));
            let variants = std::iter::once(None).chain(able.map(Some));
            let wanted = variants.filter(|v| variant.is_none_or(|name| v.map_or(AUTO, |v| v.name) == name));
            timings.extend(wanted.map(|variant| Timing { job: job.clone(), variant }));
        }
    }
    match (&selection.case, variant) {
        (_, Some(name)) if timings.is_empty() => {
            Err(Error::param("bench", "variant", name, "auto, or a variant that can run such a case here"))
        }
        (Some(text), _) if timings.is_empty() => {
            Err(Error::param("bench", "case", text, "part of a production case's name"))
        }
        _ => Ok(timings),
    }
}

/// Times cases one after the other.
pub struct Bench<'d> {
    device: &'d Device,
    /// The maximum rates of the device.
    pub ceilings: Ceilings,
}

/// The results of a case.
#[derive(Debug, Default)]
pub struct Timed {
    /// The operator's rows, in the order of its timings.
    pub rows: Vec<Row>,
    /// The rows of the peer.
    pub peers: Vec<PeerRow>,
    /// The timings without a row. A failed kernel comes last; contenders that had no turn before it are in no list.
    pub failed: Vec<Failed>,
}

/// A timing that failed.
#[derive(Debug)]
pub struct Failed {
    /// Operator, case and variant, or peer.
    pub what: String,
    /// Whether it was the peer.
    pub by_peer: bool,
    /// The cause.
    pub error: Error,
}

impl<'d> Bench<'d> {
    /// Measures the ceilings.
    pub fn new(device: &'d Device) -> Result<Self> {
        Ok(Self { device, ceilings: Ceilings::measure(device)? })
    }

    /// Times a case: `timings`, which differ in their variants, and `peer`, which computes the same in place of the operator.
    /// They take turns with the same tensors, rotated in the same way, on the same stream.
    pub fn case(&self, timings: &[Timing], peer: Option<&Cublas>) -> Timed {
        let mut timed = Timed::default();
        let Some(first) = timings.first() else { return timed };
        let in_turns = || {
            let ours = timings.iter().map(|timing| Ok(Contender::Ours(timing.params()?)));
            let contenders = ours.chain(peer.map(|peer| Ok(Contender::Peer(peer)))).collect::<Result<Vec<_>>>()?;
            let cost = first.job.op.cost(&first.job.case)?;
            Ok((cost, Prepared::new(self.device, first)?.in_turns(&contenders)))
        };
        let (cost, turns) = match in_turns() {
            Ok(done) => done,
            Err(error) => {
                timed.failed.push(Failed { what: first.job.to_string(), by_peer: false, error });
                return timed;
            }
        };
        let times = |at: usize| turns.median_and_least(at);
        timed.rows = (0..).zip(timings).filter_map(|(at, timing)| Some(self.row(timing, cost, times(at)?))).collect();
        let of_peer = |peer: &Cublas| Some(PeerRow::new(&first.job, peer.name(), times(timings.len())?));
        timed.peers.extend(peer.and_then(of_peer));
        timed.failed.extend(turns.failed.into_iter().map(|(at, error)| match (timings.get(at), peer) {
            (None, Some(peer)) => Failed { what: format!("{first} {}", peer.name()), by_peer: true, error },
            (timing, _) => Failed { what: timing.unwrap_or(first).to_string(), by_peer: false, error },
        }));
        timed
    }

    fn row(&self, timing: &Timing, cost: Cost, (ms, min_ms): (f64, f64)) -> Row {
        let Timing { job: Job { op, case }, variant } = timing;
        let gbps = cost.bytes as f64 / ms / 1e6;
        let tflops = cost.flops as f64 / ms / 1e9;
        let pct = match cost.bound {
            Bound::Memory => Some(gbps / self.ceilings.copy_gbps),
            bound => self.device.info().peak_flops(bound).map(|peak| tflops * 1e12 / peak),
        };
        let copy = self.ceilings.copy_ms(cost.bytes).filter(|_| cost.bound == Bound::Memory && cost.bytes > 0);
        Row {
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
            pct_of_copy: copy.map(|copy| 100.0 * copy / ms),
            spread: None,
        }
    }
}

/// The timings of `plan` or `sweep`, case by case.
pub fn cases(timings: &[Timing]) -> impl Iterator<Item = &[Timing]> {
    timings.chunk_by(|a, b| a.job.to_string() == b.job.to_string())
}

/// The smallest case of the first operator, with which overheads are measured.
fn smallest() -> Result<Timing> {
    let tiny = |op: &&'static dyn Operator| {
        let case = op.cases().into_iter().find(|c| c.class == CaseClass::Tiny)?;
        Some(Timing { job: Job { op: *op, case }, variant: None })
    };
    let found = registry::OPERATORS.iter().find_map(tiny);
    found.ok_or_else(|| Error::param("bench", "registry", "no tiny case", "at least one"))
}

/// CPU time to queue a launch of a tiny operator, averaged over 10,000 launches.
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
        prepared.synchronize()?;
        let start = Instant::now();
        for _ in 0..BATCH {
            prepared.launch()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e3 / BATCH as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(plain("launch_overhead", &job.to_string(), times[times.len() / 2], times[0]))
}

/// The time to open a device and to get the result of a first tiny operator. Meaningful only once per process, before
/// anything else.
pub fn cold_start(open: impl FnOnce() -> Result<Device>) -> Result<Duration> {
    let start = Instant::now();
    let mut prepared = Prepared::new(&open()?, &smallest()?)?;
    prepared.launch()?;
    prepared.result()?;
    Ok(start.elapsed())
}

/// A row that has only a time.
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
        pct_of_copy: None,
        spread: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::runtime::sim::{self, GpuModel};

    #[test]
    fn each_case_has_its_variants_together() {
        let Ok(device) = sim::open(&GpuModel::H100) else { return };
        let timings = plan(&device, registry::OPERATORS, &Selection::default(), None).unwrap();
        let names: HashSet<_> = timings.iter().map(|timing| timing.job.to_string()).collect();
        assert_eq!(cases(&timings).count(), names.len());
        assert!(cases(&timings).all(|case| case[0].variant.is_none() && case[1..].iter().all(|t| t.variant.is_some())));
    }

    /// In a simulation, where times are meaningless.
    #[test]
    fn a_case_has_a_row_of_each_variant_and_says_what_failed() {
        let device = sim::unshared().unwrap();
        let ceilings = Ceilings { copy_gbps: 1.0, copy: plain("ceiling.copy", "", 1.0, 1.0), copies: Vec::new() };
        let bench = Bench { device: &device, ceilings };
        let op = registry::find("gemm_bf16").unwrap();
        let case = op.cases().into_iter().find(|case| case.class == CaseClass::Tiny).unwrap();
        let timing = |variant| Timing { job: Job { op, case: case.clone() }, variant };
        let (able, unable): (Vec<_>, Vec<_>) =
            op.info().variants.iter().partition(|v| (v.applies)(device.info(), &case));
        let variants = able.iter().chain(&unable).map(|variant| Some(*variant));
        let timings: Vec<_> = std::iter::once(None).chain(variants).map(timing).collect();
        let timed = bench.case(&timings, None);
        let rows: Vec<_> = timed.rows.iter().map(|row| row.variant.as_str()).collect();
        let wanted: Vec<_> = std::iter::once(AUTO).chain(able.iter().map(|variant| variant.name)).collect();
        assert_eq!(rows, wanted);
        assert!(timed.rows.iter().all(|row| row.min_ms > 0.0 && row.min_ms <= row.ms), "{:?}", timed.rows);
        let failed: Vec<_> = timed.failed.iter().map(|failed| failed.what.as_str()).collect();
        let wanted: Vec<_> = timings[rows.len()..].iter().map(Timing::to_string).collect();
        assert!(failed == wanted && timed.failed.iter().all(|failed| !failed.by_peer), "{failed:?}");
    }
}
