//! What relaxed reads came by: a thread knows it only after a fence of its own.

use std::sync::Arc;

use super::clocks::Party;
use super::global::Told;
use super::view::{Known, View};
use crate::ir::Scope;

/// By address: what its last relaxed read by some lanes of a warp came by.
#[derive(Default)]
pub struct Heard(Vec<Word>);

struct Word {
    place: u64,
    lanes: u32,
    left: Option<Arc<Known>>,
    told: Option<Told>,
}

impl Heard {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Threads read what others of their cluster `left` at an address and those of others `told` there.
    pub fn add(&mut self, p: Party, place: u64, left: Option<&Arc<Known>>, told: Option<Told>) {
        // What is told at an address only grows: the last is all.
        self.0.retain(|w| w.place != place || w.lanes & !p.lanes != 0);
        self.0.push(Word { place, lanes: p.lanes, left: left.cloned(), told });
    }

    /// Lanes meet: each has read what one of them has.
    pub fn share(&mut self, lanes: u32) {
        self.0.iter_mut().filter(|w| w.lanes & lanes != 0).for_each(|w| w.lanes |= lanes);
    }

    /// What a fence of these threads makes known, and to whom of them. What other clusters told takes a fence of the GPU.
    pub fn take(&mut self, p: Party, scope: Scope) -> Vec<(Party, Option<Arc<Known>>, Option<Told>)> {
        let mut out = vec![];
        for w in &mut self.0 {
            let lanes = w.lanes & p.lanes;
            if lanes == 0 {
                continue;
            }
            let far = scope == Scope::Gpu;
            let told = if far { w.told.clone() } else { None };
            out.push((Party { lanes, whole: p.whole && lanes == p.lanes, ..p }, w.left.clone(), told));
            if far || w.told.is_none() {
                w.lanes &= !lanes;
            }
        }
        self.0.retain(|w| w.lanes != 0);
        out
    }

    /// Whether one of these lanes came by something of which `over` holds.
    pub fn any(&self, lanes: u32, over: impl Fn(&View) -> bool) -> bool {
        let has = |w: &Word| {
            let told = || w.told.as_ref().is_some_and(|t| over(&View::told(t)));
            w.left.as_ref().is_some_and(|k| over(&k.seen)) || told()
        };
        self.0.iter().any(|w| w.lanes & lanes != 0 && has(w))
    }
}
