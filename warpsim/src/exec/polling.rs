//! Clusters whose threads only poll.
//!
//! While nothing changes in memory, a warp that comes back to a state it has been in goes round for ever. When all warps of a cluster do,
//! or wait, only another cluster can help; when that is so of all clusters, and no thread of the launch has had an effect on others since
//! the first was looked at, none ever will.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cp_arrive;
use super::cx::Cx;
use super::mem_ops::{addresses, lanes};
use super::state::*;
use super::stuck;
use crate::ir::{Inst, MemSpace, Op};
use crate::launch::Completion;
use crate::memory::space_of;

/// Turns without an effect after which a cluster is looked at: few have as many.
const PATIENCE: u64 = 16;

/// Warp instructions for which lanes that have come to a join wait there for others of their warp that ask for something: more than a loop
/// takes, as a rule, that ends by itself.
const HOLD: u64 = 1 << 17;
/// The same in a warp that has needed it once.
const HOLD_AGAIN: u64 = 1 << 12;

/// How long lanes of a warp have waited where ways meet.
#[derive(Default)]
pub struct Held {
    /// Instructions of the warp, at its turns.
    executed: u64,
    /// By join: how many they were when lanes came to it last.
    came: Vec<u64>,
    /// It has let lanes go.
    before: bool,
}

impl Held {
    /// Lanes have come to a join.
    pub fn came(&mut self, join: usize) {
        if self.came.len() <= join {
            self.came.resize(join + 1, 0);
        }
        self.came[join] = self.executed;
    }
}

/// After a turn of a warp: lets lanes go on that have waited long for the rest of it, if that has asked for something, whatever else it
/// does meanwhile. Only those that wait may have what the rest asks for.
pub fn release(w: &mut Warp, ran: u64, asked: bool) {
    w.held.executed += ran;
    let most = if w.held.before { HOLD_AGAIN } else { HOLD };
    if !asked || w.held.executed < most || w.joins.iter().all(|j| !j.used || j.arrived == 0) {
        return;
    }
    let held = std::mem::take(&mut w.held);
    let long = |join: usize| held.came.get(join).is_some_and(|came| held.executed - came >= most);
    let before = w.part_where(w.waiting(), long) || held.before;
    w.held = Held { before, ..held };
}

/// What is known of a cluster that may be polling.
#[derive(Default)]
pub struct Watch {
    /// Turns since its last effect other than a look at the clock.
    idle: u64,
    /// Turns since its last effect.
    quiet: u64,
    /// When its warps are looked at anew, which may not have been in their loops.
    again: u64,
    /// Effects of the launch so far when they were looked at.
    effects: u64,
    /// By warp: its state then, until it has come back to it.
    states: Vec<Option<State>>,
}

/// All that a warp's next instructions depend on, but memory.
struct State {
    r: Vec<[u32; 32]>,
    q: Vec<[u64; 32]>,
    p: Vec<u32>,
    local: Vec<u8>,
    ready: Vec<Split>,
    blocked: Vec<(Split, Wait)>,
    joins: Vec<Join>,
    group: Option<u32>,
}

impl State {
    fn of(w: &Warp) -> Self {
        let (g, ready, blocked) = (&w.regs, w.ready.clone(), w.blocked.clone());
        let (r, q, p) = (g.r.clone(), g.q.clone(), g.p.clone());
        State { r, q, p, local: w.local.clone(), ready, blocked, joins: w.joins.clone(), group: w.group }
    }

    fn is(&self, w: &Warp) -> bool {
        let g = &w.regs;
        self.ready == w.ready
            && self.blocked == w.blocked
            && self.group == w.group
            && self.p == g.p
            && self.r == g.r
            && self.q == g.q
            && self.joins == w.joins
            && self.local == w.local
    }
}

