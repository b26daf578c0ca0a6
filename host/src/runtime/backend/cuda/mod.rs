//! NVIDIA GPUs.
//!
//! `cust` opens the device and keeps its primary context. What happens on it goes through [`libcuda_loader::Driver`]: cust returns
//! results as an enum of CUDA 11's codes, which a newer driver's code would make undefined behaviour, its streams drop the
//! non-blocking flag, and it has no memory pools and no tensor maps.

mod code;
mod memory;
mod module;
mod open;
mod staging;
mod tensor_map;

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::Mutex;

use cust::context::Context;
use libcuda_loader::{CUevent, CUfunction, CUmemoryPool, CUmodule, CUstream, Driver};

use super::{Backend, Failure, Launch, Outcome, RawEvent, RawFunction, RawStream};
use crate::runtime::device::DeviceInfo;
use crate::runtime::kernels::KernelImage;
use crate::runtime::tensor_map::TensorMapDesc;
use cuda_std::launch::TensorMap;
use staging::Staging;

const STREAM_NON_BLOCKING: u32 = 1;
const EVENT_TIMED: u32 = 0;
const EVENT_DISABLE_TIMING: u32 = 2;
const NOT_READY: u32 = 600;

/// More than any kernel has.
const MAX_ARGS: usize = 32;

/// The process's first visible GPU.
pub(crate) struct CudaBackend {
    driver: &'static Driver,
    info: DeviceInfo,
    /// Released by [`close`](Backend::close), and never after a fault.
    context: ManuallyDrop<Context>,
    /// The device's default pool, where it has pools.
    pool: Option<Handle<CUmemoryPool>>,
    staging: Mutex<Staging>,
    streams: Mutex<Vec<Handle<CUstream>>>,
    modules: Mutex<Vec<Handle<CUmodule>>>,
}

/// A driver handle; the driver's functions may be called from any thread.
#[derive(Debug, Clone, Copy)]
struct Handle<T>(T);

// SAFETY: see above.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: see above.
unsafe impl<T> Sync for Handle<T> {}

fn stream_handle(stream: RawStream) -> CUstream {
    stream.0 as CUstream
}

fn event_handle(event: RawEvent) -> CUevent {
    event.0 as CUevent
}

impl CudaBackend {
    /// Makes the context current on this thread, if another library or nobody did.
    fn enter(&self) -> Outcome<()> {
        let mut current = null_mut();
        let ours = self.context.as_raw().cast::<c_void>();
        // SAFETY: the pointer is to a live handle. Reads a thread-local variable of the driver.
        let code = unsafe { (self.driver.cuCtxGetCurrent)(&mut current) };
        if code == 0 && current == ours {
            return Ok(());
        }
        // SAFETY: the context is retained as long as `self` lives.
        self.check("cuCtxSetCurrent", unsafe { (self.driver.cuCtxSetCurrent)(ours) })
    }

    #[inline]
    fn check(&self, call: &'static str, code: u32) -> Outcome<()> {
        if code == 0 {
            return Ok(());
        }
        Err(code::failure(self.driver, call, code))
    }

    fn destroy(&mut self) {
        let d = self.driver;
        // SAFETY: only `close` calls this, once, when all work is done; nobody else has handles of a device that goes away.
        unsafe {
            for module in self.modules.get_mut().into_iter().flat_map(|m| m.drain(..)) {
                (d.cuModuleUnload)(module.0);
            }
            for stream in self.streams.get_mut().into_iter().flat_map(|s| s.drain(..)) {
                (d.cuStreamDestroy_v2)(stream.0);
            }
            if let Ok(staging) = self.staging.get_mut() {
                staging.destroy(d);
            }
            if let Some(pool) = self.pool {
                (d.cuMemPoolTrimTo)(pool.0, 0);
            }
            ManuallyDrop::drop(&mut self.context);
        }
    }
}

