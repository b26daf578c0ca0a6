//! The device heap, from which threads allocate with `malloc` and `free`.
//!
//! Its chunks lie in one allocation of device memory, which is much larger than the heap's capacity, so that the addresses of a
//! freed chunk are reused late. Until then, an access to a freed chunk is reported with the chunk that it belonged to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::memory::AccessError;
use crate::report::{Finding, Kind, Place};

/// Default capacity of a heap in bytes: the driver's default.
pub const HEAP_BYTES: u64 = 8 << 20;
/// Chunk sizes are rounded up to a multiple of this.
const ALIGN: u64 = 16;

/// The call site of a `malloc` or `free`, and the thread that called it.
#[derive(Clone)]
pub struct Site {
    pub kernel: Arc<str>,
    pub place: Arc<Place>,
    pub block: [u32; 3],
    pub thread: [u32; 3],
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([tx, ty, tz], [bx, by, bz]) = (self.thread, self.block);
        write!(f, "thread ({tx},{ty},{tz}) of block ({bx},{by},{bz})")
    }
}

struct Chunk {
    size: u64,
    /// Bytes until the next chunk may begin.
    span: u64,
    taken: Site,
    freed: Option<Site>,
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Chunk { size, taken, freed, .. } = self;
        let state = if freed.is_some() { "freed " } else { "" };
        write!(f, "the {state}{size} bytes that {taken} allocated at {} in `{}`", taken.place, taken.kernel)?;
        match freed {
            Some(freed) => write!(f, " and {freed} freed at {} in `{}`", freed.place, freed.kernel),
            None => Ok(()),
        }
    }
}

#[derive(Default)]
struct State {
    /// Chunks by offset: those in use, and freed ones whose place has not been reused.
    chunks: BTreeMap<u64, Chunk>,
    /// Offset where the search for free space begins.
    next: u64,
    used: u64,
    /// Whether addresses are being reused.
    again: bool,
    /// Whether an allocation has failed because the heap was full.
    refused: bool,
}

/// The result of `malloc`.
pub struct Taken {
    pub offset: u64,
    /// Number of bytes, from there on, that an earlier chunk may have used; 0 if none did.
    pub stale: u64,
}

/// The device's heap.
pub struct Heap {
    /// Base address of the allocation that the heap lies in.
    pub base: u64,
    limit: u64,
    state: RwLock<State>,
}

impl Heap {
    /// Bytes of address space that a heap needs for chunks of the minimum size, each of which begins its own step.
    pub fn room(limit: u64) -> u64 {
        let step = Heap::step(limit);
        limit.saturating_mul(step / ALIGN).saturating_add(step)
    }

    /// Alignment of chunks.
    fn step(limit: u64) -> u64 {
        if limit <= 16 << 20 { 256 } else { 64 }
    }

