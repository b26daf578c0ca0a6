//! Happens-before within a cluster: what each thread knows of the others' progress, and how this knowledge is passed on.

use rustc_hash::FxHashMap;

use super::bar::{Bar, Came};
use super::maps::Acquired;
use super::mbar::SyncObject;
use super::products::Products;
pub use super::view::Known;
use super::view::{Far, View, WARP_WIDE, members};
use super::warp_clock::{Fenced, WarpClock, lanes};
use super::words::Left;
use crate::ir::Scope;

/// Threads of one warp that perform an operation together.
#[derive(Clone, Copy)]
pub struct Party {
    pub agent: usize,
    pub lanes: u32,
    /// Whether they are all threads of the warp that have not exited.
    pub whole: bool,
}

/// Clocks of one cluster.
pub struct Clocks {
    pub(super) warps: Vec<WarpClock>,
    /// (block, barrier id)
    bars: FxHashMap<(usize, u32), Bar>,
    /// (block, offset)
    pub(super) mbars: FxHashMap<(u32, u32), usize>,
    pub(super) mbar_objects: Vec<SyncObject>,
    pub cluster: SyncObject,
    /// What atomics and other strong accesses to an address have released.
    pub(super) places: FxHashMap<u64, Left>,
    /// By block: the knowledge of its threads when they exited.
    pub(super) at_exit: Vec<Known>,
    /// By warp, lane and start time of a copy: pairs of agent and time, each of which shows that the copy is complete.
    pub(super) copies: FxHashMap<(usize, u8, u32), Vec<(usize, u32)>>,
    pub(super) maps: Vec<Acquired>,
    /// By warp.
    pub(super) products: FxHashMap<usize, Products>,
    /// Whether the lanes of a warp run in lockstep: see [`Program::in_step`](crate::ir::Program::in_step).
    in_step: bool,
}

impl Clocks {
    pub fn new(blocks: usize, warps: usize, in_step: bool) -> Self {
        Clocks {
            warps: (0..warps * blocks).map(|_| WarpClock::new()).collect(),
            bars: FxHashMap::default(),
            mbars: FxHashMap::default(),
            mbar_objects: vec![],
            cluster: SyncObject::default(),
            places: FxHashMap::default(),
            at_exit: vec![Known::default(); blocks],
            copies: FxHashMap::default(),
            maps: vec![],
            products: FxHashMap::default(),
            in_step,
        }
    }

    pub fn is_warp(&self, agent: usize) -> bool {
        agent < self.warps.len()
    }

    #[inline(always)]
    pub fn now(&self, agent: usize) -> u32 {
        self.warps[agent].now
    }

    /// By agent: the latest time that all lanes of a warp know to be complete.
    #[inline(always)]
    pub fn seen(&self, agent: usize) -> &[u32] {
        self.warps[agent].known.seen.all()
    }

    /// Whether these threads are ordered after an access by a lane of `agent` at `time`.
    #[inline(always)]
    pub fn after(&self, p: Party, agent: usize, lane: u8, time: u32) -> bool {
        let w = &self.warps[p.agent];
        let mine = agent == p.agent;
        mine && (time < w.synced || lane == WARP_WIDE || p.lanes == 1u32.wrapping_shl(lane.into()) && lane < 32)
            || w.known.seen.knows(agent, lane, time)
            || w.each(p, |l, k| mine && l == lane || k.is_some_and(|k| k.seen.knows(agent, lane, time)))
            || lane >= 32 && self.after_each(p, agent, lane, time)
    }

    /// Whether these threads are ordered after an access by several lanes; they may know of these lanes one by one.
    #[cold]
    fn after_each(&self, p: Party, agent: usize, several: u8, time: u32) -> bool {
        several != WARP_WIDE && lanes(members(several)).all(|lane| self.after(p, agent, lane, time))
    }

    /// Whether these threads are ordered after an access by a warp of another cluster.
    pub fn after_far(&self, p: Party, warp: Far, lane: u8, time: u16) -> bool {
        self.warps[p.agent].either(p, |k| k.seen.knows_far(warp, lane, time))
    }

    /// Whether a write has been fenced for the asynchronous proxy (`space` 0: shared memory, 1: global memory).
    pub fn proxy_sees(&self, p: Party, space: usize, agent: usize, lane: u8, time: u32) -> bool {
        self.warps[p.agent].either(p, |k| k.proxy[space].knows(agent, lane, time))
    }

    /// Whether the initialisation of an mbarrier is visible to the cluster and to asynchronous copies.
    pub fn init_visible(&self, p: Party, init: (usize, u8, u32)) -> bool {
        let (agent, lane, time) = init;
        let visible = |k: &Known| k.inits.knows(agent, lane, time) || k.proxy[0].knows(agent, lane, time);
        self.warps[p.agent].either(p, visible)
    }

