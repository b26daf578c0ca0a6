#![doc = include_str!("../README.md")]

#[macro_use]
mod macros;

pub mod context;
pub mod cupti;
pub mod device;
pub mod error;
pub mod event;
pub mod function;
pub mod graph;
mod loaded;
pub mod memory;
pub mod module;
pub mod nvtx;
pub mod prelude;
pub mod stream;
pub mod sys;
pub mod tensor_map;

use context::Context;
use device::Device;
use error::CudaResult;

flags! {
    /// Flags of the driver's initialisation. None exist so far.
    CudaFlags {}
}

/// Initialises the driver, and loads it if it is not loaded yet. May be called more than once.
///
/// Everything except [`CudaApiVersion::get`] and [`sys::driver`] fails before this call.
pub fn init(flags: CudaFlags) -> CudaResult<()> {
    // SAFETY: the driver checks the flags.
    unsafe { call!(cuInit(flags.bits())) }
}

/// Initialises the driver and makes the primary context of the first device current.
#[must_use = "the context ends when the last handle of it is dropped"]
pub fn quick_init() -> CudaResult<Context> {
    init(CudaFlags::empty())?;
    Context::new(Device::get_device(0)?)
}

/// A version of CUDA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaApiVersion(i32);

impl CudaApiVersion {
    /// The newest version that the driver supports. Works before [`init`].
    pub fn get() -> CudaResult<Self> {
        let mut version = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { call!(cuDriverGetVersion(&mut version)) }?;
        Ok(Self(version))
    }

    /// The 12 of 12.8.
    pub const fn major(self) -> i32 {
        self.0 / 1000
    }

    /// The 8 of 12.8.
    pub const fn minor(self) -> i32 {
        self.0 % 1000 / 10
    }

    /// The driver's number: 1000 × major + 10 × minor.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}
