//! Runs a lesson: its runs are counted in the simulator, and timed if there is a GPU.

use super::Lesson;
use super::ladder::Ladder;
use super::results::{Count, KernelPlace, Measured, Results, Taught, Time};
use super::run::Run;
use crate::check::bench::{Prepared, Timing, copy_rate};
use crate::check::verify::offline;
use crate::check::{Operands, profile};
use crate::runtime::device::{Device, DeviceInfo};
use crate::runtime::error::Result;
use crate::runtime::sim::Profile;

/// Runs a lesson: counts come from the `simulated` device, times from the GPU that it models, if there is one.
pub fn teach(lesson: &Lesson, simulated: &Device, gpu: Option<&Device>) -> Result<Taught> {
    let plan = (lesson.plan)(simulated.info())?;
    let as_measured = gpu.map(|gpu| (lesson.plan)(&with_memory_as_measured(simulated.info(), gpu)?)).transpose()?;
    let mut runs = Vec::new();
    for (i, run) in plan.runs.iter().enumerate() {
        let expected = as_measured.as_ref().and_then(|plan| plan.runs.get(i)?.seconds);
        let time = gpu.map_or(Ok(None), |gpu| timed(run, gpu))?;
        runs.push(Measured { time, expected_ms: expected.map(|seconds| seconds * 1e3), ..counted(run, simulated)? });
    }
    let mut ladder = plan.ladder.as_ref().map(Ladder::rungs).unwrap_or_default();
    let mut facts = plan.facts;
    if let Some((gpu, measure)) = gpu.zip(plan.measured) {
        facts.extend(measure(gpu)?);
    }
    if let Some((gpu, measured)) = gpu.zip(as_measured.as_ref().and_then(|plan| plan.ladder.as_ref())) {
        facts.push(measured.climb(gpu, &mut ladder)?);
    }
    let conclusion = (plan.conclusion)(&Results { name: lesson.name, runs: &runs, ladder: &ladder })?;
    Ok(Taught {
        name: lesson.name,
        claim: lesson.claim,
        simulated: simulated.info().name.clone(),
        gpu: gpu.map(|gpu| gpu.info().name.clone()),
        facts,
        runs,
        ladder,
        conclusion,
    })
}

/// The device with the memory rate that a copy reaches, instead of the theoretical peak of the bus.
fn with_memory_as_measured(info: &DeviceInfo, gpu: &Device) -> Result<DeviceInfo> {
    let (rate, peak) = (copy_rate(gpu)?, info.peak_bandwidth());
    let clock = peak.map(|peak| f64::from(info.memory_clock_khz) * rate / peak);
    Ok(DeviceInfo { memory_clock_khz: clock.map_or(info.memory_clock_khz, |khz| khz as u32), ..info.clone() })
}

/// Launches on a GPU what is counted in the simulator, in the same order and nothing else, for a profiler.
pub fn launch_counted(lesson: &Lesson, simulated: &Device, gpu: &Device) -> Result<()> {
    let stream = gpu.stream()?;
    for part in (lesson.plan)(simulated.info())?.runs.iter().flat_map(|run| &run.counted) {
        let params = part.params()?;
        let mut operands = Operands::random(&stream, part.job.op, &part.job.case, &params, 0)?;
        operands.launch(&stream, part.job.op, &params)?;
        stream.synchronize()?;
    }
    Ok(())
}

fn counted(run: &Run, simulated: &Device) -> Result<Measured> {
    let (mut launches, mut kernels) = (Vec::new(), Vec::new());
    for part in &run.counted {
        let mut profiles = profile::profile(simulated, &part.job, &part.params()?)?;
        profile::set_registers(&mut profiles, simulated, &offline::kernels(part.job.op.info(), None)?);
        kernels.extend(profiles.iter().filter_map(|profile| place(part, profile)));
        launches.extend(profiles);
    }
    kernels.dedup();
    let mut counts: Vec<_> = run.predictions.iter().map(|prediction| Count::new(prediction, &launches)).collect();
    for observation in &run.observations {
        counts.push(Count::observed(observation, simulated)?);
    }
    let at_least_ms = run.seconds.map(|seconds| seconds * 1e3);
    let launches = launches.into_iter().map(|launch| launch.kernel).collect();
    Ok(Measured { label: run.label.clone(), kernels, launches, counts, time: None, at_least_ms, expected_ms: None })
}

/// The source of a kernel that was launched.
fn place(part: &Timing, profile: &Profile) -> Option<KernelPlace> {
    let kernel = part.job.op.info().instances().find(|kernel| kernel.symbol == profile.kernel)?;
    Some(KernelPlace { symbol: profile.kernel.clone(), file: kernel.file, lines: kernel.lines })
}

/// Times each part by itself, as `bench` does: inputs are in no cache.
fn timed(run: &Run, device: &Device) -> Result<Option<Time>> {
    let mut total = Time { ms: 0.0, min_ms: 0.0 };
    for part in &run.timed {
        let (ms, min_ms) = Prepared::new(device, part)?.time()?;
        total = Time { ms: total.ms + ms, min_ms: total.min_ms + min_ms };
    }
    Ok((!run.timed.is_empty()).then_some(total))
}