    pub fn new(base: u64, limit: u64) -> Self {
        Heap { base, limit, state: RwLock::default() }
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// `malloc`; `None` if the heap is full, or if the requested size is zero.
    pub fn take(&self, size: u64, site: &Site) -> Option<Taken> {
        let s = &mut *self.state_mut();
        let counted = size.checked_next_multiple_of(ALIGN)?;
        if size == 0 {
            return None;
        }
        s.refused |= counted > self.limit - s.used.min(self.limit);
        if counted > self.limit - s.used.min(self.limit) {
            return None;
        }
        let span = (size + ALIGN).next_multiple_of(Heap::step(self.limit));
        let Some(offset) = s.find(span, Heap::room(self.limit)) else {
            s.refused = true;
            return None;
        };
        let stale: Vec<u64> = s.chunks.range(offset..offset + span).map(|c| *c.0).chain(s.before(offset)).collect();
        stale.iter().for_each(|k| drop(s.chunks.remove(k)));
        s.chunks.insert(offset, Chunk { size, span, taken: site.clone(), freed: None });
        (s.next, s.used) = (offset + span, s.used + counted);
        Some(Taken { offset, stale: if s.again { span } else { 0 } })
    }

    /// `free`: returns the size of the chunk, or what is wrong.
    pub fn give(&self, addr: u64, site: &Site) -> Result<u64, String> {
        let s = &mut *self.state_mut();
        let offset = addr.wrapping_sub(self.base);
        let Some((at, chunk)) = s.chunks.range_mut(..=offset).next_back() else {
            return Err("frees what `malloc` did not give".into());
        };
        if *at != offset {
            return Err(format!("frees byte {} of {chunk}: `free` takes the pointer that `malloc` gave", offset - at));
        }
        if chunk.freed.is_some() {
            return Err(format!("frees a second time {chunk}"));
        }
        chunk.freed = Some(site.clone());
        s.used -= chunk.size.next_multiple_of(ALIGN);
        Ok(chunk.size)
    }

    /// Whether some live chunk holds all of these bytes.
    pub fn find(&self, addr: u64, n: u64) -> Result<(), AccessError> {
        let s = self.state();
        let offset = addr.wrapping_sub(self.base);
        let found = s.chunks.range(..=offset).next_back();
        let Some((at, chunk)) = found else { return Err(AccessError::OutOfBounds) };
        match (offset - at).saturating_add(n) <= chunk.size {
            false => Err(AccessError::OutOfBounds),
            true if chunk.freed.is_some() => Err(AccessError::Freed),
            true => Ok(()),
        }
    }

    /// Describes where an address lies.
    pub fn describe(&self, addr: u64) -> String {
        let s = self.state();
        let offset = addr.wrapping_sub(self.base);
        match s.chunks.range(..=offset).next_back() {
            Some((at, chunk)) if offset - at < chunk.size => format!("byte {} of {chunk}", offset - at),
            Some((at, chunk)) => format!("{} bytes past the end of {chunk}", offset - at - chunk.size),
            None => "the heap, before every chunk".into(),
        }
    }

    /// What to add to the message about a null pointer.
    pub fn refused(&self) -> Option<String> {
        let s = self.state();
        let (limit, used) = (self.limit, s.used);
        s.refused
            .then(|| format!("; `malloc` has returned one, because the heap holds {limit} bytes ({used} are in use)"))
    }

    /// The chunks that are still live, one finding for each call site that allocated some.
    pub fn leaks(&self) -> Vec<Finding> {
        let mut sums: BTreeMap<(Arc<str>, u32), (u64, u64, Site)> = BTreeMap::new();
        for chunk in self.state().chunks.values().filter(|c| c.freed.is_none()) {
            let t = &chunk.taken;
            let sum = sums.entry((t.kernel.clone(), t.place.ptx_line)).or_insert_with(|| (0, 0, t.clone()));
            (sum.0, sum.1) = (sum.0 + chunk.size, sum.1 + 1);
            if (t.block, t.thread) < (sum.2.block, sum.2.thread) {
                sum.2 = t.clone();
            }
        }
        let finding = |(bytes, count, site): (u64, u64, Site)| Finding {
            kind: Kind::Leak,
            message: format!("{bytes} bytes of the heap, allocated here, were not freed"),
            kernel: site.kernel.to_string(),
            place: (*site.place).clone(),
            block: site.block,
            thread: site.thread,
            address: None,
            earlier: None,
            count,
        };
        sums.into_values().map(finding).collect()
    }
}

impl State {
    /// The offset of this many contiguous bytes that no live chunk occupies, after the most recent chunk if possible.
    fn find(&mut self, span: u64, room: u64) -> Option<u64> {
        for start in [self.next, 0] {
            let mut at = start;
            while at + span <= room {
                let mut here = self.chunks.range(..at + span).rev().take_while(|(k, c)| *k + c.span > at);
                match here.find(|(_, c)| c.freed.is_none()) {
                    Some((k, c)) => at = k + c.span,
                    None => return Some(at),
                }
            }
            self.again = true;
        }
        None
    }

    /// The freed chunk that begins before an offset and extends past it.
    fn before(&self, offset: u64) -> Option<u64> {
        let (k, c) = self.chunks.range(..offset).next_back()?;
        (k + c.span > offset).then_some(*k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        Site { kernel: "k".into(), place: Arc::default(), block: [0; 3], thread: [0; 3] }
    }

    #[test]
    fn places_are_used_again_when_all_have_been_used() {
        let heap = Heap::new(0, 64);
        let mut seen = vec![];
        for round in 0..20 {
            let t = heap.take(40, &site()).unwrap();
            // There are five places.
            assert_eq!((t.stale != 0, seen.contains(&t.offset)), (round >= 5, round >= 5), "{round}");
            seen.push(t.offset);
            assert!(heap.take(40, &site()).is_none(), "it is full");
            assert_eq!(heap.find(t.offset, 40), Ok(()));
            assert_eq!(heap.find(t.offset + 1, 40), Err(AccessError::OutOfBounds));
            heap.give(t.offset, &site()).unwrap();
            assert_eq!(heap.find(t.offset, 1), Err(AccessError::Freed));
            assert!(heap.give(t.offset, &site()).unwrap_err().contains("second time"));
        }
        assert!(heap.leaks().is_empty() && heap.refused().is_some());
    }

    #[test]
    fn chunks_in_use_are_kept_apart() {
        let heap = Heap::new(0, 256);
        // A long one in use between short ones that come and go.
        let first = heap.take(16, &site()).unwrap().offset;
        let long = heap.take(150, &site()).unwrap().offset;
        heap.give(first, &site()).unwrap();
        for _ in 0..100 {
            let t = heap.take(70, &site()).unwrap().offset;
            assert!(t + 70 <= long || t >= long + 150, "{t} {long}");
            heap.give(t, &site()).unwrap();
        }
        assert_eq!(heap.leaks().len(), 1);
        assert!(heap.take(u64::MAX, &site()).is_none() && heap.take(0, &site()).is_none());
    }
}
