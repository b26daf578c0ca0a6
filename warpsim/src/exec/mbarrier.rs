//! mbarrier objects. Their state is stored in the eight bytes of shared memory that the kernel gave them.

use super::cx::Cx;
use super::mem_ops::lanes;
use super::run::Flow;
use super::shared_check::{self, Near};
use super::state::*;
use super::{cp_arrive, early_exit, mbarrier_check, shared, tma};
use crate::check::bar::Came;
use crate::check::clocks::{Known, Party};
use crate::check::race::{Stamp, together};
use crate::ir::*;
use crate::memory::window;
use crate::report::{Fault, Kind};

pub(super) const COUNT: u64 = 0xf_ffff;
/// Bits 61 and 62 of a live barrier read 0 and 1, so that neither all zeros nor all ones is a valid barrier.
const VALID: u64 = 1 << 62;
const MARK: u64 = 3 << 61;

/// The state of a barrier, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub phase: u32,
    pub expected: u32,
    pub pending: u32,
    /// Number of bytes that are still outstanding.
    pub tx: i32,
}

impl State {
    fn unpack(v: u64) -> Option<State> {
        is_state(v).then_some(State {
            phase: (v >> 63) as u32,
            expected: (v & COUNT) as u32,
            pending: (v >> 20 & COUNT) as u32,
            tx: ((v >> 40 & 0x1f_ffff) as i32) << 11 >> 11,
        })
    }
    fn pack(self) -> u64 {
        u64::from(self.phase) << 63
            | VALID
            | (self.tx as u64 & 0x1f_ffff) << 40
            | (u64::from(self.pending) & COUNT) << 20
            | u64::from(self.expected) & COUNT
    }
}

/// Whether a value may be the contents of a barrier.
pub(super) fn is_state(v: u64) -> bool {
    v & MARK == VALID
}

pub(super) fn get(cl: &Cluster, b: u32, off: u32) -> Option<State> {
    let blk = &cl.blocks[b as usize];
    blk.mbarriers.has(off).then(|| State::unpack(shared::read(&blk.shared, off as usize, 8)))?
}

fn set(cl: &mut Cluster, b: u32, off: u32, s: State) {
    let at = off as usize;
    cl.blocks[b as usize].shared[at..at + 8].copy_from_slice(&s.pack().to_le_bytes());
}

/// Updates a barrier, and completes its phase if nothing is outstanding.
fn update(cl: &mut Cluster, b: u32, off: u32, f: impl FnOnce(&mut State)) {
    let Some(mut s) = get(cl, b, off) else { return };
    f(&mut s);
    if s.pending == 0 && s.tx == 0 {
        s.phase ^= 1;
        s.pending = s.expected;
        cl.events += 1;
        cl.blocks[b as usize].mbarriers.advance(off);
        cl.asked.retain(|asked| asked.0 != (b, off));
        if let Some(c) = &mut cl.clocks {
            c.mbar_complete(b, off);
        }
    }
    set(cl, b, off, s);
}

/// An asynchronous copy delivered its bytes.
pub fn complete_tx(cl: &mut Cluster, b: u32, off: u32, bytes: u32) {
    if let Some(c) = &mut cl.clocks {
        c.mbar_copied(b, off);
    }
    update(cl, b, off, |s| s.tx -= bytes as i32);
}

/// Arrivals of `cp.async.mbarrier.arrive`, whose threads have already [told](tell) what they know.
pub fn copies_arrive(cl: &mut Cluster, (b, off): (u32, u32), n: u32) {
    if n > 0 {
        update(cl, b, off, |s| s.pending = s.pending.saturating_sub(n));
    }
}

/// Adds expected arrivals beyond the count that the barrier was initialised with.
pub fn expect_copies(cl: &mut Cluster, (b, off): (u32, u32), n: u32) {
    update(cl, b, off, |s| s.pending += n);
}

/// Passes the knowledge of these threads on to the threads that wait for the phase.
pub fn tell(cl: &mut Cluster, p: Party, b: u32, off: u32) {
    if let Some(c) = &mut cl.clocks {
        let known = c.release(p);
        c.mbar_arrive(&known, None, b, b, off);
    }
}

