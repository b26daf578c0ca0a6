//! Completion of copies that read global memory: the shadow of global memory knows only threads, but these copies complete on mbarriers.

use super::clocks::{Clocks, Party};

impl Clocks {
    /// A lane has started a copy, which is complete when one of these agents has reached the given time.
    pub fn copies(&mut self, agent: usize, lane: usize, ends: Vec<(usize, u32)>) {
        let start = (agent, lane as u8, self.now(agent));
        self.copies.insert(start, ends);
        // The next copy gets a time of its own.
        self.tick(agent);
    }

    /// Whether a copy may still be reading, as far as these threads know.
    pub fn may_read(&self, p: Party, agent: usize, lane: u8, time: u32) -> bool {
        let ends = self.copies.get(&(agent, lane, time));
        ends.is_some_and(|ends| !ends.iter().any(|(agent, time)| self.after(p, *agent, 0, *time)))
    }

    /// The block of a warp; other agents belong to no block.
    pub fn block_of(&self, agent: usize) -> Option<usize> {
        self.is_warp(agent).then(|| agent / (self.warps.len() / self.at_exit.len()))
    }
}
