//! Runs operators on random input and compares every output with the reference.
//!
//! On a device, outputs and everything around inputs and outputs are poisoned before the launch: this reveals outputs
//! that were not written, writes outside an output and reads outside an input. Without a device, [`offline`] checks
//! what can be checked of kernels and references.

mod compare;
mod device;
mod known;
pub mod offline;
mod placement;
mod run;

use std::cell::OnceCell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use compare::{Comparison, Mismatch};
pub(super) use known::Known;
pub use run::{NotRun, Run, all};

use super::peers::Cublas;
use super::{Job, registry};
use crate::ops::model::{self, CaseClass, Operator, TensorMeta, Tensors, Tolerance, Values, Variant};
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::sim::Finding;

/// The variant name of the operator's automatic choice.
pub const AUTO: &str = "auto";

/// Which cases to check, and how.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only cases of this dtype.
    pub dtype: Option<DType>,
    /// Only cases whose names contain this.
    pub case: Option<String>,
    /// Only cases of these classes; all if empty.
    pub classes: Vec<CaseClass>,
    /// Only this variant, or [`AUTO`].
    pub variant: Option<String>,
    /// The seed of the random input.
    pub seed: u64,
    /// Run everything twice and require bitwise equal results.
    pub repeat: bool,
    /// Another library to run as well, for operators that it can compute.
    pub peer: Option<Arc<Cublas>>,
}

/// The request, as on the command line.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = self.classes.iter().map(|class| ("class", class.name()));
        let dtype = self.dtype.iter().map(|dtype| ("dtype", dtype.name()));
        let texts = [("case", &self.case), ("variant", &self.variant)];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
        let all = dtype.chain(classes).chain(texts).map(|(name, value)| format!("--{name} {value}"));
        f.write_str(&all.collect::<Vec<_>>().join(" "))
    }
}

/// Cases with more elements than this in an input are not evaluated without a device, and their inputs are not read back from one.
const LARGE: usize = 1 << 24;

fn is_large(job: &Job) -> bool {
    let specs = job.op.inputs(&job.case).unwrap_or_default();
    specs.iter().any(|spec| spec.meta().elements().is_none_or(|n| n > LARGE))
}

