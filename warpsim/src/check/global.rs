//! Global-memory races: a shadow of the last writer and two readers of every granule, shared by all host threads, and the knowledge that
//! blocks pass to each other through atomics.
//!
//! Within a cluster, its clocks decide. Between clusters, a thread publishes its knowledge at an address by a strong access (an atomic,
//! `st.release`, or a relaxed store after a fence); a thread that then makes a strong access to the same address acquires this knowledge.
//! After a relaxed load, it is acquired at the thread's next fence or barrier. After a volatile load, or a relaxed atomic that also writes,
//! it is acquired at once: published code that polls with volatile loads, or draws tickets with atomics, seldom has the fence.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::held::Held;
use super::view::{Far, members, union};
use crate::zeroed::{OutOfMemory, zeroed};

/// The knowledge about the warps of the grid that one address carries.
pub type Told = Arc<BTreeMap<(Far, u8), u32>>;

/// By granule: the writer, a reader, and an earlier reader of another warp.
type Cells = Box<[[AtomicU64; 3]]>;
/// Number of granules of a piece, for allocations with more than one piece: systems refuse an allocation larger than their memory, even if it
/// stays untouched.
const PIECE: usize = 1 << 25;
/// Maximum number of granules for which an allocation in pieces is tried.
const MOST: u64 = 1 << 37;

/// Maximum number of displaced atomics in each of the maps that hold them.
const DISPLACED: usize = 1 << 16;

/// Accesses since the last kernel boundary.
pub struct GlobalShadow {
    /// Whether several host threads use it.
    pub several: bool,
    pub shift: u32,
    /// By allocation.
    allocs: Vec<Vec<Cells>>,
    /// By address; several locks, so that host threads seldom contend.
    told: [Mutex<FxHashMap<u64, Told>>; 16],
    talked: AtomicBool,
    /// Locks for atomics, by address: see [`turn`](Self::turn).
    turns: [Mutex<()>; 16],
    /// By allocation and granule: an atomic that a later one has displaced as the last writer, though nothing orders the two.
    displaced: [Mutex<FxHashMap<(usize, usize), GStamp>>; 16],
    any_displaced: AtomicBool,
    pub held: Held,
}

/// Who, when and where: block 18 bits, warp 5, lane 6, time 16, pc 16, mark 3. Zero means no access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GStamp(pub u64);

impl GStamp {
    /// All instructions from this one on share this number.
    pub const LAST: u32 = 0xffff;
    pub const NOBODY: GStamp = GStamp(0);
    /// Marks an access of the asynchronous proxy.
    pub const PROXY: u64 = 1;
    /// Marks an access of the asynchronous proxy that is still in flight.
    pub const IN_FLIGHT: u64 = 3;
    /// The mark of a read of data that no thread writes while the grid runs (`ld.global.nc`). Reads are never in flight.
    pub const CONSTANT: u64 = 3;
    /// The mark of a read by `cp.async`, whose thread knows when it is complete. In all other respects it is a read like any other.
    pub const COPY: u64 = 5;
    /// Marks an atomic or another strong access; combined with the other marks, a reduction.
    pub const STRONG: u64 = 4;
    /// The mark of a volatile access, which is strong too.
    pub const VOLATILE: u64 = 2;
    /// The mark of a strong access with block scope.
    pub const NARROW: u64 = 6;

