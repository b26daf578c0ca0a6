//! `warpsmith analyze`.

use comfy_table::Cell;
use cuda_builder::ptxas;
use serde_json::json;

use super::cases::Lines;
use super::{Outcome, Ui, ui};
use crate::check::verify::offline;
use crate::check::{Job, profile, registry};
use crate::ops::model::{Case, Operator};
use crate::runtime::error::{Error, Result};
use crate::runtime::sim::{GpuModel, HotLine, Profile};
use crate::runtime::{kernels, sim};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The operator
    op: String,
    /// The case, by a part of its name [default: the largest that is not a production shape]
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// The variant to force
    #[arg(long)]
    variant: Option<String>,
    /// The GPU to simulate: its kernels, its grids and its occupancy
    #[arg(long, value_name = "GPU", default_value = GpuModel::H100.key(), ignore_case = true, value_parser = super::gpu())]
    device: GpuModel,
    #[command(flatten)]
    lines: Lines,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let op = registry::find(&args.op)?;
    if let Some(why) = kernels::not_built() {
        return Err(Error::KernelsNotBuilt { why: why.to_owned() });
    }
    let case = case(op, args.case.as_deref())?;
    let mut params = case.params.clone();
    let device = sim::open(&args.device)?;
    if let Some(variant) = &args.variant {
        params = params.with_variant(variant)?;
        if !op.info().variant(variant).is_ok_and(|v| (v.applies)(device.info(), &case)) {
            let expected = format!("one that can run {} on the {}", case.name, args.device.name);
            return Err(Error::param(op.info().name, "variant", variant, expected));
        }
    }
    let job = Job { op, case };
    let mut profiles = args.lines.with(&device, &[op], || profile::profile(&device, &job, &params))?;
    let resources = offline::kernels(op.info(), ptxas::find().as_ref())?;
    profile::set_registers(&mut profiles, &device, &resources);
    ui.document(&json!({ "op": op.info().name, "case": job.case.name, "device": args.device, "launches": profiles }));
    let launches = if let [_] = profiles[..] { "1 launch".to_owned() } else { format!("{} launches", profiles.len()) };
    ui.line(format!("{job}: {launches}, simulated for the {}", args.device));
    profiles.iter().for_each(|profile| show(profile, ui));
    Ok(Outcome::Ok)
}

/// The one case that is meant.
fn case(op: &'static dyn Operator, text: Option<&str>) -> Result<Case> {
    let cases = match text {
        Some(text) => registry::cases_matching(op, text)?,
        None => op.cases().into_iter().filter(Case::is_simulated).collect(),
    };
    // The smallest of those that were named, the largest of all.
    let size = |case: &Case| op.cost(case).map_or(0, |cost| cost.flops.max(cost.bytes));
    let found = match text {
        Some(_) => cases.into_iter().min_by_key(size),
        None => cases.into_iter().max_by_key(size),
    };
    found.ok_or_else(|| Error::param(op.info().name, "case", text.unwrap_or_default(), "one of the operator's cases"))
}

fn show(profile: &Profile, ui: &mut Ui) {
    let [gx, gy, gz] = profile.grid;
    let [bx, by, bz] = profile.block;
    ui.line(format!("\n{}: {gx}x{gy}x{gz} blocks of {bx}x{by}x{bz} threads\n", profile.kernel));
    let rows = profile.metrics.iter().map(|(name, v)| vec![Cell::new(name), Cell::new(ui::exact(*v))]);
    ui.table(&["metric", ">value"], rows.collect());

    let o = &profile.occupancy;
    let registers = match o.registers {
        Some(n) => format!("{n} registers a thread"),
        None => "registers not known without ptxas".to_owned(),
    };
    ui.line(format!(
        "Occupancy of the {}: {} blocks, {} of {} warps a multiprocessor, limited by {} ({registers}); {:.2} waves, {:.0}% of the last one empty.",
        o.device, o.blocks, o.warps, o.of, o.limiter, o.waves, 100.0 * o.tail
    ));
    ui.line(format!("Arithmetic intensity: {:.2} operations a byte, each byte moved once.", profile.intensity));
    let total: u64 = profile.mix.iter().map(|(_, n)| n).sum();
    let share = |(name, n): &(String, u64)| format!("{name} {:.0}%", 100.0 * *n as f64 / total.max(1) as f64);
    ui.line(format!("Instructions: {}.", profile.mix.iter().take(10).map(share).collect::<Vec<_>>().join(", ")));

    ui.line("\nLines of the PTX that cost most, by executions, sectors and wavefronts:");
    let pair = |p: Option<(f64, f64)>| Cell::new(p.map_or("-".to_owned(), |(v, ideal)| format!("{v:.1} ({ideal:.1})")));
    let cells = |l: &HotLine| {
        vec![
            Cell::new(l.ptx_line),
            Cell::new(match &l.source {
                Some(source) => format!("{}\n{source}", l.instruction),
                None => l.instruction.clone(),
            }),
            Cell::new(l.executed),
            Cell::new(format!("{:.1}", l.threads)),
            pair(l.sectors),
            pair(l.wavefronts),
            Cell::new(advice(l).unwrap_or_default()),
        ]
    };
    let headings =
        [">line", "instruction", ">executed", ">threads", ">sectors (least)", ">wavefronts (least)", "what to look at"];
    ui.table(&headings, profile.lines.iter().map(cells).collect());
}

/// What a kernel's author would change, where the counts say so.
fn advice(line: &HotLine) -> Option<&'static str> {
    let wastes = |pair: Option<(f64, f64)>, factor: f64| pair.is_some_and(|(v, least)| v > factor * least);
    if wastes(line.wavefronts, 1.5) {
        Some("bank conflicts: pad or swizzle the rows in shared memory")
    } else if wastes(line.sectors, 1.5) {
        Some("uncoalesced: let neighbouring threads access neighbouring bytes")
    } else if line.divergent > 0.25 {
        Some("threads of a warp go different ways")
    } else if line.threads < 16.0 && (line.sectors.is_some() || line.wavefronts.is_some()) {
        Some("most threads of the warp idle here")
    } else {
        None
    }
}
