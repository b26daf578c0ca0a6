//! The order between streams: how much each has queued, and how much of the others' work it comes after.
//!
//! Positions count what a stream has queued. Nothing is recorded while streams keep to themselves: an event is made on a stream when
//! another one has to come after it, and serves all that have to come after the same position.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::runtime::backend::{Backend, Outcome, RawEvent, RawStream};
use crate::runtime::mutex::lock;

/// A backend's stream and its place among the others. Lives as long as the device, so that a slot stays the same stream.
#[derive(Debug)]
pub(crate) struct Queue {
    raw: RawStream,
    slot: usize,
    position: AtomicU64,
    mark: Mutex<Mark>,
    /// For each slot, the position up to which this stream already comes after the stream of that slot.
    after: Mutex<Vec<u64>>,
}

/// The event that other streams wait for, and how much of the work lies before it.
#[derive(Debug, Default)]
struct Mark {
    event: Option<RawEvent>,
    position: u64,
}

impl Queue {
    pub(crate) fn new(raw: RawStream, slot: usize) -> Self {
        Self { raw, slot, position: AtomicU64::new(0), mark: Mutex::default(), after: Mutex::default() }
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.raw
    }

    /// The position behind everything whose queueing has returned.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Counts an operation, once it is queued: an event recorded at the new position comes after it.
    pub(crate) fn advance(&self) {
        self.position.fetch_add(1, Ordering::AcqRel);
    }

    /// Lets what this stream queues from now on come after `first`'s work up to `position`.
    pub(crate) fn come_after(&self, b: &dyn Backend, first: &Queue, position: u64) -> Outcome<()> {
        let known = |after: &[u64]| after.get(first.slot).copied().unwrap_or(0);
        if self.slot == first.slot || known(&lock(&self.after)) >= position {
            return Ok(());
        }
        let (event, reached) = first.mark(b, position)?;
        b.wait(self.raw, event)?;
        // The wait counts as an operation: streams that come after it come after `first` as well.
        self.advance();
        let mut after = lock(&self.after);
        if after.len() <= first.slot {
            after.resize(first.slot + 1, 0);
        }
        after[first.slot] = reached.max(known(&after));
        Ok(())
    }

    /// An event behind `position`, and the position that it is behind.
    fn mark(&self, b: &dyn Backend, position: u64) -> Outcome<(RawEvent, u64)> {
        let mut mark = lock(&self.mark);
        let event = match mark.event {
            Some(event) => event,
            None => *mark.event.insert(b.create_event(false)?),
        };
        if mark.position < position {
            // Recording again does not affect streams that wait for the event already: they wait for what it marked then.
            let reached = self.position();
            b.record(event, self.raw)?;
            mark.position = reached;
        }
        Ok((event, mark.position))
    }

    /// Gives the event back; nobody waits for it any more.
    pub(crate) fn close(&self, b: &dyn Backend) {
        if let Some(event) = lock(&self.mark).event.take() {
            b.destroy_event(event);
        }
    }
}

/// All streams of a device, and those of them that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    all: Vec<Arc<Queue>>,
    idle: Vec<Arc<Queue>>,
}

impl Queues {
    /// Takes a queue that is not in use, or makes a new one with `make`.
    pub(crate) fn take<E>(&mut self, make: impl FnOnce() -> Result<RawStream, E>) -> Result<Arc<Queue>, E> {
        if let Some(queue) = self.idle.pop() {
            return Ok(queue);
        }
        let queue = Arc::new(Queue::new(make()?, self.all.len()));
        self.all.push(queue.clone());
        Ok(queue)
    }

    /// Lets others have the queue.
    pub(crate) fn give_back(&mut self, queue: Arc<Queue>) {
        self.idle.push(queue);
    }

    pub(crate) fn all(&self) -> &[Arc<Queue>] {
        &self.all
    }
}
