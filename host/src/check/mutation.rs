//! Mutation tests of kernels: removes one synchronising instruction from the PTX, runs the case in the simulator, and
//! checks whether the failure is detected. If it is not, the kernel does not need the instruction, or the checks would
//! miss a mistake.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

use serde::Serialize;

use crate::check::Job;
use crate::check::verify::{self, Filter, Known, Row, Status};
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::kernels::{self, Arch, KernelImage};
use crate::runtime::sim::{Settings, Simulator};

/// A kernel with one of its instructions removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mutant {
    /// The kernel's symbol.
    pub kernel: &'static str,
    /// Line of the PTX, as `warpsmith inspect OP --ptx` prints it.
    pub ptx_line: usize,
    /// The instruction that was removed.
    pub instruction: String,
    /// The first finding's kind, or `wrong-result`; `None` if no run detected the mutant.
    pub caught: Option<String>,
}

/// Opcodes, without suffixes, of the instructions that order accesses.
const SYNCHRONISING: [&str; 14] = [
    "bar.",
    "barrier.",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "cp.async.commit_group",
    "cp.async.wait_",
    "fence.",
    "mbarrier.arrive",
    "mbarrier.expect_tx",
    "mbarrier.init",
    "membar.",
    "wgmma.commit_group",
    "wgmma.fence",
    "wgmma.wait_group",
];

/// The synchronising lines of a PTX text: the line number, counted from one, and the instruction.
pub fn synchronising(ptx: &str) -> impl Iterator<Item = (usize, &str)> {
    let synchronises = |line: &str| {
        let guarded = line.strip_prefix('@').and_then(|rest| rest.split_once(char::is_whitespace));
        let instruction = guarded.map_or(line, |(_, rest)| rest.trim_start());
        SYNCHRONISING.iter().any(|opcode| instruction.starts_with(opcode))
    };
    (1..).zip(ptx.lines().map(str::trim)).filter(move |(_, line)| synchronises(line))
}

/// A kernel with the cases that run it, each in the first variant in which it executes most.
struct Target<'a> {
    image: &'static KernelImage,
    ptx: Cow<'static, str>,
    jobs: Vec<Candidate<'a>>,
}

/// A case in a variant.
struct Candidate<'a> {
    variant: Variant<'a>,
    /// The number of instructions that warps execute in the case, and how many of them are the kernel's.
    instructions: u64,
    own: u64,
    /// How often it ran with a mutant, and how often it detected one.
    tried: u64,
    noticed: u64,
}

impl<'a> Candidate<'a> {
    fn new(variant: &Variant<'a>, instructions: u64, own: u64) -> Self {
        Self { variant: variant.clone(), instructions, own, tried: 0, noticed: 0 }
    }

    /// The instructions per detected mutant, from the runs so far. Cases in this order detect a mutant soonest.
    fn price(&self) -> u64 {
        self.instructions.saturating_mul(self.tried + 2) / (self.noticed + 1)
    }

    /// Runs the case in these schedules, until something is found.
    fn run(&mut self, device: &Device, mut orders: Range<u64>) -> Result<Option<String>> {
        self.tried += 1;
        let simulator = simulator(device)?;
        let Variant { job, filter, known } = &self.variant;
        let kind = orders.find_map(|order| {
            let settings = Settings::of_order(filter.seed, order);
            let run = || verify::on_device_again(device, job, filter, known);
            caught(&simulator.with(settings, run))
        });
        self.noticed += u64::from(kind.is_some());
        Ok(kind)
    }
}

/// The part of a symbol that kernels share if they differ only in their element type: one of them stands for all, since they
/// synchronise in the same way.
fn but_for_dtype(symbol: &str) -> Vec<&str> {
    symbol.split('_').filter(|part| !["f32", "f16", "bf16"].contains(part)).collect()
}

fn dtypes_in_order(jobs: &[&Job]) -> Vec<DType> {
    let mut dtypes = Vec::new();
    for job in jobs {
        if !dtypes.contains(&job.case.dtype) {
            dtypes.push(job.case.dtype);
        }
    }
    dtypes
}

/// Mutation of the kernels that some cases run on a simulated device.
pub struct Mutation<'a> {
    device: &'a Device,
    targets: Vec<Target<'a>>,
}

/// A job in one variant.
#[derive(Clone)]
struct Variant<'a> {
    job: &'a Job,
    filter: Filter,
    /// What all variants of the job share.
    known: Rc<OnceCell<Result<Known>>>,
}

/// The job in every variant that the filter permits, the automatically selected one first.
fn variants<'a>(job: &'a Job, filter: &Filter) -> Vec<Variant<'a>> {
    let known = Rc::default();
    let named = job.op.info().variants.iter().map(|variant| variant.name);
    let names =
        [verify::AUTO].into_iter().chain(named).filter(|name| filter.variant.as_deref().is_none_or(|v| v == *name));
    let variant = |name: &str| Filter { variant: Some(name.to_owned()), ..filter.clone() };
    names.map(|name| Variant { job, filter: variant(name), known: Rc::clone(&known) }).collect()
}

/// Rows of cases, by the case.
type Verified<'a> = HashMap<[&'a str; 3], Vec<&'a Row>>;

