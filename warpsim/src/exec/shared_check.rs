//! Checks of shared memory: reads of uninitialised memory, and unordered accesses.

use super::cx::Cx;
use super::early_exit;
use super::mbarrier_check::{lanes_come, plain};
use super::mem_ops::{each_place, register_value};
use super::shared::{describe, split};
use super::state::*;
use crate::check::race::{Cause, Conflict, SharedShadow, Stamp, among, named, together};
use crate::ir::*;
use crate::memory::all_words;
use crate::report::{self, Earlier, Kind};

/// Checks a generic-proxy access, which is a store if there are `values`. Returns the lanes that read uninitialised bytes.
#[inline(always)]
pub fn check(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    at: &[u32; 32],
    m: u32,
    n: usize,
    a: Access,
    values: Option<&[Reg]>,
) -> u32 {
    let checks = cx.opts.checks;
    if checks.sync {
        lanes_come(cx, cl, w, s, at, m, n, values.is_some());
    }
    if checks.init || checks.race { look(cx, cl, w, s, at, m, n, a, values) } else { 0 }
}

fn look(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    at: &[u32; 32],
    m: u32,
    n: usize,
    a: Access,
    values: Option<&[Reg]>,
) -> u32 {
    let write = values.is_some();
    let marks = match a.order {
        Order::Weak => 0,
        Order::Volatile => Stamp::VOLATILE,
        _ => strength(a.scope),
    };
    // A strong read counts for every lane that may have made it: it may take down what it has read.
    let group = if s.mask == w.alive || marks != 0 { together } else { among };
    let mut rest = Vec::new();
    let Cluster { blocks, clocks, .. } = &mut *cl;
    let blk = &mut blocks[w.block];
    let init = cx.opts.checks.init.then_some(&mut blk.shared_init);
    let race = blk.shadow.as_deref_mut().zip(clocks.as_deref());
    let mut own = Own {
        init,
        race: race.map(|(shadow, clocks)| (shadow, clocks.seen(w.agent))),
        me: Stamp::new(w.agent, 0, clocks.as_ref().map_or(0, |clocks| clocks.now(w.agent)), cx.number(s), marks),
    };
    each_place(at, m, !write, |l, who| {
        let (block, off) = split(w.block, at[l].into());
        let lane = if who.is_power_of_two() { l as u8 } else { group(who) };
        let a = Near { who, lane, block, off, n, write, marks };
        if block != w.block || !own.passes(a) {
            rest.push(a);
        }
    });
    let mut holes = 0;
    for a in rest {
        if !written(cx, cl, a) {
            holes |= a.who;
        }
        let l = a.who.trailing_zeros() as usize;
        check_race(cx, cl, w, s, a, |now, earlier, number| {
            // Another lane of this store, not of an earlier one by the same instruction.
            let other = usize::from(earlier.lane()).min(31);
            let sibling = earlier.agent() == w.agent && earlier.pc() == number && earlier.lane() < 32;
            let sibling = sibling && m >> other & 1 == 1 && at[other] == at[l];
            values.is_some_and(|list| same_bytes(w, list, l, now, sibling.then_some(other), n))
        });
    }
    holes
}

/// The checkers' data on a block's own shared memory, and the stamp of the accessing warp's lane 0.
struct Own<'a> {
    init: Option<&'a mut Vec<u64>>,
    race: Option<(&'a mut SharedShadow, &'a [u32])>,
    me: Stamp,
}

impl Own<'_> {
    /// Records an access if it is not suspicious; otherwise [`check_race`] examines it.
    #[inline(always)]
    fn passes(&mut self, Near { off, n, write, lane, .. }: Near) -> bool {
        if let Some(init) = &mut self.init {
            if write {
                mark(init, off, n);
            } else if !marked(init, off, n) {
                return false;
            }
        }
        let Some((shadow, seen)) = &mut self.race else { return true };
        shadow.pass(seen, self.me.by(lane), off, n, write)
    }
}