    /// The knowledge of these threads, including their own actions.
    pub(super) fn knowledge(&self, p: Party) -> Known {
        let w = &self.warps[p.agent];
        let mut k = w.known.clone();
        // What a warp has fenced as a whole, each lane has fenced only for itself, until the lanes synchronise.
        if let (Some(fenced), false) = (&mut k.fenced, p.whole) {
            fenced.iter_mut().for_each(|f| f.narrow(p.agent, w.synced - 1, p.lanes));
        }
        for (_, private) in w.private.iter().filter(|(l, _)| p.lanes >> l & 1 == 1) {
            k.join(private);
        }
        w.own(p, &mut k.seen);
        k
    }

    /// Starts a new time: knowledge that was passed on before does not cover later accesses.
    pub fn tick(&mut self, agent: usize) {
        self.warps[agent].now += 1;
    }

    /// The knowledge that these threads pass on when they arrive at a barrier.
    pub fn release(&mut self, p: Party) -> Known {
        let k = self.knowledge(p);
        self.tick(p.agent);
        k
    }

    /// The knowledge that a relaxed operation passes on: what was fenced before it, also by other threads that these threads are ordered
    /// after.
    pub fn release_relaxed(&self, p: Party, scope: Scope) -> Known {
        let k = self.knowledge(p);
        let seen = k.fenced.as_ref().map_or(View::default(), |fenced| fenced[scope as usize].clone());
        Known { seen, ..k }
    }

    pub fn acquire(&mut self, p: Party, k: &Known) {
        let w = &mut self.warps[p.agent];
        let grew = match p.whole {
            true => w.known.join(k),
            false => lanes(p.lanes).fold(false, |grew, lane| w.private_mut(lane).join(k) | grew),
        };
        w.version += u64::from(grew);
    }

    /// Synchronises these lanes: each of them then knows what all of them knew.
    pub fn sync_lanes(&mut self, p: Party) {
        let w = &mut self.warps[p.agent];
        w.version += 1;
        w.heard.share(p.lanes);
        if p.whole {
            for (_, k) in std::mem::take(&mut w.private) {
                w.known.join(&k);
            }
            w.now += 1;
            (w.synced, w.apart) = (w.now, false);
            return;
        }
        let mut all = Known::default();
        for (_, k) in w.private.iter().filter(|(l, _)| p.lanes >> l & 1 == 1) {
            all.join(k);
        }
        w.own(p, &mut all.seen);
        if let Some(fenced) = &w.known.fenced {
            let mine = all.fenced.get_or_insert_default();
            mine.iter_mut().zip(&**fenced).for_each(|(mine, fenced)| mine.share(fenced, p.agent, p.lanes));
        }
        w.now += 1;
        for lane in lanes(p.lanes) {
            w.private_mut(lane).join(&all);
        }
    }

    /// These lanes exchange values. What one lane has learnt of other warps, from the value of a flag that it passes on, becomes known to all
    /// of them. The exchange does not order the lanes with respect to each other.
    pub fn exchange(&mut self, p: Party) {
        let w = &mut self.warps[p.agent];
        let mut learnt = View::default();
        for (_, k) in w.private.iter().filter(|(l, _)| p.lanes >> l & 1 == 1) {
            learnt.join(&k.seen);
        }
        learnt.forget(p.agent);
        let grew = match p.whole {
            true => w.known.seen.join(&learnt),
            false => lanes(p.lanes).fold(false, |grew, lane| w.private_mut(lane).seen.join(&learnt) | grew),
        };
        w.version += u64::from(grew);
    }

    /// `fence.proxy.async` for shared memory (0) or global memory (1), or a release of tensor maps: makes everything known visible to the
    /// other proxy.
    pub fn proxy_fence(&mut self, p: Party, space: usize) {
        self.fence(p, |k, seen| _ = k.proxy[space].join(seen));
        self.tick(p.agent);
    }

    /// `fence.mbarrier_init`.
    pub fn init_fence(&mut self, p: Party) {
        self.fence(p, |k, seen| _ = k.inits.join(seen));
        self.tick(p.agent);
    }

