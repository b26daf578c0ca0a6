//! A block's barriers, for the checkers: the knowledge that each phase passes on.

use std::collections::VecDeque;
use std::sync::Arc;

use super::view::Known;

/// Threads of a warp that arrived at a barrier.
#[derive(Clone, Copy)]
pub struct Came {
    pub agent: usize,
    /// The first of these lanes.
    pub lane: u8,
    pub time: u32,
    /// The number of the barrier instruction.
    pub number: u32,
    /// Whether they wait there, and do not only arrive.
    pub waits: bool,
}

/// A block's barrier. A phase orders the threads that took part in it. Two phases may have no thread in common, and then their order is not
/// determined.
#[derive(Default)]
pub struct Bar {
    arriving: Known,
    /// What the latest phases published, the newest last.
    phases: VecDeque<Arc<Known>>,
    /// Number of completed phases.
    phase: u32,
    /// The threads that arrived for this phase, and those that arrived for the last one.
    came: [Vec<Came>; 2],
}

impl Bar {
    /// Threads wake in a later turn of their warp, and other threads may have completed phases in the meantime.
    const KEPT: usize = 8;

    pub fn arrive(&mut self, k: &Known, by: Came) {
        self.arriving.join(k);
        self.came[0].push(by);
    }

    /// A participant of the last phase that an arrival is not ordered after: that arrival could as well have counted for the last phase. A
    /// thread that waited in the last phase is ordered after it.
    pub fn unordered(&self, agent: usize, after: impl Fn(&Came) -> bool) -> Option<Came> {
        let [_, last] = &self.came;
        if last.iter().any(|c| c.agent == agent && c.waits) {
            return None;
        }
        last.iter().find(|c| !after(c)).copied()
    }

    pub fn complete(&mut self) {
        self.phases.push_back(Arc::new(std::mem::take(&mut self.arriving)));
        self.phase = self.phase.wrapping_add(1);
        self.came = [vec![], std::mem::take(&mut self.came[0])];
        if self.phases.len() > Self::KEPT {
            self.phases.pop_front();
        }
    }

    /// The joined knowledge of the threads that took part in a phase.
    pub fn published(&self, phase: u32) -> Arc<Known> {
        let back = self.phase.wrapping_sub(phase) as usize;
        self.phases.get(self.phases.len().saturating_sub(back)).cloned().unwrap_or_default()
    }
}