    /// Times start at one, so that no stamp is zero.
    #[inline(always)]
    pub fn new(block: u64, warp: usize, lane: u8, time: u32, pc: u32, marks: u64) -> Self {
        GStamp(
            u64::from(far(block, warp)) << 41
                | u64::from(lane & 63) << 35
                | u64::from(time as u16) << 19
                | u64::from(pc.min(Self::LAST)) << 3
                | marks,
        )
    }
    pub fn far(self) -> Far {
        (self.0 >> 41) as Far
    }
    pub fn block(self) -> u64 {
        self.0 >> 46
    }
    #[inline(always)]
    pub fn warp(self) -> usize {
        (self.0 >> 41 & 31) as usize
    }
    pub fn lane(self) -> u8 {
        (self.0 >> 35 & 63) as u8
    }
    pub fn time(self) -> u16 {
        (self.0 >> 19) as u16
    }
    pub fn pc(self) -> u32 {
        (self.0 >> 3 & 0xffff) as u32
    }
    pub fn proxy(self) -> bool {
        self.0 & GStamp::PROXY != 0
    }
    pub fn in_flight(self) -> bool {
        self.0 & GStamp::IN_FLIGHT == GStamp::IN_FLIGHT
    }
    /// Whether two accesses may be unordered: both are strong, and the scope of each includes the other's thread.
    pub fn may_meet(self, o: GStamp) -> bool {
        let strong = |s: GStamp| s.0 & GStamp::STRONG != 0 || s.is(GStamp::VOLATILE);
        strong(self) && strong(o) && !self.narrow_apart(o) && !self.volatile_lanes(o)
    }
    /// Whether two accesses by different launches may be unordered: no scope below the GPU's includes both.
    pub fn may_meet_grid(self, o: GStamp) -> bool {
        [self, o].iter().all(|s| s.is(GStamp::VOLATILE) || s.0 & GStamp::STRONG != 0 && !s.is(GStamp::NARROW))
    }
    /// Whether one of them is strong only at block scope, and the other is by another block.
    pub fn narrow_apart(self, o: GStamp) -> bool {
        (self.is(GStamp::NARROW) || o.is(GStamp::NARROW)) && self.block() != o.block()
    }
    /// Whether both are volatile accesses of one warp: its lanes then rely on an order that nothing guarantees.
    pub fn volatile_lanes(self, o: GStamp) -> bool {
        self.is(GStamp::VOLATILE) && o.is(GStamp::VOLATILE) && self.far() == o.far()
    }
    /// Whether this access (a `write`, or else a read) is a read that relies on constant data.
    pub fn constant(self, write: bool) -> bool {
        !write && self.is(GStamp::CONSTANT)
    }
    /// Whether this access (a `write`, or else a read) is a read by `cp.async`.
    pub fn copy(self, write: bool) -> bool {
        !write && self.is(GStamp::COPY)
    }
    /// The same access without the mark of `cp.async`.
    pub fn uncopied(self, write: bool) -> Self {
        if self.copy(write) { GStamp(self.0 & !7) } else { self }
    }
    fn is(self, mark: u64) -> bool {
        self.0 & 7 == mark
    }
    /// The stamp to remember when this write follows another. Of two writes by the same thread at one time, it is the weak one, which must
    /// not race with a third access. A thread that is ordered after one of them is ordered after both.
    fn behind(self, before: GStamp) -> Self {
        let strong = [Self::STRONG, Self::VOLATILE, Self::NARROW].into_iter().any(|mark| self.is(mark));
        let hides = strong && before.is(0) && before != Self::NOBODY && (self.0 ^ before.0) >> 19 == 0;
        if hides { before } else { self }
    }
    /// Whether this weak write follows a strong write that its thread has observed by a strong read, one of the `readers`: a thread that
    /// waits for a flag may reset the flag.
    pub fn takes_down(self, flag: GStamp, readers: [GStamp; 2]) -> bool {
        let strong = |s: GStamp| [Self::STRONG, Self::VOLATILE, Self::NARROW].into_iter().any(|mark| s.is(mark));
        let mine = |r: &GStamp| r.far() == self.far() && members(r.lane()) >> self.lane() & 1 == 1;
        self.is(0) && self.lane() < 32 && strong(flag) && readers.iter().any(|r| strong(*r) && mine(r))
    }
    /// The same access, attributed to another lane instead of lane 0.
    #[inline(always)]
    pub fn by(self, lane: u8) -> Self {
        GStamp(self.0 | u64::from(lane & 63) << 35)
    }
    /// Whether this atomic may displace an earlier strong write of another warp before that is known to be over.
    pub fn displaces(self, old: GStamp) -> bool {
        let both = self.0 & old.0 & GStamp::STRONG != 0;
        both && old.far() != self.far() && !old.in_flight() && self.may_meet(old)
    }
    /// Whether both accesses are by the same thread.
    #[inline(always)]
    pub fn same_lane(self, o: GStamp) -> bool {
        self.0 >> 35 == o.0 >> 35
    }
}

/// A warp's number in the grid, truncated to what a stamp holds.
pub fn far(block: u64, warp: usize) -> Far {
    ((block & 0x3_ffff) << 5 | warp as u64 & 31) as Far
}

impl GlobalShadow {
    /// Shadows for allocations of these sizes, used by one or `several` host threads. They take memory only where a launch makes accesses.
    pub fn new(sizes: impl Iterator<Item = u64>, grain: u32, several: bool) -> Result<Self, OutOfMemory> {
        let shift = grain.trailing_zeros();
        let cells = |bytes: u64| {
            let count = bytes.div_ceil(grain.into());
            match zeroed(count) {
                Err(_) if (PIECE as u64..MOST).contains(&count) => {
                    let pieces = (0..count).step_by(PIECE).map(|from| zeroed((count - from).min(PIECE as u64)));
                    pieces.collect()
                }
                whole => whole.map(|cells| vec![cells]),
            }
        };
        Ok(GlobalShadow {
            several,
            shift,
            allocs: sizes.map(cells).collect::<Result<_, _>>()?,
            told: Default::default(),
            talked: AtomicBool::new(false),
            turns: Default::default(),
            displaced: Default::default(),
            any_displaced: AtomicBool::new(false),
            held: Held::default(),
        })
    }

