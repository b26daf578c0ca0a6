//! What is going on, on each thread that records.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Clock, Cuda, Launch, Profile, Span, program};
use crate::runtime::backend;
use crate::runtime::backend::cupti::{Mark, Tracing};
use crate::runtime::device::{BackendKind, Device};
use crate::runtime::error::Result;
use crate::runtime::part::Part;
use crate::runtime::roof::{Bound, Work};
use crate::runtime::stream::{Event, Stream};

thread_local! {
    static RECORDING: Slot = Slot(RefCell::new(program::thread()));
}

/// What a thread records into.
struct Slot(RefCell<Option<Recording>>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(recording) = self.0.take() {
            program::ended(recording);
        }
    }
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
    /// Addresses that were asked for since the last launch, and the bytes behind them.
    operands: Vec<(u64, u64)>,
    /// What the next launch computes.
    work: Option<Work>,
    times: Option<Times>,
    /// Streams that have launched. They are kept alive, so that no new stream is given the queue of an old one.
    streams: Vec<Stream>,
}

/// What will tell when kernels ran: from the first launch on a GPU on.
enum Times {
    Cupti {
        tracing: Tracing,
        /// One moment on the CPU's clock and on its own.
        moment: (Instant, u64),
        marks: Vec<(usize, u64)>,
    },
    Events(Vec<Marks>),
}

/// The events around a kernel.
struct Marks {
    span: usize,
    device: Device,
    start: Event,
    end: Event,
}

/// What watches a launch.
enum Watch {
    Nobody,
    Cupti(Mark),
    Events(Event),
}

/// The recording around this one, which goes on when this one ends, however it does.
pub(super) struct Restore(Option<Recording>);

impl Restore {
    /// Begins a recording.
    pub(super) fn start() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // CUPTI is started before the recording, so that the time this takes is not part of it. If no GPU is open yet, the first launch starts it.
        let times = backend::gpu_was_opened().then(Times::start);
        let recording = Recording { times, ..Recording::new(number, Instant::now()) };
        Self(replace(Some(recording)))
    }

    /// Ends it.
    pub(super) fn stop(self) -> Recording {
        replace(None).unwrap_or_else(|| Recording::new(u64::MAX, Instant::now()))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        replace(self.0.take());
    }
}

fn replace(recording: Option<Recording>) -> Option<Recording> {
    RECORDING.try_with(|slot| slot.0.replace(recording)).unwrap_or_default()
}

/// Nothing where the thread does not record, or has ended: what it kept for itself may launch kernels when it is dropped.
fn with<T>(f: impl FnOnce(&mut Recording) -> T) -> Option<T> {
    RECORDING.try_with(|slot| slot.0.borrow_mut().as_mut().map(f)).ok().flatten()
}

/// Begins a scope, if this thread records.
pub(super) fn open(name: Cow<'static, str>) -> Option<Id> {
    with(|recording| {
        let span = recording.push(name, recording.zero.elapsed());
        recording.open.push(span);
        Id { recording: recording.number, span }
    })
}

/// Ends a scope, and those inside it that have not ended.
pub(super) fn close(id: Id) {
    with(|recording| {
        if recording.number == id.recording {
            recording.close(id.span);
        }
    });
}

/// Notes that the address of a part was asked for, if this thread records.
pub(in crate::runtime) fn operand(part: &Part<'_>) {
    with(|recording| {
        let operand = (part.address(), part.distinct_bytes());
        if !recording.operands.contains(&operand) {
            recording.operands.push(operand);
        }
    });
}

/// Notes what this thread's next launch computes, if it records.
pub(in crate::runtime) fn work(work: Work) {
    with(|recording| recording.work = Some(work));
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
    let Some((clock, bytes, work)) = with(|recording| {
        // They belong to this launch, and are taken even if it fails.
        let bytes = recording.operands.drain(..).map(|(_, bytes)| bytes).sum();
        (recording.clock(stream), bytes, recording.work.take())
    }) else {
        return queue();
    };
    let watch = match clock {
        None => Watch::Nobody,
        Some(Clock::Cupti) => with(Recording::mark).flatten().map_or(Watch::Nobody, Watch::Cupti),
        Some(Clock::Events) => Watch::Events(stream.record()?),
    };
    let begun = Instant::now();
    queue()?;
    let cpu = begun.elapsed();
    let end = matches!(watch, Watch::Events(_)).then(|| stream.record()).transpose()?;
    with(|recording| {
        let span = recording.push(kernel.into(), begun.saturating_duration_since(recording.zero));
        let stream_number = recording.stream(stream);
        let work = work.unwrap_or(Work { flops: 0, bound: Bound::Memory });
        let least = stream.device().info().least_seconds(bytes, work).map(Duration::from_secs_f64);
        recording.spans[span].cpu = cpu;
        recording.spans[span].launch =
            Some(Launch { grid, block, stream: stream_number, bytes, flops: work.flops, least, cuda: None });
        match (watch, &mut recording.times) {
            (Watch::Cupti(mark), Some(Times::Cupti { marks, .. })) => marks.push((span, mark.id())),
            (Watch::Events(start), Some(Times::Events(marks))) => {
                let device = stream.device().clone();
                marks.extend(end.map(|end| Marks { span, device, start, end }));
            }
            _ => {}
        }
    });
    Ok(())
}

