//! Streams, events, and graphs that are recorded from streams.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::state::*;

type Work = Arc<dyn Fn() -> u32 + Send + Sync>;

/// What streams have recorded so far.
static RECORDING: Mutex<BTreeMap<usize, Vec<Work>>> = Mutex::new(BTreeMap::new());
/// What graphs hold, ready to run or not.
static GRAPHS: Mutex<BTreeMap<usize, Vec<Work>>> = Mutex::new(BTreeMap::new());

/// Does the work now, or records it.
pub fn enqueue(stream: Handle, work: impl Fn() -> u32 + Send + Sync + 'static) -> u32 {
    match (state_with(&[stream]), RECORDING.lock().unwrap().get_mut(&(stream as usize))) {
        (0, Some(nodes)) => {
            nodes.push(Arc::new(work));
            return 0;
        }
        (0, None) => {}
        (code, _) => return code,
    }
    work()
}

/// What a graph holds.
fn nodes(graph: Handle) -> Option<Vec<Work>> {
    GRAPHS.lock().unwrap().get(&(graph as usize)).cloned()
}

fn new_graph(name: &str, nodes: Vec<Work>) -> Handle {
    let graph = handle(name);
    GRAPHS.lock().unwrap().insert(graph as usize, nodes);
    graph
}

fn end_graph(graph: Handle) -> u32 {
    GRAPHS.lock().unwrap().remove(&(graph as usize));
    forget(graph)
}

api! {
    fn cuStreamCreateWithPriority(out: *mut Handle, flags: u32, _priority: i32) {
        if flags > 1 { return INVALID_VALUE; }
        static STREAMS: AtomicUsize = AtomicUsize::new(0);
        let code = state();
        if code == 0 { *out = handle(&format!("s{}", STREAMS.fetch_add(1, SeqCst))); }
        code
    }
    fn cuStreamDestroy_v2(stream: Handle) { forget(stream) }
    fn cuStreamGetFlags(stream: Handle, flags: *mut u32) {
        *flags = 1;
        state_with(&[stream])
    }
    fn cuStreamGetPriority(stream: Handle, priority: *mut i32) {
        *priority = 0;
        state_with(&[stream])
    }
    fn cuStreamQuery(stream: Handle) { state_with(&[stream]) }
    fn cuStreamSynchronize(stream: Handle) { state_with(&[stream]) }
    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) {
        log(format!("{} waits for {}", name(stream), name(event)));
        state_with(&[stream])
    }

    fn cuEventCreate(out: *mut Handle, _flags: u32) {
        let code = state();
        if code == 0 { *out = handle("unrecorded"); }
        code
    }
    fn cuEventDestroy_v2(event: Handle) { forget(event) }
    fn cuEventRecord(event: Handle, stream: Handle) {
        rename(event, name(stream));
        state_with(&[event, stream])
    }
    fn cuEventQuery(event: Handle) { state_with(&[event]) }
    fn cuEventSynchronize(event: Handle) { state_with(&[event]) }
    fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) {
        *milliseconds = 0.25;
        state_with(&[start, end])
    }

    fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) {
        if mode > 2 { return INVALID_VALUE; }
        match (state_with(&[stream]), RECORDING.lock().unwrap().entry(stream as usize)) {
            (0, std::collections::btree_map::Entry::Occupied(_)) => ILLEGAL_STATE,
            (0, entry) => {
                entry.or_default();
                0
            }
            (code, _) => code,
        }
    }
    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        match (state_with(&[stream]), RECORDING.lock().unwrap().remove(&(stream as usize))) {
            (0, Some(nodes)) => {
                *graph = new_graph("graph", nodes);
                0
            }
            (0, None) => CAPTURE_UNMATCHED,
            (code, _) => code,
        }
    }
    fn cuStreamIsCapturing(stream: Handle, status: *mut u32) {
        *status = RECORDING.lock().unwrap().contains_key(&(stream as usize)).into();
        state_with(&[stream])
    }
    fn cuGraphGetNodes(graph: Handle, out: *const Handle, count: *mut usize) {
        let Some(nodes) = nodes(graph).filter(|_| out.is_null()) else { return INVALID_VALUE };
        *count = nodes.len();
        state()
    }
    fn cuGraphDestroy(graph: Handle) { end_graph(graph) }
    fn cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, _flags: u64) {
        let Some(nodes) = nodes(graph) else { return INVALID_VALUE };
        *out = new_graph("graph exec", nodes);
        state()
    }
    fn cuGraphExecDestroy(graph: Handle) { end_graph(graph) }
    fn cuGraphUpload(graph: Handle, stream: Handle) { state_with(&[graph, stream]) }
    fn cuGraphLaunch(graph: Handle, stream: Handle) {
        let code = state_with(&[graph, stream]);
        if code != 0 { return code; }
        log(format!("graph on {}", name(stream)));
        let nodes = nodes(graph).unwrap_or_default();
        nodes.iter().map(|work| work()).find(|code| *code != 0).unwrap_or(0)
    }
}
