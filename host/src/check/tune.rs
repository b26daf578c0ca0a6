//! Times every variant of an operator that can run a problem, to find those that are faster than the planned one.

use std::time::Duration;

use super::bench::{Prepared, Timing};
use super::verify::{self, Filter, Status};
use super::{Job, Selection};
use crate::ops::model::{CaseClass, Operator, Variant};
use crate::runtime::device::{self, Device};
use crate::runtime::error::{Error, Result};
use crate::runtime::tuned::{self, Product, Tuned};

/// The number of rounds, in each of which every variant has a turn.
const ROUNDS: usize = 5;
/// The duration of a turn.
const TURN: Duration = Duration::from_millis(25);
/// After the first round, variants that take more than this many times as long as the fastest are dropped.
const HOPELESS: f64 = 1.25;
/// The fraction of the winner's time by which it must beat the plan.
pub const MARGIN: f64 = 0.02;

/// The times of an operator's variants for a problem.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The operator and the case.
    pub job: Job,
    /// The product by which choices are looked up.
    pub product: Product,
    /// The variant that the plan picks.
    pub plan: &'static str,
    /// Every variant that could be timed, with the medians of its rounds in milliseconds.
    pub times: Vec<(&'static str, Vec<f64>)>,
    /// The variant that beat the plan and computes the correct result, if any.
    pub winner: Option<&'static str>,
    /// Why a variant was not eligible.
    pub notes: Vec<String>,
}

impl Measured {
    /// The median of a variant's rounds.
    pub fn ms(&self, variant: &str) -> Option<f64> {
        self.times.iter().find(|(name, _)| *name == variant).map(|(_, rounds)| median(rounds))
    }

