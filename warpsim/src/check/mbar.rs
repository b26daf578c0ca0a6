//! mbarriers, for the checkers: the knowledge that their phases pass on, and the threads that arrived at them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::bar::Came;
use super::clocks::{Clocks, Known, Party};
use super::heard::Heard;
use super::view::{View, WARP_WIDE};

/// Accumulates arrivals; what a completed phase published remains readable.
#[derive(Clone, Default)]
pub struct SyncObject {
    pub arriving: Known,
    pub published: Known,
    /// Number of completed phases.
    pub phase: u32,
    /// mbarriers: knowledge from threads of other blocks, arriving and published.
    remote: Option<Box<[Known; 2]>>,
    /// mbarriers: agent, lane and time of the initialisation.
    pub init: Option<(usize, u8, u32)>,
    /// mbarriers: the arrivals in this phase and in the last one.
    came: [Vec<Came>; 2],
    /// mbarriers: by warp, its last use since the initialisation.
    used: FxHashMap<usize, Came>,
}

impl SyncObject {
    pub fn publish(&mut self) {
        self.published = self.arriving.clone();
        if let Some(remote) = &mut self.remote {
            remote[1] = remote[0].clone();
        }
        self.phase += 1;
        self.came = [vec![], std::mem::take(&mut self.came[0])];
    }
}

impl Clocks {
    /// The agent that represents the copies that complete on this mbarrier.
    pub fn mbar_agent(&mut self, block: u32, off: u32) -> usize {
        let next = self.mbar_objects.len();
        let k = *self.mbars.entry((block, off)).or_insert(next);
        if k == next {
            self.mbar_objects.push(SyncObject::default());
        }
        self.warps.len() + k
    }

    /// Where the mbarriers of a block were initialised.
    pub fn mbarriers(&self, block: u32) -> Vec<u32> {
        let there =
            |(at, k): (&(u32, u32), &usize)| (at.0 == block && self.mbar_objects[*k].init.is_some()).then_some(at.1);
        let mut all: Vec<u32> = self.mbars.iter().filter_map(there).collect();
        all.sort_unstable();
        all
    }

    pub fn mbar(&mut self, block: u32, off: u32) -> &mut SyncObject {
        let k = self.mbar_agent(block, off) - self.warps.len();
        &mut self.mbar_objects[k]
    }

    pub fn mbar_init(&mut self, agent: usize, lane: u8, block: u32, off: u32) {
        let now = self.now(agent);
        let o = self.mbar(block, off);
        (o.init, o.came, o.used) = (Some((agent, lane, now)), <[_; 2]>::default(), FxHashMap::default());
    }

    /// Lanes of a warp use an mbarrier: it has to outlive this.
    pub fn mbar_use(&mut self, by: Came, block: u32, off: u32) {
        self.mbar(block, off).used.insert(by.agent, by);
    }

    /// A use of an mbarrier that these threads, which end it, are not ordered after. One lane speaks for its warp: libraries have the lanes
    /// meet by `match`, and one of them count down for all.
    pub fn mbar_in_use(&mut self, p: Party, block: u32, off: u32) -> Option<Came> {
        let used = std::mem::take(&mut self.mbar(block, off).used);
        let open = used.into_values().filter(|u| !self.after(p, u.agent, WARP_WIDE, u.time));
        open.min_by_key(|u| u.agent)
    }

    pub fn mbar_complete(&mut self, block: u32, off: u32) {
        let agent = self.mbar_agent(block, off);
        let o = self.mbar(block, off);
        let time = o.phase + 1;
        o.arriving.seen.learn(agent, time);
        o.publish();
    }

    /// A participant of the completed phase of an mbarrier that these threads' arrival is not ordered after: the arrival could as well count
    /// for that phase. `None` if these threads know that the phase is complete.
    pub fn mbar_unordered(&mut self, p: Party, block: u32, off: u32) -> Option<Came> {
        let agent = self.mbar_agent(block, off);
        let phase = self.mbar(block, off).phase;
        let ended = |seen: &View| seen.knows(agent, WARP_WIDE, phase);
        if self.after(p, agent, WARP_WIDE, phase) || self.lacks_fence(p, ended).is_some() {
            return None;
        }
        // Threads of other blocks may be ordered after that phase by copies that they send.
        let near = |c: &&Came| !self.is_warp(c.agent) || self.block_of(c.agent) == self.block_of(p.agent);
        let [_, last] = &self.mbar_objects[agent - self.warps.len()].came;
        last.iter().filter(near).find(|c| !self.after(p, c.agent, c.lane, c.time)).copied()
    }

    /// A copy has delivered bytes.
    pub fn mbar_copied(&mut self, block: u32, off: u32) {
        let agent = self.mbar_agent(block, off);
        let o = self.mbar(block, off);
        if o.came[0].last().is_none_or(|last| last.agent != agent) {
            o.came[0].push(Came { agent, lane: WARP_WIDE, time: o.phase + 1, number: 0, waits: false });
        }
    }

    /// Threads of block `from` pass this knowledge to the threads that wait for the phase.
    pub fn mbar_arrive(&mut self, known: &Known, by: Option<Came>, from: u32, block: u32, off: u32) {
        let o = self.mbar(block, off);
        // Of the lanes of a warp that arrive together, only the first is recorded.
        let again = |by: &Came| o.came[0].last().is_some_and(|last| (last.agent, last.time) == (by.agent, by.time));
        o.came[0].extend(by.filter(|by| !again(by)));
        let arriving = if from == block { &mut o.arriving } else { &mut o.remote.get_or_insert_default()[0] };
        arriving.join(known);
    }

    /// The knowledge that a completed phase passes on; if `narrow`, only that of the block's own threads.
    fn mbar_published(&mut self, block: u32, off: u32, narrow: bool) -> Known {
        let o = self.mbar(block, off);
        let mut k = o.published.clone();
        if let (Some(remote), false) = (&o.remote, narrow) {
            k.join(&remote[1]);
        }
        k
    }

    pub fn mbar_wake(&mut self, p: Party, block: u32, off: u32, narrow: bool) {
        let k = self.mbar_published(block, off, narrow);
        self.acquire(p, &k);
    }

    /// Records the published knowledge for a relaxed wait, which a fence has to follow.
    pub fn mbar_overhear(&mut self, p: Party, block: u32, off: u32, narrow: bool) {
        let k = Arc::new(self.mbar_published(block, off, narrow));
        let place = Heard::MBARRIER | u64::from(block) << 32 | u64::from(off);
        self.warps[p.agent].heard.add(p, place, Some(&k), None);
    }

    /// The agent that represents the matrix multiplications of a warpgroup; its time is the group number.
    pub fn warpgroup_agent(&mut self, block: usize, group: usize) -> usize {
        self.mbar_agent(block as u32, u32::MAX - group as u32)
    }
}
