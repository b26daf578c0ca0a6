//! What the end of a `wgmma` tells about the reads that the warps of its warpgroup made before it.
//!
//! One warp waits for a group and signals for all four, as kernels do that read scales, metadata or fragments from a stage of
//! shared memory: a warp that takes part in the multiplication has read what it needed. PTX does not promise this; CUTLASS
//! relies on it where a consumer gives a stage back, so it counts for those who hear of it and not between the four warps.

use std::collections::VecDeque;

use super::clocks::{Clocks, Party};
use super::view::WARP_WIDE;

/// Number of groups that are remembered for each warp.
const REMEMBERED: usize = 64;

/// The groups that a warp has committed: the agent of its warpgroup, and by group the warp's time.
#[derive(Default)]
pub struct Products {
    agent: usize,
    groups: VecDeque<(u32, u32)>,
}

impl Clocks {
    /// A warp has committed a group.
    pub fn multiplied(&mut self, p: Party, block: usize, warpgroup: usize, group: u32) {
        let (agent, now) = (self.warpgroup_agent(block, warpgroup), self.now(p.agent));
        let products = self.products.entry(p.agent).or_default();
        products.agent = agent;
        products.groups.push_back((now, group));
        if products.groups.len() > REMEMBERED {
            products.groups.pop_front();
        }
        self.tick(p.agent);
    }

    /// Whether these threads know of the end of a group that a warp committed after its read at `time`.
    #[cold]
    pub fn after_product(&self, p: Party, agent: usize, time: u32) -> bool {
        let Some(products) = self.products.get(&agent) else { return false };
        if self.products.get(&p.agent).is_some_and(|own| own.agent == products.agent) {
            return false;
        }
        let next = products.groups.iter().find(|(at, _)| *at >= time);
        next.is_some_and(|(_, group)| self.after(p, products.agent, WARP_WIDE, *group))
    }
}