impl Recording {
    pub(super) fn new(number: u64, zero: Instant) -> Self {
        let (spans, open, operands, streams) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { number, zero, spans, open, operands, work: None, times: None, streams }
    }

    /// What times kernels on the device of `stream`, found out when the first one is launched there.
    fn clock(&mut self, stream: &Stream) -> Option<Clock> {
        if stream.device().info().backend != BackendKind::Cuda {
            return None;
        }
        let times = self.times.get_or_insert_with(Times::start);
        Some(times.clock())
    }

    fn mark(&mut self) -> Option<Mark> {
        match &self.times {
            Some(Times::Cupti { tracing, .. }) => Some(tracing.mark()),
            _ => None,
        }
    }

    fn push(&mut self, name: Cow<'static, str>, start: Duration) -> usize {
        let parent = self.open.last().copied();
        self.spans.push(Span { name, parent, start, cpu: Duration::ZERO, launch: None });
        self.spans.len() - 1
    }

    fn stream(&mut self, stream: &Stream) -> usize {
        let known = self.streams.iter().position(|known| Arc::ptr_eq(known.queue(), stream.queue()));
        known.unwrap_or_else(|| {
            self.streams.push(stream.clone());
            self.streams.len() - 1
        })
    }

    fn close(&mut self, span: usize) {
        let now = self.zero.elapsed();
        // A scope that is dropped after its parent has ended already: it ended together with the parent.
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
        self.streams.iter().try_for_each(Stream::synchronize)?;
        let wall = self.zero.elapsed();
        let clock = self.times.as_ref().map(Times::clock);
        match self.times.take() {
            Some(Times::Cupti { tracing, moment, marks }) => self.by_cupti(&tracing, moment, &marks),
            Some(Times::Events(marks)) => self.by_events(&marks)?,
            None => {}
        }
        Ok(Profile { spans: self.spans, wall, clock })
    }

    fn by_cupti(&mut self, tracing: &Tracing, (moment, on_its_clock): (Instant, u64), marks: &[(usize, u64)]) {
        let since = |from: Instant, to: Instant| to.saturating_duration_since(from).as_nanos() as u64;
        let zero = (on_its_clock + since(moment, self.zero)).saturating_sub(since(self.zero, moment));
        // A failure leaves kernels without times, which the table says.
        let kernels = tracing.kernels().unwrap_or_default();
        for (span, mark) in marks {
            let Some(launch) = &mut self.spans[*span].launch else { continue };
            let ours = kernels.get(mark).into_iter().flatten().find(|kernel| kernel.grid == launch.grid);
            let nanoseconds = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
            launch.cuda = ours.map(|kernel| Cuda {
                start: nanoseconds(zero, kernel.start),
                time: nanoseconds(kernel.start, kernel.end),
            });
        }
    }

    fn by_events(&mut self, all: &[Marks]) -> Result<()> {
        let milliseconds = |ms: f32| Duration::from_secs_f64(f64::from(ms).max(0.0) / 1e3);
        for marks in all {
            let time = milliseconds(marks.start.elapsed_ms(&marks.end)?);
            // There always is one: at least the launch itself.
            let first = all.iter().find(|first| first.device == marks.device).unwrap_or(marks);
            let since = if first.span == marks.span { 0.0 } else { first.start.elapsed_ms(&marks.start)? };
            let start = self.spans[first.span].start + milliseconds(since);
            if let Some(launch) = &mut self.spans[marks.span].launch {
                launch.cuda = Some(Cuda { start, time });
            }
        }
        Ok(())
    }
}

impl Times {
    /// By CUPTI where it is there and nobody else uses it.
    fn start() -> Self {
        let cupti = Tracing::start().and_then(|tracing| Ok(((Instant::now(), tracing.now()?), tracing)));
        match cupti {
            Ok((moment, tracing)) => Self::Cupti { tracing, moment, marks: Vec::new() },
            Err(_) => Self::Events(Vec::new()),
        }
    }

    fn clock(&self) -> Clock {
        match self {
            Self::Cupti { .. } => Clock::Cupti,
            Self::Events(_) => Clock::Events,
        }
    }
}
