//! Checks of global memory: reads of uninitialised memory, and unordered accesses.

use super::ahead;
use super::comes::{Values, comes};
use super::cx::Cx;
use super::cx::block_of;
use super::mem_ops::each_place;
use super::state::*;
use crate::check::clocks::Party;
use crate::check::global::{GStamp, far};
use crate::check::race::{Cause, VOLATILE_LANES, among, named, together};
use crate::check::view::AHEAD;
use crate::ir::{NumTy, Op, Order, Scope};
use crate::report::{Earlier, Kind, bytes};

/// The advice for a write to data that counts as constant.
const CONSTANT: &str = "ld.global.nc is for what nobody writes while the grid runs, whatever orders them: load it without .nc (a pointer that is \
                        neither const __restrict__ nor read by __ldg)";

/// The advice for strong accesses that overlap partially.
const MIXED: &str = "they are strong, but of different sizes: access it in one size, or order them";

const OF_CLUSTERS: &str = "the accesses are strong for their own cluster only: give them .gpu scope";

/// An access by one lane, or by an asynchronous operation that the lane starts.
#[derive(Clone, Copy)]
pub struct Touch {
    pub lane: usize,
    pub alloc: usize,
    pub addr: u64,
    pub bytes: u64,
    pub write: bool,
    /// The marks of its [`GStamp`].
    pub marks: u64,
}

/// Records the accesses, all in one allocation, that are not suspicious. Returns the lanes of the other accesses, which [`check_init`] and
/// [`check_race`] examine.
#[inline(always)]
pub fn pass(
    cx: &Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    alloc: usize,
    addr: &[u64; 32],
    m: u32,
    (bytes, write, marks): (u64, bool, u64),
) -> u32 {
    let (Some(shadow), Some(clocks)) = (cx.global_shadow, &cl.clocks) else { return m };
    if cx.launch.ahead.any(cl, w.party(m)) {
        return m;
    }
    let (al, cells) = (cx.mem.get(alloc), shadow.cells(alloc));
    let init = cx.opts.checks.init && !write;
    let copying = !w.cp.is_empty() || !cl.arrivals.is_empty();
    let me = GStamp::new(cl.blocks[w.block].linear, w.id, 0, clocks.now(w.agent), cx.number(s), marks);
    let group = if s.mask == w.alive || marks != 0 { together } else { among };
    let mut rest = 0;
    each_place(addr, m, !write, |l, who| {
        let (off, n) = ((addr[l] - al.base) as usize, bytes as usize);
        let lane = if who.is_power_of_two() { l as u8 } else { group(who) };
        if init && !al.marked(off, n) || !shadow.pass(cells, me.by(lane), off, n, (write, copying)) {
            rest |= who;
        }
    });
    rest
}

/// initcheck of a read.
#[inline(always)]
pub fn check_init(cx: &mut Cx<'_>, w: &Warp, s: &Split, t: Touch) {
    let al = cx.mem.get(t.alloc);
    if cx.opts.checks.init && !al.marked((t.addr - al.base) as usize, t.bytes as usize) {
        cx.report(w, s, t.lane as u32, Kind::UninitialisedGlobal, Some(t.addr), None, |cx| {
            format!("reads {} that nobody wrote: {}", bytes(t.bytes), cx.mem.describe(t.addr))
        });
    }
}

/// initcheck of a load. Returns true if only some of the bytes were written: then they are tracked, because the others may be padding, or
/// unused.
pub fn check_load(cx: &mut Cx<'_>, w: &Warp, s: &Split, t: Touch) -> bool {
    let partly = cx.opts.checks.init && partly(cx, t.alloc, t.addr, t.bytes);
    if !partly {
        check_init(cx, w, s, t);
    }
    partly
}

/// Whether some, but not all, of these bytes were written.
fn partly(cx: &Cx<'_>, alloc: usize, addr: u64, bytes: u64) -> bool {
    let al = cx.mem.get(alloc);
    let (off, bytes) = ((addr - al.base) as usize, bytes as usize);
    !al.marked(off, bytes) && (off..off + bytes).any(|at| al.marked(at, 1))
}

