//! Finding a driver and a GPU that the kernels run on.

use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cust::context::Context;
use cust::device::{Device, DeviceAttribute};
use cust::error::ErrorCode;
use cust::memory::MemoryPool;
use cust::{CudaApiVersion, CudaFlags};

use super::code::opening;
use super::staging::Staging;
use super::{CudaBackend, Owned};
use crate::runtime::backend::no_such_device;
use crate::runtime::environment::variable;
use crate::runtime::error::{CudaVersion, Error, Result};
use crate::runtime::info::{BackendKind, DeviceInfo};
use crate::runtime::kernels::Arch;

/// Tensor maps came with it.
const OLDEST_DRIVER: CudaVersion = CudaVersion(12_000);

static OPENED: AtomicBool = AtomicBool::new(false);

/// Whether this process has opened a GPU.
pub(in crate::runtime::backend) fn was_opened() -> bool {
    OPENED.load(Ordering::Relaxed)
}

impl CudaBackend {
    /// GPUs that this process sees.
    pub(crate) fn count() -> Result<usize> {
        init(version()?)
    }

    /// Opens the GPU with this number, counted from 0.
    pub(crate) fn open(ordinal: usize) -> Result<Self> {
        // Asked before cuInit, so that a driver too old for the GPU says so as well.
        let version = version()?;
        if let Some(found) = version.filter(|version| *version < OLDEST_DRIVER) {
            return Err(Error::DriverTooOld { found, needed: OLDEST_DRIVER });
        }
        let count = init(version)?;
        if ordinal >= count {
            return Err(no_such_device(BackendKind::Cuda, ordinal, count));
        }
        let device = Device::get_device(ordinal as u32).map_err(opening)?;
        let info = describe(device, version.unwrap_or(CudaVersion(0)))?;
        let Some(best) = Arch::of_device(info.compute_capability).first() else {
            return Err(Error::UnsupportedDevice { name: info.name, compute_capability: info.compute_capability });
        };
        let needed = CudaVersion::of_ptx(best.ptx_version());
        if let Some(found) = version.filter(|version| *version < needed) {
            return Err(Error::DriverTooOld { found, needed });
        }
        let context = Context::new(device).map_err(opening)?;
        OPENED.store(true, Ordering::Relaxed);
        let owned = Owned {
            functions: Mutex::default(),
            streams: Mutex::default(),
            staging: Staging::default(),
            pool: pool(device),
            context,
        };
        Ok(Self { info, owned: ManuallyDrop::new(owned) })
    }
}

/// The newest CUDA version that the driver supports, if it says.
fn version() -> Result<Option<CudaVersion>> {
    cust::sys::driver().map_err(|error| no_driver(error.to_string()))?;
    let version = CudaApiVersion::get().map_or(0, |version| version.as_raw().max(0) as u32);
    Ok((version != 0).then_some(CudaVersion(version)))
}

/// Without a driver there is no GPU, but one that is named is meant to be used.
fn no_driver(looked_for: String) -> Error {
    let name = cust::sys::LIBRARY_VARIABLE;
    match variable(name) {
        Some(_) => Error::NamedDriver { variable: name, looked_for },
        None => Error::NoDriver { looked_for },
    }
}

/// The number of GPUs, of which there is one at least.
fn init(version: Option<CudaVersion>) -> Result<usize> {
    let no_gpu = || Error::NoGpu { version, visible: std::env::var("CUDA_VISIBLE_DEVICES").ok() };
    match cust::init(CudaFlags::empty()).and_then(|()| Device::num_devices()) {
        Ok(0) => Err(no_gpu()),
        Ok(count) => Ok(count as usize),
        Err(error) => Err(match error.code() {
            ErrorCode::NO_DEVICE => no_gpu(),
            ErrorCode::STUB_LIBRARY => {
                let path = cust::sys::driver().map_or("the library", |driver| driver.path());
                no_driver(format!("{path} is the CUDA toolkit's stub"))
            }
            _ => opening(error),
        }),
    }
}

fn describe(device: Device, driver_version: CudaVersion) -> Result<DeviceInfo> {
    use DeviceAttribute as A;
    let attribute = |attribute| device.get_attribute(attribute).map(|value| value.max(0) as u32);
    Ok(DeviceInfo {
        name: device.name().map_err(opening)?,
        compute_capability: (
            attribute(A::ComputeCapabilityMajor).map_err(opening)?,
            attribute(A::ComputeCapabilityMinor).map_err(opening)?,
        ),
        multiprocessors: attribute(A::MultiprocessorCount).map_err(opening)?,
        memory_bytes: device.total_memory().map_err(opening)? as u64,
        l2_bytes: attribute(A::L2CacheSize).map_err(opening)?.into(),
        threads_per_multiprocessor: attribute(A::MaxThreadsPerMultiprocessor).unwrap_or(0),
        blocks_per_multiprocessor: attribute(A::MaxBlocksPerMultiprocessor).unwrap_or(0),
        registers_per_multiprocessor: attribute(A::MaxRegistersPerMultiprocessor).unwrap_or(0),
        shared_bytes_per_multiprocessor: attribute(A::MaxSharedMemoryPerMultiprocessor).unwrap_or(0),
        shared_bytes_per_block: attribute(A::MaxSharedMemoryPerBlockOptin).map_err(opening)?,
        driver_version,
        // Some drivers no longer report clocks.
        clock_khz: attribute(A::ClockRate).unwrap_or(0),
        memory_clock_khz: attribute(A::MemoryClockRate).unwrap_or(0),
        memory_bus_bits: attribute(A::GlobalMemoryBusWidth).unwrap_or(0),
        backend: BackendKind::Cuda,
    })
}

/// The default pool, told to keep what is freed; `None` where the driver has no pools (some virtual GPUs).
fn pool(device: Device) -> Option<MemoryPool> {
    let supported = device.get_attribute(DeviceAttribute::MemoryPoolsSupported).unwrap_or(0) != 0;
    let pool = MemoryPool::default_of(device).ok().filter(|_| supported)?;
    // A pool that gives memory back early is slower, not wrong.
    let _ = pool.set_release_threshold(u64::MAX);
    Some(pool)
}
