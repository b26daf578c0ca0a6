//! Knowledge that threads leave for each other at addresses, by atomics and other strong accesses.

use std::sync::Arc;

use super::clocks::{Clocks, Party};
use super::global::Told;
use super::heard::Version;
use super::view::{Known, View};
use super::warp_clock::lanes;
use crate::ir::Scope;

/// What was left at an address, and how many times knowledge was added to it.
pub(super) struct Left {
    known: Arc<Known>,
    times: u64,
}

impl Clocks {
    /// Whether these threads have already left there, with a relaxed operation, everything that they could leave with one now.
    pub fn has_left(&mut self, p: Party, place: u64, scope: Scope) -> bool {
        let w = &mut self.warps[p.agent];
        w.lately.again(p, place, Version::Own(scope, w.version))
    }

    /// Leaves knowledge at an address.
    pub fn leave(&mut self, place: u64, given: &Arc<Known>) {
        match self.places.get_mut(&place) {
            None => drop(self.places.insert(place, Left { known: given.clone(), times: 1 })),
            Some(old) if Arc::ptr_eq(&old.known, given) => {}
            Some(old) => old.times += u64::from(Arc::make_mut(&mut old.known).join(given)),
        }
    }

    /// Whether no knowledge was left at any address.
    pub fn quiet(&self) -> bool {
        self.places.is_empty()
    }

    /// Acquires what was left at an address.
    pub fn take(&mut self, p: Party, place: u64) {
        if let Some(Left { known, times }) = self.places.get(&place)
            && !self.warps[p.agent].lately.again(p, place, Version::Near(*times))
        {
            let known = known.clone();
            self.acquire(p, &known);
        }
    }

    /// Acquires what other clusters left at an address.
    pub fn take_far(&mut self, p: Party, place: u64, told: Told) {
        if !self.warps[p.agent].lately.again(p, place, Version::Far(told.clone())) {
            self.learn_far(p, &told);
        }
    }

    /// A relaxed read of an address: the knowledge left there is acquired by a later fence.
    pub fn overhear(&mut self, p: Party, place: u64, told: Option<Told>) {
        let left = self.places.get(&place).map(|left| &left.known);
        if left.is_some() || told.is_some() {
            self.warps[p.agent].heard.add(p, place, left, told);
        }
    }

    /// These threads acquire what their relaxed reads have observed.
    pub(super) fn believe(&mut self, p: Party, scope: Scope) {
        if self.warps[p.agent].heard.is_empty() {
            return;
        }
        for (p, left, told) in self.warps[p.agent].heard.take(p, scope) {
            left.into_iter().for_each(|k| self.acquire(p, &k));
            told.into_iter().for_each(|t| self.learn_far(p, &t));
        }
    }

    /// The advice for an access that would be complete for a thread if the thread executed a fence.
    pub fn lacks_fence(&self, p: Party, over: impl Fn(&View) -> bool) -> Option<&'static str> {
        self.warps[p.agent].heard.advice(p.lanes, over)
    }

    /// Acquires what other clusters left at an address.
    pub fn learn_far(&mut self, p: Party, told: &Told) {
        let w = &mut self.warps[p.agent];
        let grew = match p.whole {
            true => w.known.seen.learn_far(told),
            false => lanes(p.lanes).fold(false, |grew, lane| w.private_mut(lane).seen.learn_far(told) | grew),
        };
        w.version += u64::from(grew);
    }
}
