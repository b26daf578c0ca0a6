//! `warpsmith inspect`.

use comfy_table::Cell;
use cuda_builder::{Arch, ptxas};
use serde_json::{Value, json};

use super::{Outcome, Ui, ui};
use crate::check::registry;
use crate::check::verify::Status;
use crate::check::verify::offline::{self, KernelRow};
use crate::runtime::error::{Error, Result};
use crate::runtime::kernels::{self, KernelImage};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The operator
    op: String,
    /// Only the code that a GPU of this architecture runs, such as sm_90a
    #[arg(long)]
    arch: Option<String>,
    /// Only kernels whose names contain this
    #[arg(long, value_name = "TEXT")]
    kernel: Option<String>,
    /// Print the PTX as well
    #[arg(long)]
    ptx: bool,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let op = registry::find(&args.op)?;
    let info = op.info();
    let ptxas = ptxas::find();
    let mut images: Vec<&'static KernelImage> = Vec::new();
    for kernel in info.instances() {
        images.extend(kernels::images_of(kernel)?);
    }
    let arch = args.arch.as_deref().map(|name| arch(info.name, name)).transpose()?;
    let runs = |symbol: &str, arch: Arch| {
        images.iter().filter(|i| i.symbol == symbol && i.arch <= arch).map(|i| i.arch).max().map(Arch::as_str)
    };
    let wanted = |r: &KernelRow| {
        args.kernel.as_deref().is_none_or(|k| r.symbol.contains(k))
            && arch.is_none_or(|arch| runs(r.symbol, arch) == Some(r.arch))
    };
    let rows: Vec<_> = offline::kernels(info, ptxas.as_ref())?.into_iter().filter(wanted).collect();
    if rows.is_empty() {
        let all = images.iter().map(|i| format!("{} {}", i.symbol, i.arch));
        let asked = [args.kernel.as_deref(), args.arch.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
        return Err(Error::param(info.name, "kernel", asked, all.collect::<Vec<_>>().join(", ")));
    }
    let image = |r: &KernelRow| -> Option<&'static KernelImage> {
        images.iter().copied().find(|i| i.symbol == r.symbol && i.arch.as_str() == r.arch)
    };
    // The archive may know what ptxas has said, or ptxas be asked now.
    let assembled = ptxas.is_some() || rows.iter().all(|r| r.registers.is_some());
    let document = |r: &KernelRow| {
        let mut row = serde_json::to_value(r).unwrap_or_default();
        if let (Value::Object(row), Some(image)) = (&mut row, image(r)) {
            row.insert("module".to_owned(), json!(image.module));
            row.insert("block".to_owned(), json!(image.block));
            row.insert("cluster".to_owned(), json!(image.cluster));
            row.insert("param_bytes".to_owned(), json!(image.param_sizes));
            if args.ptx {
                row.insert("ptx".to_owned(), json!(image.ptx().ok()));
            }
        }
        row
    };
    ui.document(&json!({
        "op": info.name, "assembled": assembled, "kernels": rows.iter().map(document).collect::<Vec<_>>(),
    }));
    let cells = |r: &KernelRow| {
        let extents = |e: Option<[u32; 3]>| Cell::new(e.map_or("-".to_owned(), |[x, y, z]| format!("{x}x{y}x{z}")));
        vec![
            Cell::new(r.symbol),
            Cell::new(r.arch),
            extents(image(r).map(|i| i.block)),
            extents(image(r).map(|i| i.cluster)),
            Cell::new(r.shared_bytes),
            ui::count(r.registers),
            ui::count(r.stack),
            ui::count(r.spills),
            ui::status(r.status),
        ]
    };
    let headings =
        ["kernel", "arch", ">block", ">cluster", ">shared bytes", ">registers", ">stack", ">spilled", "result"];
    ui.table(&headings, rows.iter().map(cells).collect());
    ui::broken_kernels(&rows, ui);
    if !assembled {
        ui.note(
            "ptxas was not found: registers, stack and spills are not known (`warpsmith doctor` says how to get it)",
        );
    }
    if args.ptx {
        for image in rows.iter().filter_map(image) {
            ui.line(format!("\n// {} for {}\n{}", image.symbol, image.arch, image.ptx()?));
        }
    }
    Ok(Outcome::of(rows.iter().all(|r| r.status != Status::Fail)))
}

fn arch(op: &str, name: &str) -> Result<Arch> {
    let all = || Arch::ALL.map(Arch::as_str).join(", ");
    Arch::from_name(name).ok_or_else(|| Error::param(op, "arch", name, all()))
}
