//! `warpsmith run`.

use std::fs::File;
use std::path::{Path, PathBuf};

use comfy_table::Cell;
use serde_json::json;

use super::{BackendArg, Outcome, Ui};
use crate::check::{Operands, io, registry};
use crate::ops::model::{self, Params, TensorMeta};
use crate::runtime::error::{Error, Result, printable};
use crate::runtime::host_tensor::HostTensor;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The operator
    op: String,
    /// A safetensors file with a tensor for each input, by its name, where optional ones may be missing; `-` for standard input
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// The safetensors file to write the outputs to; with `-` they go to standard output, and the report to standard error
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// A parameter's value; `variant=NAME` forces a variant
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    backend: BackendArg,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let op = registry::find(&args.op)?;
    let info = op.info();
    if !is_stream(&args.output) {
        super::writable(&args.output)?;
    }
    let params = args.set.iter().try_fold(Params::new(info), |params, text| params.with_text(text))?;
    let source = if is_stream(&args.input) { Path::new("standard input") } else { &args.input };
    let bytes = match is_stream(&args.input) {
        true => io::bytes(&mut ui.input),
        false => File::open(source).and_then(io::bytes),
    };
    let bytes = bytes.map_err(|e| Error::file(source, format!("cannot be read: {e}")))?;
    let (inputs, ignored) = (io::parse(source, &bytes, info.inputs())?, io::ignored(&bytes, info.inputs()));
    drop(bytes);
    let meta = |(name, tensor): &(&str, HostTensor)| TensorMeta::of(name, tensor);
    let metas: Vec<_> = inputs.iter().map(meta).collect();
    model::outputs(op, &metas, &params)?;

    let device = args.backend.open()?;
    let stream = device.stream()?;
    let named: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let mut operands = Operands::new(&stream, op, &named, &params)?;
    let start = stream.record()?;
    operands.launch(&stream, op, &params)?;
    let end = stream.record()?;
    end.synchronize()?;
    let ms = start.elapsed_ms(&end)?;
    let outputs = operands.outputs(&stream)?;
    if is_stream(&args.output) {
        ui.give(&io::serialize(Path::new("standard output"), &outputs)?)?;
    } else {
        io::write(&args.output, &outputs)?;
    }
    let outputs: Vec<_> = outputs.iter().map(meta).collect();

    let describe = |m: &TensorMeta| json!({ "name": m.name, "dtype": m.dtype.name(), "shape": m.shape });
    ui.document(&json!({
        "op": info.name,
        "device": device.info().name,
        "inputs": metas.iter().map(describe).collect::<Vec<_>>(),
        "ignored": ignored,
        "outputs": outputs.iter().map(describe).collect::<Vec<_>>(),
        "ms": ms,
        "file": args.output.display().to_string(),
    }));
    let row = |what: &str, m: &TensorMeta| {
        vec![Cell::new(what), Cell::new(&m.name), Cell::new(m.dtype), Cell::new(format!("{:?}", m.shape))]
    };
    let rows = metas.iter().map(|m| row("input", m)).chain(outputs.iter().map(|m| row("output", m)));
    ui.table(&["", "tensor", "dtype", "shape"], rows.collect());
    if !ignored.is_empty() {
        // Perhaps an optional input, misspelt.
        ui.line(format!("not read, because {} has no such input: {}", info.name, printable(&ignored.join(", "))));
    }
    let output = args.output.to_string_lossy();
    ui.line(format!("{} took {ms:.3} ms on {}; wrote {}", info.name, device.info().name, printable(&output)));
    Ok(Outcome::Ok)
}

fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}
