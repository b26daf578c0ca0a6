//! `warpsmith sanitize`.

use clap::value_parser;
use comfy_table::Cell;
use serde::Serialize;
use serde_json::json;

use super::cases::{CaseArgs, Lines};
use super::{Outcome, Ui, ui};
use crate::check::Job;
use crate::check::mutation::{Mutant, Mutation};
use crate::check::verify::{self, Row, Status};
use crate::runtime::device::{BackendKind, Device};
use crate::runtime::error::{Error, Result};
use crate::runtime::sim::{Finding, Settings};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    cases: CaseArgs,
    /// Orders of the warps to try
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    orders: u64,
    /// Take each synchronising instruction out of the kernels in turn, and say which of them nobody misses
    #[arg(long)]
    mutate: bool,
    /// Seed of the random input and of the orders
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// One run of a case that did not end well.
#[derive(Serialize)]
struct Bad {
    op: &'static str,
    case: String,
    variant: &'static str,
    order: u64,
    findings: Vec<Finding>,
    /// What the comparison with the reference says, where no checker says more.
    detail: Option<String>,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let ops = args.cases.ops()?;
    let filter = args.cases.filter(args.seed);
    let jobs: Vec<_> =
        verify::plan("sanitize", &ops, &filter)?.into_iter().filter(|job| job.case.is_simulated()).collect();
    if jobs.is_empty() {
        let expected = "a case that is simulated: none of class production, none that is huge";
        return Err(Error::param("sanitize", "filter", "no case", expected));
    }
    let device = Device::open_backend(BackendKind::Sim)?;
    if args.mutate {
        return mutate(&device, &jobs, args, ui);
    }
    let (runs, bad) = args.cases.lines.with(&device, &ops, || Ok(every_order(&device, &jobs, args, ui)))?;
    report(&jobs, runs, &bad, args, ui);
    Ok(Outcome::of(bad.is_empty()))
}

/// Runs the cases in every order; how many runs that were, and those that did not end well.
fn every_order(device: &Device, jobs: &[Job], args: &Args, ui: &Ui) -> (usize, Vec<Bad>) {
    let filter = args.cases.filter(args.seed);
    let (mut runs, mut bad) = (0, Vec::new());
    let bar = ui.progress(jobs.len());
    for job in jobs {
        bar.set_message(job.to_string());
        for order in 0..args.orders {
            let check = || verify::on_device(device, job, &filter);
            let rows = match device.simulator() {
                Some(simulator) => simulator.with(Settings::of_order(args.seed, order), check),
                None => check(),
            };
            runs += rows.len();
            bad.extend(rows.into_iter().filter(|row| row.status == Status::Fail).map(|row| Bad::new(row, order)));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    (runs, bad)
}

fn mutate(device: &Device, jobs: &[Job], args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let filter = args.cases.filter(args.seed);
    let mut mutation = Mutation::new(device, jobs, &filter, &[], |_| true)?;
    let bar = ui.progress(mutation.count());
    let all = mutation.run(args.orders, |mutant| {
        bar.set_message(mutant.kernel);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let missed: Vec<_> = all.iter().filter(|mutant| mutant.caught.is_none()).collect();
    ui.document(&json!({ "backend": "sim", "passed": missed.is_empty(), "mutants": all }));
    let cells = |m: &Mutant| {
        let caught = m.caught.as_deref().unwrap_or("nobody noticed");
        vec![Cell::new(m.kernel), Cell::new(m.ptx_line), Cell::new(&m.instruction), Cell::new(caught)]
    };
    ui.table(&["kernel", ">PTX line", "without", "found"], all.iter().map(cells).collect());
    ui.line(format!("{} mutants, {} that nobody noticed", all.len(), missed.len()));
    Ok(Outcome::of(missed.is_empty()))
}

impl Bad {
    fn new(row: Row, order: u64) -> Self {
        let detail = if row.findings.is_empty() { row.detail } else { None };
        Self { op: row.op, case: row.case, variant: row.variant, order, findings: row.findings, detail }
    }
}

fn report(jobs: &[Job], runs: usize, bad: &[Bad], args: &Args, ui: &mut Ui) {
    ui.document(&json!({
        "backend": "sim", "cases": jobs.len(), "orders": args.orders, "runs": runs, "passed": bad.is_empty(), "failed": bad,
    }));
    let cells = |b: &Bad| {
        let found = match b.findings.first() {
            Some(first) => first.kind,
            None => "wrong result",
        };
        let count = b.findings.len().max(1);
        let (order, result) = (Cell::new(b.order), ui::status(Status::Fail));
        vec![
            Cell::new(b.op),
            Cell::new(&b.case),
            Cell::new(b.variant),
            order,
            Cell::new(count),
            Cell::new(found),
            result,
        ]
    };
    if !bad.is_empty() {
        let headings = ["operator", "case", "variant", ">order", ">findings", "first", "result"];
        ui.table(&headings, bad.iter().map(cells).collect());
    }
    for b in bad {
        ui.line(format!("\n{} {} ({}), order {}:", b.op, b.case, b.variant, b.order));
        b.findings.iter().map(Finding::to_string).chain(b.detail.clone()).for_each(|text| ui.line(format!("  {text}")));
    }
    Lines::advise(bad.iter().flat_map(|b| &b.findings), ui);
    ui.line(format!(
        "{} cases, {runs} runs in the simulator with every check: {} with findings",
        jobs.len(),
        bad.len()
    ));
}