/// An access to one location in shared memory.
#[derive(Clone, Copy)]
pub struct Near {
    /// The lanes that make it.
    pub who: u32,
    /// The lane number that the shadow stores for these lanes.
    pub lane: u8,
    pub block: usize,
    pub off: usize,
    pub n: usize,
    pub write: bool,
    /// The marks of its [`Stamp`].
    pub marks: u64,
}

impl Near {
    pub fn read(l: usize, (block, off): (usize, usize), n: usize) -> Self {
        Near { who: 1 << l, lane: l as u8, block, off, n, write: false, marks: 0 }
    }

    pub fn write(l: usize, at: (usize, usize), n: usize) -> Self {
        Near { write: true, ..Near::read(l, at, n) }
    }
}

/// initcheck: marks what it writes as written; returns whether what it reads was written.
fn written(cx: &Cx<'_>, cl: &mut Cluster, Near { block, off, n, write, .. }: Near) -> bool {
    let init = &mut cl.blocks[block].shared_init;
    if cx.opts.checks.init && write {
        mark(init, off, n);
    }
    !cx.opts.checks.init || marked(init, off, n)
}

/// Checks and records an access, which stores these `bytes` if it is a store. Returns whether all bytes that it reads were written.
pub fn visit(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, a: Near, bytes: &[u8]) -> bool {
    let known = written(cx, cl, a);
    check_race(cx, cl, w, s, a, |now, _, _| now == bytes);
    known
}

/// Checks and records an access; an uninitialised read is reported at once, because the value is used immediately.
pub fn touch(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, a: Near) {
    let Near { off, n, .. } = a;
    if !written(cx, cl, a) {
        cx.report(w, s, a.who.trailing_zeros(), Kind::UninitialisedShared, Some(off as u64), None, |cx| {
            let (bytes, name) = (report::bytes(n as u64), describe(cx, off));
            format!("reads {bytes} of shared memory at {off:#x} that nobody wrote{name}")
        });
    }
    check_race(cx, cl, w, s, a, |_, _, _| false);
}

/// racecheck. A store may write what is already there, or what another lane of the same store also writes: `same` tells it of the bytes in
/// memory, the earlier access and the number of this instruction.
fn check_race(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    a: Near,
    same: impl Fn(&[u8], Stamp, u32) -> bool,
) {
    let (l, Near { block: b, off, n, write, .. }) = (a.who.trailing_zeros() as usize, a);
    let Cluster { blocks, clocks, .. } = cl;
    let blk = &mut blocks[b];
    let (Some(shadow), Some(clocks)) = (&mut blk.shadow, clocks) else { return };
    let me = Stamp::new(w.agent, a.lane, clocks.now(w.agent), cx.number(s), a.marks);
    let found = shadow.access(clocks, w.party(a.who), me, off, n, write).filter(|c| {
        let harmless = || same(&blk.shared[off..off + n], c.stamp, cx.number(s));
        !(c.write && write && c.cause == Cause::Unordered && harmless())
    });
    if let Some(c) = found {
        report(cx, w, s, l, c, write, off);
    }
    if b != w.block {
        early_exit::started(cx, cl, w, s, l, b);
        early_exit::visit(cx, cl, w, s, l, b, me, write);
    }
}

/// The mark of a strong access.
fn strength(scope: Scope) -> u64 {
    if scope == Scope::Block { Stamp::NARROW } else { Stamp::STRONG }
}

/// An atomic of one lane; its location must have been written before.
pub fn touch_atomic(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    (b, off): (usize, usize),
    n: usize,
    (write, scope): (bool, Scope),
) {
    let access = Near { marks: strength(scope), write, ..Near::read(l, (b, off), n) };
    plain(cx, cl, w, s, access);
    let blk = &mut cl.blocks[b];
    if cx.opts.checks.init && !marked(&blk.shared_init, off, n) {
        cx.report(w, s, l as u32, Kind::UninitialisedShared, Some(off as u64), None, |cx| {
            format!("an atomic on shared memory at {off:#x} that nobody wrote{}", describe(cx, off))
        });
    }
    touch(cx, cl, w, s, access);
}

