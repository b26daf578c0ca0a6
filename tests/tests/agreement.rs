//! The simulator computes what the GPU computes: every operator on the same inputs through both, output against output.
//!
//! Both may be off the exact result by the operator's tolerance, each to its own side: a sum that lies near the middle of two bf16
//! rounds to either. Needs a GPU; without one the tests show as ignored.

use libtest_mimic::{Arguments, Failed, Trial};
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::{self, Filter};
use warpsmith::check::{Job, Operands, random};
use warpsmith::ops::model::CaseClass;
use warpsmith::{BackendKind, Device, HostTensor, Result};

const SEED: u64 = 1;

fn main() {
    let arguments = Arguments::from_args();
    let gpu = Device::open_backend(BackendKind::Cuda).ok();
    let filter = Filter {
        classes: vec![CaseClass::Odd, CaseClass::Tiny, CaseClass::Boundary, CaseClass::Empty],
        ..Filter::default()
    };
    let jobs = verify::plan("verify", OPERATORS, &filter).expect("the registry has cases");
    let trials = jobs.into_iter().filter(|job| !job.case.huge).map(|job| {
        let gpu = gpu.clone();
        let ignored = gpu.is_none();
        Trial::test(job.to_string(), move || gpu.map_or(Ok(()), |gpu| agree(&gpu, &job))).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn agree(gpu: &Device, job: &Job) -> Result<(), Failed> {
    let simulator = Device::open_backend(BackendKind::Sim)?;
    let inputs = random::inputs(job.op, &job.case, SEED)?;
    let named: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let on_gpu = outputs(gpu, job, &named)?;
    let simulated = outputs(&simulator, job, &named)?;
    for ((output, real), (_, simulated)) in on_gpu.iter().zip(&simulated) {
        let tolerance = job.op.tolerance(&job.case, output)?;
        let pairs = real.to_f64().into_iter().zip(simulated.to_f64());
        let apart = |(real, simulated): &(f64, f64)| {
            let same = real == simulated || (real.is_nan() && simulated.is_nan());
            let near = (real - simulated).abs() <= 2.0 * (tolerance.abs + tolerance.rel * real.abs());
            !same && !near
        };
        if let Some((at, (real, simulated))) = pairs.enumerate().find(|(_, pair)| apart(pair)) {
            return Err(format!("output {output}, element {at}: {real:e} on the GPU, {simulated:e} simulated").into());
        }
    }
    Ok(())
}

/// What the operator writes on `device`.
fn outputs(device: &Device, job: &Job, inputs: &[(&str, &HostTensor)]) -> Result<Vec<(&'static str, HostTensor)>> {
    let stream = device.stream()?;
    let mut operands = Operands::new(&stream, job.op, inputs, &job.case.params)?;
    operands.launch(&stream, job.op, &job.case.params)?;
    operands.outputs(&stream)
}
