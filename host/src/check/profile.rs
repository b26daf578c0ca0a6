//! Counting what an operator's kernels do, in the simulator.

use super::verify::offline::KernelRow;
use super::{Job, Operands};
use crate::ops::model::Params;
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};
use crate::runtime::sim::{Profile, Settings};

/// Runs a case once on a simulated device, without checks, and counts what its kernels do.
pub fn profile(device: &Device, job: &Job, params: &Params) -> Result<Vec<Profile>> {
    let Some(simulator) = device.simulator() else {
        let reason = "only a simulation counts".to_owned();
        return Err(Error::BackendUnavailable { backend: device.info().backend.to_string(), reason });
    };
    let stream = device.stream()?;
    let mut operands = Operands::random(&stream, job.op, &job.case, params, 0)?;
    let unchecked = Settings { init: false, race: false, sync: false, offsets: false, ..simulator.settings() };
    let run = || operands.launch(&stream, job.op, params).and_then(|()| stream.synchronize());
    let (launched, profiles) = simulator.with(unchecked, || simulator.profile(run));
    launched.map(|()| profiles)
}

/// Counts with the registers that the assembler says each kernel needs, as far as there was one.
pub fn set_registers(profiles: &mut [Profile], device: &Device, kernels: &[KernelRow]) {
    for profile in profiles {
        let of_kernel = kernels.iter().filter(|row| row.symbol == profile.kernel);
        let best = device.archs().iter().find_map(|arch| of_kernel.clone().find(|row| row.arch == arch.as_str()));
        profile.set_registers(best.and_then(|row| row.registers));
    }
}
