//! Shared-memory races: a shadow of the last write and the last two readers of every granule.

use super::clocks::{Clocks, Party};
pub use super::view::{WARP_WIDE, among, members, named, together, union};

/// The time of an access that is still in flight.
pub const IN_FLIGHT: u32 = (1 << 26) - 1;

/// Who, when and where, packed into 64 bits. Zero means no access.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp(pub u64);

impl Stamp {
    pub const NOBODY: Stamp = Stamp(0);
    /// Marks an access of the asynchronous proxy.
    pub const PROXY: u64 = 1;
    /// Marks an atomic or another strong access: these do not race with each other.
    pub const STRONG: u64 = 2;
    /// The mark of a volatile access: strong, but not among the lanes of a warp.
    pub const VOLATILE: u64 = 3;
    /// The mark of a strong access with block scope.
    pub const NARROW: u64 = 6;

    /// `agent` 10 bits, `lane` 6, `time` 26, `pc` 19, the number of the instruction in its program, `marks` 3.
    #[inline(always)]
    pub fn new(agent: usize, lane: u8, time: u32, pc: u32, marks: u64) -> Self {
        Stamp(
            (agent as u64 & 1023) << 54
                | u64::from(lane & 63) << 48
                | u64::from(time.min(IN_FLIGHT)) << 22
                | u64::from(pc & 0x7_ffff) << 3
                | marks,
        )
    }
    #[inline(always)]
    pub fn agent(self) -> usize {
        (self.0 >> 54) as usize
    }
    #[inline(always)]
    pub fn lane(self) -> u8 {
        (self.0 >> 48 & 63) as u8
    }
    #[inline(always)]
    pub fn time(self) -> u32 {
        (self.0 >> 22) as u32 & IN_FLIGHT
    }
    pub fn pc(self) -> u32 {
        (self.0 >> 3 & 0x7_ffff) as u32
    }
    pub fn proxy(self) -> bool {
        self.0 & 7 == Stamp::PROXY
    }
    /// Whether two accesses may be unordered.
    fn may_meet(self, o: Stamp) -> bool {
        self.0 & o.0 & Stamp::STRONG != 0 && !self.volatile_lanes(o)
    }
    /// Whether both are volatile accesses of one warp: its lanes then rely on an order that nothing guarantees.
    pub fn volatile_lanes(self, o: Stamp) -> bool {
        self.0 & o.0 & 7 == Stamp::VOLATILE && self.agent() == o.agent()
    }
    /// Whether one of them is strong only at block scope, and the other is by a thread of another block.
    fn narrow_apart(self, o: Stamp, clocks: &Clocks) -> bool {
        let narrow = [self, o].iter().any(|s| s.0 & 7 == Stamp::NARROW);
        narrow && clocks.block_of(self.agent()).zip(clocks.block_of(o.agent())).is_some_and(|(a, b)| a != b)
    }
    /// The stamp to remember when this write follows another. Of two writes by the same thread at one time, it is the weak one, which must
    /// not race with a third access. A thread that is ordered after one of them is ordered after both.
    #[inline(always)]
    fn behind(self, before: Stamp) -> Self {
        let weak = before.0 & 7 == 0 && self.0 & Stamp::STRONG != 0;
        if weak && (self.0 ^ before.0) >> 22 == 0 && before != Stamp::NOBODY { before } else { self }
    }
    /// Whether this weak write follows a strong write that its thread has observed by a strong read, one of the `readers`: a thread that
    /// waits for a flag may reset the flag.
    fn takes_down(self, flag: Stamp, readers: [Stamp; 2]) -> bool {
        let mine = |r: &Stamp| r.agent() == self.agent() && members(r.lane()) >> self.lane() & 1 == 1;
        let seen = |r: &Stamp| r.0 & Stamp::STRONG != 0 && mine(r);
        self.0 & 7 == 0 && self.lane() < 32 && flag.0 & Stamp::STRONG != 0 && readers.iter().any(seen)
    }
    /// The same access, attributed to another lane instead of lane 0.
    #[inline(always)]
    pub fn by(self, lane: u8) -> Self {
        Stamp(self.0 | u64::from(lane & 63) << 48)
    }
    /// The same access by these lanes.
    fn with(self, lane: u8) -> Self {
        Stamp(self.0 & !(63 << 48)).by(lane)
    }
    /// The same access, with another agent, lane and time.
    fn known_by(self, (agent, lane, time): (usize, u8, u32)) -> Self {
        Stamp::new(agent, lane, time, self.pc(), self.0 & 7)
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Cell {
    write: Stamp,
    read: Stamp,
    /// An earlier reader: of another warp, or a lane that no group has in common with the last.
    other: Stamp,
}

impl Cell {
    /// Marks a chunk whose granules have cells of their own: no access has this stamp, because no agent has the highest number.
    const APART: Cell = Cell { write: Stamp(u64::MAX), read: Stamp::NOBODY, other: Stamp::NOBODY };

    #[inline(always)]
    fn is_apart(&self) -> bool {
        self.write == Cell::APART.write
    }

    /// Records a read.
    #[inline(always)]
    fn remember(&mut self, me: Stamp) {
        let read = self.read;
        // An access in flight does not become complete because its thread reads again.
        if read.agent() == me.agent()
            && read != Stamp::NOBODY
            && (read.time() != IN_FLIGHT || (read.lane(), IN_FLIGHT) == (me.lane(), me.time()))
        {
            let several = read.time() == me.time() && read.lane() != me.lane();
            match several.then(|| union(read.lane(), me.lane())) {
                Some(Some(lane)) => self.read = me.with(lane),
                Some(None) => (self.other, self.read) = (read, me),
                None => self.read = me,
            }
        } else {
            self.other = read;
            self.read = me;
        }
    }
}

/// The advice for [`Stamp::volatile_lanes`].
pub const VOLATILE_LANES: &str =
    "volatile orders nothing between the lanes of a warp: put a bar.warp.sync between them";

/// The advice for [`Stamp::narrow_apart`].
const NARROW_APART: &str = "the accesses are strong for their own block only: give them .cluster scope";

/// The reason why two accesses conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Unordered,
    /// The earlier access is asynchronous, and no thread waited for it.
    InFlight,
    /// The accesses are ordered, but a generic write was not fenced before the asynchronous proxy accessed the data.
    Proxy,
}

/// A conflict with an earlier access.
#[derive(Clone, Copy)]
pub struct Conflict {
    pub stamp: Stamp,
    pub write: bool,
    pub cause: Cause,
    /// Advice on how to order them.
    pub advice: &'static str,
}

/// A cell before and after an access without conflict. The cells of a tile are mostly equal, and equal cells need only be checked once.
#[derive(Default)]
pub struct Alike(Option<(Cell, Cell)>);

/// Granularity in bytes at which copies, tiles and vectors access memory together.
const CHUNK: u32 = 16;

/// The shadow of one block's shared memory.
///
/// Most accesses cover whole chunks; the granules of a chunk share one cell until an access distinguishes them.
pub struct SharedShadow {
    /// log₂ of a granule's bytes.
    shift: u32,
    /// log₂ of a chunk's granules.
    per: u32,
    /// By chunk; [`Cell::APART`] if its granules differ.
    chunks: Vec<Cell>,
    /// By granule, for chunks whose granules differ. Empty until there is such a chunk.
    granules: Vec<Cell>,
}

impl SharedShadow {
    pub fn new(bytes: usize, grain: u32) -> Self {
        let (shift, chunk) = (grain.trailing_zeros(), grain.max(CHUNK).trailing_zeros());
        SharedShadow {
            shift,
            per: chunk - shift,
            chunks: vec![Cell::default(); (bytes >> chunk) + 1],
            granules: Vec::new(),
        }
    }

