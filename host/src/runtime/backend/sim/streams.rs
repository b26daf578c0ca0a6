//! The simulated GPU's streams: what each has yet to do, and who goes next.
//!
//! Work is done in the order it was queued and at once where the seed is 0. Otherwise it waits until the host has to: then it is done
//! as far as that needs it, in an order of streams that is drawn from the seed, and a stream that nobody waits for stays behind. So a
//! wait that is missing between streams shows as memory that is stale, not yet written, or freed.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use warpsim::{AccessError, Gpu};

use super::launch::{Job, Reports};
use super::{INVALID_HANDLE, INVALID_VALUE, failure};
use crate::runtime::backend::{Failure, Outcome, RawEvent, RawStream};
use crate::runtime::error::Error;

/// Most that a stream leaves undone: bytes of copies from the host, and operations.
const MOST_BYTES: usize = 64 << 20;
const MOST_OPS: usize = 1 << 14;

/// One thing to do.
pub(super) enum Op<'a> {
    Upload {
        dst: u64,
        src: Cow<'a, [u8]>,
    },
    Copy {
        dst: u64,
        src: u64,
        bytes: usize,
    },
    Fill {
        dst: u64,
        pattern: Vec<u8>,
        count: usize,
    },
    Forget {
        address: u64,
        bytes: usize,
    },
    Free {
        address: u64,
    },
    Launch(Box<Job>),
    Record(RawEvent),
    /// Holds the stream back until another one has reached a position.
    Wait {
        stream: usize,
        position: u64,
    },
}

/// A stream. Positions count its operations.
#[derive(Default)]
struct Track {
    waiting: VecDeque<Op<'static>>,
    /// Bytes that the waiting operations hold.
    bytes: usize,
    done: u64,
    /// A failure that has not been reported yet.
    failed: Option<Failure>,
}

impl Track {
    fn end(&self) -> u64 {
        self.done + self.waiting.len() as u64
    }
}

/// A position in a stream, and when it was reached.
#[derive(Clone, Copy, Default)]
struct Mark {
    stream: usize,
    position: u64,
    at: Option<Instant>,
}

/// Memory, streams and events.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) gpu: Gpu,
    /// Bytes of every live allocation.
    sizes: HashMap<u64, u64>,
    used: u64,
    /// The most there was at a time.
    peak: u64,
    tracks: Vec<Track>,
    /// Freed slots are reused.
    events: Vec<Option<Mark>>,
    free_events: Vec<usize>,
    /// How often the seed was asked.
    draws: u64,
}

impl Machine {
    pub(super) fn create_stream(&mut self) -> RawStream {
        self.tracks.push(Track::default());
        RawStream(self.tracks.len() - 1)
    }

    pub(super) fn create_event(&mut self) -> RawEvent {
        let slot = self.free_events.pop().unwrap_or(self.events.len());
        if slot == self.events.len() {
            self.events.push(None);
        }
        RawEvent(slot)
    }

