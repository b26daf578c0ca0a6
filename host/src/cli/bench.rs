//! `warpsmith bench`.

use std::path::PathBuf;
use std::process::Command;

use comfy_table::Cell;
use serde_json::json;

use super::{BackendArg, Outcome, Ui};
use crate::bench::{self, Ceilings, Report, Row};
use crate::error::{Error, Result};
use crate::registry;

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
    }
    let device = args.backend.open()?;
    let jobs = bench::plan(&device, &ops, args.case.as_deref())?;
    let everything = args.ops.is_empty() && args.case.is_none();
    let mut report = Report::new(&device, command_line());
    let bar = ui.progress(jobs.len() + 1);
    bar.set_message("ceiling.copy");
    let ceilings = Ceilings::measure(&device)?;
    report.rows.push(ceilings.copy.clone());
    bar.inc(1);
    let mut failures = Vec::new();
    for job in &jobs {
        bar.set_message(job.to_string());
        match bench::row(&device, &ceilings, job) {
            Ok(row) => report.rows.push(row),
            Err(error @ Error::OutOfMemory { .. }) => ui.note(format!("{job}: left out: {error}")),
            Err(error @ Error::KernelFault { .. }) => return Err(error),
            Err(error) => failures.push(format!("{job}: {error}")),
        }
        bar.inc(1);
    }
    if everything {
        report.rows.push(bench::launch_overhead(&device)?);
        match cold_starts(args) {
            Ok(row) => report.rows.push(row),
            Err(why) => failures.push(format!("cold_start: {why}")),
        }
    }
    bar.finish_and_clear();
    if let Some(path) = &args.out {
        ui.save(path, &report)?;
    }
    ui.document(&report);
    ui.line(format!("On {} (CUDA driver {}):", report.device, report.driver));
    let headings = ["operator", "case", "variant", ">ms", ">min ms", ">GB/s", ">TFLOP/s", ">% of ceiling"];
    ui.table(&headings, report.rows.iter().map(cells).collect());
    failures.iter().for_each(|failure| ui.note(format!("error: {failure}")));
    Ok(Outcome::of(failures.is_empty()))
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

/// The program's name without its folder, and its arguments.
fn command_line() -> String {
    let mut args: Vec<_> = std::env::args().collect();
    if let Some(first) = args.first_mut() {
        *first = first.rsplit('/').next().unwrap_or_default().to_owned();
    }
    args.join(" ")
}

pub(super) fn cold_start(args: &ColdStartArgs, ui: &mut Ui) -> Result<Outcome> {
    let ms = bench::cold_start(args.backend.backend)?.as_secs_f64() * 1e3;
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
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        times.push(document["ms"].as_f64().ok_or_else(|| document["error"].to_string())?);
    }
    times.sort_by(f64::total_cmp);
    Ok(bench::plain("cold_start", "open a device and run a first operator", times[times.len() / 2], times[0]))
}
