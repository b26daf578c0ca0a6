//! A block's barriers, for the checkers: what each phase passes on.

use std::collections::VecDeque;
use std::sync::Arc;

use super::view::Known;

/// Threads of a warp that came to a barrier.
#[derive(Clone, Copy)]
pub struct Came {
    pub agent: usize,
    /// The first of them.
    pub lane: u8,
    pub time: u32,
    /// The number of the instruction.
    pub number: u32,
    /// They wait there, and do not only arrive.
    pub waits: bool,
}

/// A block's barrier. A phase orders those who came to it: two phases may have nobody in common, and could as well have come in turn.
#[derive(Default)]
pub struct Bar {
    arriving: Known,
    /// What the last phases published, the newest behind.
    phases: VecDeque<Arc<Known>>,
    /// Phases finished.
    phase: u32,
    /// Who has come to this phase, and who came to the last.
    came: [Vec<Came>; 2],
}

impl Bar {
    /// Threads wake in a later turn of their warp, when others may have finished phases of their own.
    const KEPT: usize = 8;

    pub fn arrive(&mut self, k: &Known, by: Came) {
        self.arriving.join(k);
        self.came[0].push(by);
    }

    /// Of those who came to the last phase, one that an arrival is not behind: it could as well have come to that phase. Who waited
    /// there is behind it.
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

    /// What those who came to a phase knew.
    pub fn published(&self, phase: u32) -> Arc<Known> {
        let back = self.phase.wrapping_sub(phase) as usize;
        self.phases.get(self.phases.len().saturating_sub(back)).cloned().unwrap_or_default()
    }
}