    pub(super) fn destroy_event(&mut self, event: RawEvent) {
        if let Some(slot) = self.events.get_mut(event.0) {
            *slot = None;
            self.free_events.push(event.0);
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes in use, and the most there were at a time.
    pub(super) fn allocated(&self) -> (u64, u64) {
        (self.used, self.peak)
    }

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.used;
    }

    /// Memory, if `limit` bytes hold that much more.
    pub(super) fn alloc(&mut self, bytes: usize, limit: u64, seed: u64) -> Outcome<u64> {
        let too_much = |machine: &Self| bytes as u64 > limit.saturating_sub(machine.used);
        if too_much(self) {
            // Frees may still be queued: run everything before giving up.
            (0..self.tracks.len()).for_each(|stream| self.finish(RawStream(stream), seed));
        }
        if too_much(self) {
            return Err(Failure::OutOfMemory);
        }
        let address = self.gpu.try_alloc(bytes, "a tensor").map_err(|_| Failure::OutOfMemory)?;
        self.used += bytes as u64;
        self.peak = self.peak.max(self.used);
        self.sizes.insert(address, bytes as u64);
        Ok(address)
    }

    /// Does `op`, or leaves it for later.
    pub(super) fn submit(&mut self, stream: RawStream, op: Op<'_>, seed: u64) -> Outcome<()> {
        if seed == 0 && matches!(op, Op::Upload { .. }) {
            // An upload that is done at once needs no copy of the bytes.
            self.finish(stream, seed);
            self.perform(stream.0, op);
            return self.check(stream);
        }
        let record = if let Op::Record(event) = op { Some(event) } else { None };
        let track = self.track(stream)?;
        let op = op.into_owned();
        track.bytes += op.bytes();
        track.waiting.push_back(op);
        let (position, full) = (track.end(), track.bytes > MOST_BYTES || track.waiting.len() > MOST_OPS);
        if let Some(slot) = record.and_then(|event| self.events.get_mut(event.0)) {
            *slot = Some(Mark { stream: stream.0, position, at: None });
        }
        if seed == 0 || full {
            self.finish(stream, seed);
        }
        self.check(stream)
    }

    /// What `stream` has to wait for, for an event as it is now; nothing if it was never recorded.
    pub(super) fn wait_for(&self, event: RawEvent) -> Option<Op<'static>> {
        let mark = self.mark(event).ok()?;
        Some(Op::Wait { stream: mark.stream, position: mark.position })
    }

    /// What went wrong on the stream since it was last asked.
    pub(super) fn check(&mut self, stream: RawStream) -> Outcome<()> {
        self.track(stream)?.failed.take().map_or(Ok(()), Err)
    }

    /// Does all that the stream has queued.
    pub(super) fn finish(&mut self, stream: RawStream, seed: u64) {
        let end = self.tracks.get(stream.0).map_or(0, Track::end);
        self.run_until(stream.0, end, seed);
    }

    /// Does what comes before the event, and says when it was reached.
    pub(super) fn reach(&mut self, event: RawEvent, seed: u64) -> Outcome<Instant> {
        let mark = self.mark(event)?;
        self.run_until(mark.stream, mark.position, seed);
        self.check(RawStream(mark.stream))?;
        self.mark(event)?.at.ok_or_else(|| failure("event", INVALID_HANDLE, "the event was recorded again"))
    }

    /// Does the launches that report there.
    pub(super) fn finish_reports(&mut self, reports: &Reports, seed: u64) {
        for stream in 0..self.tracks.len() {
            if self.tracks[stream].waiting.iter().any(|op| matches!(op, Op::Launch(job) if job.adds_to(reports))) {
                self.finish(RawStream(stream), seed);
            }
        }
    }

    fn track(&mut self, stream: RawStream) -> Outcome<&mut Track> {
        self.tracks.get_mut(stream.0).ok_or_else(|| failure("stream", INVALID_HANDLE, "no such stream"))
    }

    fn mark(&self, event: RawEvent) -> Outcome<Mark> {
        let mark = self.events.get(event.0).copied().flatten();
        mark.ok_or_else(|| failure("event", INVALID_HANDLE, "the event was not recorded"))
    }

    fn run_until(&mut self, stream: usize, position: u64, seed: u64) {
        // A stack: the goal at its bottom is reached last.
        let mut goals = vec![(stream, position)];
        while let Some(&(stream, position)) = goals.last() {
            if self.tracks[stream].done >= position {
                goals.pop();
            } else if let Some(wait) = self.blocked(stream) {
                goals.push(wait);
            } else {
                self.step(stream);
            }
            if seed != 0 {
                self.detour(seed);
            }
        }
    }

    /// Where another stream has to be before this one can go on.
    fn blocked(&self, stream: usize) -> Option<(usize, u64)> {
        match self.tracks[stream].waiting.front() {
            Some(&Op::Wait { stream: first, position }) if self.tracks[first].done < position => {
                Some((first, position))
            }
            _ => None,
        }
    }

