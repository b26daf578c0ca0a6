//! The table of the driver's functions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;

use libloading::Library;

use super::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUlaunchConfig, CUlibrary,
    CUmemPoolProps, CUmemoryPool, CUmodule, CUresult, CUstream,
};

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        /// The loaded driver: a function it lacks is `None`.
        #[allow(non_snake_case, missing_docs, reason = "the driver's names")]
        pub struct Driver {
            library: Library,
            path: String,
            $(pub $name: Option<unsafe extern "C" fn($($arg: $ty),*) -> CUresult>,)*
        }

        impl Driver {
            pub(super) fn new(library: Library, path: String) -> Self {
                Self {
                    // SAFETY: the signatures are those of cuda.h; the library is kept for as long as they are.
                    $($name: unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }.ok().map(|found| *found),)*
                    library,
                    path,
                }
            }
        }
    };
}

#[rustfmt::skip]
functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuGetErrorName(error: CUresult, name: *mut *const c_char);

    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, room: c_int, device: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint);

    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxGetLimit(value: *mut usize, limit: c_uint);
    cuCtxSetLimit(limit: c_uint, value: usize);
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    cuCtxSynchronize();

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost(address: *mut c_void);
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolTrimTo(pool: CUmemoryPool, bytes_to_keep: usize);

    cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize);
    cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize);
    cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
    cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize);
    cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize);
    cuMemsetD32_v2(dst: CUdeviceptr, value: c_uint, count: usize);
    cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    cuMemsetD32Async(dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);

    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint);
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    cuStreamQuery(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint);
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    cuStreamIsCapturing(stream: CUstream, status: *mut c_uint);

    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

    cuGraphDestroy(graph: CUgraph);
    cuGraphGetNodes(graph: CUgraph, nodes: *mut *mut c_void, count: *mut usize);
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    cuGraphExecDestroy(exec: CUgraphExec);
    cuGraphUpload(exec: CUgraphExec, stream: CUstream);
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream);

    cuLibraryLoadData(
        library: *mut CUlibrary, code: *const c_void, options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
        library_options: *mut c_uint, library_values: *mut *mut c_void, library_count: c_uint
    );
    cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary);
    cuLibraryUnload(library: CUlibrary);
    cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleUnload(module: CUmodule);

    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction);
    cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(count: *mut c_int, function: CUfunction, threads: c_int, shared_bytes: usize);
    cuOccupancyMaxActiveClusters(count: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);
    cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void
    );
    cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void
    );

    cuTensorMapEncodeTiled(
        map: *mut c_void, data_type: c_uint, rank: c_uint, address: *mut c_void, dims: *const u64, strides: *const u64,
        box_dims: *const u32, element_strides: *const u32, interleave: c_uint, swizzle: c_uint, l2_promotion: c_uint, oob_fill: c_uint
    );
}

impl Driver {
    /// The file it was loaded from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The address of any other function.
    pub fn symbol(&self, name: &CStr) -> Option<*mut ()> {
        // SAFETY: only the address is taken here; its users state the type.
        unsafe { self.library.get::<*mut ()>(name.to_bytes_with_nul()) }.ok().map(|found| *found)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("path", &self.path).finish_non_exhaustive()
    }
}
