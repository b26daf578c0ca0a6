//! What one warp, and single lanes of it, know of the other warps.

use super::clocks::Party;
use super::heard::{Heard, Lately};
use super::view::{Known, View};

/// The lanes that fenced last, and when.
#[derive(Clone, Copy, Default)]
pub(super) struct Fenced {
    pub lanes: u32,
    pub scope: usize,
    /// The warp's version after the fence.
    pub version: u64,
    /// The time up to which the actions of these lanes are fenced.
    pub until: u32,
}

/// The clock of one warp.
pub(super) struct WarpClock {
    pub now: u32,
    /// Accesses before this time are ordered among the warp's lanes.
    pub synced: u32,
    /// The common knowledge of all its lanes.
    pub known: Known,
    /// Additional knowledge of single lanes.
    pub private: Vec<(u8, Known)>,
    /// What relaxed reads have observed.
    pub heard: Heard,
    /// What its lanes have recently acquired and left at addresses.
    pub lately: Lately,
    /// How many times the knowledge of its lanes has grown, not counting their own actions.
    pub version: u64,
    pub fenced: Fenced,
    /// Whether some of its lanes have fenced since all of them last synchronised.
    pub apart: bool,
}

impl WarpClock {
    pub fn new() -> Self {
        let (heard, lately) = (Heard::default(), Lately::default());
        let (known, fenced) = (Known::default(), Fenced::default());
        Self { now: 1, synced: 1, known, private: vec![], heard, lately, version: 0, fenced, apart: false }
    }

    /// Adds the own actions of these threads.
    pub fn own(&self, p: Party, seen: &mut View) {
        if p.whole {
            return seen.learn(p.agent, self.now);
        }
        seen.learn(p.agent, self.synced - 1);
        lanes(p.lanes).for_each(|lane| seen.learn_lane(p.agent, lane, self.now));
    }

    pub fn each(&self, p: Party, f: impl Fn(u8, Option<&Known>) -> bool) -> bool {
        lanes(p.lanes).all(|lane| f(lane, self.private(lane)))
    }

    /// Whether `f` holds for the common knowledge, or else for each of these lanes with its own knowledge.
    pub fn either(&self, p: Party, f: impl Fn(&Known) -> bool) -> bool {
        f(&self.known) || !self.private.is_empty() && self.each(p, |_, k| k.is_some_and(&f))
    }

    pub fn private(&self, lane: u8) -> Option<&Known> {
        self.private.iter().find(|(l, _)| *l == lane).map(|(_, k)| k)
    }

    pub fn private_mut(&mut self, lane: u8) -> &mut Known {
        let k = self.private.iter().position(|(l, _)| *l == lane).unwrap_or_else(|| {
            self.private.push((lane, Known::default()));
            self.private.len() - 1
        });
        &mut self.private[k].1
    }
}

pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let l = mask.trailing_zeros() as u8;
            mask &= mask - 1;
            l
        })
    })
}
