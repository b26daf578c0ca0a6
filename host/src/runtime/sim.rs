//! The simulator: the backend of machines without a GPU. It executes the same PTX that a GPU gets, on the CPU, and checks every
//! access: out of bounds or misaligned (always), never written, racing, at an address that overflowed 32 bits, misused barriers.
//!
//! A launch with findings is an [`Error::Findings`](crate::Error::Findings). It leaves the device usable. With [a seed](Settings::seed) streams run lazily, as
//! on a GPU: then the error comes from a later call on the stream, or on one that waits for it, and at the latest from the one that
//! waits for the work.

pub use crate::runtime::backend::sim::{AsyncCompletion, GpuModel, HotLine, Occupancy, Profile, Settings};
pub use crate::runtime::error::Finding;

use crate::runtime::backend::sim::{self, SimBackend};
use crate::runtime::device::Device;
use crate::runtime::error::Result;

/// What only a simulated [`Device`] can do, from [`Device::simulator`](crate::Device::simulator).
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
        self.with_kernels(&[(symbol, ptx)], body)
    }

    /// As [`with_kernel`](Self::with_kernel), for several kernels: symbols and PTX.
    pub fn with_kernels<T>(&self, kernels: &[(&'static str, impl AsRef<str>)], body: impl FnOnce() -> T) -> Result<T> {
        sim::with_kernels(kernels, body)
    }

    /// Runs `body`, in which no stream of this thread waits for another: a mistake to plant. With a seed, its reads are then stale.
    pub fn unordered<T>(&self, body: impl FnOnce() -> T) -> T {
        sim::unordered(body)
    }

    /// Runs `body` and counts what the kernels do that it launches on this thread.
    pub fn profile<T>(&self, body: impl FnOnce() -> T) -> (T, Vec<Profile>) {
        self.0.measured(body)
    }

    /// Runs `body` and counts the warp instructions of each launch on this thread: the kernels' symbols, in order. A profile says
    /// more and takes longer.
    pub fn count<T>(&self, body: impl FnOnce() -> T) -> (T, Vec<(&'static str, u64)>) {
        self.0.counted(body)
    }
}

/// A simulated device that stands for a GPU. Each call makes another; the one that [`Device::open_backend`] shares stands for none and
/// has few multiprocessors, so that kernels which fill a device take several turns on small problems.
pub fn open(model: &GpuModel) -> Result<Device> {
    Ok(Device::unshared(SimBackend::open(model.limits())?))
}

/// A simulated device like the one that [`Device::open_backend`] shares, which nobody else has: a device simulates one launch at a
/// time, two devices simulate two.
pub fn unshared() -> Result<Device> {
    Ok(Device::unshared(SimBackend::open(sim::SMALL)?))
}
