//! `warpsmith bench`.

use std::path::PathBuf;
use std::process::Command;

use comfy_table::Cell;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::{BackendArg, Outcome, Sizes, Ui};
use crate::check::bench::{self, Bench, Failed, Report, Row, Spread, Timing, mlp};
use crate::check::peers::{self, Cublas};
use crate::check::report::{self, Document};
use crate::check::{Selection, io, registry};
use crate::ops::model::Bound;
use crate::runtime::device::{BackendKind, Device};
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Operators to time; `mlp` is a perceptron of several layers built from them, `overheads` what launching and opening take [default: all]
    ops: Vec<String>,
    /// Only cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Only cases of this dtype
    #[arg(long)]
    dtype: Option<DType>,
    /// The first of these cases in other sizes, as in m=4096,n=11008,k=4096; may be repeated
    #[arg(long = "size", value_name = "NAME=SIZE,…", value_parser = super::sizes, requires = "ops")]
    size: Vec<Sizes>,
    /// Only this variant; `auto` for what the operator picks [default: all, in turns]
    #[arg(long, conflicts_with = "sizes")]
    variant: Option<String>,
    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Time one production case of each operator in sizes from 1 MiB to past the L2 cache
    #[arg(long, requires = "ops", conflicts_with_all = ["size", "dtype"])]
    sizes: bool,
    /// Write pictures of the rows into this folder, with their data in Markdown
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendArg,
}

#[derive(clap::Args)]
pub(super) struct ColdStartArgs {
    #[command(flatten)]
    backend: BackendArg,
}

/// What is asked for beside operators, like [`mlp::NAME`].
const OVERHEADS: &str = "overheads";

const COLD_STARTS: usize = 3;

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let has = |name: &str| args.ops.iter().any(|op| op == name);
    let named: Vec<_> = args.ops.iter().filter(|op| ![mlp::NAME, OVERHEADS].contains(&op.as_str())).cloned().collect();
    let ops = if named.is_empty() && !args.ops.is_empty() { Vec::new() } else { registry::select(&named)? };
    args.out.as_deref().map_or(Ok(()), super::writable)?;
    let device = args.backend.open()?;
    if device.simulator().is_some() {
        return Err(Error::BackendUnavailable {
            backend: BackendKind::Sim.to_string(),
            reason: "a simulation has no times; `bench` needs a GPU".to_owned(),
        });
    }
    let case = args.case.as_deref();
    let jobs = match () {
        () if ops.is_empty() => Vec::new(),
        () if args.sizes => bench::sweep(device.info(), &ops, case)?,
        () => {
            let selection = Selection { case: args.case.clone(), dtype: args.dtype, sizes: args.size.clone() };
            bench::plan(&device, &ops, &selection, args.variant.as_deref())?
        }
    };
    let mut report = Report::new(&device, super::command_line());
    let sizes: Vec<_> = if has(mlp::NAME) { mlp::Sizes::all() } else { Vec::new() };
    let sizes: Vec<_> = sizes.into_iter().filter(|s| case.is_none_or(|text| s.case().contains(text))).collect();
    let bar = ui.progress(jobs.len() + sizes.len() + 1);
    measure(&device, &jobs, &mut report, &bar, ui);
    perceptrons(&device, &sizes, &mut report, &bar);
    if has(OVERHEADS) || (args.ops.is_empty() && case.is_none()) {
        overheads(args, &device, &mut report);
    }
    bar.finish_and_clear();
    if let Some(folder) = &args.svg {
        let document = [Document::of(report.clone())];
        let written = report::files(&document, &report.command).and_then(|files| super::report::write(folder, &files));
        report.errors.extend(written.err().map(|error| error.to_string()));
    }
    if let Some(path) = &args.out
        && let Err(error) = io::write_json(path, &report)
    {
        report.errors.push(error.to_string());
    }
    ui.document(&report);
    ui.line(format!("On {} (CUDA driver {}):", report.device, report.driver));
    let headings =
        ["operator", "case", "variant", ">ms", ">min ms", ">GB/s", ">TFLOP/s", ">% of ceiling", ">% of copy"];
    ui.table(&headings, beside(&report));
    if let Some(peer) = &report.peer {
        ui.line(format!("{}: {peer}", peers::NAMES[0]));
    }
    spreads(&report.rows, ui);
    report.errors.iter().for_each(|error| ui.note(format!("error: {error}")));
    Ok(Outcome::of(report.errors.is_empty()))
}

/// Fills the report. An error ends what it is about, and a failed kernel ends all; what was measured stays.
fn measure(device: &Device, jobs: &[Timing], report: &mut Report, bar: &ProgressBar, ui: &mut Ui) {
    bar.set_message("ceiling.copy");
    let bench = match Bench::new(device) {
        Ok(bench) => bench,
        Err(error) => return report.errors.push(format!("ceiling.copy: {error}")),
    };
    report.rows.push(bench.ceilings.copy.clone());
    bar.inc(1);
    let peer = peer(device, jobs, bar, ui);
    report.peer = peer.as_ref().map(Cublas::version);
    let mut left = jobs.len();
    for case in bench::cases(jobs) {
        let job = &case[0].job;
        bar.set_message(job.to_string());
        let timed = bench.case(case, peer.as_ref().filter(|_| peers::has_peer(job.op)));
        let untimed = left - timed.rows.len();
        report.rows.extend(timed.rows);
        report.peers.extend(timed.peers);
        for Failed { what, by_peer, error } in timed.failed {
            match error {
                Error::OutOfMemory { .. } => bar.suspend(|| ui.note(format!("{what}: left out: {error}"))),
                // What a library cannot be asked for.
                Error::Layout { .. } if by_peer => bar.suspend(|| ui.note(format!("{what}: left out: {error}"))),
                Error::KernelFault { .. } => {
                    return report.errors.push(format!("{what}: {error}; rows left untimed: {untimed}"));
                }
                error => report.errors.push(format!("{what}: {error}")),
            }
        }
        left -= case.len();
        bar.inc(case.len() as u64);
    }
}