/// The cases of `ops` that `filter` permits. Fails, in the name of the command `verb`, if it names something that none of them has.
pub fn plan(verb: &str, ops: &[&'static dyn Operator], filter: &Filter) -> Result<Vec<Job>> {
    let named = filter.variant.as_deref().filter(|name| *name != AUTO);
    let knows = |op: &&'static dyn Operator| named.is_none_or(|name| op.info().variant(name).is_ok());
    let able: Vec<_> = ops.iter().copied().filter(knows).collect();
    if let (Some(name), true) = (named, able.is_empty()) {
        let mut known = vec![AUTO];
        for variant in ops.iter().flat_map(|op| op.info().variants) {
            if !known.contains(&variant.name) {
                known.push(variant.name);
            }
        }
        return Err(Error::param(verb, "variant", name, format!("one of {}", known.join(", "))));
    }
    let mut jobs = Vec::new();
    let mut missing = Vec::new();
    for op in &able {
        let cases = match &filter.case {
            Some(text) => match registry::cases_matching(*op, text) {
                Ok(cases) => cases,
                Err(error) => {
                    missing.push(error);
                    continue;
                }
            },
            None => op.cases(),
        };
        jobs.extend(
            cases
                .into_iter()
                .filter(|c| filter.dtype.is_none_or(|d| d == c.dtype))
                .filter(|c| filter.classes.is_empty() || filter.classes.contains(&c.class))
                .map(|case| Job { op: *op, case }),
        );
    }
    if !jobs.is_empty() {
        return Ok(jobs);
    }
    let nobody_has_it = missing.len() == able.len();
    let error = missing.into_iter().next().filter(|_| nobody_has_it);
    Err(error.unwrap_or_else(|| Error::param(verb, "filter", filter, "one that at least one case passes")))
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The result is correct.
    Pass,
    /// The result is wrong.
    Fail,
    /// Not run, for a reason that is not the kernel's fault.
    Skipped,
}

/// The result of one case in one variant.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Operator.
    pub op: &'static str,
    /// Case.
    pub case: String,
    /// Element type.
    pub dtype: &'static str,
    /// The purpose of the case.
    pub class: &'static str,
    /// Variant, or another library's name.
    pub variant: &'static str,
    /// Whether it is another library's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub peer: bool,
    /// Whether it passed.
    pub status: Status,
    /// Maximum absolute error.
    pub max_abs: Option<f64>,
    /// Maximum error as a fraction of the tolerance: the check fails above 1.
    pub max_err: Option<f64>,
    /// Absolute part of the tolerance.
    pub abs: Option<f64>,
    /// Relative part of the tolerance.
    pub rel: Option<f64>,
    /// Values compared with the reference.
    pub checked: usize,
    /// The number of values of the outputs.
    pub elements: usize,
    /// Milliseconds of one launch on the device.
    pub ms: Option<f64>,
    /// The error, or why it was skipped.
    pub detail: Option<String>,
    /// The kernels that were launched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<&'static str>,
    /// How many instructions the warps of each executed, in the simulator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<u64>,
    /// What the simulator's checkers found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

impl Row {
    fn new(job: &Job, variant: Option<&'static Variant>) -> Self {
        Self {
            op: job.op.info().name,
            case: job.case.name.clone(),
            dtype: job.case.dtype.name(),
            class: job.case.class.name(),
            variant: variant.map_or(AUTO, |v| v.name),
            peer: false,
            status: Status::Pass,
            max_abs: None,
            max_err: None,
            abs: None,
            rel: None,
            checked: 0,
            elements: 0,
            ms: None,
            detail: None,
            kernels: Vec::new(),
            instructions: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Adds an output. The tolerance that is shown is that of the output closest to its limit.
    fn judged(&mut self, found: &Comparison, tolerance: &Tolerance, elements: usize) {
        if self.max_err.is_none_or(|share| found.max_share > share) {
            self.max_abs = Some(found.max_abs);
            self.max_err = Some(found.max_share);
            self.abs = Some(tolerance.abs);
            self.rel = Some(tolerance.rel);
        }
        self.checked += found.elements;
        self.elements += elements;
    }

    fn problem(&mut self, what: String) {
        self.status = Status::Fail;
        match &mut self.detail {
            Some(detail) => {
                detail.push_str("; ");
                detail.push_str(&what);
            }
            None => self.detail = Some(what),
        }
    }

    /// Too little memory is the machine's limit, not the kernel's fault.
    fn fail(&mut self, error: &Error) {
        if let Error::Findings { findings } = error {
            self.findings.extend_from_slice(findings);
        }
        match error {
            Error::OutOfMemory { .. } => self.skip(&error.to_string()),
            _ => self.problem(error.to_string()),
        }
    }

    fn skip(&mut self, why: &str) {
        self.status = Status::Skipped;
        self.detail = Some(why.to_owned());
    }
}

/// Runs a case on `device`, in every variant that `filter` permits and that can run there: one row each.
pub fn on_device(device: &Device, job: &Job, filter: &Filter) -> Vec<Row> {
    on_device_again(device, job, filter, &OnceCell::new())
}

/// Same as [`on_device`], for a case of which some facts may be known from other runs with this filter.
pub(super) fn on_device_again(
    device: &Device,
    job: &Job,
    filter: &Filter,
    known: &OnceCell<Result<Known>>,
) -> Vec<Row> {
    device::check(device, job, filter, known).rows
}

/// The rows of an output that are checked, the reference's values for them, and the tolerance.
struct Expected {
    meta: TensorMeta,
    rows: Vec<usize>,
    row_len: usize,
    values: Vec<f64>,
    tolerance: Tolerance,
}

impl Expected {
    fn new(job: &Job, inputs: &Tensors<'_>, meta: TensorMeta, seed: u64) -> Result<Self> {
        let rows = sample(job, &meta, seed)?;
        let row_len = if rows.is_empty() { 0 } else { job.op.row_len(&meta.name, &meta.shape) };
        let values = if row_len == 0 { Vec::new() } else { evaluate(job, inputs, &meta, &rows)? };
        if values.len() != rows.len() * row_len {
            return Err(Error::param(
                job.op.info().name,
                format!("reference of `{}`", meta.name),
                format!("{} values", values.len()),
                format!("{} rows of {row_len}", rows.len()),
            ));
        }
        let tolerance = job.op.tolerance(&job.case, &meta.name)?;
        Ok(Self { meta, rows, row_len, values, tolerance })
    }

    /// The first value that is NaN or +∞: of finite input, a mistake of the reference. −∞ is the logarithm of an empty sum.
    fn impossible(&self) -> Option<String> {
        let at = self.values.iter().position(|value| value.is_nan() || *value == f64::INFINITY)?;
        Some(format!("{}: the reference has {} at {at}", self.meta.name, self.values[at]))
    }

    /// All outputs of a case.
    fn all(job: &Job, inputs: &[(&'static str, HostTensor)], outputs: Vec<TensorMeta>, seed: u64) -> Result<Vec<Self>> {
        let inputs = Tensors::new(job.op.info(), inputs.iter().map(|(name, tensor)| (*name, tensor)));
        outputs.into_iter().map(|meta| Self::new(job, &inputs, meta, seed)).collect()
    }

    /// The elements of the output in rows that follow each other.
    fn elements(&self, rows: &[usize]) -> Range<usize> {
        let (first, len) = (rows.first().map_or(0, |row| *row), rows.len());
        first * self.row_len..(first + len) * self.row_len
    }

    fn compare(&self, place: &placement::Placement, image: &HostTensor) -> Result<Comparison> {
        if self.row_len == 0 {
            return Ok(Comparison::default());
        }
        // A row may be one element: many at once.
        let at_once = (COMPARED / self.row_len).max(1);
        let pieces = self.rows.par_chunks(at_once).zip(self.values.par_chunks(at_once * self.row_len));
        pieces
            .map(|(rows, want)| {
                let elements = || rows.chunk_by(|a, b| a + 1 == *b).map(|rows| self.elements(rows));
                let mut places = Vec::with_capacity(want.len());
                elements().for_each(|elements| place.each_position(elements, |at| places.push(at)));
                let got = image.select_f64(places)?;
                let mut found = Comparison::default();
                for ((i, got), want) in elements().flatten().zip(got).zip(want) {
                    found.push(i, got, *want, &self.tolerance, image.dtype());
                }
                Ok(found)
            })
            .try_reduce(Comparison::default, |a, b| Ok(a.merge(b)))
    }
}

/// The reference's values for many rows, computed in as many parts as there are threads.
fn evaluate(job: &Job, inputs: &Tensors<'_>, meta: &TensorMeta, rows: &[usize]) -> Result<Vec<f64>> {
    let pieces = rows.par_chunks(rows.len().div_ceil(rayon::current_num_threads()).max(1));
    let values = pieces.map(|rows| job.op.reference(inputs, &job.case.params, &meta.name, rows));
    Ok(values.collect::<Result<Vec<_>>>()?.concat())
}

/// Whether a case's inputs are finite, and no index is invalid on purpose, so that its outputs must be finite.
pub(super) fn has_ordinary_input(job: &Job) -> Result<bool> {
    let strange = |values| match values {
        Values::Specials | Values::Hostile { .. } => true,
        Values::Constant(value) => !value.is_finite(),
        _ => false,
    };
    Ok(!job.op.inputs(&job.case)?.iter().any(|spec| strange(spec.values)))
}

/// The number of values that a thread compares at once.
const COMPARED: usize = 1 << 12;

/// What a reference may cost: operations, which are 90 rows of a product of 8192³, and values of an output.
const MAX_WORK: f64 = 1.2e10;
const MAX_VALUES: usize = 1 << 22;

/// The rows of an output to check: all of them if that is affordable, else the first, the last, and one at random out of
/// each of equally many stretches between them.
fn sample(job: &Job, meta: &TensorMeta, seed: u64) -> Result<Vec<usize>> {
    let (rows, len) = (model::row_count(job.op, &meta.name, &meta.shape), job.op.row_len(&meta.name, &meta.shape));
    let work = job.op.cost(&job.case)?.flops as f64;
    if rows == 0 || (rows * len <= MAX_VALUES && work <= MAX_WORK) {
        return Ok((0..rows).collect());
    }
    let by_values = MAX_VALUES / len.max(1);
    let by_work = MAX_WORK / (work.max(1.0) / rows as f64);
    let wanted = by_values.min(by_work as usize).clamp(4, rows.max(4)).min(rows);
    let mut state = seed ^ 0x5851_F42D_4C95_7F2D;
    let mut chosen: Vec<usize> = (0..wanted)
        .map(|i| {
            let (from, to) = (rows * i / wanted, rows * (i + 1) / wanted);
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            from + (state >> 33) as usize % (to - from).max(1)
        })
        .collect();
    chosen.extend([0, rows - 1]);
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}