/// Checks an operation of these lanes on a barrier, as an access to its eight bytes.
fn touch(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, who: u32, (b, off): (u32, u32), kind: Mbar) {
    let l = who.trailing_zeros() as usize;
    let at = (b as usize, off as usize);
    mbarrier_check::outlives(cx, cl, w, s, who, (b, off), kind);
    if let Some(c) = &mut cl.clocks
        && kind != Mbar::Init
        && let Some(init) = c.mbar(b, off).init
        && c.init_visible(w.party(who), init)
    {
        // Fenced for the whole cluster: a relaxed cluster barrier is sufficient.
        if at.0 == w.block {
            return;
        }
        let stamp = Stamp::new(w.agent, l as u8, c.now(w.agent), cx.number(s), 0);
        return early_exit::visit(cx, cl, w, s, l, at.0, stamp, false);
    }
    // All operations except the initialisation access the barrier like atomics.
    let marks = if kind == Mbar::Init { 0 } else { Stamp::STRONG };
    let write = matches!(kind, Mbar::Init | Mbar::Inval);
    shared_check::touch(cx, cl, w, s, Near { who, lane: together(who), write, marks, ..Near::read(l, at, 8) });
}

/// Whether the phase with this parity is complete.
pub(super) fn over(cl: &Cluster, b: u32, off: u32, parity: u32) -> bool {
    get(cl, b, off).is_none_or(|s| s.phase != parity & 1)
}

/// Performs late copies on the barrier, and returns whether the phase with this parity is then complete.
fn ready(cx: &Cx<'_>, cl: &mut Cluster, b: u32, off: u32, parity: u32) -> bool {
    if !over(cl, b, off, parity) {
        tma::complete_on(cx, cl, (b, off));
        cp_arrive::complete_on(cx, cl, (b, off));
    }
    over(cl, b, off, parity)
}

/// Whether late copies are all that is outstanding in the phase.
fn copies_end(cl: &Cluster, b: u32, off: u32) -> bool {
    let Some(mut s) = get(cl, b, off) else { return false };
    let targets = cl.pending.iter().flat_map(|op| op.targets.iter().map(|t| (t.bar, op.bytes())));
    let ends = |s: &State| s.pending == 0 && s.tx == 0;
    for (_, bytes) in targets.filter(|(bar, _)| *bar == (b, off)) {
        s.tx -= bytes as i32;
        if ends(&s) {
            return true;
        }
    }
    (0..cp_arrive::due(cl, (b, off))).any(|_| {
        s.pending = s.pending.saturating_sub(1);
        ends(&s)
    })
}

/// Whether a thread that waits for the phase with this parity should test it again: it is complete, or would be if the pending copies were
/// performed.
pub fn wakes(cx: &Cx<'_>, cl: &mut Cluster, b: u32, off: u32, parity: u32) -> bool {
    over(cl, b, off, parity) || copies_end(cl, b, off) || ready(cx, cl, b, off, parity)
}

/// Records that threads test whether a phase is complete; returns whether one of them tests it for the first time.
fn asks_first(cl: &mut Cluster, bar: (u32, u32), agent: usize, who: u32) -> bool {
    match cl.asked.iter_mut().find(|asked| (asked.0, asked.1) == (bar, agent)) {
        Some((_, _, lanes)) => who & !std::mem::replace(lanes, *lanes | who) != 0,
        None => {
            cl.asked.push((bar, agent, who));
            true
        }
    }
}

/// The barrier's location, from a shared or generic address.
pub fn place(cx: &Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, r: Reg, l: usize) -> Result<(u32, u32), Fault> {
    let addr = smem_address(cx, w, s, r, l)?;
    let (b, off) = shared::locate(cx, cl, w, s, l, addr, 8, 8)?;
    Ok((b as u32, off as u32))
}

/// A shared-memory address in a 32-bit or a (possibly generic) 64-bit register.
pub fn smem_address(cx: &Cx<'_>, w: &Warp, s: &Split, r: Reg, l: usize) -> Result<u64, Fault> {
    if r.class() == Class::R {
        return Ok(u64::from(w.regs.r(r)[l]));
    }
    let a = w.regs.q(r)[l];
    let base = window(MemSpace::Shared);
    match a >> 32 {
        0 => Ok(a),
        hi if hi == base >> 32 => Ok(a - base),
        _ => cx.fault(w, s, l as u32, Kind::OutOfBounds, "an address outside shared memory", Some(a)),
    }
}

