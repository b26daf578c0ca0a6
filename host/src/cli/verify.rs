//! `warpsmith verify`.

use std::sync::Arc;

use comfy_table::Cell;
use cuda_builder::ptxas;
use rayon::prelude::*;
use serde_json::json;

use super::cases::{CaseArgs, Lines};
use super::{BackendArg, Outcome, Ui, ui};
use crate::check::Job;
use crate::check::peers::{self, Cublas};
use crate::check::verify::offline::{self, KernelRow};
use crate::check::verify::{self, Filter, NotRun, Row, Run, Status};
use crate::ops::model::Operator;
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    cases: CaseArgs,
    #[command(flatten)]
    backend: BackendArg,
    /// Seed of the random input
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Run everything twice and demand equal bits
    #[arg(long)]
    repeat: bool,
    /// Run another library as well, where it computes the same: cublas
    #[arg(long, value_name = "LIBRARY", value_parser = peers::NAMES)]
    peer: Option<String>,
    /// Cases that a GPU runs at once, their times left out; a simulation takes one after the other, over all cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    at_once: u8,
    /// A line a case instead of one an operator and dtype
    #[arg(long, short)]
    verbose: bool,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let ops = args.cases.ops()?;
    let filter = Filter { repeat: args.repeat, ..args.cases.filter(args.seed) };
    let jobs = verify::plan("verify", &ops, &filter)?;
    match args.backend.open() {
        Ok(device) => {
            let peer = args.peer.as_ref().map(|_| Cublas::open(&device)).transpose()?.map(Arc::new);
            let filter = Filter { peer, ..filter };
            args.cases.lines.with(&device, &ops, || on_device(&device, &filter, &ops, &jobs, args, ui))
        }
        // Asked for by name, a backend that is not there is an error; otherwise there is still something to check.
        Err(error) if error.is_environment() && !args.backend.is_forced() && args.peer.is_none() => {
            without_device(&error, args.seed, &ops, &jobs, ui)
        }
        Err(error) => Err(error),
    }
}

