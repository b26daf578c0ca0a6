//! `warpsmith bench`.

use std::path::PathBuf;
use std::process::Command;

use comfy_table::Cell;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::{BackendArg, Outcome, Ui};
use crate::check::bench::{self, Ceilings, Report, Row, Timing};
use crate::check::{io, registry};
use crate::runtime::device::{BackendKind, Device};
use crate::runtime::error::{Error, Result};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Operators to time [default: all, and the ceilings and overheads]
    ops: Vec<String>,
    /// Only cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendArg,
}

#[derive(clap::Args)]
pub(super) struct ColdStartArgs {
    #[command(flatten)]
    backend: BackendArg,
}

const COLD_STARTS: usize = 3;

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let ops = registry::select(&args.ops)?;
    if let Some(path) = &args.out {
        // Found out now rather than after minutes of timing.
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        if folder.is_some_and(|f| !f.is_dir()) {
            return Err(Error::file(path, "cannot be written: its folder does not exist"));
        }
        if path.is_dir() {
            return Err(Error::file(path, "cannot be written: it is a folder"));
        }
    }
    let device = args.backend.open()?;
    if device.simulator().is_some() {
        return Err(Error::BackendUnavailable {
            backend: BackendKind::Sim.to_string(),
            reason: "a simulation has no times; `bench` needs a GPU".to_owned(),
        });
    }
    let jobs = bench::plan(&device, &ops, args.case.as_deref())?;
    let mut report = Report::new(&device, super::command_line());
    let bar = ui.progress(jobs.len() + 1);
    measure(args, &device, &jobs, &mut report, &bar, ui);
    bar.finish_and_clear();
    if let Some(path) = &args.out
        && let Err(error) = io::write_json(path, &report)
    {
        report.errors.push(error.to_string());
    }
    ui.document(&report);
    ui.line(format!("On {} (CUDA driver {}):", report.device, report.driver));
    let headings = ["operator", "case", "variant", ">ms", ">min ms", ">GB/s", ">TFLOP/s", ">% of ceiling"];
    ui.table(&headings, report.rows.iter().map(cells).collect());
    report.errors.iter().for_each(|error| ui.note(format!("error: {error}")));
    Ok(Outcome::of(report.errors.is_empty()))
}

/// Fills the report. An error ends what it is about, and a failed kernel ends all; what was measured stays.
fn measure(args: &Args, device: &Device, jobs: &[Timing], report: &mut Report, bar: &ProgressBar, ui: &mut Ui) {
    bar.set_message("ceiling.copy");
    let ceilings = match Ceilings::measure(device) {
        Ok(ceilings) => ceilings,
        Err(error) => return report.errors.push(format!("ceiling.copy: {error}")),
    };
    report.rows.push(ceilings.copy.clone());
    bar.inc(1);
    for (done, job) in (1..).zip(jobs) {
        bar.set_message(job.to_string());
        match bench::row(device, &ceilings, job) {
            Ok(row) => report.rows.push(row),
            Err(error @ Error::OutOfMemory { .. }) => {
                bar.suspend(|| ui.note(format!("{job}: left out: {error}")));
            }
            Err(error @ Error::KernelFault { .. }) => {
                let rest = jobs.len() - done;
                return report.errors.push(format!("{job}: {error}; cases left untimed: {rest}"));
            }
            Err(error) => report.errors.push(format!("{job}: {error}")),
        }
        bar.inc(1);
    }
    if args.ops.is_empty() && args.case.is_none() {
        let launch_overhead = bench::launch_overhead(device).map_err(|error| error.to_string());
        for (name, row) in [("launch_overhead", launch_overhead), ("cold_start", cold_starts(args))] {
            match row {
                Ok(row) => report.rows.push(row),
                Err(why) => report.errors.push(format!("{name}: {why}")),
            }
        }
    }
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