    /// The variants that beat the plan by more than [`MARGIN`] and by more than the variation between rounds: their slowest
    /// round is faster than the fastest of the plan. The fastest first.
    fn faster(&self) -> Vec<&'static str> {
        let Some((_, plan)) = self.times.iter().find(|(name, _)| *name == self.plan) else { return Vec::new() };
        let best = |rounds: &[f64]| rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let worst = |rounds: &[f64]| rounds.iter().copied().fold(0.0, f64::max);
        let beats = |rounds: &[f64]| median(rounds) * (1.0 + MARGIN) < median(plan) && worst(rounds) < best(plan);
        let whole = |rounds: &[f64]| rounds.len() == plan.len();
        let mut faster: Vec<_> = self.times.iter().filter(|(_, rounds)| whole(rounds) && beats(rounds)).collect();
        faster.sort_by(|a, b| median(&a.1).total_cmp(&median(&b.1)));
        faster.into_iter().map(|(name, _)| *name).collect()
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The problems of those of `ops` whose launches look up choices on `device`. Fails if there are none, or if an operator lacks
/// a named size.
pub fn plan(device: &Device, ops: &[&'static dyn Operator], selection: &Selection) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for &op in ops {
        if op.info().variants.len() >= 2 && asks(device, op)? {
            jobs.extend(selection.of("tune", op)?);
        }
    }
    if jobs.is_empty() {
        let found = ops.iter().map(|op| op.info().name).collect::<Vec<_>>().join(" ");
        let wanted =
            "operators that pick a kernel by size, such as gemm, with production cases that --case and --dtype leave";
        return Err(Error::param("tune", "operators", found, wanted));
    }
    Ok(jobs)
}

/// Whether launches of the operator look up choices, found out with a tiny one.
fn asks(device: &Device, op: &'static dyn Operator) -> Result<bool> {
    let Some(case) = op.cases().into_iter().find(|case| case.class == CaseClass::Tiny) else { return Ok(false) };
    Ok(!products(device, &Timing { job: Job { op, case }, variant: None })?.is_empty())
}

fn products(device: &Device, timing: &Timing) -> Result<Vec<Product>> {
    let mut prepared = Prepared::new(device, timing)?;
    let (launched, products) = tuned::asked(|| prepared.launch());
    launched.map(|()| products)
}

/// Times the variants of a case in turns, and verifies those that beat the plan. Launches on `device` must follow the plan.
pub fn measure(device: &Device, job: &Job) -> Result<Measured> {
    let info = job.op.info();
    let mut prepared = Prepared::new(device, &Timing { job: job.clone(), variant: None })?;
    let ((launched, of_plan), products) = tuned::asked(|| device::launched(|| prepared.launch()));
    launched?;
    let &[product] = products.as_slice() else {
        let found = format!("{} choices", products.len());
        return Err(Error::param("tune", job.to_string(), found, "a launch that asks for one"));
    };
    let mut measured =
        Measured { job: job.clone(), product, plan: "", times: Vec::new(), winner: None, notes: Vec::new() };
    let mut running: Vec<&'static Variant> = Vec::new();
    for variant in info.variants.iter().filter(|variant| (variant.applies)(device.info(), &job.case)) {
        let (timed, kernels) = device::launched(|| prepared.time_variant(variant, TURN));
        match timed {
            Ok(ms) => {
                if measured.plan.is_empty() && kernels.starts_with(&of_plan) {
                    measured.plan = variant.name;
                }
                running.push(variant);
                measured.times.push((variant.name, vec![ms]));
            }
            Err(error @ Error::KernelFault { .. }) => return Err(error),
            Err(error) => measured.notes.push(format!("{job} {}: {error}", variant.name)),
        }
    }
    if measured.plan.is_empty() {
        let kernels: Vec<_> = of_plan.iter().map(|(_, symbol)| *symbol).collect();
        return Err(Error::param("tune", job.to_string(), kernels.join(" "), "a plan that picks one of the variants"));
    }
    let fastest = measured.times.iter().map(|(_, rounds)| rounds[0]).fold(f64::INFINITY, f64::min);
    for _ in 1..ROUNDS {
        for variant in &running {
            let Some((name, rounds)) = measured.times.iter_mut().find(|(name, _)| *name == variant.name) else {
                continue;
            };
            if rounds[0] <= HOPELESS * fastest || *name == measured.plan {
                rounds.push(prepared.time_variant(variant, TURN)?);
            }
        }
    }
    drop(prepared);
    for name in measured.faster() {
        match verified(device, job, name) {
            Ok(()) => {
                measured.winner = Some(name);
                break;
            }
            Err(why) => measured.notes.push(format!("{job} {name} is faster, and is left out: {why}")),
        }
    }
    Ok(measured)
}

/// Whether a variant computes what the reference does, on an affordable number of rows; otherwise the reason.
fn verified(device: &Device, job: &Job, variant: &str) -> Result<(), String> {
    let mut job = job.clone();
    job.case.timed_only = false;
    let filter = Filter { variant: Some(variant.to_owned()), ..Filter::default() };
    let rows = verify::on_device(device, &job, &filter);
    match rows.iter().find(|row| row.status != Status::Pass) {
        Some(row) => Err(row.detail.clone().unwrap_or_default()),
        None if rows.is_empty() => Err("it was not verified".to_owned()),
        None => Ok(()),
    }
}

/// Adds the findings to `tuned`. Cases with the same lookup key must agree: the choice must not be slower than the plan for any
/// of them.
pub fn choose(tuned: &mut Tuned, all: &[Measured]) {
    for one in all {
        let op = one.job.op.info().name;
        let same = || all.iter().filter(|other| other.job.op.info().name == op && other.product == one.product);
        let slower =
            |of: &Measured, name: &str| of.ms(name).is_none_or(|ms| of.ms(of.plan).is_none_or(|plan| ms > plan));
        let winner = same().find_map(|other| other.winner).filter(|name| !same().any(|other| slower(other, name)));
        tuned.set(op, one.product, winner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::registry::find;
    use crate::runtime::dtype::DType;
    use crate::runtime::sim;

    fn measured(plan: &'static str, times: &[(&'static str, &[f64])]) -> Measured {
        let op = find("gemm_bf16").unwrap();
        let product = Product { dtypes: [DType::BF16; 3], sizes: [1, 8, 8, 8], layouts: ['k'; 2] };
        let times = times.iter().map(|(name, rounds)| (*name, rounds.to_vec())).collect();
        let job = Job { op, case: op.cases().remove(0) };
        Measured { job, product, plan, times, winner: None, notes: vec![] }
    }

    #[test]
    fn the_plan_is_beaten_by_more_than_noise() {
        let plan = ("hopper", &[1.0, 1.01, 1.02][..]);
        let faster = |times: &[f64]| measured("hopper", &[plan, ("mma", times)]).faster();
        assert_eq!(faster(&[0.9, 0.91, 0.92]), ["mma"]);
        assert!(faster(&[0.99, 0.995, 0.996]).is_empty(), "within the margin");
        assert!(faster(&[0.9, 0.91, 1.005]).is_empty(), "its rounds reach into the plan's");
        assert!(faster(&[0.9]).is_empty(), "it had one turn");
        let two = measured("hopper", &[plan, ("mma", &[0.9; 3]), ("skinny", &[0.8; 3])]);
        assert_eq!(two.faster(), ["skinny", "mma"]);
    }

    #[test]
    fn a_choice_is_slower_in_no_case() {
        let winning = Measured { winner: Some("mma"), ..measured("hopper", &[("hopper", &[1.0]), ("mma", &[0.5])]) };
        let losing = measured("hopper", &[("hopper", &[1.0]), ("mma", &[1.5])]);
        let chosen = |all: &[Measured]| {
            let mut tuned = Tuned::default();
            tuned.set("gemm_bf16", winning.product, Some("skinny"));
            choose(&mut tuned, all);
            tuned.get("gemm_bf16", &winning.product).map(str::to_owned)
        };
        assert_eq!(chosen(std::slice::from_ref(&winning)).as_deref(), Some("mma"));
        assert_eq!(chosen(&[winning.clone(), losing.clone()]), None);
        assert_eq!(chosen(&[losing]), None, "what an earlier run chose is gone");
    }

    #[test]
    fn operators_that_ask_are_planned_in_the_sizes_asked_for() {
        let device = sim::unshared().unwrap();
        let of = |names: &[&str], selection: &Selection| {
            let ops: Vec<_> = names.iter().map(|name| find(name).unwrap()).collect();
            plan(&device, &ops, selection)
        };
        let sizes = vec![vec![("m".to_owned(), 40), ("n".to_owned(), 48)]];
        let sized = Selection { sizes, ..Selection::default() };
        let jobs = of(&["gemm_bf16", "relu"], &sized).unwrap();
        assert_eq!(jobs.iter().map(Job::to_string).collect::<Vec<_>>(), ["gemm_bf16 m=40 n=48 k=1024 NT"]);
        let error = of(&["linear"], &sized).unwrap_err().to_string();
        assert!(error.contains("m=40") && error.contains("sizes of linear: rows, in, out"), "{error}");
        let error = of(&["relu"], &Selection::default()).unwrap_err().to_string();
        assert!(error.contains("relu") && error.contains("pick a kernel by size"), "{error}");
    }
}
