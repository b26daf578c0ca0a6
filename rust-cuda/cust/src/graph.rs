//! Graphs: work that was recorded from a stream, to be run as a whole at the price of one launch.

use std::ptr::null_mut;

use crate::context::Context;
use crate::error::CudaResult;
use crate::stream::Stream;
use crate::sys::{CUgraph, CUgraphExec, Handle};

/// A record of work; see [`Stream::begin_capture`].
#[derive(Debug)]
pub struct Graph {
    raw: Handle,
    context: Context,
}

impl Graph {
    pub(crate) fn from_raw(raw: CUgraph, context: Context) -> Self {
        Self { raw: Handle(raw), context }
    }

    /// How many kernels, copies and fills it holds.
    pub fn num_nodes(&self) -> CudaResult<usize> {
        let mut count = 0;
        // SAFETY: the handle is alive; without an array for them only the number of nodes is written.
        unsafe { call!(cuGraphGetNodes(self.as_raw(), null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// Makes it ready to run. The record may be dropped.
    pub fn instantiate(&self) -> CudaResult<GraphExec> {
        let mut raw = null_mut();
        // SAFETY: the handle is alive, the pointer is to a live handle; 0 asks for nothing special.
        unsafe { call!(cuGraphInstantiateWithFlags(&mut raw, self.as_raw(), 0)) }?;
        Ok(GraphExec { raw: Handle(raw), context: self.context.clone() })
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUgraph {
        self.raw.0
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and is not used again.
        self.context.end(|| unsafe { call!(cuGraphDestroy(self.as_raw())) });
    }
}

/// A graph that is ready to run. Runs of one `GraphExec` do not overlap.
#[derive(Debug)]
pub struct GraphExec {
    raw: Handle,
    context: Context,
}

impl GraphExec {
    /// Sends it to the device ahead of its first launch.
    pub fn upload(&self, stream: &Stream) -> CudaResult<()> {
        // SAFETY: both handles are alive.
        unsafe { call!(cuGraphUpload(self.as_raw(), stream.as_raw())) }
    }

    /// Queues all of it.
    ///
    /// # Safety
    /// What the recorded work uses is still there, and stays until it has run: device memory, pinned memory, functions. Arguments were
    /// copied when they were recorded.
    pub unsafe fn launch(&self, stream: &Stream) -> CudaResult<()> {
        // SAFETY: both handles are alive; the rest is the caller's promise.
        unsafe { call!(cuGraphLaunch(self.as_raw(), stream.as_raw())) }
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUgraphExec {
        self.raw.0
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and is not used again. The driver lets a run in progress finish.
        self.context.end(|| unsafe { call!(cuGraphExecDestroy(self.as_raw())) });
    }
}
