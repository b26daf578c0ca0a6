//! Clusters whose threads only poll.
//!
//! While memory does not change, a warp that returns to an earlier state loops forever. If all warps of a cluster loop or wait, only another
//! cluster can help. If that holds for all clusters, and no thread of the launch has had an effect on others since the first cluster was
//! examined, then no thread will ever go on.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cp_arrive;
use super::cx::Cx;
use super::mem_ops::{addresses, lanes};
use super::state::*;
use super::stuck;
use crate::ir::{Inst, MemSpace, Op};
use crate::launch::Completion;
use crate::memory::space_of;

/// Turns without an effect after which a cluster is examined: few clusters reach this number.
const PATIENCE: u64 = 16;

/// Warp instructions for which lanes at a join wait for lanes of their warp that poll: more than a loop that ends by itself usually takes.
const HOLD: u64 = 1 << 17;
/// The limit for a warp in which lanes have been released before.
const HOLD_AGAIN: u64 = 1 << 12;

/// How long lanes of a warp have waited at joins.
#[derive(Default)]
pub struct Held {
    /// Instructions that the warp had executed at the last turn.
    executed: u64,
    /// By join: the value of `executed` when lanes last arrived there.
    came: Vec<u64>,
    /// Whether lanes of the warp have been released before.
    before: bool,
}

impl Held {
    /// Lanes have arrived at a join.
    pub fn came(&mut self, join: usize) {
        if self.came.len() <= join {
            self.came.resize(join + 1, 0);
        }
        self.came[join] = self.executed;
    }
}

/// After a turn of a warp: releases lanes that have waited long for the rest of the warp, if the rest has polled, whatever else it does. The
/// value that the rest polls for may depend on the waiting lanes.
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
    /// Turns since its last effect, not counting clock reads.
    idle: u64,
    /// Turns since its last effect.
    quiet: u64,
    /// When to examine its warps again, because they may not have reached their loops yet.
    again: u64,
    /// Number of effects of the launch when the warps were examined.
    effects: u64,
    /// By warp: its state at that time; `None` once the warp has returned to it.
    states: Vec<Option<State>>,
}

/// Everything that a warp's next instructions depend on, except memory.
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

/// Whether an instruction has no effect that another warp can see, and reads nothing that changes by itself. Atomics are judged by their
/// results.
pub fn silent(op: &Op) -> bool {
    match op {
        Op::St(a) => a.space == MemSpace::Local,
        Op::WmmaCopy(t) => !t.store,
        Op::Alu(_) | Op::Nop | Op::Ld(_) | Op::Atom(_) | Op::AtomWide(_) | Op::Prefetch | Op::Policy | Op::Fence(_) => {
            true
        }
        Op::Warp(_) | Op::ActiveMask | Op::Nanosleep | Op::IsSpacep(_) | Op::LdMatrix { .. } | Op::MovMatrix => true,
        Op::Mma(_) | Op::Wmma(_) | Op::Mapa { .. } | Op::GetCtaRank { .. } | Op::Alloca => true,
        Op::Mbar(kind) => kind.waits(),
        _ => false,
    }
}

/// Whether a store goes only to the lanes' own local memory; unoptimised code uses generic addresses for it.
#[inline(always)]
pub fn private(w: &Warp, i: &Inst, space: MemSpace, m: u32) -> bool {
    let local = |addr: &[u64; 32]| lanes(m).all(|l| space_of(addr[l]) == MemSpace::Local);
    space == MemSpace::Local || space == MemSpace::Generic && local(&addresses(w, i))
}

/// Whether an instruction other than a load or store accesses no memory, or only memory that others poll as well.
pub fn passive(op: &Op) -> bool {
    matches!(op, Op::Fence(_) | Op::Atom(_) | Op::AtomWide(_) | Op::Nanosleep | Op::Clock(_) | Op::ActiveMask | Op::Nop)
        || matches!(op, Op::Warp(_))
}

/// Whether an instruction may be a test for the progress of another thread.
pub fn asks(op: &Op) -> bool {
    matches!(op, Op::Atom(_) | Op::AtomWide(_) | Op::Nanosleep | Op::Clock(_) | Op::Mbar(_))
}

/// After a turn of all warps: whether they poll, or wait for warps that do. Returns the number of effects that the launch had had by then.
pub fn turned(cx: &mut Cx<'_>, cl: &mut Cluster, effects: &AtomicU64) -> Option<u64> {
    let (mine, polls) = (std::mem::take(&mut cx.effects), std::mem::take(&mut cx.polls));
    let mut idle = cl.watch.idle + 1;
    if mine != std::mem::take(&mut cx.glances) {
        cl.told = cl.executed;
        idle = 0;
    }
    // A thread that counts its polls, or reads a clock, never returns to the same state.
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

/// Whether copies are pending, which will complete by themselves.
fn copies_are_late(cx: &Cx<'_>, cl: &Cluster) -> bool {
    let mut warps = cl.blocks.iter().flat_map(|b| b.warps.iter().flatten());
    cx.opts.async_completion == Completion::Latest
        && (!cl.pending.is_empty() || cp_arrive::any_due(cl) || warps.any(|w| !w.cp.is_empty() || !w.bulk.is_empty()))
}
