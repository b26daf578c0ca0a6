//! What one thread knows of the progress of others: the vector clocks of the race checkers.
//!
//! An agent is a warp of the cluster, or what stands for asynchronous work: an mbarrier, a warpgroup. Threads of a warp
//! share their entry of a clock as long as they synchronise together; what a single lane has done, or has learnt, since
//! then is kept aside by lane.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::global::Told;

/// The lane number that stands for all lanes of a warp.
pub const EVERY: u8 = 63;
/// The lane number of an access that the warp makes as one (`ldmatrix`): later than that is any lane's later time.
pub const WARP_WIDE: u8 = 62;

/// The lane number that stands for several: the fewest neighbours that all are among, 2, 4, 8 or 16 at a multiple of that, or else [`EVERY`].
pub fn together(mask: u32) -> u8 {
    let first = mask.trailing_zeros();
    let bits = (first ^ 31u32.saturating_sub(mask.leading_zeros())).checked_ilog2().map_or(0, |b| b + 1);
    match (1u32 << (5 - bits)) + (first >> bits) {
        1 => EVERY,
        // 16 pairs, 8 times four, 4 times eight and both halves: 2 to 31 as in a tree.
        node if node < 32 => node as u8 + 30,
        lane => (lane - 32) as u8,
    }
}

/// The lanes that a lane number stands for.
pub fn members(lane: u8) -> u32 {
    match lane {
        0..32 => 1 << lane,
        32..WARP_WIDE => {
            let node = u32::from(lane) - 30;
            let depth = node.ilog2();
            let size = 32 >> depth;
            ((1 << size) - 1) << ((node - (1 << depth)) * size)
        }
        _ => !0,
    }
}

/// The lane that an access by this lane number is told by, and what is said of others: the first of them, but not `me`, of which
/// the access would be no conflict.
pub fn named(lane: u8, me: Option<usize>) -> (u32, &'static str) {
    if lane < 32 {
        return (lane.into(), "");
    }
    let all = members(lane);
    let others = me.map_or(all, |me| all & !1u32.unbounded_shl(me as u32));
    (others.trailing_zeros(), " or others of its warp")
}

/// A warp of the grid: 18 bits of its block's number, 5 of its own.
pub type Far = u32;
/// No warp's: that of the launches ahead.
pub const AHEAD: Far = Far::MAX;

/// By agent: the latest time that is known to be over.
#[derive(Clone, Default, Debug)]
pub struct View {
    /// Of all lanes.
    all: Vec<u32>,
    /// Of one lane, beyond `all`: sorted by agent and lane.
    lanes: Vec<(u16, u8, u32)>,
    /// Of warps in other clusters, by warp and lane.
    far: Option<Told>,
}

impl View {
    /// What was told, and nothing else.
    pub fn told(told: &Told) -> Self {
        View { far: Some(told.clone()), ..View::default() }
    }

    /// What is known of all lanes.
    #[inline(always)]
    pub fn all(&self) -> &[u32] {
        &self.all
    }

    /// Whether there was something new.
    pub fn join(&mut self, other: &View) -> bool {
        if self.all.len() < other.all.len() {
            self.all.resize(other.all.len(), 0);
        }
        let mut grew = false;
        for (mine, theirs) in self.all.iter_mut().zip(&other.all) {
            grew |= *mine < *theirs;
            *mine = (*mine).max(*theirs);
        }
        // Both are sorted.
        let mut k = 0;
        for &(agent, lane, time) in &other.lanes {
            if self.all.get(usize::from(agent)).is_some_and(|t| *t >= time) {
                continue;
            }
            while self.lanes.get(k).is_some_and(|l| (l.0, l.1) < (agent, lane)) {
                k += 1;
            }
            match self.lanes.get_mut(k).filter(|l| (l.0, l.1) == (agent, lane)) {
                Some(mine) => {
                    grew |= mine.2 < time;
                    mine.2 = mine.2.max(time);
                }
                None => {
                    self.lanes.insert(k, (agent, lane, time));
                    grew = true;
                }
            }
        }
        other.far.as_ref().is_some_and(|far| self.learn_far(far)) || grew
    }

    /// Everything that `agent` did up to `time`.
    pub fn learn(&mut self, agent: usize, time: u32) {
        if self.all.len() <= agent {
            self.all.resize(agent + 1, 0);
        }
        self.all[agent] = self.all[agent].max(time);
    }

    pub fn learn_lane(&mut self, agent: usize, lane: u8, time: u32) {
        if self.all.get(agent).is_some_and(|t| *t >= time) {
            return;
        }
        match self.lanes.binary_search_by_key(&(agent as u16, lane), |k| (k.0, k.1)) {
            Ok(k) => self.lanes[k].2 = self.lanes[k].2.max(time),
            Err(k) => self.lanes.insert(k, (agent as u16, lane, time)),
        }
    }

    /// Nothing of what `agent` did is known any longer.
    pub fn forget(&mut self, agent: usize) {
        self.all.get_mut(agent).into_iter().for_each(|time| *time = 0);
        self.lanes.retain(|known| usize::from(known.0) != agent);
    }

