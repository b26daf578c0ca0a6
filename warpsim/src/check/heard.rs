//! Knowledge that relaxed reads have observed: a thread acquires it only with a later fence of its own.

use std::sync::Arc;

use super::clocks::Party;
use super::global::Told;
use super::view::{Known, View};
use crate::ir::Scope;

const UNFENCED: &str = "the flag between them was read relaxed: put a fence (fence.acq_rel, __threadfence) behind that read, or let it acquire";
const UNHEEDED: &str = "the wait on the mbarrier between them is relaxed, or its result is not used: let it acquire, in a loop that ends when it is true";

/// By address: what the last relaxed read by some lanes of a warp observed there.
#[derive(Default)]
pub struct Heard(Vec<Word>);

struct Word {
    place: u64,
    lanes: u32,
    left: Option<Arc<Known>>,
    told: Option<Told>,
}

impl Heard {
    /// Marks the place of an mbarrier: no address has this bit.
    pub const MBARRIER: u64 = 1 << 61;

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Threads observe what others of their cluster `left` at an address, and what other clusters `told` there.
    pub fn add(&mut self, p: Party, place: u64, left: Option<&Arc<Known>>, told: Option<Told>) {
        // The knowledge told at an address only grows, so the latest version contains all of it.
        self.0.retain(|w| w.place != place || w.lanes & !p.lanes != 0);
        self.0.push(Word { place, lanes: p.lanes, left: left.cloned(), told });
    }

    /// Lanes synchronise: each counts as having read what any of them has read.
    pub fn share(&mut self, lanes: u32) {
        self.0.iter_mut().filter(|w| w.lanes & lanes != 0).for_each(|w| w.lanes |= lanes);
    }

    /// What a fence of these threads makes known, and to which of them. Knowledge from other clusters needs a fence at GPU scope.
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

    /// The advice for one of these lanes, if it has observed knowledge for which `over` holds.
    pub fn advice(&self, lanes: u32, over: impl Fn(&View) -> bool) -> Option<&'static str> {
        let has = |w: &Word| {
            let told = || w.told.as_ref().is_some_and(|t| over(&View::told(t)));
            w.left.as_ref().is_some_and(|k| over(&k.seen)) || told()
        };
        let word = self.0.iter().find(|w| w.lanes & lanes != 0 && has(w))?;
        Some(if word.place & Heard::MBARRIER == 0 { UNFENCED } else { UNHEEDED })
    }
}

/// The version of the knowledge that is available at an address, or that could be left there.
pub enum Version {
    /// What others of the cluster left: how many times knowledge was added to it.
    Near(u64),
    /// What other clusters told.
    Far(Told),
    /// What a warp could leave, and at which scope: how many times its knowledge has grown.
    Own(Scope, u64),
}

impl Version {
    fn same_kind(&self, other: &Version) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    fn is(&self, other: &Version) -> bool {
        match (self, other) {
            (Version::Near(mine), Version::Near(theirs)) => mine == theirs,
            // A version that is kept here is never modified in place: it is copied first.
            (Version::Far(mine), Version::Far(theirs)) => Arc::ptr_eq(mine, theirs),
            (Version::Own(scope, mine), Version::Own(to, theirs)) => (scope, mine) == (to, theirs),
            _ => false,
        }
    }
}

/// By address: what the lanes of a warp last acquired or left there, so that polling lanes do so only once.
#[derive(Default)]
pub struct Lately(Vec<(u64, u32, Version)>);

impl Lately {
    /// Few addresses are polled at a time.
    const MOST: usize = 12;

    /// Whether these threads have already acquired or left this version there; records that they now have.
    pub fn again(&mut self, p: Party, place: u64, version: Version) -> bool {
        let Some(k) = self.0.iter().position(|(at, _, v)| *at == place && v.same_kind(&version)) else {
            if self.0.len() == Self::MOST {
                self.0.remove(0);
            }
            self.0.push((place, p.lanes, version));
            return false;
        };
        let (_, lanes, last) = &mut self.0[k];
        if last.is(&version) {
            return p.lanes & !std::mem::replace(lanes, *lanes | p.lanes) == 0;
        }
        (*lanes, *last) = (p.lanes, version);
        false
    }
}
