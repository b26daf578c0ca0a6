//! Finding a driver and a GPU that the kernels run on.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::Mutex;

use cust::context::Context;
use cust::device::Device;
use cust::error::CudaError;
use libcuda_loader::{CUdevice, CUmemoryPool, Driver};

use super::staging::Staging;
use super::{CudaBackend, Handle, code};
use crate::runtime::device::{BackendKind, DeviceInfo};
use crate::runtime::error::CudaVersion;
use crate::runtime::error::{Error, Result};
use crate::runtime::kernels::Arch;

/// The PTX of both architectures needs it, and tensor maps came with it.
const OLDEST_DRIVER: CudaVersion = CudaVersion(12_000);

const ATTRIBUTE_CLOCK_RATE: c_int = 13;
const ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
const ATTRIBUTE_MEMORY_CLOCK_RATE: c_int = 36;
const ATTRIBUTE_MEMORY_BUS_WIDTH: c_int = 37;
const ATTRIBUTE_L2_CACHE_SIZE: c_int = 38;
const ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
const ATTRIBUTE_SHARED_PER_BLOCK_OPTIN: c_int = 97;
const ATTRIBUTE_MEMORY_POOLS_SUPPORTED: c_int = 115;

const POOL_RELEASE_THRESHOLD: c_int = 4;

impl CudaBackend {
    pub(crate) fn open() -> Result<Self> {
        let driver = libcuda_loader::driver().map_err(|error| Error::NoDriver { looked_for: error.to_string() })?;
        let version = CudaVersion(driver.version());
        // Asked before cuInit, so that a driver too old for the GPU says so as well.
        if version != CudaVersion(0) && version < OLDEST_DRIVER {
            return Err(Error::DriverTooOld { found: version, needed: OLDEST_DRIVER });
        }
        init(driver, version)?;
        let device = Device::get_device(0).map_err(|e| cust_error("cuDeviceGet", driver, e))?;
        let ordinal = device.as_raw();
        let info = describe(driver, device, version)?;
        if Arch::of_device(info.compute_capability).is_empty() {
            return Err(Error::UnsupportedDevice { name: info.name, compute_capability: info.compute_capability });
        }
        let context = Context::new(device).map_err(|e| cust_error("cuDevicePrimaryCtxRetain", driver, e))?;
        Ok(Self {
            driver,
            info,
            context: ManuallyDrop::new(context),
            pool: pool(driver, ordinal).map(Handle),
            staging: Mutex::new(Staging::default()),
            streams: Mutex::default(),
            modules: Mutex::default(),
        })
    }
}

fn init(driver: &Driver, version: CudaVersion) -> Result<()> {
    let no_gpu = || Error::NoGpu {
        version: (version != CudaVersion(0)).then_some(version),
        visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
    };
    // SAFETY: 0 is the only flag there is.
    match unsafe { (driver.cuInit)(0) } {
        0 => {}
        code::NO_DEVICE => return Err(no_gpu()),
        code::STUB_LIBRARY => {
            return Err(Error::NoDriver { looked_for: format!("{} is the CUDA toolkit's stub", driver.path()) });
        }
        code => return Err(error("cuInit", driver, code)),
    }
    let mut count = 0;
    // SAFETY: the pointer is to a live integer.
    match unsafe { (driver.cuDeviceGetCount)(&mut count) } {
        0 if count > 0 => Ok(()),
        0 | code::NO_DEVICE => Err(no_gpu()),
        code => Err(error("cuDeviceGetCount", driver, code)),
    }
}

fn describe(driver: &Driver, device: Device, version: CudaVersion) -> Result<DeviceInfo> {
    let attribute = |attribute| -> Result<u32> { self::attribute(driver, device.as_raw(), attribute) };
    Ok(DeviceInfo {
        name: device.name().map_err(|e| cust_error("cuDeviceGetName", driver, e))?,
        compute_capability: (
            attribute(ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory_bytes: device.total_memory().map_err(|e| cust_error("cuDeviceTotalMem", driver, e))? as u64,
        l2_bytes: attribute(ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        shared_bytes_per_block: attribute(ATTRIBUTE_SHARED_PER_BLOCK_OPTIN)?,
        driver_version: version,
        // Some drivers no longer report clocks.
        clock_khz: attribute(ATTRIBUTE_CLOCK_RATE).unwrap_or(0),
        memory_clock_khz: attribute(ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0),
        memory_bus_bits: attribute(ATTRIBUTE_MEMORY_BUS_WIDTH).unwrap_or(0),
        backend: BackendKind::Cuda,
    })
}

fn attribute(driver: &Driver, device: CUdevice, attribute: c_int) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the pointer is to a live integer; the driver checks the rest.
    match unsafe { (driver.cuDeviceGetAttribute)(&mut value, attribute, device) } {
        0 => Ok(value.max(0) as u32),
        code => Err(error("cuDeviceGetAttribute", driver, code)),
    }
}

/// The default pool, told to keep what is freed; `None` where the driver has no pools (some virtual GPUs).
fn pool(driver: &Driver, device: CUdevice) -> Option<CUmemoryPool> {
    if attribute(driver, device, ATTRIBUTE_MEMORY_POOLS_SUPPORTED).unwrap_or(0) == 0 {
        return None;
    }
    let mut pool = null_mut();
    let mut keep = u64::MAX;
    // SAFETY: the pointers are to live values of the types that these calls are documented to take.
    unsafe {
        if (driver.cuDeviceGetDefaultMemPool)(&mut pool, device) != 0 {
            return None;
        }
        // A pool that gives memory back early is slower, not wrong.
        (driver.cuMemPoolSetAttribute)(pool, POOL_RELEASE_THRESHOLD, (&raw mut keep).cast());
    }
    Some(pool)
}

fn error(call: &'static str, driver: &Driver, code: u32) -> Error {
    let name = driver.error_name(code);
    // Another user of the driver in this process has lost the device.
    match code::is_fault(code) {
        true => Error::KernelFault { kernels: Vec::new(), code, name },
        false => Error::Driver { call, code, name },
    }
}

fn cust_error(call: &'static str, driver: &Driver, source: CudaError) -> Error {
    error(call, driver, source as u32)
}
