//! What one warp, and single lanes of it, know of the others.

use super::clocks::Party;
use super::heard::{Heard, Lately};
use super::view::{Known, View};

/// What lanes fenced last, and when.
#[derive(Clone, Copy, Default)]
pub(super) struct Fenced {
    pub lanes: u32,
    pub scope: usize,
    /// Of the warp, behind the fence.
    pub version: u64,
    /// The time up to which what they did is fenced.
    pub until: u32,
}

/// One warp.
pub(super) struct WarpClock {
    pub now: u32,
    /// Accesses before this time are ordered among the warp's lanes.
    pub synced: u32,
    /// What all its lanes know.
    pub known: Known,
    /// What single lanes know beyond it.
    pub private: Vec<(u8, Known)>,
    /// What relaxed reads came by.
    pub heard: Heard,
    /// What its lanes have learnt and left at addresses lately.
    pub lately: Lately,
    /// How many times its lanes' knowledge has grown, but by what they did themselves.
    pub version: u64,
    pub fenced: Fenced,
    /// Some of its lanes have fenced since all last met.
    pub apart: bool,
}

impl WarpClock {
    pub fn new() -> Self {
        let (heard, lately) = (Heard::default(), Lately::default());
        let (known, fenced) = (Known::default(), Fenced::default());
        Self { now: 1, synced: 1, known, private: vec![], heard, lately, version: 0, fenced, apart: false }
    }

    /// Adds what these threads did themselves.
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

    /// What all know, or else what each of these lanes knows by itself.
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
