//! NVIDIA GPUs, through cust: what is the library's own policy about them is here, what the driver does is there.

#[cfg(feature = "check")]
mod bus;
mod code;
mod handle;
mod memory;
mod module;
mod open;
mod staging;
mod tensor_map;

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use cuda_std::launch::TensorMap;
use cust::context::{Context, CurrentContext};
use cust::error::{CudaError, ErrorCode};
use cust::event::{Event, EventFlags, EventStatus};
use cust::function::{Function, LaunchAttribute};
use cust::memory::{
    DevicePointer, MemoryPool, mem_get_info, memcpy_dtod_async, memset_d8_async, memset_d16_async, memset_d32_async,
};
use cust::stream::{Stream, StreamFlags, StreamWaitEventFlags};

use super::{Backend, Failure, Launch, Outcome, RawEvent, RawFunction, RawStream};
use crate::runtime::error::{CudaVersion, Error};
use crate::runtime::info::DeviceInfo;
use crate::runtime::kernels::KernelImage;
use crate::runtime::tensor_map::TensorMapDesc;
pub(crate) use cust::{cupti, nvtx};
pub(super) use open::was_opened;
use staging::Staging;

/// More than any kernel has.
const MAX_ARGS: usize = 32;

/// The first CUDA whose drivers also record programmatic launches into graphs.
const PROGRAMMATIC: CudaVersion = CudaVersion(12_030);

/// A GPU.
pub(crate) struct CudaBackend {
    info: DeviceInfo,
    /// Dropped by [`close`](Backend::close), and never after a fault: the driver is then left alone.
    owned: ManuallyDrop<Owned>,
}

/// What the driver holds for this backend.
struct Owned {
    functions: Mutex<Vec<RawFunction>>,
    streams: Mutex<Vec<RawStream>>,
    staging: Staging,
    /// The device's default pool, where it has pools.
    pool: Option<MemoryPool>,
    context: Context,
}

impl Drop for Owned {
    fn drop(&mut self) {
        let functions = self.functions.get_mut().unwrap_or_else(PoisonError::into_inner);
        let streams = self.streams.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `close` has waited for all work, and nobody uses handles of a device that is closed.
        unsafe {
            functions.drain(..).for_each(|raw| drop(handle::take::<Function>(raw.0)));
            streams.drain(..).for_each(|raw| drop(handle::take::<Stream>(raw.0)));
            self.staging.destroy();
        }
        if let Some(pool) = &self.pool {
            // What it keeps goes back to others; if not now, then with the process.
            let _ = pool.trim_to(0);
        }
    }
}

/// # Safety
/// The stream is the backend's own, which is not closed while it is borrowed.
unsafe fn stream<'a>(raw: RawStream) -> &'a Stream {
    // SAFETY: `create_stream` gave it, and only closing takes it back.
    unsafe { handle::object(raw.0) }
}

/// # Safety
/// The event is the backend's own, and is not destroyed while it is borrowed.
unsafe fn event<'a>(raw: RawEvent) -> &'a Event {
    // SAFETY: `create_event` gave it, and only `destroy_event` takes it back.
    unsafe { handle::object(raw.0) }
}

impl CudaBackend {
    fn pool(&self) -> Outcome<&MemoryPool> {
        let missing = || Error::Driver {
            call: "cuMemPoolGetAttribute",
            code: ErrorCode::NOT_SUPPORTED.as_raw(),
            name: "CUDA_ERROR_NOT_SUPPORTED".into(),
        };
        self.owned.pool.as_ref().ok_or_else(|| Failure::Other(missing()))
    }

    /// Makes the context current on this thread, if another library or nobody did.
    fn enter(&self) -> Outcome<()> {
        Ok(CurrentContext::set_current(&self.owned.context)?)
    }
}

