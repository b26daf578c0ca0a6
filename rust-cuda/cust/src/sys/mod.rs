//! The driver's own functions, under its own names: a table that is filled when the library is loaded, on first use.
//!
//! The rest of the crate is built on it. A function that the loaded driver lacks is `None`.

mod functions;
mod load;

use std::ffi::{c_int, c_void};

pub use functions::Driver;
pub use load::{LoadError, driver};

/// Names the library to load, for drivers in unusual places and for tests.
pub const LIBRARY_VARIABLE: &str = "WARPSMITH_LIBCUDA";

/// Result of a driver function; 0 is success. A number, not an enum: newer drivers return values that older headers lack.
pub type CUresult = u32;
/// Device ordinal.
pub type CUdevice = c_int;
/// Device address.
pub type CUdeviceptr = u64;
/// Context handle.
pub type CUcontext = *mut c_void;
/// Library handle.
pub type CUlibrary = *mut c_void;
/// Module handle.
pub type CUmodule = *mut c_void;
/// Kernel handle.
pub type CUfunction = *mut c_void;
/// Stream handle.
pub type CUstream = *mut c_void;
/// Event handle.
pub type CUevent = *mut c_void;
/// Memory pool handle.
pub type CUmemoryPool = *mut c_void;
/// Graph handle.
pub type CUgraph = *mut c_void;
/// Handle of a graph that is ready to run.
pub type CUgraphExec = *mut c_void;

/// Grid, block and attributes of a launch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the driver's names")]
pub struct CUlaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: CUstream,
    pub attributes: *const CUlaunchAttribute,
    pub count: u32,
}

/// One attribute of a launch: its kind, and the union of all kinds' values.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "the driver's names")]
pub struct CUlaunchAttribute {
    pub id: u32,
    pub padding: u32,
    pub value: [u32; 16],
}

/// What a memory pool allocates, and where.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the driver's names")]
pub struct CUmemPoolProps {
    pub allocation_type: u32,
    pub handle_types: u32,
    pub location_type: u32,
    pub location: c_int,
    pub security_attributes: *mut c_void,
    pub max_bytes: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

// The driver reads these by cuda.h's layout.
const _: () = assert!(size_of::<CUlaunchConfig>() == 56 && size_of::<CUlaunchAttribute>() == 72);
const _: () = assert!(size_of::<CUmemPoolProps>() == 88);

/// A driver's handle. It belongs to the process: any thread may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) *mut c_void);

// SAFETY: the driver's functions may be called with it from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}
