//! `warpsmith tune`.

use std::path::{Path, PathBuf};

use comfy_table::Cell;
use serde_json::{Value, json};

use super::{BackendArg, Outcome, Sizes, Ui, sizes};
use crate::check::tune::{self, Measured};
use crate::check::{Selection, registry};
use crate::runtime::device::{BackendKind, Device};
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result, printable};
use crate::runtime::tuned::{ENV, Place, Tuned};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Operators to tune [default: all that pick a kernel by size]
    ops: Vec<String>,
    /// Only cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Only cases of this dtype
    #[arg(long)]
    dtype: Option<DType>,
    /// The first of these cases in other sizes, as in m=4096,n=11008,k=4096; may be repeated
    #[arg(long = "size", value_name = "NAME=SIZE,…", value_parser = sizes)]
    sizes: Vec<Sizes>,
    /// Write the choices to this file [default: where the library looks for them]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show the choices that are in use, without a GPU those for every GPU, and measure nothing
    #[arg(long, conflicts_with_all = ["ops", "case", "dtype", "sizes", "out", "clear"])]
    list: bool,
    /// Forget the choices that are in use, and measure nothing
    #[arg(long, conflicts_with_all = ["ops", "case", "dtype", "sizes", "out"])]
    clear: bool,
    #[command(flatten)]
    backend: BackendArg,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let ops = registry::select(&args.ops)?;
    args.out.as_deref().map_or(Ok(()), super::writable)?;
    let device = args.backend.open()?;
    let gpu = device.info().name.clone();
    let place = Place::of(&gpu);
    if device.simulator().is_some() {
        return match &place {
            place if args.list => list_all(place, ui),
            Place::Named(file) if args.clear => clear(file, ui),
            _ => Err(Error::BackendUnavailable {
                backend: BackendKind::Sim.to_string(),
                reason: if args.clear {
                    format!("`tune` needs a GPU, to forget its choices, or {ENV} to name their file")
                } else {
                    "a simulation has no times; `tune` needs a GPU".to_owned()
                },
            }),
        };
    }
    if args.list {
        return list(&device, &place, ui);
    }
    let Some(file) = args.out.as_deref().or(place.file()) else {
        let wanted = "a file, by --out: WARPSMITH_TUNED is off, or there is no home for a cache";
        return Err(Error::param("tune", "out", "nothing", wanted));
    };
    if args.clear {
        return clear(file, ui);
    }
    // What is measured is the plan.
    device.use_tuned(None)?;
    let selection = Selection { case: args.case.clone(), dtype: args.dtype, sizes: args.sizes.clone() };
    let jobs = tune::plan(&device, &ops, &selection)?;
    let mut tuned = if file.exists() {
        Tuned::read(file, &gpu).unwrap_or_else(|error| {
            ui.note(format!("{error}; its choices are replaced"));
            Tuned::default()
        })
    } else {
        Tuned::default()
    };
    let bar = ui.progress(jobs.len());
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for (done, job) in (1..).zip(&jobs) {
        bar.set_message(job.to_string());
        match tune::measure(&device, job) {
            Ok(measured) => {
                measured.notes.iter().for_each(|note| bar.suspend(|| ui.note(note)));
                all.push(measured);
            }
            Err(error @ Error::OutOfMemory { .. }) => bar.suspend(|| ui.note(format!("{job}: left out: {error}"))),
            Err(error @ Error::KernelFault { .. }) => {
                errors.push(format!("{job}: {error}; cases left unmeasured: {}", jobs.len() - done));
                break;
            }
            Err(error) => errors.push(format!("{job}: {error}")),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    tune::choose(&mut tuned, &all);
    tuned.write(file, &gpu)?;
    ui.document(&json!({
        "device": gpu,
        "file": file,
        "choices": tuned.len(),
        "rows": all.iter().map(document).collect::<Vec<_>>(),
        "errors": errors,
    }));
    ui.line(format!("On {gpu}:"));
    let headings = ["operator", "case", "plan", ">ms", "best", ">ms", ">gain", ""];
    ui.table(&headings, all.iter().map(|measured| cells(measured, &tuned)).collect());
    ui.line(format!("{} choices in {}", tuned.len(), file.display()));
    errors.iter().for_each(|error| ui.note(format!("error: {error}")));
    Ok(Outcome::of(errors.is_empty()))
}

/// The fastest variant with its time, and the plan's time.
fn best(measured: &Measured) -> Option<(&'static str, f64, f64)> {
    let times = measured.times.iter().filter_map(|(name, _)| Some((*name, measured.ms(name)?)));
    let (name, ms) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((name, ms, measured.ms(measured.plan)?))
}

fn cells(measured: &Measured, tuned: &Tuned) -> Vec<Cell> {
    let op = measured.job.op.info().name;
    let mut cells = vec![Cell::new(op), Cell::new(&measured.job.case.name), Cell::new(measured.plan)];
    let Some((best, ms, plan)) = best(measured) else { return cells };
    let chosen = tuned.get(op, &measured.product).map_or("", |_| "chosen");
    let time = |ms: f64| Cell::new(format!("{ms:.4}"));
    let gain = Cell::new(format!("{:.1}%", 100.0 * (plan / ms - 1.0)));
    cells.extend([time(plan), Cell::new(best), time(ms), gain, Cell::new(chosen)]);
    cells
}

fn document(measured: &Measured) -> Value {
    let times: Vec<_> = measured.times.iter().map(|(name, rounds)| json!({ "variant": name, "ms": rounds })).collect();
    json!({
        "op": measured.job.op.info().name,
        "case": measured.job.case.name,
        "product": measured.product.to_string(),
        "plan": measured.plan,
        "winner": measured.winner,
        "times": times,
    })
}

/// A file that is there and cannot be used is an error here; launches go on by the plan.
fn list(device: &Device, place: &Place, ui: &mut Ui) -> Result<Outcome> {
    let tuned = device.tuned()?;
    let all: Vec<_> =
        tuned.iter().map(|(op, product, variant)| [op.to_owned(), product.to_string(), variant.to_owned()]).collect();
    ui.document(&json!({ "file": place.file(), "choices": all }));
    ui.table(&["operator", "product", "variant"], all.iter().map(|row| row.iter().map(Cell::new).collect()).collect());
    let file = place.file().map_or("no file".to_owned(), |file| file.display().to_string());
    ui.line(format!("{} choices in {file}", tuned.len()));
    Ok(Outcome::Ok)
}

/// Those of every GPU, where none says which are in use. A file in the cache may be of no more use; one that is named has to be of some.
fn list_all(place: &Place, ui: &mut Ui) -> Result<Outcome> {
    let (mut rows, mut documents) = (Vec::new(), Vec::new());
    for file in place.all_files() {
        let gpu = Tuned::gpu_of(&file).unwrap_or_default();
        match Tuned::read(&file, &gpu) {
            Ok(tuned) => {
                let all: Vec<_> = tuned
                    .iter()
                    .map(|(op, product, variant)| [op.to_owned(), product.to_string(), variant.to_owned()])
                    .collect();
                rows.extend(
                    all.iter()
                        .map(|row| [&gpu].into_iter().chain(row).map(|cell| Cell::new(printable(cell))).collect()),
                );
                documents.push(json!({ "gpu": gpu, "file": file, "choices": all }));
            }
            Err(error) if matches!(place, Place::Named(_)) => return Err(error),
            Err(error) => ui.note(format!("{error}")),
        }
    }
    ui.document(&json!({ "files": documents }));
    let choices = rows.len();
    ui.table(&["GPU", "operator", "product", "variant"], rows);
    ui.line(format!("{choices} choices in {} files", documents.len()));
    Ok(Outcome::Ok)
}

fn clear(file: &Path, ui: &mut Ui) -> Result<Outcome> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::file(file, error)),
        _ => {}
    }
    ui.document(&json!({ "file": file, "choices": 0 }));
    ui.line(format!("no choices in {}", file.display()));
    Ok(Outcome::Ok)
}
