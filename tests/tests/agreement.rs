//! The simulator computes what the GPU computes: every operator on the same inputs through both, output against output.
//!
//! Both may be off the exact result by the operator's tolerance, each to its own side: a sum that lies near the middle of two bf16
//! rounds to either. Needs a GPU; without one the tests show as ignored.

use libtest_mimic::{Arguments, Failed, Trial};
use warpsmith::check::random;
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::{self, Filter, Job};
use warpsmith::ops::model::{CaseClass, InputSpec};
use warpsmith::{AnyTensor, AnyView, AnyViewMut, BackendKind, Device, HostTensor, Result};

const SEED: u64 = 1;

fn main() {
    let arguments = Arguments::from_args();
    let gpu = Device::open_backend(BackendKind::Cuda).ok();
    let filter = Filter {
        classes: vec![CaseClass::Odd, CaseClass::Tiny, CaseClass::Boundary, CaseClass::Empty],
        ..Filter::default()
    };
    let jobs = verify::plan(OPERATORS, &filter).expect("the registry has cases");
    let trials = jobs.into_iter().filter(|job| !job.case.huge).map(|job| {
        let gpu = gpu.clone();
        let ignored = gpu.is_none();
        Trial::test(job.to_string(), move || gpu.map_or(Ok(()), |gpu| agree(&gpu, &job))).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn agree(gpu: &Device, job: &Job) -> Result<(), Failed> {
    let simulator = Device::open_backend(BackendKind::Sim)?;
    let specs = job.op.inputs(&job.case)?;
    let inputs = specs.iter().map(|spec| random::tensor(spec, SEED)).collect::<Result<Vec<_>>>()?;
    let on_gpu = outputs(gpu, job, &specs, &inputs)?;
    let simulated = outputs(&simulator, job, &specs, &inputs)?;
    let tolerance = job.op.tolerance(&job.case)?;
    for (output, (real, simulated)) in on_gpu.iter().zip(&simulated).enumerate() {
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
fn outputs(device: &Device, job: &Job, specs: &[InputSpec], inputs: &[HostTensor]) -> Result<Vec<HostTensor>> {
    let stream = device.stream()?;
    let metas: Vec<_> = specs.iter().map(InputSpec::meta).collect();
    let wanted = job.op.outputs(&metas, &job.case.params)?;
    let inputs = inputs.iter().map(|x| AnyTensor::from_host(&stream, x)).collect::<Result<Vec<_>>>()?;
    let mut written =
        wanted.iter().map(|y| AnyTensor::zeros(&stream, y.dtype, &y.shape)).collect::<Result<Vec<_>>>()?;
    let views: Vec<AnyView<'_>> = inputs.iter().map(AnyTensor::view).collect();
    let mut views_mut: Vec<AnyViewMut<'_>> = written.iter_mut().map(AnyTensor::view_mut).collect();
    job.op.launch(&stream, &views, &mut views_mut, &job.case.params)?;
    drop(views_mut);
    written.iter().map(|y| y.to_host(&stream)).collect()
}