pub fn run(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    kind: Mbar,
    m: u32,
) -> Result<Flow, Fault> {
    if let Mbar::Test { .. } = kind {
        return test(cx, cl, w, s, i, m, kind);
    }
    if kind == Mbar::PendingCount {
        let q = *w.regs.q(i.b);
        let out = q.map(|v| (v >> 20 & COUNT) as u32);
        w.regs.set_r(i.d, &out, m);
        return Ok(Flow::Next);
    }
    let count = |w: &Warp, l: usize| if i.b.is_some() { w.regs.r(i.b)[l] } else { 1 };
    let mut places = [(0, 0); 32];
    for l in lanes(m) {
        places[l] = place(cx, cl, w, s, i.a, l)?;
    }
    let m = if kind == Mbar::Init { mbarrier_check::once(m, |l| (places[l], count(w, l))) } else { m };
    for l in lanes(m) {
        touch(cx, cl, w, s, 1 << l, places[l], kind);
    }
    let known = what_arrivals_tell(cl, w, kind, &places, m, |l| count(w, l));
    for l in lanes(m) {
        let (b, off) = places[l];
        let x = count(w, l);
        if kind == Mbar::Init {
            if cx.opts.checks.sync && get(cl, b, off).is_some() {
                cx.report(w, s, l as u32, Kind::BarrierMisuse, Some(off.into()), None, |cx| {
                    let name = shared::describe(cx, off as usize);
                    format!("initialises the mbarrier at {off:#x}{name} again, without mbarrier.inval before")
                });
            }
            if x == 0 || u64::from(x) > COUNT {
                return cx.fault(
                    w,
                    s,
                    l as u32,
                    Kind::BarrierMisuse,
                    format!("an mbarrier for {x} arrivals"),
                    Some(off.into()),
                );
            }
            set(cl, b, off, State { phase: 0, expected: x, pending: x, tx: 0 });
            cl.blocks[b as usize].mbarriers.set(off, true);
            if let Some(c) = &mut cl.clocks {
                c.mbar_init(w.agent, l as u8, b, off);
            }
            continue;
        }
        let Some(old) = get(cl, b, off) else {
            return cx.fault(
                w,
                s,
                l as u32,
                Kind::BarrierMisuse,
                "an mbarrier that was not initialised, or was overwritten",
                Some(off.into()),
            );
        };
        mbarrier_check::bytes(cx, w, s, l, off, kind, x, old.tx)?;
        match kind {
            Mbar::Inval => cl.blocks[b as usize].mbarriers.set(off, false),
            Mbar::ExpectTx => update(cl, b, off, |t| t.tx += x as i32),
            Mbar::CompleteTx => complete_tx(cl, b, off, x),
            Mbar::Arrive { drop, expect, no_complete, narrow, relaxed } => {
                let n = if expect { 1 } else { x };
                if no_complete && old.pending <= n && old.tx == 0 {
                    cx.report(w, s, l as u32, Kind::BarrierMisuse, Some(off.into()), None, |_| {
                        "a .noComplete arrival completes the phase".into()
                    });
                }
                if old.pending < n {
                    cx.report(w, s, l as u32, Kind::BarrierMisuse, Some(off.into()), None, |_| {
                        format!(
                            "more arrivals than the mbarrier's phase expects ({} of {} pending, {n} arrive)",
                            old.pending, old.expected
                        )
                    });
                }
                if cx.opts.checks.sync && b as usize == w.block {
                    mbarrier_check::behind(cx, cl, w, s, l, (b, off));
                }
                if let Some(c) = &mut cl.clocks
                    && !(narrow && b as usize != w.block)
                {
                    // They have just told what they know.
                    let (agent, lane, time) = (w.agent, l as u8, c.now(w.agent) - 1);
                    let by = (!relaxed).then(|| Came { agent, lane, time, number: cx.number(s), waits: false });
                    c.mbar_arrive(&known[l % known.len()], by, w.block as u32, b, off);
                }
                let token = cl.blocks[b as usize].mbarriers.token(off, old.pack());
                update(cl, b, off, |t| {
                    if expect {
                        t.tx += x as i32;
                    }
                    if drop {
                        t.expected = t.expected.saturating_sub(n);
                    }
                    t.pending = t.pending.saturating_sub(n);
                });
                if i.d.is_some() {
                    w.regs.q[w.regs.qb + i.d.slot()][l] = token;
                }
            }
            _ => {}
        }
    }
    Ok(Flow::Next)
}

