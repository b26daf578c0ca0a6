//! What runs kernels. Only this folder knows a driver or the simulator.

mod cuda;
pub(crate) mod sim;

/// Kernels' times from the library for profilers, where there is one.
pub(crate) use cuda::cupti;
/// Ranges for a profiler that watches the program.
pub(crate) use cuda::nvtx;

/// Whether this process has opened a GPU.
pub(crate) fn gpu_was_opened() -> bool {
    cuda::was_opened()
}

use std::ffi::c_void;
use std::fmt;
use std::ptr::null_mut;

use crate::runtime::error::{Error, Result};
use crate::runtime::info::{BackendKind, DeviceInfo};
use crate::runtime::kernels::KernelImage;
use crate::runtime::tensor_map::TensorMapDesc;
use cuda_std::launch::TensorMap;
use sim::{SMALL, SimBackend};

/// A backend's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawStream(pub(crate) usize);

/// A backend's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawEvent(pub(crate) usize);

/// A backend's loaded kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawFunction(pub(crate) usize);

/// A failed call, before the device adds what it knows.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No memory left.
    OutOfMemory,
    /// A kernel failed; nothing works from here on.
    Fault { code: u32, name: String },
    /// Anything else.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

pub(crate) type Outcome<T> = std::result::Result<T, Failure>;

/// One kernel launch; the arguments are each parameter's bytes.
pub(crate) struct Launch<'a> {
    pub(crate) function: RawFunction,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    /// It may start before what is ahead in the stream has ended: it waits for that itself.
    pub(crate) programmatic: bool,
    /// Its blocks wait for each other: all of them are on the device at once.
    pub(crate) cooperative: bool,
    pub(crate) stream: RawStream,
    pub(crate) args: &'a [&'a [u8]],
}

/// Copies between pinned memory of the host and a device, in seconds.
#[cfg(feature = "check")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bus {
    /// To the device, between two events.
    pub(crate) to_device: f64,
    /// From it.
    pub(crate) to_host: f64,
    /// There and back, by the host's clock, which waits for it.
    pub(crate) there_and_back: f64,
}

/// A machine that runs kernels: streams, memory, launches. Every call may come from any thread.
///
/// # Safety
/// Implementations may assume that handles and addresses come from the same backend and are still alive, that memory ranges are
/// inside their allocations, and that `Launch::args` fit the kernel.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    fn info(&self) -> &DeviceInfo;
    /// Free and total bytes.
    fn memory(&self) -> Outcome<(u64, u64)>;

    /// The bytes that are allocated, and the most that were at a time since the last `reset_peak`.
    fn allocated(&self) -> Outcome<(u64, u64)>;
    fn reset_peak(&self) -> Outcome<()>;
    fn alloc(&self, stream: RawStream, bytes: usize) -> Outcome<u64>;
    unsafe fn free(&self, stream: RawStream, address: u64) -> Outcome<()>;
    /// What messages call the allocation that starts there.
    fn name(&self, _address: u64, _name: &str) {}
    /// The contents are unspecified from here on: a backend that checks reads counts these bytes as never written.
    unsafe fn forget(&self, _stream: RawStream, _address: u64, _bytes: usize) -> Outcome<()> {
        Ok(())
    }
    /// `src` has been read when this returns; the device may still be writing.
    unsafe fn upload(&self, stream: RawStream, dst: u64, src: &[u8]) -> Outcome<()>;
    /// Waits for the data.
    unsafe fn download(&self, stream: RawStream, dst: &mut [u8], src: u64) -> Outcome<()>;
    unsafe fn copy(&self, stream: RawStream, dst: u64, src: u64, bytes: usize) -> Outcome<()>;
    /// `pattern` of 1, 2 or 4 bytes.
    unsafe fn fill(&self, stream: RawStream, dst: u64, pattern: &[u8], count: usize) -> Outcome<()>;

    /// Streams live until the backend is closed.
    fn create_stream(&self) -> Outcome<RawStream>;
    fn synchronize(&self, stream: RawStream) -> Outcome<()>;
    fn create_event(&self, timed: bool) -> Outcome<RawEvent>;
    fn destroy_event(&self, event: RawEvent);
    fn record(&self, event: RawEvent, stream: RawStream) -> Outcome<()>;
    /// Waits for the event as it was recorded last; recording it again changes nothing.
    fn wait(&self, stream: RawStream, event: RawEvent) -> Outcome<()>;
    fn synchronize_event(&self, event: RawEvent) -> Outcome<()>;
    fn is_done(&self, event: RawEvent) -> Outcome<bool>;
    fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Outcome<f32>;

    fn load(&self, image: &KernelImage) -> Outcome<RawFunction>;
    /// How many blocks of this size the device holds at once.
    fn blocks_at_once(&self, function: RawFunction, image: &KernelImage, block: [u32; 3]) -> Outcome<u32>;
    /// How many clusters of the kernel, which has some, the device holds at once.
    fn clusters_at_once(&self, function: RawFunction, image: &KernelImage) -> Outcome<u32>;
    unsafe fn launch(&self, launch: &Launch<'_>) -> Outcome<()>;
    fn tensor_map(&self, desc: &TensorMapDesc<'_>) -> Outcome<TensorMap>;

    /// How long copies of so many bytes take to that address and back; nothing where host and device are one.
    #[cfg(feature = "check")]
    unsafe fn time_bus(&self, _stream: RawStream, _address: u64, _bytes: usize) -> Outcome<Option<Bus>> {
        Ok(None)
    }

    /// The driver's own stream, its context being current on this thread: what other libraries queue on. Null is none: there is no driver.
    fn driver_stream(&self, _stream: RawStream) -> Outcome<*mut c_void> {
        Ok(null_mut())
    }

    /// This backend, if it is the simulator.
    fn simulator(&self) -> Option<&SimBackend> {
        None
    }

    /// Waits for all work, then releases everything; nothing is called after it. Not called once a fault was seen.
    fn close(&mut self) -> Outcome<()>;
}

/// How many devices a backend has.
pub(crate) fn count(kind: BackendKind) -> Result<usize> {
    match kind {
        BackendKind::Cuda => match cuda::CudaBackend::count() {
            Err(Error::NoDriver { .. } | Error::NoGpu { .. }) => Ok(0),
            count => count,
        },
        BackendKind::Sim => sim::device_count(),
    }
}

/// Opens a device of a backend.
pub(crate) fn open(kind: BackendKind, ordinal: usize) -> Result<Box<dyn Backend>> {
    match kind {
        BackendKind::Cuda => Ok(Box::new(cuda::CudaBackend::open(ordinal)?)),
        BackendKind::Sim => match sim::device_count()? {
            count if ordinal >= count => Err(no_such_device(kind, ordinal, count)),
            _ => Ok(Box::new(SimBackend::open(SMALL)?)),
        },
    }
}

fn no_such_device(kind: BackendKind, ordinal: usize, count: usize) -> Error {
    let expected = match count {
        0 => format!("a {kind} device, of which there are none"),
        _ => format!("below {count}, the number of {kind} devices"),
    };
    Error::param("device", "ordinal", ordinal, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_are_not_there_are_counted() {
        let said = |ordinal, count| no_such_device(BackendKind::Sim, ordinal, count).to_string();
        assert_eq!(said(3, 2), "device: parameter `ordinal` = 3: expected below 2, the number of sim devices");
        assert_eq!(said(0, 0), "device: parameter `ordinal` = 0: expected a sim device, of which there are none");
    }
}