fn on_device(
    device: &Device,
    filter: &Filter,
    ops: &[&'static dyn Operator],
    jobs: &[Job],
    args: &Args,
    ui: &mut Ui,
) -> Result<Outcome> {
    let (name, driver) = (&device.info().name, device.info().driver_version.to_string());
    let (backend, simulated) = (device.info().backend.to_string(), device.simulator().is_some());
    // A driver compiles the code anyway.
    let kernels = kernels(ops, simulated)?;
    let bar = ui.progress(jobs.len());
    let at_once = if simulated { 1 } else { usize::from(args.at_once) };
    let Run { rows, not_run } = verify::all(device, jobs, filter, at_once, |job| {
        bar.set_message(job.to_string());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let passed = passed(&rows, &kernels);
    let peer = filter.peer.as_ref().map(|peer| peer.version());
    ui.document(&json!({
        "executed": true, "backend": backend, "device": name, "driver": driver, "seed": filter.seed, "passed": passed,
        "rows": rows, "not_run": not_run, "kernels": kernels, "peer": peer,
    }));
    match simulated {
        true => ui.line(format!("Simulated, without a GPU: the kernels' PTX on {name}.")),
        false => ui.line(format!("On {name} (CUDA driver {driver}):")),
    }
    match args.verbose {
        // What no simulation takes on is only counted.
        true => cases(rows.iter().filter(|r| !(simulated && r.status == Status::Skipped)), ui),
        false => operators(&rows, ui),
    }
    details(&rows, ui);
    if let Some(peer) = peer {
        beside(&rows, &peer, args.verbose, ui);
    }
    ui::broken_kernels(&kernels, ui);
    if simulated {
        ui.line(format!("Kernels: {}", checked(&kernels)));
    }
    match not_run {
        Some(NotRun { cases, why }) => {
            ui.line(format!("{why}; cases left: {}", cases.len()));
            ui.line(format!("{}, {} not run", summary(&rows), cases.len()));
        }
        None => ui.line(summary(&rows)),
    }
    Ok(Outcome::of(passed))
}

/// How another library's results lie, and in detail what it cannot be asked for.
fn beside(rows: &[Row], peer: &str, verbose: bool, ui: &mut Ui) {
    let left_out = rows.iter().filter(|r| r.peer && r.status == Status::Skipped);
    for row in left_out.filter(|_| verbose) {
        ui.line(format!("left out: {} {}: {}", row.op, row.case, row.detail.as_deref().unwrap_or_default()));
    }
    let [passed, failed, skipped] = counts(rows.iter().filter(|r| r.peer));
    ui.line(format!("{peer}: {passed} within the same tolerances, {failed} not, {skipped} left out"));
}

/// A line a case and variant.
fn cases<'a>(rows: impl Iterator<Item = &'a Row>, ui: &mut Ui) {
    let cells = |r: &Row| {
        let tolerance = match (r.abs, r.rel) {
            (Some(abs), Some(rel)) => format!("{abs:.1e} + {rel:.1e}·|ref|"),
            _ => "-".to_owned(),
        };
        vec![
            Cell::new(r.op),
            Cell::new(&r.case),
            Cell::new(r.variant),
            ui::number(r.max_abs),
            Cell::new(tolerance),
            ui::number(r.max_err),
            ui::number(r.ms),
            ui::status(r.status),
        ]
    };
    let headings = ["operator", "case", "variant", ">max error", ">tolerance", ">share used", ">ms", "result"];
    ui.table(&headings, rows.map(cells).collect());
}

/// A line an operator and dtype, and another for another library, with the greatest share of the tolerance that a case used.
fn operators(rows: &[Row], ui: &mut Ui) {
    let mut groups: Vec<(&Row, Vec<&Row>)> = Vec::new();
    let key = |row: &Row| (row.op, row.dtype, row.peer);
    for row in rows {
        match groups.iter_mut().find(|(first, _)| key(first) == key(row)) {
            Some((_, group)) => group.push(row),
            None => groups.push((row, vec![row])),
        }
    }
    let cells = |(first, group): &(&Row, Vec<&Row>)| {
        let [passed, failed, skipped] = counts(group.iter().copied());
        let worst = group.iter().filter_map(|r| r.max_err).max_by(f64::total_cmp);
        let result = match (failed, passed) {
            (0, 0) => Status::Skipped,
            (0, _) => Status::Pass,
            _ => Status::Fail,
        };
        let numbers = [group.len(), passed, failed, skipped].map(Cell::new);
        let name = if first.peer { format!("{} ({})", first.op, first.variant) } else { first.op.to_owned() };
        let mut cells = vec![Cell::new(name), Cell::new(first.dtype)];
        cells.extend(numbers);
        cells.extend([ui::number(worst), ui::status(result)]);
        cells
    };
    let headings = ["operator", "dtype", ">runs", ">passed", ">failed", ">skipped", ">worst share", "result"];
    ui.table(&headings, groups.iter().map(cells).collect());
}

fn without_device(why: &Error, seed: u64, ops: &[&'static dyn Operator], jobs: &[Job], ui: &mut Ui) -> Result<Outcome> {
    let kernels = kernels(ops, true)?;
    let bar = ui.progress(jobs.len());
    let rows: Vec<Row> = jobs
        .iter()
        .map(|job| {
            bar.set_message(job.to_string());
            bar.inc(1);
            offline::reference(job, seed)
        })
        .collect();
    bar.finish_and_clear();
    let passed = passed(&rows, &kernels);
    let reason = why.to_string();
    ui.document(&json!({
        "executed": false, "reason": reason, "seed": seed, "passed": passed, "rows": rows, "kernels": kernels,
    }));
    ui.line(format!("The kernels were NOT executed: {reason}."));
    ui.line("Checked instead: the kernels' code against what the host launches, and the references.\n");
    let cells = |r: &KernelRow| {
        vec![
            Cell::new(r.op),
            Cell::new(r.symbol),
            Cell::new(r.arch),
            ui::count(r.registers),
            Cell::new(r.shared_bytes),
            ui::count(r.spills),
            ui::status(r.status),
        ]
    };
    let headings = ["operator", "kernel", "arch", ">registers", ">shared bytes", ">spilled bytes", "result"];
    ui.table(&headings, kernels.iter().map(cells).collect());
    ui::broken_kernels(&kernels, ui);
    details(&rows, ui);
    ui.line(format!("\nReferences: {}", summary(&rows)));
    Ok(Outcome::of(passed))
}

fn kernels(ops: &[&'static dyn Operator], assemble: bool) -> Result<Vec<KernelRow>> {
    let ptxas = if assemble { ptxas::find() } else { None };
    let rows = ops.par_iter().map(|op| offline::kernels(op.info(), ptxas.as_ref()));
    Ok(rows.collect::<Result<Vec<_>>>()?.concat())
}

fn details(rows: &[Row], ui: &mut Ui) {
    for row in rows.iter().filter(|r| r.status == Status::Fail) {
        let detail = row.detail.as_deref().unwrap_or_default();
        ui.line(format!("FAIL {} {} ({}): {detail}", row.op, row.case, row.variant));
    }
    Lines::advise(rows.iter().flat_map(|row| &row.findings), ui);
}

/// Whether all is well of ours. What another library does is shown, and is not what is verified.
fn passed(rows: &[Row], kernels: &[KernelRow]) -> bool {
    let mut statuses = rows.iter().filter(|r| !r.peer).map(|r| r.status).chain(kernels.iter().map(|r| r.status));
    !statuses.any(|status| status == Status::Fail)
}

/// What was looked at of the kernels' code, beside running it.
fn checked(kernels: &[KernelRow]) -> String {
    let agree = kernels.iter().filter(|k| k.status == Status::Pass).count();
    let assembled = kernels.iter().filter(|k| k.registers.is_some()).count();
    let what =
        if assembled == 0 { "none assembled, for want of ptxas".to_owned() } else { format!("{assembled} assemble") };
    format!("{agree} of {} agree with what the host launches, {what}", kernels.len())
}

/// Rows that passed, that failed and that were skipped.
fn counts<'a>(rows: impl Iterator<Item = &'a Row>) -> [usize; 3] {
    let statuses: Vec<_> = rows.map(|r| r.status).collect();
    [Status::Pass, Status::Fail, Status::Skipped].map(|status| statuses.iter().filter(|s| **s == status).count())
}

fn summary(rows: &[Row]) -> String {
    let [passed, failed, skipped] = counts(rows.iter().filter(|r| !r.peer));
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}