/// racecheck. `harmless` tells whether a write leaves memory unchanged. Lanes of one store are checked and performed one after the other.
#[inline(always)]
pub fn check_race(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, t: Touch, harmless: impl Fn(&Cx<'_>) -> bool) {
    check_by(cx, cl, w, s, t, harmless, None);
}

/// The same for a lane of a store.
#[inline(always)]
pub fn check_store(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, t: Touch, values: &Values<'_>) {
    check_by(cx, cl, w, s, t, |cx| values.is_there(cx, w, s, t), Some(values));
}

#[inline(always)]
fn check_by(
    cx: &mut Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    t: Touch,
    harmless: impl Fn(&Cx<'_>) -> bool,
    values: Option<&Values<'_>>,
) {
    let (Some(shadow), Some(clocks)) = (cx.global_shadow, &cl.clocks) else { return };
    // A bulk copy may have a size of zero.
    if t.bytes == 0 {
        return;
    }
    ahead::check(cx, cl, w, s, t);
    let (block, now) = (cl.blocks[w.block].linear, clocks.now(w.agent));
    let me = GStamp::new(block, w.id, t.lane as u8, now, cx.number(s), t.marks);
    let off = (t.addr - cx.mem.get(t.alloc).base) as usize;
    let (first, last) = (off >> shadow.shift, (off + t.bytes as usize - 1) >> shadow.shift);
    for g in first..=last {
        let earlier = shadow.touch(t.alloc, g, me, t.write);
        let displaced = if t.write { None } else { shadow.displaced(t.alloc, g) };
        if t.write {
            displace(cx, cl, w, s, t, (g, me, earlier[0]));
        } else if let Some(old) = displaced
            && judge(cx, cl, w, s, t, me.uncopied(false), [old, GStamp::NOBODY, GStamp::NOBODY], &harmless, values)
        {
            return;
        }
        if earlier != [GStamp::NOBODY; 3] && judge(cx, cl, w, s, t, me.uncopied(t.write), earlier, &harmless, values) {
            return;
        }
    }
}

/// Remembers an atomic that this one displaces as the last writer. Sums that several blocks add to are read by the last of them, which needs
/// to be ordered after all the others. Whoever overwrites the sum is not asked: the last to arrive at a counter may start it again.
fn displace(cx: &Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, t: Touch, (g, me, old): (usize, GStamp, GStamp)) {
    let Some(shadow) = cx.global_shadow else { return };
    let op = &cx.prog.funcs[s.func as usize].insts[s.pc as usize].op;
    if !matches!(op, Op::Atom(_) | Op::AtomWide(_) | Op::Bulk(_)) || t.marks & GStamp::STRONG == 0 {
        return shadow.displace(t.alloc, g, |_| None);
    }
    let open = |old: &GStamp| !after(cl, w.party(1 << t.lane), *old);
    shadow.displace(t.alloc, g, |first| match first.filter(open) {
        Some(first) if !first.same_lane(old) => Some(first),
        _ => Some(old).filter(|old| me.displaces(*old)).filter(open),
    });
}

/// Whether threads are ordered after an earlier access.
fn after(cl: &Cluster, p: Party, old: GStamp) -> bool {
    let Some(c) = &cl.clocks else { return true };
    let Some(b) = cl.blocks.iter().find(|b| far(b.linear, 0) == far(old.block(), 0)) else {
        return c.after_far(p, old.far(), old.lane(), old.time());
    };
    let agent = b.rank as usize * b.warps.len() + old.warp();
    c.after(p, agent, old.lane(), full_time(c.now(agent), old.time()))
}

/// A copy reads a tensor map: writes to the map have to be ordered before the copy, and fenced for it.
pub fn check_map(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, lane: usize, addr: u64) {
    let Ok(alloc) = cx.mem.find(addr, 128) else { return };
    let t = Touch { lane, alloc, addr, bytes: 128, write: false, marks: 0 };
    check_race(cx, cl, w, s, t, |_| false);
    let (Some(shadow), Some(c)) = (cx.global_shadow, &cl.clocks) else { return };
    let off = (addr - cx.mem.get(alloc).base) as usize;
    for old in (off >> shadow.shift..=(off + 127) >> shadow.shift).map(|g| shadow.writer(alloc, g)) {
        let host = cl.blocks.iter().find(|b| old != GStamp::NOBODY && far(b.linear, 0) == far(old.block(), 0));
        let Some(b) = host else { continue };
        let agent = b.rank as usize * b.warps.len() + old.warp();
        let time = full_time(c.now(agent), old.time());
        if let Some(lacks) = c.map_lacks(w.party(1 << lane), addr, agent, old.lane(), time) {
            let earlier = Earlier { place: cx.place_of_far(old), who: "a thread of the cluster".into(), write: true };
            return cx.report(w, s, lane as u32, Kind::MissingProxyFence, Some(addr), Some(earlier), |cx| {
                let place = cx.mem.describe(addr);
                format!("uses the tensor map at {place} without a fence.proxy.tensormap::generic.{lacks} after it was written")
            });
        }
    }
}

/// Checks an access against an `earlier` one, and reports a conflict; returns whether there was one.
#[inline(never)]
fn judge(
    cx: &mut Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    t: Touch,
    me: GStamp,
    earlier: [GStamp; 3],
    harmless: &impl Fn(&Cx<'_>) -> bool,
    values: Option<&Values<'_>>,
) -> bool {
    for (k, old) in earlier.into_iter().enumerate() {
        let was_write = k == 0;
        let mixed = || mixed(cx, s, old.pc()) || of_clusters(cx, cl, s, old);
        let (now, copy) = (old.uncopied(was_write), !was_write && t.write);
        let found = conflict(cx, cl, w.party(1 << t.lane), (me, t.write), (now, was_write), mixed);
        let found = found.or_else(|| (copy && may_read(cl, w, t, old)).then_some(Cause::InFlight));
        let (Some(cause), old) = (found, now) else { continue };
        if was_write && t.write && me.takes_down(old, [earlier[1], earlier[2]]) {
            continue;
        }
        // Writing a value that is already there, because another thread has written it, is harmless.
        if t.write
            && (cause == Cause::Unordered || copy)
            && earlier[0] != GStamp::NOBODY
            && (harmless(cx) || comes(cx, cl, w, s, t, earlier[0], || harmless(cx), values))
        {
            continue;
        }
        report(cx, cl, w, s, t, (me, old), was_write, cause);
        return true;
    }
    false
}

/// Whether an earlier read is by a copy that no thread has waited for.
fn may_read(cl: &Cluster, w: &Warp, t: Touch, old: GStamp) -> bool {
    let host = cl.blocks.iter().find(|b| far(b.linear, 0) == far(old.block(), 0));
    let (Some(c), Some(b), true) = (&cl.clocks, host, old.lane() < 32) else { return false };
    let (agent, lane) = (b.rank as usize * b.warps.len() + old.warp(), old.lane());
    if !old.copy(false) {
        let time = full_time(c.now(agent), old.time());
        return old.proxy() && c.may_read(w.party(1 << t.lane), agent, lane, time);
    }
    let other = if agent == w.agent { Some(w) } else { b.warps[old.warp()].as_deref() };
    other.is_some_and(|w| w.cp.iter().any(|e| e.may_read(lane.into(), t.addr, t.bytes)))
        || cl.arrivals.iter().any(|a| a.may_read(cl, (agent, lane), w, t.lane, (t.addr, t.bytes)))
}

/// Records writes of bulk stores that have been waited for.
pub fn settle(cx: &Cx<'_>, cl: &Cluster, w: &Warp, lane: usize, alloc: usize, addr: u64, bytes: u64) {
    let (Some(shadow), Some(clocks)) = (cx.global_shadow, &cl.clocks) else { return };
    if bytes == 0 {
        return;
    }
    let me = GStamp::new(cl.blocks[w.block].linear, w.id, lane as u8, clocks.now(w.agent), 0, GStamp::PROXY);
    let off = (addr - cx.mem.get(alloc).base) as usize;
    for g in off >> shadow.shift..=(off + bytes as usize - 1) >> shadow.shift {
        shadow.settle(alloc, g, me);
    }
}

fn conflict(
    cx: &Cx<'_>,
    cl: &Cluster,
    p: Party,
    (me, write): (GStamp, bool),
    (old, was_write): (GStamp, bool),
    mixed: impl Fn() -> bool,
) -> Option<Cause> {
    if old == GStamp::NOBODY || (me.may_meet(old) || me.volatile_lanes(old) && apart(cl, p)) && !mixed() {
        return None;
    }
    // Constant data may have been read at any time. Only if the writing thread itself read it is the read known to be complete.
    if me.constant(write) || old.constant(was_write) && !old.same_lane(me) {
        return Some(Cause::Unordered);
    }
    if was_write && old.in_flight() {
        return Some(Cause::InFlight);
    }
    let c = cl.clocks.as_ref()?;
    let Some(b) = cl.blocks.iter().find(|b| far(b.linear, 0) == far(old.block(), 0)) else {
        if !c.after_far(p, old.far(), old.lane(), old.time()) {
            return Some(Cause::Unordered);
        }
        // What the fences of another cluster have covered is not known here. Without any fence nothing is covered.
        let unseen = me.proxy() && was_write && !old.proxy() && old.far() != AHEAD && !cx.prog.fences_global;
        return unseen.then_some(Cause::Proxy);
    };
    let agent = b.rank as usize * b.warps.len() + old.warp();
    let time = full_time(c.now(agent), old.time());
    if !c.after(p, agent, old.lane(), time) {
        return Some(Cause::Unordered);
    }
    let unseen = me.proxy() && was_write && !old.proxy() && !c.proxy_sees(p, 1, agent, old.lane(), time);
    unseen.then_some(Cause::Proxy)
}

fn apart(cl: &Cluster, p: Party) -> bool {
    cl.clocks.as_ref().is_some_and(|c| c.apart(p.agent))
}

/// Whether this access or an earlier one by another cluster is strong for its own cluster only.
fn of_clusters(cx: &Cx<'_>, cl: &Cluster, s: &Split, old: GStamp) -> bool {
    let narrow = |number: u32| {
        let (func, pc) = cx.numbered(number);
        let scope = match cx.prog.funcs[func as usize].insts.get(pc as usize).map(|i| &i.op) {
            _ if number >= GStamp::LAST => None,
            Some(Op::Ld(a) | Op::St(a)) if a.order != Order::Volatile => Some(a.scope),
            Some(Op::Atom(a)) => Some(a.scope),
            Some(Op::AtomWide(a)) => Some(a.scope),
            _ => None,
        };
        scope == Some(Scope::Cluster)
    };
    let other = || old.far() != AHEAD && cl.blocks.iter().all(|b| far(b.linear, 0) != far(old.block(), 0));
    cl.blocks.len() > 1 && other() && (narrow(cx.number(s)) || narrow(old.pc()))
}

/// Whether an access and an earlier one have different sizes: strong accesses are strong only with respect to accesses of the same size.
fn mixed(cx: &Cx<'_>, s: &Split, earlier: u32) -> bool {
    let size = |number: u32| {
        let (func, pc) = cx.numbered(number);
        match cx.prog.funcs[func as usize].insts.get(pc as usize)?.op {
            // A stamp cannot hold the numbers of all instructions of a long program.
            _ if number >= GStamp::LAST => None,
            Op::Ld(a) | Op::St(a) => Some(a.bytes),
            // Two of 16 bits, or one of 32 bits for GPUs that do not split it.
            Op::Atom(a) if matches!(a.ty, NumTy::F16x2 | NumTy::BF16x2) => None,
            Op::Atom(a) => Some(a.ty.bytes()),
            Op::AtomWide(_) => Some(8),
            _ => None,
        }
    };
    size(cx.number(s)).zip(size(earlier)).is_some_and(|(mine, theirs)| mine != theirs)
}

/// Reconstructs a time: a stamp keeps its low 16 bits, and the upper bits are those of the latest matching time.
fn full_time(now: u32, time: u16) -> u32 {
    now.saturating_sub((now as u16).wrapping_sub(time).into())
}

fn report(
    cx: &mut Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    t: Touch,
    (me, old): (GStamp, GStamp),
    was_write: bool,
    cause: Cause,
) {
    // Blocks whose numbers differ by a multiple of 2^18 are indistinguishable; a block of this cluster is named if it matches.
    let host = cl.blocks.iter().find(|b| far(b.linear, 0) == far(old.block(), 0));
    let [bx, by, bz] = host.map_or_else(|| block_of(cx.launch.grid, old.block()), |b| b.ctaid);
    let (lane, others) = named(old.lane(), (old.far() == me.far()).then_some(t.lane));
    let [tx, ty, tz] = cx.thread(old.warp(), lane);
    let constant = old.constant(was_write);
    let what = if old.proxy() && !constant { "a bulk copy of thread" } else { "thread" };
    let who = format!("{what} ({tx},{ty},{tz}){others} of block ({bx},{by},{bz})");
    let earlier = Earlier { place: cx.place_of_far(old), who, write: was_write };
    let unfenced = cl.clocks.as_ref().and_then(|c| {
        c.lacks_fence(w.party(1 << t.lane), |seen| match host {
            Some(b) => {
                let agent = b.rank as usize * b.warps.len() + old.warp();
                seen.knows(agent, old.lane(), full_time(c.now(agent), old.time()))
            }
            None => seen.knows_far(old.far(), old.lane(), old.time()),
        })
    });
    let kind = match cause {
        Cause::Unordered => Kind::GlobalRace,
        Cause::InFlight => Kind::AsyncRace,
        Cause::Proxy => Kind::MissingProxyFence,
    };
    let advice = match (host, unfenced) {
        _ if constant || me.constant(t.write) => CONSTANT,
        _ if me.narrow_apart(old) => "the accesses are strong for their own block only: give them .gpu scope",
        _ if me.may_meet(old) && of_clusters(cx, cl, s, old) => OF_CLUSTERS,
        _ if me.may_meet(old) => MIXED,
        (Some(_), _) if me.volatile_lanes(old) => VOLATILE_LANES,
        (_, Some(advice)) => advice,
        (Some(b), _) if b.rank as usize == w.block => "put a barrier between them",
        (Some(_), _) => "put a cluster barrier between them, or a flag that one releases and the other acquires",
        (None, _) => "let one block fence or release at .gpu scope before it sets a flag that the other looks at first",
    };
    cx.report(w, s, t.lane as u32, kind, Some(t.addr), Some(earlier), |cx| {
        let verb = if t.write { "writes" } else { "reads" };
        let place = cx.mem.describe(t.addr);
        match cause {
            Cause::Unordered => format!("{verb} {place} while nothing orders it with the earlier access: {advice}"),
            Cause::InFlight if was_write => format!("{verb} {place} while a bulk store to it has not been waited for"),
            Cause::InFlight => format!("{verb} {place} while an asynchronous copy from it has not been waited for"),
            Cause::Proxy => {
                format!("{verb} {place} through the asynchronous proxy without a fence.proxy.async after the write")
            }
        }
    });
}

/// The mark of a strong access. Without clusters, each block is one.
pub fn strength(cl: &Cluster, scope: Scope) -> u64 {
    let narrow = scope == Scope::Block || scope == Scope::Cluster && cl.blocks.len() == 1;
    if narrow { GStamp::NARROW } else { GStamp::STRONG }
}
