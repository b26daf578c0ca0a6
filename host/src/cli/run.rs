//! `warpsmith run`.

use std::path::PathBuf;

use comfy_table::Cell;
use serde_json::json;

use super::{BackendArg, Outcome, Ui};
use crate::check::{io, registry};
use crate::ops::model::params::Params;
use crate::ops::model::{ArgInfo, TensorMeta};
use crate::runtime::any::AnyTensor;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The operator
    op: String,
    /// A safetensors file with a tensor for each input, by its name
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// The safetensors file to write the outputs to
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
    let params = args.set.iter().try_fold(Params::new(info), |params, text| params.with_text(text))?;
    let inputs = io::read(&args.input, info.inputs)?;
    let meta = |(arg, tensor): (&ArgInfo, &HostTensor)| TensorMeta {
        name: arg.name.to_owned(),
        dtype: tensor.dtype(),
        shape: tensor.shape().to_vec(),
    };
    let metas: Vec<_> = info.inputs.iter().zip(&inputs).map(meta).collect();
    let outputs = op.outputs(&metas, &params)?;

    let device = args.backend.open()?;
    let stream = device.stream()?;
    let inputs = inputs.iter().map(|t| AnyTensor::from_host(&stream, t)).collect::<Result<Vec<_>>>()?;
    let make = |meta: &TensorMeta| AnyTensor::uninit(&stream, meta.dtype, &meta.shape);
    let mut tensors = outputs.iter().map(make).collect::<Result<Vec<_>>>()?;
    let start = stream.record()?;
    {
        let inputs: Vec<_> = inputs.iter().map(AnyTensor::view).collect();
        let mut outputs: Vec<_> = tensors.iter_mut().map(AnyTensor::view_mut).collect();
        op.launch(&stream, &inputs, &mut outputs, &params)?;
    }
    let end = stream.record()?;
    end.synchronize()?;
    let ms = start.elapsed_ms(&end)?;
    let named = outputs.iter().zip(&tensors).map(|(meta, tensor)| Ok((meta.name.as_str(), tensor.to_host(&stream)?)));
    io::write(&args.output, &named.collect::<Result<Vec<_>>>()?)?;

    let describe = |m: &TensorMeta| json!({ "name": m.name, "dtype": m.dtype.name(), "shape": m.shape });
    ui.document(&json!({
        "op": info.name,
        "device": device.info().name,
        "inputs": metas.iter().map(describe).collect::<Vec<_>>(),
        "outputs": outputs.iter().map(describe).collect::<Vec<_>>(),
        "ms": ms,
        "file": args.output.display().to_string(),
    }));
    let row = |what: &str, m: &TensorMeta| {
        vec![Cell::new(what), Cell::new(&m.name), Cell::new(m.dtype), Cell::new(format!("{:?}", m.shape))]
    };
    let rows = metas.iter().map(|m| row("input", m)).chain(outputs.iter().map(|m| row("output", m)));
    ui.table(&["", "tensor", "dtype", "shape"], rows.collect());
    ui.line(format!("{} took {ms:.3} ms on {}; wrote {}", info.name, device.info().name, args.output.display()));
    Ok(Outcome::Ok)
}
