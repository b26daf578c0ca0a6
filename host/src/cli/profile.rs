//! `warpsmith profile`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{BackendArg, Outcome, Ui};
use crate::check::bench::profiled::{self, MOST_ADDED, Profiled};
use crate::check::{io as files, trace};
use crate::runtime::device::BackendKind;
use crate::runtime::error::{Error, Result};
use crate::runtime::profile::{Clock, Profile, VARIABLE};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Write the trace to this file, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendArg,
    /// A program that uses the library, and its arguments [default: a step of `bench mlp`, whose times have to add up]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    args.trace.as_deref().map_or(Ok(()), super::writable)?;
    match args.program.split_first() {
        Some((program, rest)) => of_program(args, program, rest, ui),
        None => of_perceptron(args, ui),
    }
}

/// Has a program record itself, and shows what it wrote.
fn of_program(args: &Args, program: &OsString, rest: &[OsString], ui: &mut Ui) -> Result<Outcome> {
    let path = Path::new(program);
    let folder = tempfile::tempdir().map_err(|error| Error::file(path, format!("cannot be recorded: {error}")))?;
    let file = folder.path().join("trace.json");
    let mut command = Command::new(program);
    command.args(rest).env(VARIABLE, &file);
    if let Some(backend) = args.backend.backend {
        command.env("WARPSMITH_BACKEND", backend.to_string());
    }
    if ui.json {
        // Standard output is for the result.
        command.stdout(io::stderr());
    }
    let status = command.status().map_err(|error| Error::file(path, format!("cannot be run: {error}")))?;
    if !file.exists() {
        let why =
            format!("recorded nothing ({status}): it has to launch kernels of this library, and to end by itself");
        return Err(Error::file(path, why));
    }
    let profile = trace::read(&file)?;
    write(args, &profile)?;
    ui.document(&json!({ "status": status.code(), "profile": document(&profile) }));
    ui.line(profile.to_string().trim_end());
    if !status.success() {
        ui.note(format!("{}: {status}", path.display()));
    }
    Ok(Outcome::of(status.success()))
}

/// Records a step of the perceptron, and checks the recording.
fn of_perceptron(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let device = args.backend.open()?;
    if device.simulator().is_some() {
        let reason = "a simulation has no times; without a program `profile` needs a GPU".to_owned();
        return Err(Error::BackendUnavailable { backend: BackendKind::Sim.to_string(), reason });
    }
    let profiled = profiled::profiled(&device)?;
    write(args, &profiled.profile)?;
    let Profiled { sizes, profile, between_events, kernels, launch } = &profiled;
    let micros = |time: &std::time::Duration| time.as_secs_f64() * 1e6;
    ui.document(&json!({
        "device": device.info().name,
        "case": sizes.case(),
        "holds": profiled.holds(),
        "between_events_us": micros(between_events),
        "kernels_us": micros(kernels),
        "launch_us": launch.each_ref().map(micros),
        "profile": document(profile),
    }));
    ui.line(format!("Steps of a perceptron, {}, on {}:\n", sizes.case(), device.info().name));
    ui.line(profile.to_string().trim_end());
    ui.line(format!(
        "\nIts kernels take {:.1} µs of the {:.1} µs between two events around the step: {:.2}% apart.",
        micros(kernels),
        micros(between_events),
        100.0 * profiled.apart()
    ));
    let [before, recorded, after] = launch.each_ref().map(micros);
    ui.line(format!(
        "Queueing a small kernel takes {before:.2} µs, recorded {recorded:.2} µs (less than {} more are allowed), and afterwards {after:.2} µs.",
        micros(&MOST_ADDED)
    ));
    Ok(Outcome::of(profiled.holds()))
}

fn write(args: &Args, profile: &Profile) -> Result<()> {
    args.trace.as_deref().map_or(Ok(()), |path| files::write_text(path, &profile.chrome_trace()))
}

/// The table's rows as JSON, times in microseconds.
fn document(profile: &Profile) -> Value {
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let rows = profile.rows().into_iter().map(|row| {
        json!({
            "name": row.name,
            "calls": row.calls,
            "self_cpu_us": micros(row.self_cpu),
            "cpu_total_us": micros(row.cpu_total),
            "self_cuda_us": row.self_cuda.map(micros),
            "cuda_total_us": row.cuda_total.map(micros),
            "bytes": row.bytes,
            "flops": row.flops,
            "least_us": row.least.map(micros),
        })
    });
    let clock = profile.clock().map(|clock| match clock {
        Clock::Cupti => "cupti",
        Clock::Events => "events",
    });
    json!({
        "clock": clock,
        "wall_us": micros(profile.wall()),
        "busy_us": profile.busy().map(micros),
        "rows": rows.collect::<Vec<_>>(),
    })
}