/// What the lanes of `m` tell the waiting threads: all lanes together, or each lane by itself if a phase completes between them, so that some
/// of them arrive in the next phase.
fn what_arrivals_tell(
    cl: &mut Cluster,
    w: &Warp,
    kind: Mbar,
    places: &[(u32, u32); 32],
    m: u32,
    count: impl Fn(usize) -> u32,
) -> Vec<Known> {
    let Mbar::Arrive { relaxed, expect, .. } = kind else { return vec![] };
    let (mut left, mut apart) = (m, false);
    while left != 0 {
        let (b, off) = places[left.trailing_zeros() as usize];
        let here = lanes(left).filter(|l| places[*l] == (b, off)).fold(0, |here, l| here | 1 << l);
        let n: u64 = lanes(here).map(|l| if expect { 1 } else { count(l).into() }).sum();
        apart |= get(cl, b, off).is_some_and(|s| n > u64::from(s.pending));
        left &= !here;
    }
    let Some(c) = &mut cl.clocks else { return vec![Known::default()] };
    let mut tell = |lanes: u32| match relaxed {
        true => c.release_relaxed(w.party(lanes), Scope::Block),
        false => c.release(w.party(lanes)),
    };
    if apart { (0..32).map(|l| tell(m & 1 << l)).collect() } else { vec![tell(m)] }
}

fn test(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    m: u32,
    kind: Mbar,
) -> Result<Flow, Fault> {
    let Mbar::Test { parity, blocking, relaxed, narrow } = kind else { return Ok(Flow::Next) };
    let mut done = 0;
    let mut waits: Vec<((u32, u32, u32), u32)> = vec![];
    for l in lanes(m) {
        let (b, off) = place(cx, cl, w, s, i.a, l)?;
        if b as usize != w.block {
            let message = "a wait on the mbarrier of another block";
            return cx.fault(w, s, l as u32, Kind::BarrierMisuse, message, Some(off.into()));
        }
        if get(cl, b, off).is_none() {
            return cx.fault(
                w,
                s,
                l as u32,
                Kind::BarrierMisuse,
                "a wait on an mbarrier that was not initialised, or was overwritten",
                Some(off.into()),
            );
        }
        let want = if parity { w.regs.r(i.b)[l] & 1 } else { (w.regs.q(i.b)[l] >> 63) as u32 };
        if !parity {
            mbarrier_check::stale(cx, cl, w, s, l, (b, off), w.regs.q(i.b)[l]);
        }
        match waits.iter_mut().find(|x| x.0 == (b, off, want)) {
            Some(x) => x.1 |= 1 << l,
            None => waits.push(((b, off, want), 1 << l)),
        }
    }
    for ((b, off, _), who) in &waits {
        touch(cx, cl, w, s, *who, (*b, *off), Mbar::PendingCount);
    }
    let mut late = false;
    for ((b, off, want), who) in &waits {
        // Late copies are not complete when a thread tests for the first time.
        let now = over(cl, *b, *off, *want);
        if !now && copies_end(cl, *b, *off) && asks_first(cl, (*b, *off), w.agent, *who) {
            late = true;
        } else if now || ready(cx, cl, *b, *off, *want) {
            done |= who;
        }
    }
    if done != m && blocking && !late && !s.expired && waits.len() == 1 {
        let (block, off, parity) = waits[0].0;
        return Ok(Flow::Retry(Wait::Mbar { block, off, parity }));
    }
    if let Some(c) = &mut cl.clocks {
        for ((b, off, _), who) in waits.iter().filter(|x| x.1 & done != 0) {
            let p = w.party(who & done);
            match relaxed {
                true => c.mbar_overhear(p, *b, *off, narrow),
                false => c.mbar_wake(p, *b, *off, narrow),
            }
        }
    }
    if done != m {
        w.tested = waits.iter().find(|x| x.1 & !done != 0).map(|x| x.0);
    }
    w.regs.set_pred(i.d, done, m);
    Ok(if done == m { Flow::Next } else { Flow::Block(Wait::Yield) })
}
