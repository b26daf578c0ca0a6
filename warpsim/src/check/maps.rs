//! Tensor maps that threads have acquired: a fence covers one map and no others.

use super::clocks::{Clocks, Party};
use super::view::{Known, View, WARP_WIDE};
use super::warp_clock::lanes;

/// The proxy that reads tensor maps, among the proxies of [`Known`](super::view::Known).
pub const MAPS: usize = 2;

/// A `fence.proxy.tensormap::generic.acquire` by a lane, or by a whole warp.
pub struct Acquired {
    map: u64,
    agent: usize,
    lane: u8,
    time: u32,
    seen: View,
    /// The released knowledge that readers of maps see.
    released: View,
}

impl Clocks {
    /// A read of the map on behalf of these threads sees what they know.
    pub fn acquire_map(&mut self, p: Party, map: u64) {
        let Known { seen, proxy: [.., released], .. } = self.knowledge(p);
        let (agent, time) = (p.agent, self.now(p.agent));
        let mut note = |lane: u8| {
            self.maps.retain(|a| (a.map, a.agent, a.lane) != (map, agent, lane));
            self.maps.push(Acquired { map, agent, lane, time, seen: seen.clone(), released: released.clone() });
        };
        match p.whole {
            true => note(WARP_WIDE),
            false => lanes(p.lanes).for_each(note),
        }
        self.tick(agent);
    }

    /// What is missing for these threads to read the map as it was written: a fence that acquires it, or an earlier fence that releases it.
    pub fn map_lacks(&self, p: Party, map: u64, agent: usize, lane: u8, time: u32) -> Option<&'static str> {
        let ahead = |a: &&Acquired| a.map == map && self.after(p, a.agent, a.lane, a.time);
        let mut lacks = "acquire of it";
        for fence in self.maps.iter().filter(ahead).filter(|a| a.seen.knows(agent, lane, time)) {
            if fence.released.knows(agent, lane, time) {
                return None;
            }
            lacks = "release";
        }
        Some(lacks)
    }
}
