//! `warpsmith list`.

use comfy_table::Cell;
use serde_json::{Value, json};

use super::{Outcome, Ui};
use crate::check::registry;
use crate::ops::model::{ArgInfo, Operator, Role};
use crate::runtime::error::Result;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Operators to describe [default: a line about each]
    ops: Vec<String>,
    /// Print the documentation's table
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let ops = registry::select(&args.ops)?;
    ui.document(&json!({ "operators": ops.iter().map(|op| describe(*op)).collect::<Vec<_>>() }));
    if args.markdown {
        ui.line("| operator | computes | dtypes |\n|---|---|---|");
        for op in ops {
            let info = op.info();
            // A bar would end the cell.
            let math = info.math.replace('|', "\\|");
            ui.line(format!("| `{}` | {}: {math} | {} |", info.name, info.summary, dtypes(op)));
        }
    } else if args.ops.is_empty() {
        let row = |op: &&'static dyn Operator| {
            let info = op.info();
            let cells = [
                info.name.to_owned(),
                dtypes(*op),
                names(info.inputs()),
                names(info.outputs()),
                info.summary.to_owned(),
            ];
            cells.into_iter().map(Cell::new).collect()
        };
        ui.table(&["operator", "dtypes", "inputs", "outputs", "what"], ops.iter().map(row).collect());
    } else {
        ops.into_iter().for_each(|op| print(op, ui));
    }
    Ok(Outcome::Ok)
}

fn dtypes(op: &dyn Operator) -> String {
    op.info().dtypes.iter().map(|d| d.short_name()).collect::<Vec<_>>().join(" ")
}

fn names(args: impl Iterator<Item = &'static ArgInfo>) -> String {
    args.map(|a| a.name).collect::<Vec<_>>().join(" ")
}

fn role(arg: &ArgInfo) -> &'static str {
    match arg.role {
        Role::In => "input",
        Role::Out => "output",
        Role::InOut => "input and output",
    }
}

fn describe(op: &dyn Operator) -> Value {
    let info = op.info();
    let arg = |a: &ArgInfo| {
        let dtypes = if a.dtypes.is_empty() { info.dtypes } else { a.dtypes };
        let dtypes: Vec<_> = dtypes.iter().map(|d| d.name()).collect();
        json!({ "name": a.name, "doc": a.doc, "role": role(a), "dtypes": dtypes, "optional": a.optional })
    };
    json!({
        "name": info.name,
        "bench_name": info.bench_name,
        "summary": info.summary,
        "math": info.math,
        "dtypes": info.dtypes.iter().map(|d| d.name()).collect::<Vec<_>>(),
        "args": info.args.iter().map(arg).collect::<Vec<_>>(),
        "params": info.params.iter().map(|p| json!({
            "name": p.name, "default": p.default.to_string(), "choices": p.choices, "doc": p.doc,
        })).collect::<Vec<_>>(),
        "variants": info.variants.iter().map(|v| json!({ "name": v.name, "doc": v.doc })).collect::<Vec<_>>(),
        "kernels": info.instances().map(|k| k.symbol).collect::<Vec<_>>(),
        "cases": op.cases().iter().map(|c| json!({
            "name": c.name, "dtype": c.dtype.name(), "class": c.class.name(),
        })).collect::<Vec<_>>(),
    })
}

fn print(op: &dyn Operator, ui: &mut Ui) {
    let info = op.info();
    ui.line(format!("{}: {}\n    {}\n    dtypes: {}", info.name, info.summary, info.math, dtypes(op)));
    for arg in info.args {
        let optional = if arg.optional { "optional " } else { "" };
        ui.line(format!("    {optional}{} {}: {}", role(arg), arg.name, arg.doc));
    }
    for param in info.params {
        ui.line(format!("    parameter {}={}: {}", param.name, param.default, param.doc));
    }
    for variant in info.variants {
        ui.line(format!("    variant {}: {}", variant.name, variant.doc));
    }
    for case in op.cases() {
        ui.line(format!("    {} case {}", case.class.name(), case.name));
    }
}