    fn cell(&self, alloc: usize, granule: usize) -> Option<&[AtomicU64; 3]> {
        match &self.allocs.get(alloc)?[..] {
            [whole] => whole.get(granule),
            pieces => pieces.get(granule / PIECE)?.get(granule % PIECE),
        }
    }

    /// Records an access; returns the earlier writer and (for a write) readers.
    #[inline(always)]
    pub fn touch(&self, alloc: usize, granule: usize, me: GStamp, write: bool) -> [GStamp; 3] {
        let Some(cell) = self.cell(alloc, granule) else { return [GStamp::NOBODY; 3] };
        // An access by another host thread in between is seen the next time, and sees this access.
        loop {
            if let Some(earlier) = self.record(cell, me, write) {
                return earlier;
            }
        }
    }

    /// The writer and the readers of a granule.
    pub fn at(&self, alloc: usize, granule: usize) -> [GStamp; 3] {
        self.cell(alloc, granule).map_or([GStamp::NOBODY; 3], |cell| cell.each_ref().map(|c| GStamp(c.load(Relaxed))))
    }

    /// The last writer of a granule.
    pub fn writer(&self, alloc: usize, granule: usize) -> GStamp {
        self.at(alloc, granule)[0]
    }

    /// The cells of an allocation; none if they are in pieces.
    #[inline(always)]
    pub fn cells(&self, alloc: usize) -> &[[AtomicU64; 3]] {
        match self.allocs.get(alloc) {
            Some(pieces) if pieces.len() == 1 => &pieces[0],
            _ => &[],
        }
    }

    /// Records an access of the generic proxy, if no other thread has made an access that it could conflict with; returns whether it was
    /// recorded. If not, call [`touch`](Self::touch) for the whole access. With `copying`, one of the earlier accesses may be a `cp.async` of
    /// this thread.
    #[inline(always)]
    pub fn pass(
        &self,
        cells: &[[AtomicU64; 3]],
        me: GStamp,
        off: usize,
        n: usize,
        (write, copying): (bool, bool),
    ) -> bool {
        let Some(cells) = cells.get(off >> self.shift..=(off + n - 1) >> self.shift) else { return false };
        let constant = me.constant(write);
        let over = |old: &AtomicU64, write: bool| {
            let old = GStamp(old.load(Relaxed));
            let apart = || old.proxy() && !old.constant(write) && (copying || !old.copy(write));
            // Behind an atomic of this thread there may be another one's.
            let atomic = || write && old.0 & GStamp::STRONG != 0 && me.0 & GStamp::STRONG == 0;
            old == GStamp::NOBODY || old.same_lane(me) && !constant && !apart() && !atomic()
        };
        if !cells.iter().all(|[w, r, o]| over(w, true) && (!write || over(r, false) && over(o, false))) {
            return false;
        }
        // If two host threads come at once, one of them sees the other's access.
        let nobody_between = |[w, r, o]: &[AtomicU64; 3]| over(w, true) && (!write || over(r, false) && over(o, false));
        cells.iter().all(|cell| self.record(cell, me, write).is_some() && (!self.several || nobody_between(cell)))
    }

    /// Records an access to a granule and returns the writer and, for a write, the readers before it. Returns `None` if another host thread
    /// intervened.
    #[inline(always)]
    fn record(&self, [w, r, o]: &[AtomicU64; 3], me: GStamp, write: bool) -> Option<[GStamp; 3]> {
        // The stamp is exchanged, which orders it with the loads that follow, unless it is there already and others see it.
        let replace = |cell: &AtomicU64, old: GStamp, new: GStamp| {
            if self.several && old != new {
                return cell.compare_exchange(old.0, new.0, SeqCst, Relaxed).is_ok();
            }
            cell.store(new.0, Relaxed);
            true
        };
        if write {
            let writer = GStamp(w.load(Relaxed));
            let done = replace(w, writer, me.behind(writer));
            let readers = [r, o].map(|c| GStamp(c.load(SeqCst)));
            return done.then_some([writer, readers[0], readers[1]]);
        }
        let reader = GStamp(r.load(Relaxed));
        let mut new = me;
        let apart = if reader.far() != me.far() {
            reader != GStamp::NOBODY
        } else if reader.time() == me.time() && !reader.same_lane(me) {
            let both = union(reader.lane(), me.lane());
            new = both.map_or(me, |lane| GStamp(me.0 & !(63 << 35)).by(lane));
            both.is_none()
        } else {
            false
        };
        if apart {
            o.store(reader.0, Relaxed);
        }
        let done = replace(r, reader, new);
        let writer = GStamp(w.load(SeqCst));
        done.then_some([writer, GStamp::NOBODY, GStamp::NOBODY])
    }

