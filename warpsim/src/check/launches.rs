//! Waits for the launches ahead of a programmatic launch. An agent represents these launches; they are complete at its time 1.

use super::clocks::{Clocks, Known, Party};
use super::view::{AHEAD, EVERY};

/// The key of this agent among the mbarriers: it belongs to no block.
const LAUNCHES: (u32, u32) = (u32::MAX, 0);

impl Clocks {
    /// The agent that represents the launches ahead, once a thread has waited.
    pub fn launches(&self) -> Option<usize> {
        self.mbars.get(&LAUNCHES).map(|k| self.warps.len() + k)
    }

    /// These threads have waited.
    pub fn outlast(&mut self, p: Party) {
        let agent = self.mbar_agent(LAUNCHES.0, LAUNCHES.1);
        let mut k = Known::default();
        k.seen.learn(agent, 1);
        self.acquire(p, &k);
    }

    /// Whether these threads are ordered after some thread's wait.
    #[cold]
    pub fn outlasted(&self, p: Party) -> bool {
        self.launches().is_some_and(|agent| self.after(p, agent, EVERY, 1)) || self.after_far(p, AHEAD, EVERY, 1)
    }
}