    /// Of what `agent` did behind `time`, keeps what these lanes did.
    pub fn narrow(&mut self, agent: usize, time: u32, lanes: u32) {
        if let Some(all) = self.all.get_mut(agent).filter(|all| **all > time) {
            let until = std::mem::replace(all, time);
            super::warp_clock::lanes(lanes).for_each(|lane| self.learn_lane(agent, lane, until));
        }
    }

    /// Takes over what is known of these lanes of `agent`.
    pub fn share(&mut self, from: &View, agent: usize, lanes: u32) {
        if let Some(time) = from.all.get(agent) {
            super::warp_clock::lanes(lanes).for_each(|lane| self.learn_lane(agent, lane, *time));
        }
    }

    /// Whether there was something new.
    pub fn learn_far(&mut self, other: &Told) -> bool {
        match &mut self.far {
            None => self.far = Some(other.clone()),
            Some(mine) if Arc::ptr_eq(mine, other) => return false,
            // Shared again, so that whoever polls does not compare it each time.
            Some(mine) if covers(other, mine) => {
                let grew = !covers(mine, other);
                *mine = other.clone();
                return grew;
            }
            Some(mine) if covers(mine, other) => return false,
            Some(mine) => join_far(Arc::make_mut(mine), other),
        }
        true
    }

    #[inline(always)]
    pub fn knows(&self, agent: usize, lane: u8, time: u32) -> bool {
        self.all.get(agent).is_some_and(|t| *t >= time) || !self.lanes.is_empty() && self.knows_lane(agent, lane, time)
    }

    fn knows_lane(&self, agent: usize, lane: u8, time: u32) -> bool {
        if lane == WARP_WIDE {
            return self.lanes.iter().any(|k| usize::from(k.0) == agent && k.2 >= time);
        }
        let found = self.lanes.binary_search_by_key(&(agent as u16, lane), |k| (k.0, k.1));
        found.is_ok_and(|k| self.lanes[k].2 >= time)
    }

    /// Whether a time of which only 16 bits are left is known to be over. It is not when it comes soon after what is
    /// known; what seems to come long after it is an old time whose upper bits are gone.
    pub fn knows_far(&self, warp: Far, lane: u8, time: u16) -> bool {
        const SOON: u16 = 1 << 13;
        let Some(far) = &self.far else { return false };
        let over = |known: &u32| time.wrapping_sub(*known as u16).wrapping_sub(1) >= SOON;
        let known = |l: u8| far.get(&(warp, l)).is_some_and(over);
        known(EVERY) || known(lane) || lane >= 32 && super::warp_clock::lanes(members(lane)).all(known)
    }

    /// Adds this view to one that the whole grid understands: `name` gives warps, and nothing for other agents.
    pub fn export(&self, into: &mut Told, name: impl Fn(usize) -> Option<Far>) {
        let all = self.all.iter().enumerate().map(|(agent, time)| (agent, EVERY, *time));
        let own = all.chain(self.lanes.iter().map(|&(agent, lane, time)| (agent.into(), lane, time)));
        let named = own.filter_map(|(agent, lane, time)| Some(((name(agent).filter(|_| time > 0)?, lane), time)));
        let new: Vec<_> = named.filter(|(key, time)| into.get(key).is_none_or(|known| known < time)).collect();
        // Whoever shares it keeps it, and it is copied: only if there is something to add.
        if !new.is_empty() {
            Arc::make_mut(into).extend(new);
        }
        if let Some(far) = self.far.as_ref().filter(|far| !covers(into, far)) {
            join_far(Arc::make_mut(into), far);
        }
    }
}

/// Whether all of `part` is known to `whole`.
fn covers(whole: &BTreeMap<(Far, u8), u32>, part: &BTreeMap<(Far, u8), u32>) -> bool {
    part.len() <= whole.len() && part.iter().all(|(key, time)| whole.get(key).is_some_and(|known| known >= time))
}

fn join_far(into: &mut BTreeMap<(Far, u8), u32>, from: &BTreeMap<(Far, u8), u32>) {
    for (key, time) in from {
        let known = into.entry(*key).or_default();
        *known = (*known).max(*time);
    }
}

/// The knowledge that a thread has or a synchronisation object carries.
#[derive(Clone, Default, Debug)]
pub struct Known {
    /// What happened before.
    pub seen: View,
    /// What of it the asynchronous proxy sees, of shared and of global memory, and what was released to whoever reads tensor maps.
    pub proxy: [View; 3],
    /// Initialisations of mbarriers that were made visible to the cluster.
    pub inits: View,
    /// What of it somebody has fenced since, for a block, a cluster, the GPU: what relaxed operations pass on.
    pub fenced: Option<Box<[View; 3]>>,
}

impl Known {
    /// Whether there was something new.
    pub fn join(&mut self, other: &Known) -> bool {
        let mut grew = self.seen.join(&other.seen);
        self.proxy.iter_mut().zip(&other.proxy).for_each(|(mine, theirs)| grew |= mine.join(theirs));
        grew |= self.inits.join(&other.inits);
        if let Some(theirs) = &other.fenced {
            grew |= self.fenced.is_none();
            let mine = self.fenced.get_or_insert_default();
            mine.iter_mut().zip(&**theirs).for_each(|(mine, theirs)| grew |= mine.join(theirs));
        }
        grew
    }
}
