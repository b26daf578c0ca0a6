//! Kernels that know their lines of Rust. The ones that ship do not: it would take their compilation three times as long.

use cuda_builder::CudaBuilder;

use super::mutation::simulator;
use crate::ops::model::Operator;
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};

/// The device crate, where this one was built in its repository.
const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu-kernels");

/// Compiles the kernels of `ops` once more, as `device` would load them but with their lines: symbols and PTX. The instructions are
/// the same, and on the same lines of the PTX.
pub fn kernels(device: &Device, ops: &[&'static dyn Operator]) -> Result<Vec<(&'static str, String)>> {
    let failed = |error: &dyn std::fmt::Display| Error::KernelsNotBuilt { why: format!("none with lines: {error}") };
    let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
    let symbols: Vec<_> = ops.iter().flat_map(|op| op.info().instances()).map(|kernel| kernel.symbol).collect();
    let archive = folder.path().join(ptx_archive::FILE_NAME);
    let builder = CudaBuilder::new(KERNELS).only(symbols.iter().copied()).lines(true).archive(archive);
    let builder = device.archs().iter().fold(builder, |builder, arch| builder.arch(*arch));
    let built = builder.build().map_err(|error| failed(&error))?;
    let archive = ptx_archive::Archive::open(&built.archive).map_err(|error| failed(&error))?;
    let mut found = Vec::new();
    for symbol in symbols {
        let of = |arch| archive.kernels().iter().position(|kernel| kernel.symbol == symbol && kernel.arch == arch);
        if let Some(index) = device.archs().iter().find_map(|arch| of(*arch)) {
            found.push((symbol, archive.ptx(index).map_err(|error| failed(&error))?));
        }
    }
    Ok(found)
}

/// Runs `body`, in which the kernels of `ops` know their lines, so that findings and profiles name them. On a simulation only.
pub fn with<T>(device: &Device, ops: &[&'static dyn Operator], body: impl FnOnce() -> T) -> Result<T> {
    let simulator = simulator(device)?;
    simulator.with_kernels(&kernels(device, ops)?, body)
}