    /// Visits the cells of an access of `n` > 0 bytes until `visit` returns false; returns whether it never did.
    #[inline(always)]
    fn cells(&mut self, addr: usize, n: usize, mut visit: impl FnMut(&mut Cell) -> bool) -> bool {
        let (first, last) = (addr >> self.shift, (addr + n - 1) >> self.shift);
        let mut at = first;
        while at <= last {
            let chunk = at >> self.per;
            let begin = chunk << self.per;
            let end = begin + (1 << self.per);
            let until = end.min(last + 1);
            let whole = at == begin && until == end;
            let cell = &mut self.chunks[chunk];
            if whole && !cell.is_apart() {
                if !visit(cell) {
                    return false;
                }
            } else {
                if !cell.is_apart() {
                    self.part(chunk);
                }
                if !self.granules[at..until].iter_mut().all(&mut visit) {
                    return false;
                }
                if whole {
                    self.join(chunk);
                }
            }
            at = until;
        }
        true
    }

    /// Gives each granule of a chunk a cell of its own.
    #[inline(never)]
    fn part(&mut self, chunk: usize) {
        if self.granules.is_empty() {
            self.granules = vec![Cell::default(); self.chunks.len() << self.per];
        }
        let cell = std::mem::replace(&mut self.chunks[chunk], Cell::APART);
        self.granules[chunk << self.per..][..1 << self.per].fill(cell);
    }