    /// Gives a thread's write that was in flight a definite time.
    pub fn settle(&self, alloc: usize, granule: usize, me: GStamp) {
        let Some([w, ..]) = self.cell(alloc, granule) else { return };
        let old = GStamp(w.load(Relaxed));
        if old.in_flight() && old.same_lane(me) {
            // The location of the access does not change.
            let keep = 0xffff << 3 | GStamp::STRONG;
            w.store(me.0 & !keep | old.0 & keep, Relaxed);
        }
    }

    /// Forgets all accesses to these bytes.
    pub fn clear(&self, alloc: usize, off: usize, n: usize) {
        for granule in off >> self.shift..(off + n) >> self.shift {
            self.cell(alloc, granule).into_iter().flatten().for_each(|c| c.store(0, Relaxed));
            self.displace(alloc, granule, |_| None);
        }
    }

    /// An atomic on a granule that is not its last writer, if any is remembered.
    pub fn displaced(&self, alloc: usize, granule: usize) -> Option<GStamp> {
        let any = self.any_displaced.load(Relaxed);
        any.then(|| self.displaced_map(granule).get(&(alloc, granule)).copied()).flatten()
    }

    /// Changes the displaced atomic that is remembered of a granule.
    pub fn displace(&self, alloc: usize, granule: usize, f: impl FnOnce(Option<GStamp>) -> Option<GStamp>) {
        let old = self.displaced(alloc, granule);
        let new = f(old);
        if old == new {
            return;
        }
        let mut map = self.displaced_map(granule);
        match new {
            Some(stamp) if old.is_some() || map.len() < DISPLACED => {
                map.insert((alloc, granule), stamp);
                self.any_displaced.store(true, Relaxed);
            }
            Some(_) => {}
            None => drop(map.remove(&(alloc, granule))),
        }
    }

    fn displaced_map(&self, granule: usize) -> MutexGuard<'_, FxHashMap<(usize, usize), GStamp>> {
        self.displaced[granule % self.displaced.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf(&self, place: u64) -> MutexGuard<'_, FxHashMap<u64, Told>> {
        self.told[(place >> 2) as usize % self.told.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lock that is held while an atomic is recorded and performed, so that atomics of several host threads are recorded and performed in
    /// the same order.
    pub fn turn(&self, place: u64) -> Option<MutexGuard<'_, ()>> {
        let turn = &self.turns[(place >> 2) as usize % self.turns.len()];
        self.several.then(|| turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether any thread has published knowledge.
    pub fn talked(&self) -> bool {
        self.talked.load(Relaxed)
    }

    /// The knowledge published at this address.
    pub fn hear(&self, place: u64) -> Option<Told> {
        self.shelf(place).get(&place).cloned()
    }

    /// Publishes knowledge at this address; `f` adds the knowledge of the publishing thread.
    pub fn tell(&self, place: u64, f: impl FnOnce(&mut Told)) {
        self.talked.store(true, Relaxed);
        f(self.shelf(place).entry(place).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Two host threads access the same granules at about the same time: at each, one of them sees the other's access.
    #[test]
    fn one_of_two_sees_the_other() {
        const COUNT: usize = 1 << 18;
        // The first thread of the grid writes, that of the next block reads.
        let stamp = |block: usize, time| GStamp::new(block as u64, 0, 0, time, 7, 0);
        for before in [0, COUNT] {
            let shadow = GlobalShadow::new([4 * COUNT as u64].into_iter(), 4, true).unwrap();
            let touch = |block, time, g| shadow.touch(0, g, stamp(block, time), block == 0);
            (0..before).for_each(|g| _ = [0, 1].map(|block| touch(block, 1, g)));
            let at = [0, 0].map(AtomicUsize::new);
            let alone = |block: usize, g: &usize| {
                at[block].store(g + 1, SeqCst);
                (0..1000).find(|_| at[1 - block].load(Relaxed) > *g);
                !touch(block, 2, *g).contains(&stamp(1 - block, 2))
            };
            let [writer, reader]: [Vec<usize>; 2] = std::thread::scope(|s| {
                let reader = s.spawn(|| (0..COUNT).filter(|g| alone(1, g)).collect());
                [(0..COUNT).filter(|g| alone(0, g)).collect(), reader.join().unwrap()]
            });
            assert!(!writer.iter().any(|g| reader.binary_search(g).is_ok()), "neither sees the other");
        }
    }

    #[test]
    fn shadows_that_do_not_fit_are_refused() {
        let error = GlobalShadow::new([64, 1 << 58].into_iter(), 4, true).err();
        assert_eq!(error.map(|e| e.bytes), Some(24 << 56));
    }
}