    /// Now and then, lets a stream that nobody waits for take a step.
    fn detour(&mut self, seed: u64) {
        self.draws += 1;
        let drawn = mix(seed.wrapping_add(mix(self.draws)));
        let stream = (drawn >> 8) as usize % self.tracks.len();
        if drawn.is_multiple_of(4) && self.blocked(stream).is_none() {
            self.step(stream);
        }
    }

    /// Does the next thing on a stream, if there is one.
    fn step(&mut self, stream: usize) {
        if let Some(op) = self.tracks[stream].waiting.pop_front() {
            self.tracks[stream].bytes -= op.bytes();
            self.perform(stream, op);
        }
    }

    fn perform(&mut self, stream: usize, op: Op<'_>) {
        let failed = match op {
            // A failure of the work that is waited for is reported on the stream that waits.
            Op::Wait { stream: first, .. } => self.tracks[first].failed.take(),
            Op::Record(event) => {
                let position = self.tracks[stream].done + 1;
                // The event may have been recorded somewhere else since then, or destroyed.
                if let Some(mark) = self.events.get_mut(event.0).and_then(Option::as_mut)
                    && (mark.stream, mark.position) == (stream, position)
                {
                    mark.at = Some(Instant::now());
                }
                None
            }
            op => self.execute(op).err(),
        };
        let track = &mut self.tracks[stream];
        track.done += 1;
        track.failed = match (track.failed.take(), failed) {
            (
                Some(Failure::Other(Error::Findings { mut findings })),
                Some(Failure::Other(Error::Findings { findings: more })),
            ) => {
                findings.extend(more);
                Some(Error::Findings { findings }.into())
            }
            (first, second) => first.or(second),
        };
    }

    fn execute(&mut self, op: Op<'_>) -> Outcome<()> {
        match op {
            Op::Upload { dst, src } => self.gpu.write(dst, &src).map_err(access("upload")),
            Op::Copy { dst, src, bytes } => self.gpu.copy(dst, src, bytes).map_err(access("copy")),
            Op::Fill { dst, pattern, count } => self.gpu.fill(dst, &pattern, count).map_err(access("fill")),
            Op::Forget { address, bytes } => self.gpu.forget(address, bytes).map_err(access("forget")),
            Op::Free { address } => {
                self.gpu.free(address).map_err(access("free"))?;
                self.used -= self.sizes.remove(&address).unwrap_or_default();
                Ok(())
            }
            Op::Launch(job) => job.run(&mut self.gpu, self.used),
            Op::Record(_) | Op::Wait { .. } => Ok(()),
        }
    }
}

impl Op<'_> {
    fn into_owned(self) -> Op<'static> {
        match self {
            Op::Upload { dst, src } => Op::Upload { dst, src: Cow::Owned(src.into_owned()) },
            Op::Copy { dst, src, bytes } => Op::Copy { dst, src, bytes },
            Op::Fill { dst, pattern, count } => Op::Fill { dst, pattern, count },
            Op::Forget { address, bytes } => Op::Forget { address, bytes },
            Op::Free { address } => Op::Free { address },
            Op::Launch(job) => Op::Launch(job),
            Op::Record(event) => Op::Record(event),
            Op::Wait { stream, position } => Op::Wait { stream, position },
        }
    }

    /// Host memory that it holds.
    fn bytes(&self) -> usize {
        match self {
            Op::Upload { src, .. } => src.len(),
            _ => 0,
        }
    }
}

/// A range that the caller should have kept inside an allocation.
pub(super) fn access(call: &'static str) -> impl Fn(AccessError) -> Failure {
    move |error| {
        let name = match error {
            AccessError::OutOfBounds => "outside every allocation",
            AccessError::Freed => "freed memory",
        };
        failure(call, INVALID_VALUE, name)
    }
}

/// Every bit of the result depends on every bit of `x` (the finaliser of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