impl Backend for CudaBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Outcome<(u64, u64)> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to live integers.
        let code = unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) };
        self.check("cuMemGetInfo", code)?;
        Ok((free as u64, total as u64))
    }

    fn alloc(&self, stream: RawStream, bytes: usize) -> Outcome<u64> {
        self.enter()?;
        self.alloc_memory(stream, bytes)
    }

    unsafe fn free(&self, stream: RawStream, address: u64) -> Outcome<()> {
        self.enter()?;
        // SAFETY: passed on.
        unsafe { self.free_memory(stream, address) }
    }

    unsafe fn upload(&self, stream: RawStream, dst: u64, src: &[u8]) -> Outcome<()> {
        self.enter()?;
        // SAFETY: passed on.
        unsafe { self.staged_upload(stream, dst, src) }
    }

    unsafe fn download(&self, stream: RawStream, dst: &mut [u8], src: u64) -> Outcome<()> {
        self.enter()?;
        // SAFETY: passed on.
        unsafe { self.staged_download(stream, dst, src) }
    }

    unsafe fn copy(&self, stream: RawStream, dst: u64, src: u64, bytes: usize) -> Outcome<()> {
        self.enter()?;
        let copy = self.driver.cuMemcpyDtoDAsync_v2;
        // SAFETY: the caller vouches for both ranges.
        let code = unsafe { copy(dst, src, bytes, stream_handle(stream)) };
        self.check("cuMemcpyDtoDAsync", code)
    }

    unsafe fn fill(&self, stream: RawStream, dst: u64, pattern: &[u8], count: usize) -> Outcome<()> {
        self.enter()?;
        let (d, stream) = (self.driver, stream_handle(stream));
        // SAFETY: the caller vouches for the range.
        let code = unsafe {
            match *pattern {
                [a] => (d.cuMemsetD8Async)(dst, a, count, stream),
                [a, b] => (d.cuMemsetD16Async)(dst, u16::from_ne_bytes([a, b]), count, stream),
                [a, b, c, e] => (d.cuMemsetD32Async)(dst, u32::from_ne_bytes([a, b, c, e]), count, stream),
                _ => code::INVALID_VALUE,
            }
        };
        self.check("cuMemsetAsync", code)
    }

    fn create_stream(&self) -> Outcome<RawStream> {
        self.enter()?;
        let mut stream = null_mut();
        // SAFETY: the pointer is to a live handle.
        let code = unsafe { (self.driver.cuStreamCreate)(&mut stream, STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", code)?;
        if let Ok(mut streams) = self.streams.lock() {
            streams.push(Handle(stream));
        }
        Ok(RawStream(stream as usize))
    }

    fn synchronize(&self, stream: RawStream) -> Outcome<()> {
        self.enter()?;
        // SAFETY: streams live as long as the backend.
        let code = unsafe { (self.driver.cuStreamSynchronize)(stream_handle(stream)) };
        self.check("cuStreamSynchronize", code)
    }

    fn create_event(&self, timed: bool) -> Outcome<RawEvent> {
        self.enter()?;
        let flags = if timed { EVENT_TIMED } else { EVENT_DISABLE_TIMING };
        let mut event = null_mut();
        // SAFETY: the pointer is to a live handle.
        let code = unsafe { (self.driver.cuEventCreate)(&mut event, flags) };
        self.check("cuEventCreate", code)?;
        Ok(RawEvent(event as usize))
    }

    fn destroy_event(&self, event: RawEvent) {
        if self.enter().is_ok() {
            // SAFETY: the owner gives the event up. The driver keeps it until pending work has passed it.
            unsafe { (self.driver.cuEventDestroy_v2)(event_handle(event)) };
        }
    }

    fn record(&self, event: RawEvent, stream: RawStream) -> Outcome<()> {
        self.enter()?;
        let record = self.driver.cuEventRecord;
        // SAFETY: both handles are alive.
        let code = unsafe { record(event_handle(event), stream_handle(stream)) };
        self.check("cuEventRecord", code)
    }

    fn wait(&self, stream: RawStream, event: RawEvent) -> Outcome<()> {
        self.enter()?;
        let wait = self.driver.cuStreamWaitEvent;
        // SAFETY: both handles are alive.
        let code = unsafe { wait(stream_handle(stream), event_handle(event), 0) };
        self.check("cuStreamWaitEvent", code)
    }

    fn synchronize_event(&self, event: RawEvent) -> Outcome<()> {
        self.enter()?;
        // SAFETY: the handle is alive.
        let code = unsafe { (self.driver.cuEventSynchronize)(event_handle(event)) };
        self.check("cuEventSynchronize", code)
    }

    fn is_done(&self, event: RawEvent) -> Outcome<bool> {
        self.enter()?;
        // SAFETY: the handle is alive.
        match unsafe { (self.driver.cuEventQuery)(event_handle(event)) } {
            NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Outcome<f32> {
        self.enter()?;
        let mut milliseconds = 0.0;
        let elapsed = self.driver.cuEventElapsedTime;
        // SAFETY: the handles are alive, the pointer is to a live number.
        let code = unsafe { elapsed(&mut milliseconds, event_handle(start), event_handle(end)) };
        self.check("cuEventElapsedTime", code)?;
        Ok(milliseconds)
    }

    fn load(&self, image: &KernelImage) -> Outcome<RawFunction> {
        self.enter()?;
        self.load_image(image)
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Outcome<()> {
        self.enter()?;
        let mut params = [null_mut::<c_void>(); MAX_ARGS];
        let Some(params) = params.get_mut(..launch.args.len()) else {
            return Err(code::failure(self.driver, "cuLaunchKernel", code::INVALID_VALUE));
        };
        for (param, arg) in params.iter_mut().zip(launch.args) {
            // The driver only reads through these.
            *param = arg.as_ptr().cast_mut().cast();
        }
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        // SAFETY: the caller vouches for the arguments; the driver copies them before it returns.
        let code = unsafe {
            (self.driver.cuLaunchKernel)(
                launch.function.0 as CUfunction,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                launch.shared_bytes,
                stream_handle(launch.stream),
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        self.check("cuLaunchKernel", code)
    }

    fn tensor_map(&self, desc: &TensorMapDesc<'_>) -> Outcome<TensorMap> {
        self.enter()?;
        self.encode_tensor_map(desc)
    }

    fn close(&mut self) -> Outcome<()> {
        self.enter()?;
        // SAFETY: waiting touches no memory.
        self.check("cuCtxSynchronize", unsafe { (self.driver.cuCtxSynchronize)() })?;
        self.destroy();
        Ok(())
    }
}

impl fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBackend").field("info", &self.info).finish_non_exhaustive()
    }
}

/// A failure from a plain error.
fn other<T>(error: crate::runtime::error::Error) -> Outcome<T> {
    Err(Failure::Other(error))
}