    fn fence(&mut self, p: Party, f: impl Fn(&mut Known, &View)) {
        let w = &mut self.warps[p.agent];
        w.version += 1;
        if p.whole {
            let mut seen = w.known.seen.clone();
            w.own(p, &mut seen);
            f(&mut w.known, &seen);
        }
        // Knowledge of single lanes is fenced lane by lane.
        let each = if p.whole && w.private.is_empty() { 0 } else { p.lanes };
        for lane in lanes(each) {
            let mut seen = w.known.seen.clone();
            if let Some(k) = w.private(lane) {
                seen.join(&k.seen);
            }
            w.own(Party { lanes: 1 << lane, whole: false, ..p }, &mut seen);
            f(w.private_mut(lane), &seen);
        }
    }

    /// A fence of the generic proxy: it makes known what relaxed reads observed, and relaxed operations pass on what is known now. Threads
    /// that have only `polled` since their last fence need no new time.
    pub fn generic_fence(&mut self, p: Party, scope: Scope, polled: bool) {
        self.believe(p, scope);
        let w = &mut self.warps[p.agent];
        w.apart |= !p.whole;
        let (last, until) = (w.fenced, w.now);
        let same = (last.scope, last.version, last.until) == (scope as usize, w.version, until);
        if same && p.lanes & !last.lanes == 0 {
            return;
        }
        self.fence(p, |k, seen| {
            let fenced = k.fenced.get_or_insert_default();
            fenced[..=scope as usize].iter_mut().for_each(|f| _ = f.join(seen));
        });
        let w = &mut self.warps[p.agent];
        let lanes = p.lanes | if same { last.lanes } else { 0 };
        w.fenced = Fenced { lanes, scope: scope as usize, version: w.version, until };
        if !polled {
            self.tick(p.agent);
        }
    }

    /// Whether diverged lanes of a warp use fences: their volatile accesses may then be accesses to a flag. The same holds where lanes run in
    /// lockstep.
    pub fn apart(&self, agent: usize) -> bool {
        self.in_step || self.warps.get(agent).is_some_and(|w| w.apart)
    }

    /// Whether relaxed operations of this warp pass on any knowledge.
    pub fn has_fenced(&self, agent: usize) -> bool {
        let w = &self.warps[agent];
        w.known.fenced.is_some() || w.private.iter().any(|(_, k)| k.fenced.is_some())
    }

    /// Whether all lanes have the same knowledge.
    pub fn agree(&self, agent: usize) -> bool {
        self.warps[agent].private.is_empty()
    }

    /// Records arrivals at a barrier. A barrier counts as the fence after a relaxed read: one thread polls, and then all threads go on.
    /// Returns a participant of the last phase that these threads are not ordered after.
    pub fn bar_arrive(&mut self, p: Party, block: usize, id: u32, (number, waits): (u32, bool)) -> Option<Came> {
        self.believe(p, Scope::Gpu);
        let by = Came { agent: p.agent, lane: p.lanes.trailing_zeros() as u8, time: self.now(p.agent), number, waits };
        let last = self.bars.get(&(block, id));
        let unordered = last.and_then(|bar| bar.unordered(p.agent, |c| self.after(p, c.agent, c.lane, c.time)));
        let k = self.release(p);
        self.bars.entry((block, id)).or_default().arrive(&k, by);
        unordered
    }

    pub fn bar_complete(&mut self, block: usize, id: u32) {
        self.bars.entry((block, id)).or_default().complete();
    }

    pub fn bar_wake(&mut self, p: Party, block: usize, id: u32, phase: u32) {
        if let Some(k) = self.bars.get(&(block, id)).map(|bar| bar.published(phase)) {
            self.acquire(p, &k);
        }
        self.sync_lanes(p);
    }

    pub fn cluster_arrive(&mut self, p: Party, relaxed: bool) {
        if !relaxed {
            self.believe(p, Scope::Gpu);
        }
        let k = if relaxed { self.release_relaxed(p, Scope::Cluster) } else { self.release(p) };
        self.cluster.arriving.join(&k);
    }

    pub fn cluster_wake(&mut self, p: Party) {
        let k = self.cluster.published.clone();
        self.acquire(p, &k);
        self.sync_lanes(p);
    }

    /// Warp `agent` learns that `other` has reached `time`.
    pub fn learn(&mut self, agent: usize, other: usize, time: u32) {
        let w = &mut self.warps[agent];
        w.known.seen.learn(other, time);
        w.version += 1;
    }

    pub fn exit(&mut self, p: Party, block: usize) {
        let k = self.knowledge(p);
        self.at_exit[block].join(&k);
        // The remaining threads are now the whole warp.
        self.warps[p.agent].version += 1;
    }

    /// Whether some thread of a block was ordered after this access before it exited.
    pub fn ended_after(&self, block: usize, agent: usize, lane: u8, time: u32) -> bool {
        self.at_exit[block].seen.knows(agent, lane, time)
    }
}
