//! Loading the driver, and typed access to the functions that `cust` has no safe or sound form of.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::LIBRARY_VARIABLE;
use crate::error::LoadError;
use crate::trampoline::{SLOTS, keep_entry_points, not_supported};

/// Result of a driver function; 0 is success. A number, not an enum: newer drivers return values that older headers lack.
pub type CUresult = u32;
/// Device ordinal.
pub type CUdevice = c_int;
/// Device address.
pub type CUdeviceptr = u64;
/// Context handle.
pub type CUcontext = *mut c_void;
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

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        /// The loaded driver. Functions it lacks return `CUDA_ERROR_NOT_SUPPORTED`.
        #[allow(non_snake_case, missing_docs, reason = "the driver's names")]
        pub struct Driver {
            library: Library,
            path: String,
            version: u32,
            $(pub $name: unsafe extern "C" fn($($arg: $ty),*) -> CUresult,)*
        }

        impl Driver {
            #[allow(non_snake_case, reason = "the driver's names")]
            fn new(library: Library, path: String) -> Self {
                $(
                    let found = address(&library, concat!(stringify!($name), "\0").as_bytes());
                    // SAFETY: the signatures are those of cuda.h; `not_supported` ignores its arguments.
                    let $name = unsafe {
                        std::mem::transmute::<*mut (), unsafe extern "C" fn($($arg: $ty),*) -> CUresult>(found)
                    };
                )*
                let mut driver = Self { library, path, version: 0, $($name,)* };
                let mut version = 0;
                // SAFETY: the pointer is to a live integer. May be called before cuInit.
                if unsafe { (driver.cuDriverGetVersion)(&mut version) } == 0 {
                    driver.version = version.max(0) as u32;
                }
                driver
            }
        }
    };
}

#[rustfmt::skip]
functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuGetErrorName(error: CUresult, name: *mut *const c_char);
    cuGetErrorString(error: CUresult, text: *mut *const c_char);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxSynchronize();
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    cuMemPoolTrimTo(pool: CUmemoryPool, bytes_to_keep: usize);
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost(address: *mut c_void);
    cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    cuMemsetD32Async(dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleUnload(module: CUmodule);
    cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int);
    cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void
    );
    cuTensorMapEncodeTiled(
        map: *mut c_void, data_type: c_uint, rank: c_uint, address: *mut c_void, dims: *const u64, strides: *const u64,
        box_dims: *const u32, element_strides: *const u32, interleave: c_uint, swizzle: c_uint, l2_promotion: c_uint, oob_fill: c_uint
    );
}

// SAFETY: function addresses and a library handle that is never closed.
unsafe impl Send for Driver {}
// SAFETY: as above; the driver's functions may be called from any thread.
unsafe impl Sync for Driver {}

impl Driver {
    /// The newest CUDA version it supports, as 1000 × major + 10 × minor; 0 if it does not say.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Any other function, or null.
    pub fn symbol(&self, name: &CStr) -> *mut () {
        find(&self.library, name.to_bytes_with_nul())
    }

    /// The name of an error code, such as `CUDA_ERROR_INVALID_VALUE`.
    pub fn error_name(&self, code: CUresult) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a live pointer.
        let result = unsafe { (self.cuGetErrorName)(code, &mut name) };
        if result != 0 || name.is_null() {
            return format!("CUDA error {code}");
        }
        // SAFETY: the driver returned a static C string.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

/// The driver, loaded on first use and kept for the life of the process.
pub fn driver() -> Result<&'static Driver, &'static LoadError> {
    static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
    DRIVER.get_or_init(load).as_ref()
}

fn load() -> Result<Driver, LoadError> {
    keep_entry_points();
    let candidates = match std::env::var(LIBRARY_VARIABLE) {
        Ok(path) if !path.is_empty() => vec![path],
        // Beyond the linker's own search: WSL, and NixOS.
        _ => ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "/run/opengl-driver/lib/libcuda.so.1"]
            .map(String::from)
            .to_vec(),
    };
    let mut tried = Vec::new();
    for path in candidates {
        // SAFETY: loading a driver runs its initialisers, which is what it is asked for.
        match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) if find(&library, b"cuInit\0").is_null() => {
                tried.push((path, "has no cuInit: not a CUDA driver".into()));
            }
            Ok(library) => {
                for slot in SLOTS {
                    slot.point_to(address(&library, slot.name().to_bytes_with_nul()));
                }
                return Ok(Driver::new(library, path));
            }
            Err(error) => tried.push((path, error.to_string())),
        }
    }
    Err(LoadError { tried })
}

fn find(library: &Library, name: &[u8]) -> *mut () {
    // SAFETY: only the address is taken here; its users state the type.
    match unsafe { library.get::<*mut ()>(name) } {
        Ok(symbol) => *symbol,
        Err(_) => std::ptr::null_mut(),
    }
}

/// A function's address; `name` ends in NUL.
fn address(library: &Library, name: &[u8]) -> *mut () {
    let found = find(library, name);
    if found.is_null() { not_supported as *mut () } else { found }
}