// SAFETY, of all that follows: what the trait lets implementations assume about handles.
impl Backend for CudaBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Outcome<(u64, u64)> {
        self.enter()?;
        let (free, total) = mem_get_info()?;
        Ok((free as u64, total as u64))
    }

    fn allocated(&self) -> Outcome<(u64, u64)> {
        self.enter()?;
        let pool = self.pool()?;
        Ok((pool.used()?, pool.used_high()?))
    }

    fn reset_peak(&self) -> Outcome<()> {
        self.enter()?;
        Ok(self.pool()?.reset_used_high()?)
    }

    fn alloc(&self, on: RawStream, bytes: usize) -> Outcome<u64> {
        self.enter()?;
        // SAFETY: see above.
        self.alloc_memory(unsafe { stream(on) }, bytes)
    }

    unsafe fn free(&self, on: RawStream, address: u64) -> Outcome<()> {
        self.enter()?;
        // SAFETY: passed on.
        unsafe { self.free_memory(stream(on), address) }
    }

    unsafe fn upload(&self, on: RawStream, dst: u64, src: &[u8]) -> Outcome<()> {
        self.enter()?;
        // SAFETY: passed on.
        unsafe { self.owned.staging.upload(stream(on), dst, src) }
    }

    unsafe fn download(&self, on: RawStream, dst: &mut [u8], src: u64) -> Outcome<()> {
        self.enter()?;
        // SAFETY: passed on.
        unsafe { self.owned.staging.download(stream(on), dst, src) }
    }

    unsafe fn copy(&self, on: RawStream, dst: u64, src: u64, bytes: usize) -> Outcome<()> {
        self.enter()?;
        let (dst, src) = (DevicePointer::<u8>::from_raw(dst), DevicePointer::from_raw(src));
        // SAFETY: the caller vouches for both ranges.
        Ok(unsafe { memcpy_dtod_async(dst, src, bytes, stream(on)) }?)
    }

    unsafe fn fill(&self, on: RawStream, dst: u64, pattern: &[u8], count: usize) -> Outcome<()> {
        self.enter()?;
        let (dst, invalid) = (DevicePointer::from_raw(dst), CudaError::new("cuMemsetAsync", ErrorCode::INVALID_VALUE));
        // SAFETY: the caller vouches for the range.
        let queued = unsafe {
            match *pattern {
                [a] => memset_d8_async(dst, a, count, stream(on)),
                [a, b] => memset_d16_async(dst.cast(), u16::from_ne_bytes([a, b]), count, stream(on)),
                [a, b, c, d] => memset_d32_async(dst.cast(), u32::from_ne_bytes([a, b, c, d]), count, stream(on)),
                _ => Err(invalid),
            }
        };
        Ok(queued?)
    }

    fn create_stream(&self) -> Outcome<RawStream> {
        self.enter()?;
        let raw = RawStream(handle::give(Stream::new(StreamFlags::NON_BLOCKING, None)?));
        self.owned.streams.lock().unwrap_or_else(PoisonError::into_inner).push(raw);
        Ok(raw)
    }

    fn synchronize(&self, on: RawStream) -> Outcome<()> {
        self.enter()?;
        // SAFETY: see above.
        Ok(unsafe { stream(on) }.synchronize()?)
    }

    fn create_event(&self, timed: bool) -> Outcome<RawEvent> {
        self.enter()?;
        let flags = if timed { EventFlags::DEFAULT } else { EventFlags::DISABLE_TIMING };
        Ok(RawEvent(handle::give(Event::new(flags)?)))
    }

    fn destroy_event(&self, raw: RawEvent) {
        // SAFETY: the owner gives it up.
        drop(unsafe { handle::take::<Event>(raw.0) });
    }

    fn record(&self, raw: RawEvent, on: RawStream) -> Outcome<()> {
        self.enter()?;
        // SAFETY: see above.
        Ok(unsafe { event(raw).record(stream(on)) }?)
    }

    fn wait(&self, on: RawStream, raw: RawEvent) -> Outcome<()> {
        self.enter()?;
        // SAFETY: see above.
        Ok(unsafe { stream(on).wait_event(event(raw), StreamWaitEventFlags::DEFAULT) }?)
    }

    fn synchronize_event(&self, raw: RawEvent) -> Outcome<()> {
        self.enter()?;
        // SAFETY: see above.
        Ok(unsafe { event(raw) }.synchronize()?)
    }

    fn is_done(&self, raw: RawEvent) -> Outcome<bool> {
        self.enter()?;
        // SAFETY: see above.
        Ok(unsafe { event(raw) }.query()? == EventStatus::Ready)
    }

    fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Outcome<f32> {
        self.enter()?;
        // SAFETY: see above.
        Ok(unsafe { event(end).elapsed_time_f32(event(start)) }?)
    }

    fn load(&self, image: &KernelImage) -> Outcome<RawFunction> {
        self.enter()?;
        let raw = RawFunction(handle::give(self.load_image(image)?));
        self.owned.functions.lock().unwrap_or_else(PoisonError::into_inner).push(raw);
        Ok(raw)
    }

    fn blocks_at_once(&self, function: RawFunction, image: &KernelImage, block: [u32; 3]) -> Outcome<u32> {
        self.enter()?;
        // SAFETY: `load` gave the function, and only closing takes it back.
        let function: &Function = unsafe { handle::object(function.0) };
        let each = function.max_active_blocks_per_multiprocessor(block.into(), image.shared_bytes as usize)?;
        Ok(each.saturating_mul(self.info.multiprocessors))
    }

    fn clusters_at_once(&self, function: RawFunction, image: &KernelImage) -> Outcome<u32> {
        self.enter()?;
        // SAFETY: `load` gave the function, and only closing takes it back.
        let function: &Function = unsafe { handle::object(function.0) };
        Ok(function.max_active_clusters(image.cluster.into(), image.block.into(), image.shared_bytes)?)
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Outcome<()> {
        self.enter()?;
        let mut params = [null_mut::<c_void>(); MAX_ARGS];
        let Some(params) = params.get_mut(..launch.args.len()) else {
            return Err(CudaError::new("cuLaunchKernel", ErrorCode::INVALID_VALUE).into());
        };
        for (param, arg) in params.iter_mut().zip(launch.args) {
            // The driver only reads through these.
            *param = arg.as_ptr().cast_mut().cast();
        }
        // SAFETY: `load` gave the function, and only closing takes it back; the caller vouches for the arguments.
        let queued = unsafe {
            let function: &Function = handle::object(launch.function.0);
            let Launch { grid, block, shared_bytes, .. } = *launch;
            if launch.programmatic && self.info.driver_version >= PROGRAMMATIC {
                let attributes = [LaunchAttribute::ProgrammaticStreamSerialization];
                stream(launch.stream).launch_with(function, grid, block, shared_bytes, &attributes, params)
            } else if launch.cooperative {
                let attributes = [LaunchAttribute::Cooperative];
                stream(launch.stream).launch_with(function, grid, block, shared_bytes, &attributes, params)
            } else {
                stream(launch.stream).launch(function, grid, block, shared_bytes, params)
            }
        };
        Ok(queued?)
    }

    fn tensor_map(&self, desc: &TensorMapDesc<'_>) -> Outcome<TensorMap> {
        self.enter()?;
        tensor_map::encode(desc)
    }

    #[cfg(feature = "check")]
    unsafe fn time_bus(&self, on: RawStream, address: u64, bytes: usize) -> Outcome<Option<super::Bus>> {
        self.enter()?;
        // SAFETY: passed on.
        unsafe { bus::time(stream(on), address, bytes) }.map(Some)
    }

    fn driver_stream(&self, on: RawStream) -> Outcome<*mut c_void> {
        self.enter()?;
        // SAFETY: see above.
        Ok(unsafe { stream(on) }.as_raw())
    }

    fn close(&mut self) -> Outcome<()> {
        self.enter()?;
        CurrentContext::synchronize()?;
        // SAFETY: nothing is called after this.
        unsafe { ManuallyDrop::drop(&mut self.owned) };
        Ok(())
    }
}

impl fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBackend").field("info", &self.info).finish_non_exhaustive()
    }
}