    /// Merges the cells of a chunk again, if they are equal.
    fn join(&mut self, chunk: usize) {
        let [first, rest @ ..] = &self.granules[chunk << self.per..][..1 << self.per] else { return };
        if rest.iter().all(|cell| cell == first) {
            self.chunks[chunk] = *first;
        }
    }

    /// Whether, and why, an access by `p` with stamp `me` conflicts with an earlier one.
    #[inline]
    fn conflict(clocks: &Clocks, p: Party, me: Stamp, s: Stamp, write: bool) -> Option<Conflict> {
        let found = |cause| {
            let unfenced = || clocks.lacks_fence(p, |seen| seen.knows(s.agent(), s.lane(), s.time()));
            let advice = match cause {
                _ if me.volatile_lanes(s) => VOLATILE_LANES,
                _ if me.may_meet(s) => NARROW_APART,
                Cause::Unordered => unfenced().unwrap_or("put a barrier between them"),
                _ => "put a barrier between them",
            };
            Some(Conflict { stamp: s, write, cause, advice })
        };
        if s == Stamp::NOBODY || me.may_meet(s) && !me.narrow_apart(s, clocks) {
            return None;
        }
        if me.volatile_lanes(s) && clocks.apart(p.agent) {
            return None;
        }
        // Even operations of the same thread that are in flight together are not ordered.
        if s.time() == IN_FLIGHT {
            return found(Cause::InFlight);
        }
        if clocks.after(p, s.agent(), s.lane(), s.time()) || !write && clocks.after_product(p, s.agent(), s.time()) {
            return None;
        }
        found(if clocks.is_warp(s.agent()) { Cause::Unordered } else { Cause::InFlight })
    }

    /// Records an access of the generic proxy, if its warp has `seen` everything that it could conflict with; returns whether it was
    /// recorded. That is the common case. If not, call [`access`](Self::access) for the whole access.
    #[inline(always)]
    pub fn pass(&mut self, seen: &[u32], me: Stamp, addr: usize, n: usize, write: bool) -> bool {
        let over = |s: Stamp| seen.get(s.agent()).map_or(0, |time| *time) >= s.time();
        self.cells(addr, n, |c| {
            if !over(c.write) || write && !(over(c.read) && over(c.other)) {
                return false;
            }
            if write {
                *c = Cell { write: me.behind(c.write), ..Cell::default() };
            } else {
                c.remember(me);
            }
            true
        })
    }

    /// Checks and records one access of `n` bytes by `p`, or by an asynchronous operation that `p` starts.
    pub fn access(
        &mut self,
        clocks: &Clocks,
        p: Party,
        me: Stamp,
        addr: usize,
        n: usize,
        write: bool,
    ) -> Option<Conflict> {
        self.access_part(clocks, p, me, addr, n, write, &mut Alike::default())
    }

