//! Graphs: work that was captured from a stream, and runs as a whole at the cost of one launch.

use std::ptr::null_mut;

use crate::context::Context;
use crate::error::CudaResult;
use crate::stream::Stream;
use crate::sys::{CUgraph, CUgraphExec, Handle};

/// A captured sequence of work; see [`Stream::begin_capture`].
#[derive(Debug)]
pub struct Graph {
    raw: Handle,
    context: Context,
}

impl Graph {
    pub(crate) fn from_raw(raw: CUgraph, context: Context) -> Self {
        Self { raw: Handle(raw), context }
    }

    /// The number of kernels, copies and fills.
    pub fn num_nodes(&self) -> CudaResult<usize> {
        let mut count = 0;
        // SAFETY: the handle is alive; without an array for them only the number of nodes is written.
        unsafe { call!(cuGraphGetNodes(self.as_raw(), null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// Instantiates the graph, so that it can run. The graph itself may then be dropped.
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
    /// Uploads the graph to the device before its first launch.
    pub fn upload(&self, stream: &Stream) -> CudaResult<()> {
        // SAFETY: both handles are alive.
        unsafe { call!(cuGraphUpload(self.as_raw(), stream.as_raw())) }
    }

    /// Queues the whole graph.
    ///
    /// # Safety
    /// Everything that the captured work uses must exist until it has run: device memory, pinned memory, functions. Arguments
    /// were copied when they were captured.
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
