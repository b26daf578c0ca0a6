//! Shared-memory races: a shadow of the last write and the last two readers of every granule.

use super::clocks::Clocks;

/// Lane number of an access by several lanes at once.
pub const SEVERAL: u32 = 63;
/// Lane number of a warp-wide access (`ldmatrix`), ordered with all later accesses of its warp.
pub const WARP_WIDE: u32 = 62;
/// Time of an access that is still in flight.
pub const IN_FLIGHT: u32 = (1 << 27) - 1;

/// Who, when, where: packed in 64 bits. Zero is nobody.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp(pub u64);

impl Stamp {
    /// `agent` 10 bits, `lane` 6, `time` 27, `pc` 20, `proxy` 1 (accesses of the asynchronous proxy).
    #[inline(always)]
    pub fn new(agent: usize, lane: u32, time: u32, pc: u32, proxy: bool) -> Self {
        Stamp(
            (agent as u64 & 1023) << 54
                | u64::from(lane & 63) << 48
                | u64::from(time.min(IN_FLIGHT)) << 21
                | u64::from(pc & 0xf_ffff) << 1
                | u64::from(proxy),
        )
    }
    #[inline(always)]
    pub fn agent(self) -> usize {
        (self.0 >> 54) as usize
    }
    #[inline(always)]
    pub fn lane(self) -> u32 {
        (self.0 >> 48 & 63) as u32
    }
    #[inline(always)]
    pub fn time(self) -> u32 {
        (self.0 >> 21) as u32 & IN_FLIGHT
    }
    pub fn pc(self) -> u32 {
        (self.0 >> 1 & 0xf_ffff) as u32
    }
    pub fn proxy(self) -> bool {
        self.0 & 1 == 1
    }
}

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Stamp,
    read: Stamp,
    /// An earlier reader of another warp.
    other: Stamp,
}

/// Why two accesses conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Unordered,
    /// The earlier one is asynchronous and nobody waited for it.
    InFlight,
    /// Ordered, but a generic write was not fenced before the asynchronous proxy reads it.
    Proxy,
}

/// A conflict with an earlier access.
#[derive(Clone, Copy)]
pub struct Conflict {
    pub stamp: Stamp,
    pub write: bool,
    pub cause: Cause,
}

/// The shadow of one block's shared memory.
pub struct SharedShadow {
    shift: u32,
    cells: Vec<Cell>,
}

impl SharedShadow {
    pub fn new(bytes: usize, grain: u32) -> Self {
        let shift = grain.trailing_zeros();
        SharedShadow { shift, cells: vec![Cell::default(); (bytes >> shift) + 1] }
    }

    fn conflict(clocks: &Clocks, me: Stamp, s: Stamp, write: bool) -> Option<Conflict> {
        if s.0 == 0 {
            return None;
        }
        if s.time() == IN_FLIGHT {
            // Accesses of one warp's unfinished operations are ordered among themselves.
            let same_op = me.time() == IN_FLIGHT && me.agent() == s.agent();
            return (!same_op).then_some(Conflict { stamp: s, write, cause: Cause::InFlight });
        }
        if s.agent() == me.agent() {
            let ordered =
                s.lane() == me.lane() || s.lane() == WARP_WIDE || s.time() < me.time() || !clocks.is_warp(me.agent());
            return (!ordered).then_some(Conflict { stamp: s, write, cause: Cause::Unordered });
        }
        None
    }

    /// Checks and records one access of `n` bytes. `who` is the warp whose knowledge counts.
    #[inline]
    pub fn access(
        &mut self,
        clocks: &Clocks,
        who: usize,
        me: Stamp,
        addr: usize,
        n: usize,
        write: bool,
    ) -> Option<Conflict> {
        if n == 0 {
            return None;
        }
        let mut found = None;
        let (first, last) = (addr >> self.shift, (addr + n - 1) >> self.shift);
        for c in &mut self.cells[first..=last] {
            let w = c.write;
            if w.0 != 0 && (w.agent() != me.agent() || w.lane() != me.lane() || w.time() == IN_FLIGHT) {
                found =
                    found.or(Self::conflict(clocks, me, w, true)).or_else(|| Self::foreign(clocks, who, me, w, true));
            }
            if me.proxy()
                && !write
                && w.0 != 0
                && !w.proxy()
                && found.is_none()
                && !clocks.proxy_knows(who, w.agent(), w.time())
            {
                found = Some(Conflict { stamp: w, write: true, cause: Cause::Proxy });
            }
            if write {
                for r in [c.read, c.other] {
                    if r.0 != 0 && found.is_none() {
                        found =
                            Self::conflict(clocks, me, r, false).or_else(|| Self::foreign(clocks, who, me, r, false));
                    }
                }
                *c = Cell { write: me, read: Stamp(0), other: Stamp(0) };
            } else if c.read.agent() == me.agent() && c.read.0 != 0 {
                let several = c.read.time() == me.time() && c.read.lane() != me.lane();
                c.read = if several { Stamp(me.0 | u64::from(SEVERAL) << 48) } else { me };
            } else {
                c.other = c.read;
                c.read = me;
            }
        }
        found
    }

    /// Conflicts with another agent's access that is over.
    #[inline(always)]
    fn foreign(clocks: &Clocks, who: usize, me: Stamp, s: Stamp, write: bool) -> Option<Conflict> {
        if s.agent() == me.agent()
            || s.agent() == who && s.time() != IN_FLIGHT
            || clocks.knows(who, s.agent(), s.time())
        {
            return None;
        }
        Some(Conflict {
            stamp: s,
            write,
            cause: if clocks.is_warp(s.agent()) { Cause::Unordered } else { Cause::InFlight },
        })
    }

    /// Gives in-flight accesses of `from` a definite time, once they have been waited for.
    pub fn settle(&mut self, addr: usize, n: usize, agent: usize, to: Stamp) {
        if n == 0 {
            return;
        }
        let (first, last) = (addr >> self.shift, (addr + n - 1) >> self.shift);
        let last = last.min(self.cells.len() - 1);
        for c in &mut self.cells[first.min(last)..=last] {
            for s in [&mut c.write, &mut c.read, &mut c.other] {
                if s.0 != 0 && s.agent() == agent && s.time() == IN_FLIGHT {
                    *s = Stamp(to.0 & !(0xf_ffff << 1) | s.0 & 0xf_ffff << 1);
                }
            }
        }
    }
}
