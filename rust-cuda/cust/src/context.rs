//! Contexts: the driver's state of a device for this process.
//!
//! A device's primary context is the one that every library in the process shares. [`Context::new`] retains it and makes it
//! current on the calling thread, where everything else in this crate then takes place. Another thread makes it current with
//! [`CurrentContext::set_current`].

use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::device::Device;
use crate::error::{CudaError, CudaResult, ErrorCode};
use crate::sys::{CUcontext, Handle};

flags! {
    /// How a primary context waits for the device.
    ContextFlags {
        /// Leave the choice to the driver.
        SCHED_AUTO = 0;
        /// Spin: has the lowest latency at the end of a kernel.
        SCHED_SPIN = 1;
        /// Spin, and yield to other threads.
        SCHED_YIELD = 2;
        /// Sleep.
        SCHED_BLOCKING_SYNC = 4;
        /// Keep the local memory of a launch for the next one.
        LMEM_RESIZE_TO_MAX = 16;
    }
}

/// A device's primary context. Cheap to clone; released when its last clone and the last object created in it are dropped.
#[derive(Debug, Clone)]
pub struct Context(Arc<Primary>);

#[derive(Debug)]
struct Primary {
    raw: Handle,
    device: Device,
}

/// The primary contexts that this process retains, to look up the current one by its handle.
static RETAINED: Mutex<Vec<(Handle, Weak<Primary>)>> = Mutex::new(Vec::new());

impl Context {
    /// Retains the device's primary context and makes it current on this thread.
    pub fn new(device: Device) -> CudaResult<Self> {
        let mut raw = null_mut();
        // SAFETY: the pointer is to a live handle.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut raw, device.as_raw())) }?;
        let context = Self(Arc::new(Primary { raw: Handle(raw), device }));
        let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
        retained.retain(|(_, context)| context.strong_count() > 0);
        retained.push((Handle(raw), Arc::downgrade(&context.0)));
        drop(retained);
        CurrentContext::set_current(&context)?;
        Ok(context)
    }

    /// Sets how the primary context waits for the device. This affects all users of the device in this process.
    pub fn set_flags(&self, flags: ContextFlags) -> CudaResult<()> {
        // SAFETY: the driver checks the flags.
        unsafe { call!(cuDevicePrimaryCtxSetFlags_v2(self.0.device.as_raw(), flags.bits())) }
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUcontext {
        self.0.raw.0
    }

    /// The current context of this thread, for an object that is about to be created in it.
    pub(crate) fn current() -> CudaResult<Self> {
        let raw = current_raw()?;
        let retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ours = retained.iter().filter(|(handle, _)| handle.0 == raw);
        let found = ours.find_map(|(_, context)| context.upgrade());
        found.map(Self).ok_or(CudaError::new("cuCtxGetCurrent", ErrorCode::INVALID_CONTEXT))
    }

    /// Waits for all work in the contexts of this process. The failure of a kernel is not reported here; the next call in its
    /// context reports it.
    pub(crate) fn synchronize_all() {
        let retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
        let contexts: Vec<_> = retained.iter().filter_map(|(_, context)| context.upgrade().map(Self)).collect();
        // Unlocked before waiting; dropping the last handle of a context releases it.
        drop(retained);
        for context in contexts {
            let _ = context.pushed(CurrentContext::synchronize);
        }
    }

    /// Runs `f`, which destroys an object of this context, with the context current.
    pub(crate) fn end(&self, f: impl FnOnce() -> CudaResult<()>) {
        // A drop cannot return an error; the failure of a kernel is reported again by the next call.
        let _ = match current_raw() {
            Ok(raw) if raw == self.as_raw() => f(),
            _ => self.pushed(f),
        };
    }

    fn pushed(&self, f: impl FnOnce() -> CudaResult<()>) -> CudaResult<()> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { call!(cuCtxPushCurrent_v2(self.as_raw())) }?;
        let done = f();
        // SAFETY: the pointer is to a live handle; what is popped was pushed above.
        unsafe { call!(cuCtxPopCurrent_v2(&mut null_mut())) }?;
        done
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: everything created in the context held a handle of it.
        let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device.as_raw())) };
    }
}

/// The current context; null if there is none.
fn current_raw() -> CudaResult<CUcontext> {
    let mut raw = null_mut();
    // SAFETY: the pointer is to a live handle. Reads a thread-local variable of the driver.
    unsafe { call!(cuCtxGetCurrent(&mut raw)) }?;
    Ok(raw)
}

/// The calling thread's context.
#[derive(Debug)]
pub struct CurrentContext;

impl CurrentContext {
    /// Makes a context current, unless it already is.
    #[inline]
    pub fn set_current(context: &Context) -> CudaResult<()> {
        if current_raw()? == context.as_raw() {
            return Ok(());
        }
        // SAFETY: the context is retained as long as its handle lives; the driver returns an error once it is not.
        unsafe { call!(cuCtxSetCurrent(context.as_raw())) }
    }

    /// Waits for all work of the context.
    pub fn synchronize() -> CudaResult<()> {
        // SAFETY: waiting touches no memory.
        unsafe { call!(cuCtxSynchronize()) }
    }

    /// The device of the current context.
    pub fn get_device() -> CudaResult<Device> {
        Ok(Context::current()?.device())
    }

    /// The range of stream priorities.
    pub fn get_stream_priority_range() -> CudaResult<StreamPriorityRange> {
        let mut range = StreamPriorityRange { least: 0, greatest: 0 };
        // SAFETY: the pointers are to live integers.
        unsafe { call!(cuCtxGetStreamPriorityRange(&mut range.least, &mut range.greatest)) }?;
        Ok(range)
    }

    /// The limit on the use of a resource by kernels.
    pub fn get_resource_limit(resource: ResourceLimit) -> CudaResult<usize> {
        let mut limit = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { call!(cuCtxGetLimit(&mut limit, resource as u32)) }?;
        Ok(limit)
    }

    /// Sets a limit; the driver may round it.
    pub fn set_resource_limit(resource: ResourceLimit, limit: usize) -> CudaResult<()> {
        // SAFETY: the driver checks the value.
        unsafe { call!(cuCtxSetLimit(resource as u32, limit)) }
    }
}

/// The range of stream priorities: a lower number means a higher priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPriorityRange {
    /// The number of the lowest priority.
    pub least: i32,
    /// The number of the highest priority.
    pub greatest: i32,
}

/// A resource that kernels take from a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum ResourceLimit {
    /// Bytes of stack per thread.
    StackSize = 0,
    /// Bytes of `printf`'s buffer.
    PrintfFifoSize = 1,
    /// Bytes of the heap of device-side `malloc`.
    MallocHeapSize = 2,
    /// The maximum number of bytes that L2 fetches around an access.
    MaxL2FetchGranularity = 5,
    /// Bytes of L2 reserved for persisting accesses.
    PersistingL2CacheSize = 6,
}