impl<'a> Mutation<'a> {
    /// Mutations of the kernels whose symbols satisfy `keep`. The rows that the cases were given in the simulator tell which kernels they
    /// launch; cases that have none in `verified` run for that. All have to pass.
    pub fn new(
        device: &'a Device,
        jobs: &'a [Job],
        filter: &Filter,
        verified: &[Row],
        keep: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        simulator(device)?;
        let mut rows = Verified::new();
        verified.iter().for_each(|row| rows.entry([row.op, &row.case, row.dtype]).or_default().push(row));
        let symbols = |job: &Job| job.op.info().instances().map(|kernel| kernel.symbol);
        let listed: HashSet<_> = jobs.iter().flat_map(symbols).collect();
        let kept: HashSet<_> = listed.into_iter().filter(|symbol| keep(symbol)).collect();
        let launches_any = |job: &&Job| symbols(job).any(|symbol| kept.contains(symbol));
        // Cases of one dtype after those of the other, until there is nothing left that only a further dtype's would launch.
        let mut jobs: Vec<_> = jobs.iter().filter(launches_any).collect();
        let order = dtypes_in_order(&jobs);
        jobs.sort_by_key(|job| order.iter().position(|dtype| *dtype == job.case.dtype));
        let mut wanted: HashSet<_> = kept.iter().map(|symbol| but_for_dtype(symbol)).collect();
        let mut targets: Vec<Target<'a>> = Vec::new();
        for same in jobs.chunk_by(|a, b| a.case.dtype == b.case.dtype) {
            if wanted.is_empty() {
                break;
            }
            for variant in same.iter().flat_map(|job| variants(job, filter)) {
                add(device, &variant, &rows_of(device, &variant, &rows)?, &kept, &mut targets)?;
            }
            targets.iter().for_each(|target| _ = wanted.remove(&but_for_dtype(target.image.symbol)));
        }
        Ok(Self { device, targets })
    }

    /// The number of mutants.
    pub fn count(&self) -> usize {
        self.targets.iter().map(|target| synchronising(&target.ptx).count()).sum()
    }

    /// Removes the synchronising instructions one by one, and runs the cases in up to `orders` schedules each until something
    /// is found. `seen` is called with each mutant.
    pub fn run(&mut self, orders: u64, mut seen: impl FnMut(&Mutant)) -> Result<Vec<Mutant>> {
        let simulator = simulator(self.device)?;
        let mut mutants = Vec::new();
        for Target { image, ptx: original, jobs } in &mut self.targets {
            for (ptx_line, instruction) in synchronising(original) {
                let keep = |(n, line)| if n == ptx_line { "" } else { line };
                let ptx = (1..).zip(original.lines()).map(keep).collect::<Vec<_>>().join("\n");
                jobs.sort_by_key(Candidate::price);
                // Nearly all are detected in every schedule of the right case: all cases in one come before any in a second.
                let (passes, cases) = ([0..1, 1..orders], jobs.len());
                let caught = simulator.with_kernel(image.symbol, &ptx, || {
                    let mut runs = passes.iter().flat_map(|pass| (0..cases).map(move |job| (job, pass.clone())));
                    runs.find_map(|(job, pass)| jobs[job].run(self.device, pass).transpose()).transpose()
                })?;
                let mutant =
                    Mutant { kernel: image.symbol, ptx_line, instruction: instruction.to_owned(), caught: caught? };
                seen(&mutant);
                mutants.push(mutant);
            }
        }
        Ok(mutants)
    }
}

/// The rows of a case in a variant: none if the variant cannot run it.
fn rows_of(device: &Device, variant: &Variant<'_>, verified: &Verified<'_>) -> Result<Vec<Row>> {
    let Variant { job, filter, known } = variant;
    let (op, case) = (job.op.info().name, &job.case);
    let rows = match verified.get(&[op, case.name.as_str(), case.dtype.name()]) {
        Some(rows) => {
            let same = rows.iter().filter(|row| filter.variant.as_deref() == Some(row.variant));
            same.map(|row| (*row).clone()).collect()
        }
        None => verify::on_device_again(device, job, filter, known),
    };
    match caught(&rows) {
        None => Ok(rows),
        Some(found) => {
            let expected = format!("a case that passes with its kernels unchanged, not {found}");
            Err(Error::param(op, "case", &case.name, expected))
        }
    }
}

/// Adds what a case in a variant launched among the kernels `kept`.
fn add<'a>(
    device: &Device,
    variant: &Variant<'a>,
    rows: &[Row],
    kept: &HashSet<&'static str>,
    targets: &mut Vec<Target<'a>>,
) -> Result<()> {
    let instructions = rows.iter().flat_map(|row| &row.instructions).sum();
    let executed = rows.iter().flat_map(|row| row.kernels.iter().zip(&row.instructions));
    for (kernel, own) in executed.filter(|(kernel, _)| kept.contains(*kernel)) {
        let images = kernels::images()?.iter().filter(|image| image.symbol == *kernel);
        let best = |arch: &Arch| images.clone().find(|image| image.arch == *arch);
        let Some(image) = device.archs().iter().find_map(best) else { continue };
        let candidate = Candidate::new(variant, instructions, *own);
        let alike = |t: &&mut Target<'_>| but_for_dtype(t.image.symbol) == but_for_dtype(image.symbol);
        match targets.iter_mut().find(alike) {
            Some(t) if t.image.symbol != image.symbol => {}
            Some(t) => match t.jobs.last_mut() {
                Some(last) if std::ptr::eq(last.variant.job, variant.job) => {
                    if candidate.own > last.own {
                        *last = candidate;
                    }
                }
                _ => t.jobs.push(candidate),
            },
            None => targets.push(Target { image, ptx: image.ptx()?, jobs: vec![candidate] }),
        }
    }
    Ok(())
}

pub(super) fn simulator(device: &Device) -> Result<Simulator<'_>> {
    device.simulator().ok_or_else(|| {
        let reason = "only a simulation can run a changed kernel".to_owned();
        Error::BackendUnavailable { backend: device.info().backend.to_string(), reason }
    })
}

fn caught(rows: &[Row]) -> Option<String> {
    let row = rows.iter().find(|row| row.status == Status::Fail)?;
    Some(row.findings.first().map_or("wrong-result", |finding| finding.kind).to_owned())
}