/// Whether an instruction does nothing that another warp can see, nor reads what changes by itself. Atomics count by their results.
pub fn silent(op: &Op) -> bool {
    match op {
        Op::St(a) => a.space == MemSpace::Local,
        Op::WmmaCopy(t) => !t.store,
        Op::Alu(_) | Op::Nop | Op::Ld(_) | Op::Atom(_) | Op::AtomWide(_) | Op::Prefetch | Op::Fence(_) => true,
        Op::Warp(_) | Op::ActiveMask | Op::Nanosleep | Op::IsSpacep(_) | Op::LdMatrix { .. } | Op::MovMatrix => true,
        Op::Mma(_) | Op::Wmma(_) | Op::Mapa { .. } | Op::GetCtaRank { .. } | Op::Alloca => true,
        Op::Mbar(kind) => kind.waits(),
        _ => false,
    }
}

/// Whether a store is to the lanes' own memory alone, which unoptimised code gives generic addresses of.
#[inline(always)]
pub fn private(w: &Warp, i: &Inst, space: MemSpace, m: u32) -> bool {
    let local = |addr: &[u64; 32]| lanes(m).all(|l| space_of(addr[l]) == MemSpace::Local);
    space == MemSpace::Local || space == MemSpace::Generic && local(&addresses(w, i))
}

/// Whether an instruction, but for a load or store, accesses nothing, or what others poll as well.
pub fn passive(op: &Op) -> bool {
    matches!(op, Op::Fence(_) | Op::Atom(_) | Op::AtomWide(_) | Op::Nanosleep | Op::Clock(_) | Op::ActiveMask | Op::Nop)
        || matches!(op, Op::Warp(_))
}

/// Whether an instruction may be one that asks whether somebody else has got on.
pub fn asks(op: &Op) -> bool {
    matches!(op, Op::Atom(_) | Op::AtomWide(_) | Op::Nanosleep | Op::Clock(_) | Op::Mbar(_))
}

/// After a turn of all warps: whether they poll, or wait for those who do, and how many effects the launch had had by then.
pub fn turned(cx: &mut Cx<'_>, cl: &mut Cluster, effects: &AtomicU64) -> Option<u64> {
    let (mine, polls) = (std::mem::take(&mut cx.effects), std::mem::take(&mut cx.polls));
    let mut idle = cl.watch.idle + 1;
    if mine != std::mem::take(&mut cx.glances) {
        cl.told = cl.executed;
        idle = 0;
    }
    // Whoever counts how often it has asked, or looks at the clock, never comes back to the same state.
    let parted = polls && idle >= 2 && stuck::part(cl);
    if mine != 0 || parted {
        effects.fetch_add(mine, Ordering::AcqRel);
        cl.watch = Watch { idle: if parted { 0 } else { idle }, ..Watch::default() };
        return None;
    }
    (cl.watch.idle, cl.watch.quiet) = (idle, cl.watch.quiet + 1);
    if cl.watch.quiet < PATIENCE || copies_are_late(cx, cl) {
        return None;
    }
    let (now, warps) = (effects.load(Ordering::Acquire), cl.blocks.iter().flat_map(|b| b.warps.iter().flatten()));
    let watch = &mut cl.watch;
    if watch.effects == now && !watch.states.is_empty() {
        for (w, state) in warps.clone().zip(&mut watch.states) {
            if state.as_ref().is_some_and(|state| state.is(w)) {
                *state = None;
            }
        }
        if watch.states.iter().all(Option::is_none) {
            return Some(now);
        }
    }
    if watch.quiet >= watch.again {
        watch.again = 2 * watch.quiet;
        watch.effects = now;
        watch.states = warps.map(|w| (!w.done()).then(|| State::of(w))).collect();
    }
    None
}

/// Whether copies are under way, which happen by themselves some time.
fn copies_are_late(cx: &Cx<'_>, cl: &Cluster) -> bool {
    let mut warps = cl.blocks.iter().flat_map(|b| b.warps.iter().flatten());
    cx.opts.async_completion == Completion::Latest
        && (!cl.pending.is_empty() || cp_arrive::any_due(cl) || warps.any(|w| !w.cp.is_empty() || !w.bulk.is_empty()))
}
