//! `warpsmith lesson`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use comfy_table::{Cell, Color};
use serde_json::json;

use super::{BackendArg, Outcome, Ui, ui};
use crate::check::io;
use crate::check::lessons::{self, Count, LESSONS, Measured, Taught};
use crate::check::pictures::{self, LessonTaken};
use crate::runtime::device::BackendKind;
use crate::runtime::error::{Error, Result};
use crate::runtime::sim::GpuModel;
use crate::runtime::{kernels, sim};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The lesson [default: list them]
    #[arg(value_parser = PossibleValuesParser::new(LESSONS.iter().map(|lesson| lesson.name)))]
    name: Option<String>,
    /// The GPU to simulate, without the one that is here [default: a model of the one that is here, else h100]
    #[arg(long, value_name = "GPU", ignore_case = true, value_parser = super::gpu(), conflicts_with = "backend")]
    device: Option<GpuModel>,
    /// Have Nsight Compute count on the GPU what the simulator counts: they have to agree
    #[arg(long, requires = "name", conflicts_with = "device")]
    ncu: bool,
    /// Launch on the GPU what is counted, and nothing else
    #[arg(long, hide = true, requires = "name", conflicts_with_all = ["device", "ncu"])]
    counted: bool,
    /// Write its picture to this file: what was predicted beside what was counted and timed
    #[arg(long, value_name = "FILE", requires = "name")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendArg,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let Some(name) = &args.name else {
        list(ui);
        return Ok(Outcome::Ok);
    };
    let lesson = lessons::find(name)?;
    args.svg.as_deref().map_or(Ok(()), super::writable)?;
    if let Some(why) = kernels::not_built() {
        return Err(Error::KernelsNotBuilt { why: why.to_owned() });
    }
    let gpu = match args.device {
        Some(_) => None,
        None => Some(args.backend.open()?).filter(|device| device.simulator().is_none()),
    };
    // Lessons predict what is planned.
    gpu.as_ref().map_or(Ok(()), |gpu| gpu.use_tuned(None))?;
    // The simulation that `open` gives stands for no GPU, and has no numbers to predict from.
    let of_gpu = gpu.as_ref().map(|gpu| GpuModel::of(gpu.info()));
    let simulated = sim::open(&args.device.or(of_gpu).unwrap_or(GpuModel::H100))?;
    if gpu.is_none() && (args.ncu || args.counted) {
        let reason = "Nsight Compute counts on a GPU".to_owned();
        return Err(Error::BackendUnavailable { backend: BackendKind::Sim.to_string(), reason });
    }
    if let Some(gpu) = gpu.as_ref().filter(|_| args.counted) {
        lessons::launch_counted(lesson, &simulated, gpu)?;
        return Ok(Outcome::Ok);
    }
    let mut taught = lessons::teach(lesson, &simulated, gpu.as_ref())?;
    if args.ncu {
        lessons::count_by_ncu(&mut taught)?;
    }
    if let Some(path) = &args.svg {
        io::write_text(path, &pictures::of_lesson(&LessonTaken::from(&taught))?.file())?;
    }
    ui.document(&json!({ "holds": taught.holds(), "lesson": taught }));
    show(&taught, ui);
    Ok(Outcome::of(taught.holds()))
}

fn list(ui: &mut Ui) {
    let describe = |lesson: &&lessons::Lesson| json!({ "name": lesson.name, "title": lesson.title });
    ui.document(&json!({ "lessons": LESSONS.iter().map(describe).collect::<Vec<_>>() }));
    let row = |lesson: &&lessons::Lesson| vec![Cell::new(lesson.name), Cell::new(lesson.title)];
    ui.table(&["lesson", "what it shows"], LESSONS.iter().map(row).collect());
}

fn show(taught: &Taught, ui: &mut Ui) {
    taught.claim.iter().for_each(|line| ui.line(line));
    let mut kernels: Vec<_> = taught.runs.iter().flat_map(|run| run.kernels.iter().map(move |k| (run, k))).collect();
    kernels.dedup_by_key(|(run, kernel)| (&run.label, &kernel.symbol));
    if !kernels.is_empty() {
        ui.line("");
        let row = |(run, kernel): (&Measured, &lessons::KernelPlace)| {
            vec![Cell::new(&run.label), Cell::new(&kernel.symbol), Cell::new(kernel)]
        };
        ui.table(&["run", "kernel", "source"], kernels.into_iter().map(row).collect());
    }
    for fact in &taught.facts {
        ui.line("");
        ui::facts(fact, ui);
    }
    counts(taught, ui);
    times(taught, ui);
    ui.line(format!("\n{}", taught.conclusion));
}

fn counts(taught: &Taught, ui: &mut Ui) {
    if taught.runs.is_empty() {
        return;
    }
    ui.line(format!("\nCounted on small problems, {}:", taught.simulated));
    let by_ncu = taught.runs.iter().flat_map(|run| &run.counts).any(|count| count.ncu.is_some());
    let verdict = |count: &Count| match count.holds() {
        true => Cell::new("as predicted").fg(Color::Green),
        false => Cell::new("NOT AS PREDICTED").fg(Color::Red),
    };
    let row = |run: &Measured, count: &Count| {
        let numbers = [count.predicted, count.counted].map(|value| Cell::new(ui::exact(value)));
        let [predicted, counted] = numbers;
        let mut row = vec![Cell::new(&run.label), Cell::new(count.quantity), predicted, counted];
        row.extend(by_ncu.then(|| Cell::new(count.ncu.map_or("-".to_owned(), ui::exact))));
        row.push(verdict(count));
        row
    };
    let rows = taught.runs.iter().flat_map(|run| run.counts.iter().map(move |count| row(run, count)));
    let rows = rows.collect();
    match by_ncu {
        true => ui.table(&["run", "quantity", ">predicted", ">counted", ">by ncu", ""], rows),
        false => ui.table(&["run", "quantity", ">predicted", ">counted", ""], rows),
    }
}

fn times(taught: &Taught, ui: &mut Ui) {
    if taught.runs.is_empty() {
        return;
    }
    ui.line(match &taught.gpu {
        Some(gpu) => format!("\nTimed on large problems, {gpu}:"),
        None => "\nThe least that large problems can take, by the numbers of the device. A simulation has no clock to time them:".to_owned(),
    });
    let row = |run: &Measured| {
        let share = |of: Option<f64>| run.time.and_then(|time| Some(100.0 * of? / time.ms));
        let micros = |ms: Option<f64>| ms.map(|ms| ms * 1e3);
        let measured = micros(run.time.map(|time| time.ms));
        let expected = micros(run.expected_ms);
        let numbers = [micros(run.at_least_ms), expected, measured, share(run.at_least_ms), share(run.expected_ms)]
            .map(ui::number);
        [vec![Cell::new(&run.label)], numbers.into()].concat()
    };
    let headings =
        ["run", ">µs at the peak", ">µs at a copy's rate", ">µs measured", ">% of the peak", ">% of a copy's"];
    let shown = if taught.gpu.is_none() { 2 } else { headings.len() };
    let cut = |mut row: Vec<Cell>| {
        row.truncate(shown);
        row
    };
    ui.table(&headings[..shown], taught.runs.iter().map(row).map(cut).collect());
}