/// What queueing a launch takes the CPU, and what a new process takes to its first result.
fn overheads(args: &Args, device: &Device, report: &mut Report) {
    let launch_overhead = bench::launch_overhead(device).map_err(|error| error.to_string());
    for (name, row) in [("launch_overhead", launch_overhead), ("cold_start", cold_starts(args))] {
        match row {
            Ok(row) => report.rows.push(row),
            Err(why) => report.errors.push(format!("{name}: {why}")),
        }
    }
}

/// The library that some of the jobs are timed beside, if it is there; a line says that it is not.
fn peer(device: &Device, jobs: &[Timing], bar: &ProgressBar, ui: &mut Ui) -> Option<Cublas> {
    let wanted = jobs.iter().any(|job| peers::has_peer(job.job.op));
    let opened = wanted.then(|| Cublas::open(device))?;
    opened.inspect_err(|error| bar.suspend(|| ui.note(format!("no times beside ours: {error}")))).ok()
}

/// Operators' rows, each case's followed by others'.
fn beside(report: &Report) -> Vec<Vec<Cell>> {
    let mut lines = Vec::new();
    for (i, row) in report.rows.iter().enumerate() {
        lines.push(cells(row));
        let next = report.rows.get(i + 1);
        if next.is_none_or(|next| (&next.op, &next.case) != (&row.op, &row.case)) {
            lines.extend(report.peers.iter().filter_map(|peer| peer.beside(row)).map(|row| cells(&row)));
        }
    }
    lines
}

/// The perceptron in several sizes. An error ends it; what was measured stays.
fn perceptrons(device: &Device, sizes: &[mlp::Sizes], report: &mut Report, bar: &ProgressBar) {
    let peak = device.info().peak_flops(Bound::Tensor(DType::BF16));
    for sizes in sizes {
        bar.set_message(format!("{} {}", mlp::NAME, sizes.case()));
        match mlp::rows(device, *sizes, peak) {
            Ok(rows) => report.rows.extend(rows),
            Err(error) => return report.errors.push(format!("{} {}: {error}", mlp::NAME, sizes.case())),
        }
        bar.inc(1);
    }
}

/// How the times lie of what is timed as a whole, and what beginning and waiting cost.
fn spreads(rows: &[Row], ui: &mut Ui) {
    let spread: Vec<_> = rows.iter().filter_map(|row| Some((row, row.spread?))).collect();
    if spread.is_empty() {
        return;
    }
    ui.line("\nHow these times lie, in ms:");
    let row = |(row, s): &(&Row, Spread)| {
        let text = [row.op.clone(), row.case.clone(), s.runs.to_string()].map(Cell::new);
        let numbers =
            [s.first_ms, s.p10_ms, row.ms, s.p90_ms, s.queued_ms, s.waited_ms].map(|ms| Cell::new(format!("{ms:.4}")));
        text.into_iter().chain(numbers).collect()
    };
    let headings = ["operator", "case", ">runs", ">first", ">10%", ">median", ">90%", ">to queue", ">with a wait"];
    ui.table(&headings, spread.iter().map(row).collect());
    bench::explain(&spread).iter().for_each(|line| ui.line(line));
}

fn cells(row: &Row) -> Vec<Cell> {
    let rate = |rate: Option<f64>| Cell::new(rate.map_or("-".to_owned(), |r| format!("{r:.1}")));
    vec![
        Cell::new(&row.op),
        Cell::new(&row.case),
        Cell::new(&row.variant),
        Cell::new(format!("{:.4}", row.ms)),
        Cell::new(format!("{:.4}", row.min_ms)),
        rate(row.gbps),
        rate(row.tflops),
        rate(row.pct_of_ceiling),
        rate(row.pct_of_copy),
    ]
}

pub(super) fn cold_start(args: &ColdStartArgs, ui: &mut Ui) -> Result<Outcome> {
    let ms = bench::cold_start(|| args.backend.open())?.as_secs_f64() * 1e3;
    ui.document(&json!({ "ms": ms }));
    ui.line(format!("{ms:.1} ms"));
    Ok(Outcome::Ok)
}

/// Times a few new processes, with the driver's cache of compiled kernels off.
fn cold_starts(args: &Args) -> Result<Row, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut times = Vec::new();
    for _ in 0..COLD_STARTS {
        let mut command = Command::new(&program);
        command.args(["cold-start", "--json"]).env("CUDA_CACHE_DISABLE", "1");
        if let Some(kind) = args.backend.backend {
            command.args(["--backend", &kind.to_string()]);
        }
        let output = command.output().map_err(|e| e.to_string())?;
        let document: Value = serde_json::from_slice(&output.stdout).map_err(|_| {
            format!("a new process failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr))
        })?;
        let why = || document["error"].as_str().unwrap_or("a new process said nothing").to_owned();
        times.push(document["ms"].as_f64().ok_or_else(why)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(bench::plain("cold_start", "open a device and run a first operator", times[times.len() / 2], times[0]))
}
