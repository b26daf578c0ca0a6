//! The simulator: the backend of machines without a GPU. It executes the same PTX that a GPU gets, on the CPU, and checks every
//! access: out of bounds or misaligned (always), never written, racing, misused barriers.
//!
//! A launch with findings is an [`Error::Findings`]. It leaves the device usable.

pub use crate::runtime::backend::sim::{AsyncCompletion, Finding, GpuModel, HotLine, Occupancy, Profile, Settings};

use crate::check::random;
use crate::check::verify::Job;
use crate::ops::model::params::Params;
use crate::runtime::any::AnyTensor;
use crate::runtime::backend::sim::{self, SimBackend};
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};

/// What only a simulated [`Device`] can do, from [`Device::simulator`](crate::runtime::device::Device::simulator).
#[derive(Clone, Copy, Debug)]
pub struct Simulator<'a>(&'a SimBackend);

impl<'a> Simulator<'a> {
    pub(crate) fn new(backend: &'a SimBackend) -> Self {
        Self(backend)
    }

    /// How this thread's launches run.
    pub fn settings(&self) -> Settings {
        self.0.settings()
    }

    /// Runs `body`, whose launches on this thread use other settings.
    pub fn with<T>(&self, settings: Settings, body: impl FnOnce() -> T) -> T {
        sim::with_settings(settings, body)
    }

    /// Runs `body`, whose launches of one kernel on this thread execute `ptx` in its place: to try a change, or to plant a mistake.
    pub fn with_kernel<T>(&self, symbol: &'static str, ptx: &str, body: impl FnOnce() -> T) -> Result<T> {
        sim::with_kernel(symbol, ptx, body)
    }

    /// Runs `body` and counts what the kernels do that it launches on this thread.
    pub fn profile<T>(&self, body: impl FnOnce() -> T) -> (T, Vec<Profile>) {
        sim::measured(body)
    }
}

/// A simulated device that stands for a GPU. Each call makes another; the one that [`Device::open_backend`] shares stands for none and
/// has few multiprocessors, so that kernels which fill a device take several turns on small problems.
pub fn open(model: &GpuModel) -> Result<Device> {
    Ok(Device::unshared(SimBackend::open(model.limits())?))
}

/// Runs a case once on a simulated device, without checks, and counts what its kernels do.
pub fn profile(device: &Device, job: &Job, params: &Params) -> Result<Vec<Profile>> {
    let Some(simulator) = device.simulator() else {
        let reason = "only a simulation counts".to_owned();
        return Err(Error::BackendUnavailable { backend: device.info().backend.to_string(), reason });
    };
    let stream = device.stream()?;
    let specs = job.op.inputs(&job.case)?;
    let metas: Vec<_> = specs.iter().map(|spec| spec.meta()).collect();
    let make = |(i, spec)| {
        let tensor = AnyTensor::from_host(&stream, &random::tensor(spec, i)?)?;
        tensor.set_name(spec.name);
        Ok(tensor)
    };
    let inputs = (0..).zip(&specs).map(make).collect::<Result<Vec<_>>>()?;
    let outputs = job.op.outputs(&metas, params)?;
    let outputs = outputs.iter().map(|meta| AnyTensor::uninit(&stream, meta.dtype, &meta.shape));
    let mut outputs = outputs.collect::<Result<Vec<_>>>()?;
    let unchecked = Settings { init: false, race: false, sync: false, ..simulator.settings() };
    let run = || {
        let inputs: Vec<_> = inputs.iter().map(AnyTensor::view).collect();
        let mut outputs: Vec<_> = outputs.iter_mut().map(AnyTensor::view_mut).collect();
        job.op.launch(&stream, &inputs, &mut outputs, params)
    };
    let (launched, profiles) = simulator.with(unchecked, || simulator.profile(run));
    launched.map(|()| profiles)
}