/// A store of a value that is already there, or that another lane of the same store also writes, is harmless.
fn same_bytes(w: &Warp, list: &[Reg], l: usize, now: &[u8], sibling: Option<usize>, n: usize) -> bool {
    let bytes = |lane: usize| -> Vec<u8> {
        let each = n / list.len();
        list.iter().flat_map(|r| register_value(w, *r, lane).to_le_bytes().into_iter().take(each)).collect()
    };
    let mine = bytes(l);
    mine == now || sibling.is_some_and(|other| bytes(other) == mine)
}

/// Describes the thread that made an access. If several lanes of its warp made it, names one other than the current lane.
pub fn who(cx: &Cx<'_>, st: Stamp, (agent, lane): (usize, usize)) -> String {
    let warps = cx.launch.threads.div_ceil(32) as usize;
    let cluster: usize = cx.launch.cluster.iter().map(|v| *v as usize).product();
    if st.agent() >= warps * cluster {
        return "an asynchronous operation".to_string();
    }
    let (lane, more) = named(st.lane(), (st.agent() == agent).then_some(lane));
    let [x, y, z] = cx.thread(st.agent() % warps, lane);
    format!("thread ({x},{y},{z}){more} of block rank {}", st.agent() / warps)
}

/// Turns a conflict into a finding.
pub fn report(cx: &mut Cx<'_>, w: &Warp, s: &Split, l: usize, c: Conflict, write: bool, off: usize) {
    let earlier = Earlier { place: cx.place_of(c.stamp.pc()), who: who(cx, c.stamp, (w.agent, l)), write: c.write };
    let verb = if write { "writes" } else { "reads" };
    let kind = match c.cause {
        Cause::Unordered => Kind::SharedRace,
        Cause::InFlight => Kind::AsyncRace,
        Cause::Proxy => Kind::MissingProxyFence,
    };
    cx.report(w, s, l as u32, kind, Some(off as u64), Some(earlier), |cx| {
        let what = format!("{verb} shared memory at {off:#x}{}", describe(cx, off));
        match c.cause {
            Cause::Unordered => format!("{what} while nothing orders it with the earlier access: {}", c.advice),
            Cause::InFlight => {
                format!("{what} while an asynchronous operation on it has not been waited for: wait for its group or mbarrier first")
            }
            Cause::Proxy => {
                format!("{what} through the asynchronous proxy without a fence.proxy.async after the write")
            }
        }
    });
}

pub fn mark(bits: &mut [u64], off: usize, n: usize) {
    all_words(off, n, |word, mask| {
        bits[word] |= mask;
        true
    });
}

pub fn unmark(bits: &mut [u64], off: usize, n: usize) {
    all_words(off, n, |word, mask| {
        bits[word] &= !mask;
        true
    });
}

pub fn marked(bits: &[u64], off: usize, n: usize) -> bool {
    all_words(off, n, |word, mask| bits[word] & mask == mask)
}

/// The first byte of a range that is not marked.
pub fn first_hole(bits: &[u64], off: usize, n: usize) -> Option<usize> {
    let mut hole = None;
    all_words(off, n, |word, mask| {
        let left = mask & !bits[word];
        hole = (left != 0).then(|| 64 * word + left.trailing_zeros() as usize);
        left == 0
    });
    hole
}

/// Start and size in bytes of each run of 16-byte units; each unit has one bit.
pub fn runs(places: &[u64]) -> impl Iterator<Item = (usize, usize)> + '_ {
    places.iter().enumerate().flat_map(|(word, bits)| {
        let mut left = *bits;
        std::iter::from_fn(move || {
            let first = left.trailing_zeros();
            let n = left.unbounded_shr(first).trailing_ones();
            left &= !(u64::MAX >> (64 - n.max(1)) << first.min(63));
            (n > 0).then_some(((64 * word + first as usize) * 16, n as usize * 16))
        })
    })
}
