//! What is going on, on each thread that records.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Cuda, Launch, Profile, Span};
use crate::runtime::device::Device;
use crate::runtime::error::Result;
use crate::runtime::queue::Queue;
use crate::runtime::stream::{Event, Stream};

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// A recording, and the place of a scope in it: the scope may outlive it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id {
    recording: u64,
    span: usize,
}

/// What was recorded so far.
pub(super) struct Recording {
    number: u64,
    zero: Instant,
    spans: Vec<Span>,
    /// The scopes that have not ended, the innermost last.
    open: Vec<usize>,
    marks: Vec<Marks>,
    /// Kept, so that no other comes to lie where one was.
    streams: Vec<Arc<Queue>>,
}

/// The events around a kernel.
struct Marks {
    span: usize,
    device: Device,
    start: Event,
    end: Event,
}

/// The recording around this one, which goes on when this one ends, however it does.
pub(super) struct Restore(Option<Recording>);

impl Restore {
    /// Begins a recording.
    pub(super) fn start() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(RECORDING.replace(Some(Recording::new(number))))
    }

    /// Ends it.
    pub(super) fn stop(self) -> Recording {
        RECORDING.take().unwrap_or_else(|| Recording::new(u64::MAX))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        RECORDING.set(self.0.take());
    }
}

/// Begins a scope, if this thread records.
pub(super) fn open(name: Cow<'static, str>) -> Option<Id> {
    RECORDING.with_borrow_mut(|recording| {
        let recording = recording.as_mut()?;
        let span = recording.push(name, recording.zero.elapsed());
        recording.open.push(span);
        Some(Id { recording: recording.number, span })
    })
}

/// Ends a scope, and those inside it that have not ended.
pub(super) fn close(id: Id) {
    RECORDING.with_borrow_mut(|recording| {
        if let Some(recording) = recording.as_mut().filter(|recording| recording.number == id.recording) {
            recording.close(id.span);
        }
    });
}

/// Queues the launch of a kernel by `queue`, and records it if this thread does.
pub(in crate::runtime) fn launch(
    stream: &Stream,
    kernel: &'static str,
    [grid, block]: [[u32; 3]; 2],
    queue: impl FnOnce() -> Result<()>,
) -> Result<()> {
    #[cfg(feature = "tracing")]
    let _span = tracing::debug_span!(target: "warpsmith", "launch", kernel, ?grid, ?block).entered();
    if RECORDING.with_borrow(Option::is_none) {
        return queue();
    }
    let has_clock = stream.device().simulator().is_none();
    let mark = || has_clock.then(|| stream.record()).transpose();
    let start = mark()?;
    let begun = Instant::now();
    queue()?;
    let cpu = begun.elapsed();
    let end = mark()?;
    RECORDING.with_borrow_mut(|recording| {
        let Some(recording) = recording else { return };
        let span = recording.push(kernel.into(), begun.saturating_duration_since(recording.zero));
        let stream_number = recording.stream(stream.queue());
        recording.spans[span].cpu = cpu;
        recording.spans[span].launch = Some(Launch { grid, block, stream: stream_number, cuda: None });
        let device = stream.device().clone();
        recording.marks.extend(start.zip(end).map(|(start, end)| Marks { span, device, start, end }));
    });
    Ok(())
}

impl Recording {
    fn new(number: u64) -> Self {
        let (spans, open, marks, streams) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { number, zero: Instant::now(), spans, open, marks, streams }
    }

    fn push(&mut self, name: Cow<'static, str>, start: Duration) -> usize {
        let parent = self.open.last().copied();
        self.spans.push(Span { name, parent, start, cpu: Duration::ZERO, launch: None });
        self.spans.len() - 1
    }

    fn stream(&mut self, queue: &Arc<Queue>) -> usize {
        self.streams.iter().position(|known| Arc::ptr_eq(known, queue)).unwrap_or_else(|| {
            self.streams.push(queue.clone());
            self.streams.len() - 1
        })
    }

    fn close(&mut self, span: usize) {
        let now = self.zero.elapsed();
        // A scope that is dropped after the one around it has ended with that one.
        let Some(at) = self.open.iter().position(|open| *open == span) else { return };
        for ended in self.open.drain(at..) {
            self.spans[ended].cpu = now.saturating_sub(self.spans[ended].start);
        }
    }

    /// Waits for the kernels, and gives them their times.
    pub(super) fn finish(mut self) -> Result<Profile> {
        if let Some(outermost) = self.open.first().copied() {
            self.close(outermost);
        }
        let milliseconds = |ms: f32| Duration::from_secs_f64(f64::from(ms).max(0.0) / 1e3);
        for marks in &self.marks {
            marks.end.synchronize()?;
            let time = milliseconds(marks.start.elapsed_ms(&marks.end)?);
            // There is one, if only this.
            let first = self.marks.iter().find(|first| first.device == marks.device).unwrap_or(marks);
            let since = if first.span == marks.span { 0.0 } else { first.start.elapsed_ms(&marks.start)? };
            let start = self.spans[first.span].start + milliseconds(since);
            if let Some(launch) = &mut self.spans[marks.span].launch {
                launch.cuda = Some(Cuda { start, time });
            }
        }
        Ok(Profile { spans: self.spans })
    }
}