    /// Like [`access`](Self::access), for one piece of a larger access: all pieces share the same `alike`.
    pub fn access_part(
        &mut self,
        clocks: &Clocks,
        p: Party,
        me: Stamp,
        addr: usize,
        n: usize,
        write: bool,
        alike: &mut Alike,
    ) -> Option<Conflict> {
        if n == 0 {
            return None;
        }
        let mut found = None;
        self.cells(addr, n, |c| {
            let before = *c;
            if let Some((was, is)) = alike.0
                && was == before
            {
                *c = is;
                return true;
            }
            let w = c.write;
            let mine = w.agent() == me.agent() && w.lane() == me.lane() && clocks.is_warp(w.agent());
            if (!mine || w.time() == IN_FLIGHT) && !(write && me.takes_down(w, [c.read, c.other])) {
                found = found.or_else(|| Self::conflict(clocks, p, me, w, true));
            }
            if me.proxy()
                && w != Stamp::NOBODY
                && !w.proxy()
                && found.is_none()
                && !clocks.proxy_sees(p, 0, w.agent(), w.lane(), w.time())
            {
                found = Some(Conflict { stamp: w, write: true, cause: Cause::Proxy, advice: "" });
            }
            if write {
                for r in [c.read, c.other] {
                    found = found.or_else(|| Self::conflict(clocks, p, me, r, false));
                }
                *c = Cell { write: me.behind(w), ..Cell::default() };
            } else {
                c.remember(me);
            }
            if found.is_none() {
                alike.0 = Some((before, *c));
            }
            true
        });
        found
    }

    /// Gives a thread's in-flight accesses a definite time, once the thread has waited for them.
    pub fn settle(&mut self, addr: usize, n: usize, agent: usize, lane: u8, time: u32) {
        self.hand_over(addr, n, (agent, lane, IN_FLIGHT), (agent, lane, time));
    }

    /// Reassigns the accesses to these bytes with one agent, lane and time to another agent, lane and time.
    pub fn hand_over(&mut self, addr: usize, n: usize, from: (usize, u8, u32), to: (usize, u8, u32)) {
        let n = n.min((self.chunks.len() << (self.shift + self.per)).saturating_sub(addr));
        if n == 0 {
            return;
        }
        self.cells(addr, n, |c| {
            for s in [&mut c.write, &mut c.read, &mut c.other] {
                if s.0 != 0 && (s.agent(), s.lane(), s.time()) == from {
                    *s = s.known_by(to);
                }
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checking each granule by itself gives the same results.
    #[test]
    fn chunks_hide_nothing() {
        const BYTES: usize = 128;
        let new = || SharedShadow::new(BYTES, 4);
        let alone =
            || SharedShadow { shift: 2, per: 0, chunks: vec![Cell::default(); BYTES / 4 + 1], granules: vec![] };
        let (mut state, mut conflicts, mut passed) = (1u64, 0, 0);
        let mut random = |n: u64| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let (mut chunks, mut granules, mut clocks) = (new(), alone(), Clocks::new(1, 2, false));
            for _ in 0..50 {
                let (agent, lane) = (random(2) as usize, random(2) as u8);
                let p = Party { agent, lanes: 1 << lane, whole: false };
                if random(8) == 0 {
                    clocks.sync_lanes(Party { agent, lanes: !0, whole: true });
                    continue;
                }
                let me = Stamp::new(agent, lane, clocks.now(agent), random(9) as u32, 0);
                let size = [4, 8, 16, 32, 64][random(5) as usize];
                let at = random((BYTES / size) as u64) as usize * size;
                let write = random(2) == 0;
                let seen = clocks.seen(agent);
                let pass = chunks.pass(seen, me, at, size, write);
                assert_eq!(pass, granules.pass(seen, me, at, size, write));
                passed += usize::from(pass);
                if !pass {
                    let found = [&mut chunks, &mut granules].map(|s| s.access(&clocks, p, me, at, size, write));
                    let [a, b] = found.map(|c| c.map(|c| (c.stamp.0, c.write, c.cause)));
                    assert_eq!(a, b);
                    conflicts += usize::from(a.is_some());
                }
            }
        }
        assert!(conflicts > 500 && passed > 500, "{conflicts} conflicts, {passed} passed");
    }
}
