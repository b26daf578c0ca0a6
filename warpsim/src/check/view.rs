//! A thread's knowledge of the progress of other threads: the vector clocks of the race checkers.
//!
//! An agent is a warp of the cluster, or a representative of asynchronous work: an mbarrier, a warpgroup. Threads of a warp share their entry
//! of a clock as long as they synchronise together; what a single lane has done or learnt since then is kept separately for that lane.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::global::Told;

/// The lane number that stands for all lanes of a warp.
pub const EVERY: u8 = 63;
/// The lane number of an access that the warp makes as a whole (`ldmatrix`): a later time of any lane is later than this access.
pub const WARP_WIDE: u8 = 62;

/// The lane number that represents several lanes: the smallest aligned group of 2, 4, 8 or 16 lanes that contains them all, or else
/// [`EVERY`].
pub fn together(mask: u32) -> u8 {
    let first = mask.trailing_zeros();
    let bits = (first ^ 31u32.saturating_sub(mask.leading_zeros())).checked_ilog2().map_or(0, |b| b + 1);
    match (1u32 << (5 - bits)) + (first >> bits) {
        1 => EVERY,
        // 16 groups of two, 8 of four, 4 of eight and 2 of sixteen: nodes 2 to 31 of a binary tree.
        node if node < 32 => node as u8 + 30,
        lane => (lane - 32) as u8,
    }
}

/// The lanes that a lane number represents.
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

/// The lane number for these lanes of a warp that has diverged: no other lane belongs to the group that it represents. If they are no group,
/// it is the largest one among them.
pub fn among(mask: u32) -> u8 {
    let all = together(mask);
    if members(all) == mask {
        return all;
    }
    (32..WARP_WIDE).find(|group| members(*group) & !mask == 0).unwrap_or(mask.trailing_zeros() as u8)
}

/// The lane number that represents the lanes of both, if these are a group.
pub fn union(a: u8, b: u8) -> Option<u8> {
    let lanes = members(a) | members(b);
    Some(together(lanes)).filter(|all| members(*all) == lanes)
}

/// The lane to name in a message about an access with this lane number, and the text about the other lanes. The lane is the first one other
/// than `me`, with which the access would not conflict.
pub fn named(lane: u8, me: Option<usize>) -> (u32, &'static str) {
    if lane < 32 {
        return (lane.into(), "");
    }
    let all = members(lane);
    let others = me.map_or(all, |me| all & !1u32.unbounded_shl(me as u32));
    (others.trailing_zeros(), " or others of its warp")
}

/// A warp of the grid: 18 bits of its block's number, and 5 bits of its own.
pub type Far = u32;
/// The number of no warp: it represents the launches ahead.
pub const AHEAD: Far = Far::MAX;

/// By agent: the latest time that is known to be complete.
#[derive(Clone, Default, Debug)]
pub struct View {
    /// Times that hold for all lanes.
    all: Vec<u32>,
    /// Times of single lanes, beyond `all`: sorted by agent and lane.
    lanes: Vec<(u16, u8, u32)>,
    /// Times of warps in other clusters, by warp and lane.
    far: Option<Told>,
}

impl View {
    /// A view of what was told, and nothing else.
    pub fn told(told: &Told) -> Self {
        View { far: Some(told.clone()), ..View::default() }
    }

    /// The times that hold for all lanes.
    #[inline(always)]
    pub fn all(&self) -> &[u32] {
        &self.all
    }

    /// Merges another view; returns whether it added knowledge.
    pub fn join(&mut self, other: &View) -> bool {
        if self.all.len() < other.all.len() {
            self.all.resize(other.all.len(), 0);
        }
        let mut grew = false;
        for (mine, theirs) in self.all.iter_mut().zip(&other.all) {
            grew |= *mine < *theirs;
            *mine = (*mine).max(*theirs);
        }
        // Both lists are sorted.
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

    /// Learns of everything that `agent` did up to `time`.
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

    /// Forgets everything that `agent` did.
    pub fn forget(&mut self, agent: usize) {
        self.all.get_mut(agent).into_iter().for_each(|time| *time = 0);
        self.lanes.retain(|known| usize::from(known.0) != agent);
    }

    /// Of the known actions of `agent` after `time`, keeps only those of these lanes.
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

    /// Merges knowledge of other clusters; returns whether it added knowledge.
    pub fn learn_far(&mut self, other: &Told) -> bool {
        match &mut self.far {
            None => self.far = Some(other.clone()),
            Some(mine) if Arc::ptr_eq(mine, other) => return false,
            // Shares one copy again, so that a polling thread does not compare it each time.
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

    /// Whether a time, of which only 16 bits are left, is known to be complete. A time shortly after the known one is not; a time that seems
    /// to be long after it is an old time without its upper bits.
    pub fn knows_far(&self, warp: Far, lane: u8, time: u16) -> bool {
        const SOON: u16 = 1 << 13;
        let Some(far) = &self.far else { return false };
        let over = |known: &u32| time.wrapping_sub(*known as u16).wrapping_sub(1) >= SOON;
        let known = |l: u8| far.get(&(warp, l)).is_some_and(over);
        known(EVERY) || known(lane) || lane >= 32 && super::warp_clock::lanes(members(lane)).all(known)
    }

    /// Adds this view to one for the whole grid: `name` maps agents to warps of the grid, and returns `None` for other agents.
    pub fn export(&self, into: &mut Told, name: impl Fn(usize) -> Option<Far>) {
        let all = self.all.iter().enumerate().map(|(agent, time)| (agent, EVERY, *time));
        let own = all.chain(self.lanes.iter().map(|&(agent, lane, time)| (agent.into(), lane, time)));
        let named = own.filter_map(|(agent, lane, time)| Some(((name(agent).filter(|_| time > 0)?, lane), time)));
        let new: Vec<_> = named.filter(|(key, time)| into.get(key).is_none_or(|known| known < time)).collect();
        // A version that others share stays unmodified and is copied, but only if there is something to add.
        if !new.is_empty() {
            Arc::make_mut(into).extend(new);
        }
        if let Some(far) = self.far.as_ref().filter(|far| !covers(into, far)) {
            join_far(Arc::make_mut(into), far);
        }
    }
}

/// Whether `whole` contains everything in `part`.
fn covers(whole: &BTreeMap<(Far, u8), u32>, part: &BTreeMap<(Far, u8), u32>) -> bool {
    part.len() <= whole.len() && part.iter().all(|(key, time)| whole.get(key).is_some_and(|known| known >= time))
}

fn join_far(into: &mut BTreeMap<(Far, u8), u32>, from: &BTreeMap<(Far, u8), u32>) {
    for (key, time) in from {
        let known = into.entry(*key).or_default();
        *known = (*known).max(*time);
    }
}

/// The knowledge of a thread, or the knowledge that a synchronisation object carries.
#[derive(Clone, Default, Debug)]
pub struct Known {
    /// What happened before.
    pub seen: View,
    /// The parts of it that are visible to the asynchronous proxy, for shared and for global memory, and what was released to readers of
    /// tensor maps.
    pub proxy: [View; 3],
    /// Initialisations of mbarriers that were made visible to the cluster.
    pub inits: View,
    /// The parts of it that have since been fenced at block, cluster and GPU scope: relaxed operations pass these on.
    pub fenced: Option<Box<[View; 3]>>,
}

impl Known {
    /// Merges other knowledge; returns whether it added anything.
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
