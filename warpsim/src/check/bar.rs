//! A block's barriers, for the checkers: what each phase passes on.

use std::collections::VecDeque;
use std::sync::Arc;

use super::view::Known;

/// A block's barrier. A phase orders those who came to it: two phases may have nobody in common, and could as well have come in turn.
#[derive(Default)]
pub struct Bar {
    arriving: Known,
    /// What the last phases published, the newest behind.
    phases: VecDeque<Arc<Known>>,
    /// Phases finished.
    phase: u32,
}

impl Bar {
    /// Threads wake in a later turn of their warp, when others may have finished phases of their own.
    const KEPT: usize = 8;

    pub fn arrive(&mut self, k: &Known) {
        self.arriving.join(k);
    }

    pub fn complete(&mut self) {
        self.phases.push_back(Arc::new(std::mem::take(&mut self.arriving)));
        self.phase = self.phase.wrapping_add(1);
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
