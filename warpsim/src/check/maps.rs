//! Which tensor maps threads have acquired: a fence is for one map, and says nothing of others.

use super::clocks::{Clocks, Party};
use super::view::{View, WARP_WIDE};
use super::warp_clock::lanes;

/// A `fence.proxy.tensormap::generic.acquire` by a lane, or by a whole warp.
pub struct Acquired {
    map: u64,
    agent: usize,
    lane: u8,
    time: u32,
    seen: View,
}

impl Clocks {
    /// Who reads the map for these threads sees what they know.
    pub fn acquire_map(&mut self, p: Party, map: u64) {
        let (seen, agent, time) = (self.knowledge(p).seen, p.agent, self.now(p.agent));
        let mut note = |lane: u8| {
            self.maps.retain(|a| (a.map, a.agent, a.lane) != (map, agent, lane));
            self.maps.push(Acquired { map, agent, lane, time, seen: seen.clone() });
        };
        match p.whole {
            true => note(WARP_WIDE),
            false => lanes(p.lanes).for_each(note),
        }
        self.tick(agent);
    }

    /// Whether these threads come behind a fence that acquired a write of the map.
    pub fn map_acquired(&self, p: Party, map: u64, agent: usize, lane: u8, time: u32) -> bool {
        let mut fences = self.maps.iter().filter(|a| a.map == map && a.seen.knows(agent, lane, time));
        fences.any(|a| self.after(p, a.agent, a.lane, a.time))
    }
}
