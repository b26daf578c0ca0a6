//! Streams: queues of work that each run in order.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::context::Context;
use crate::error::{CudaError, CudaResult, ErrorCode};
use crate::event::Event;
use crate::function::{BlockSize, Function, GridSize, LaunchAttribute, launch_config};
use crate::graph::Graph;
use crate::sys::{CUlaunchAttribute, CUstream, Handle};

flags! {
    /// How to make a stream.
    StreamFlags {
        /// Also ordered with the null stream.
        DEFAULT = 0;
        /// Independent of the null stream.
        NON_BLOCKING = 1;
    }
}

flags! {
    /// How a stream waits for an event.
    StreamWaitEventFlags {
        /// The only mode.
        DEFAULT = 0;
    }
}

/// A queue of work. Destroyed when dropped; work queued on it still runs.
#[derive(Debug)]
pub struct Stream {
    raw: Handle,
    context: Context,
}

impl Stream {
    /// A new stream in the current context. Blocks of a stream with a lower priority number start earlier; see
    /// [`CurrentContext::get_stream_priority_range`](crate::context::CurrentContext::get_stream_priority_range).
    pub fn new(flags: StreamFlags, priority: Option<i32>) -> CudaResult<Self> {
        let context = Context::current()?;
        let mut raw = null_mut();
        // SAFETY: the pointer is to a live handle.
        unsafe { call!(cuStreamCreateWithPriority(&mut raw, flags.bits(), priority.unwrap_or(0))) }?;
        Ok(Self { raw: Handle(raw), context })
    }

    /// The flags that it was created with.
    pub fn get_flags(&self) -> CudaResult<StreamFlags> {
        let mut bits = 0;
        // SAFETY: the handle is alive, the pointer is to a live integer.
        unsafe { call!(cuStreamGetFlags(self.as_raw(), &mut bits)) }?;
        Ok(StreamFlags::from_bits_retain(bits))
    }

    /// The priority that the driver gave it.
    pub fn get_priority(&self) -> CudaResult<i32> {
        let mut priority = 0;
        // SAFETY: the handle is alive, the pointer is to a live integer.
        unsafe { call!(cuStreamGetPriority(self.as_raw(), &mut priority)) }?;
        Ok(priority)
    }

    /// Waits for all queued work.
    pub fn synchronize(&self) -> CudaResult<()> {
        // SAFETY: the handle is alive.
        unsafe { call!(cuStreamSynchronize(self.as_raw())) }
    }

    /// Whether all queued work is done.
    pub fn query(&self) -> CudaResult<bool> {
        // SAFETY: the handle is alive.
        match unsafe { call!(cuStreamQuery(self.as_raw())) } {
            Ok(()) => Ok(true),
            Err(error) if error.code() == ErrorCode::NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes later work on this stream wait until the device reaches the event.
    pub fn wait_event(&self, event: &Event, flags: StreamWaitEventFlags) -> CudaResult<()> {
        // SAFETY: both handles are alive; the driver keeps the event until the stream has passed it.
        unsafe { call!(cuStreamWaitEvent(self.as_raw(), event.as_raw(), flags.bits())) }
    }

    /// Queues a kernel. `arguments` point to the values of the parameters, in order; the driver copies them before it returns.
    /// This takes one driver call and no allocation. [`launch!`](crate::launch!) writes the pointers.
    ///
    /// # Safety
    /// The arguments must match the kernel's parameters in number and type, pointers among them must stay valid for what the
    /// kernel does with them until it has run, and the kernel must permit this grid, block and shared memory.
    #[inline]
    pub unsafe fn launch(
        &self,
        function: &Function,
        grid_size: impl Into<GridSize>,
        block_size: impl Into<BlockSize>,
        shared_bytes: u32,
        arguments: &[*mut c_void],
    ) -> CudaResult<()> {
        let (grid, block): (GridSize, BlockSize) = (grid_size.into(), block_size.into());
        // SAFETY: the handles are alive, the arguments are the caller's promise; the driver only reads them.
        unsafe {
            call!(cuLaunchKernel(
                function.as_raw(),
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared_bytes,
                self.as_raw(),
                arguments.as_ptr().cast_mut(),
                null_mut(),
            ))
        }
    }

    /// [`launch`](Self::launch) with clusters of blocks, or other attributes; at most [`LaunchAttribute::MOST`] of them.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub unsafe fn launch_with(
        &self,
        function: &Function,
        grid_size: impl Into<GridSize>,
        block_size: impl Into<BlockSize>,
        shared_bytes: u32,
        attributes: &[LaunchAttribute],
        arguments: &[*mut c_void],
    ) -> CudaResult<()> {
        let mut raw = [CUlaunchAttribute::default(); LaunchAttribute::MOST];
        let Some(raw) = raw.get_mut(..attributes.len()) else {
            return Err(CudaError::new("cuLaunchKernelEx", ErrorCode::INVALID_VALUE));
        };
        for (raw, attribute) in raw.iter_mut().zip(attributes) {
            *raw = attribute.to_raw();
        }
        let config = launch_config(grid_size.into(), block_size.into(), shared_bytes, self.as_raw(), raw);
        // SAFETY: the handles are alive, the arguments are the caller's promise; the driver only reads them.
        unsafe { call!(cuLaunchKernelEx(&config, function.as_raw(), arguments.as_ptr().cast_mut(), null_mut())) }
    }

    /// Starts to capture queued work instead of running it; [`end_capture`](Self::end_capture) returns the graph.
    pub fn begin_capture(&self, mode: StreamCaptureMode) -> CudaResult<()> {
        // SAFETY: the handle is alive.
        unsafe { call!(cuStreamBeginCapture_v2(self.as_raw(), mode as u32)) }
    }

    /// Ends a capture.
    pub fn end_capture(&self) -> CudaResult<Graph> {
        let mut graph = null_mut();
        // SAFETY: the handle is alive, the pointer is to a live handle.
        unsafe { call!(cuStreamEndCapture(self.as_raw(), &mut graph)) }?;
        Ok(Graph::from_raw(graph, self.context.clone()))
    }

    /// Whether the stream is being captured.
    pub fn is_capturing(&self) -> CudaResult<bool> {
        let mut status = 0;
        // SAFETY: the handle is alive, the pointer is to a live integer.
        unsafe { call!(cuStreamIsCapturing(self.as_raw(), &mut status)) }?;
        Ok(status != 0)
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUstream {
        self.raw.0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and is not used again.
        self.context.end(|| unsafe { call!(cuStreamDestroy_v2(self.as_raw())) });
    }
}

/// Which calls are allowed in the process while a stream is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum StreamCaptureMode {
    /// No call that could invalidate a capture, from any thread.
    Global = 0,
    /// No such call from this thread.
    ThreadLocal = 1,
    /// Anything.
    Relaxed = 2,
}
