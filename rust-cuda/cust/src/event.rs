//! Events: markers in a stream that other work waits for, and that measure the time between them.

use std::ptr::null_mut;
use std::time::Duration;

use crate::context::Context;
use crate::error::{CudaResult, ErrorCode};
use crate::stream::Stream;
use crate::sys::{CUevent, Handle};

flags! {
    /// How to make an event.
    EventFlags {
        /// Timed; waiting follows the context's flags.
        DEFAULT = 0;
        /// Waiting threads sleep.
        BLOCKING_SYNC = 1;
        /// Not timed, which makes it cheaper.
        DISABLE_TIMING = 2;
    }
}

/// Whether the device has reached an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventStatus {
    /// It has, or the event was never recorded.
    Ready,
    /// It has not.
    NotReady,
}

/// A marker in a stream. Destroyed when dropped; the driver keeps it until everything that waits for it has passed.
#[derive(Debug)]
pub struct Event {
    raw: Handle,
    context: Context,
}

impl Event {
    /// A new event in the current context.
    pub fn new(flags: EventFlags) -> CudaResult<Self> {
        let context = Context::current()?;
        let mut raw = null_mut();
        // SAFETY: the pointer is to a live handle.
        unsafe { call!(cuEventCreate(&mut raw, flags.bits())) }?;
        Ok(Self { raw: Handle(raw), context })
    }

    /// Records the event behind all work queued on the stream so far.
    pub fn record(&self, stream: &Stream) -> CudaResult<()> {
        // SAFETY: both handles are alive.
        unsafe { call!(cuEventRecord(self.as_raw(), stream.as_raw())) }
    }

    /// Whether the device has reached it.
    pub fn query(&self) -> CudaResult<EventStatus> {
        // SAFETY: the handle is alive.
        match unsafe { call!(cuEventQuery(self.as_raw())) } {
            Ok(()) => Ok(EventStatus::Ready),
            Err(error) if error.code() == ErrorCode::NOT_READY => Ok(EventStatus::NotReady),
            Err(error) => Err(error),
        }
    }

    /// Waits until the device reaches it.
    pub fn synchronize(&self) -> CudaResult<()> {
        // SAFETY: the handle is alive.
        unsafe { call!(cuEventSynchronize(self.as_raw())) }
    }

    /// Milliseconds from `start` to this event; both must be timed, recorded and reached.
    pub fn elapsed_time_f32(&self, start: &Self) -> CudaResult<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: the handles are alive, the pointer is to a live number.
        unsafe { call!(cuEventElapsedTime(&mut milliseconds, start.as_raw(), self.as_raw())) }?;
        Ok(milliseconds)
    }

    /// [`elapsed_time_f32`](Self::elapsed_time_f32) as a duration; zero if this event came first.
    pub fn elapsed(&self, start: &Self) -> CudaResult<Duration> {
        let milliseconds = self.elapsed_time_f32(start)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUevent {
        self.raw.0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and is not used again.
        self.context.end(|| unsafe { call!(cuEventDestroy_v2(self.as_raw())) });
    }
}
