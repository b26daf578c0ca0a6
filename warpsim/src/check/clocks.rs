//! Happens-before within a cluster: vector clocks over warps and mbarriers.
//!
//! An agent is a warp, or an mbarrier standing for the asynchronous copies that complete on it. `vc[a][b]` is the
//! latest time of `b` that `a` knows to be over. A second clock follows what is visible to the asynchronous proxy.

use std::collections::HashMap;

/// The knowledge that a synchronisation object carries.
#[derive(Clone, Default)]
pub struct Known {
    pub all: Vec<u32>,
    pub proxy: Vec<u32>,
}

fn join(into: &mut Vec<u32>, from: &[u32]) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

impl Known {
    pub fn join(&mut self, o: &Known) {
        join(&mut self.all, &o.all);
        join(&mut self.proxy, &o.proxy);
    }
}

/// Accumulates arrivals; what a finished phase published stays readable.
#[derive(Clone, Default)]
pub struct SyncObject {
    pub arriving: Known,
    pub published: Known,
    /// Phases finished.
    pub phase: u32,
}

impl SyncObject {
    pub fn publish(&mut self) {
        self.published = self.arriving.clone();
        self.phase += 1;
    }
}

/// Clocks of one cluster.
pub struct Clocks {
    warps: usize,
    known: Vec<Known>,
    /// (block, barrier id)
    pub bars: HashMap<(usize, u32), SyncObject>,
    /// (block, offset)
    mbars: HashMap<(u32, u32), usize>,
    pub mbar_objects: Vec<SyncObject>,
    pub cluster: SyncObject,
}

impl Clocks {
    pub fn new(warps: usize) -> Self {
        let known = (0..warps)
            .map(|w| {
                let mut all = vec![0; warps];
                all[w] = 1;
                Known { all, proxy: vec![0; warps] }
            })
            .collect();
        Clocks {
            warps,
            known,
            bars: HashMap::new(),
            mbars: HashMap::new(),
            mbar_objects: vec![],
            cluster: SyncObject::default(),
        }
    }

    #[inline(always)]
    pub fn now(&self, me: usize) -> u32 {
        self.known[me].all[me]
    }

    /// Starts a new epoch of `me`; later accesses are not covered by what was published before.
    pub fn tick(&mut self, me: usize) {
        self.known[me].all[me] += 1;
    }

    #[inline(always)]
    pub fn knows(&self, me: usize, agent: usize, time: u32) -> bool {
        self.known[me].all.get(agent).is_some_and(|t| *t >= time)
    }

    pub fn proxy_knows(&self, me: usize, agent: usize, time: u32) -> bool {
        self.known[me].proxy.get(agent).is_some_and(|t| *t >= time)
    }

    /// `fence.proxy.async`: everything known is now visible to the other proxy.
    pub fn proxy_fence(&mut self, me: usize) {
        let k = &mut self.known[me];
        let all = k.all.clone();
        join(&mut k.proxy, &all);
        self.tick(me);
    }

    /// What `me` publishes when it arrives somewhere.
    pub fn release(&mut self, me: usize) -> Known {
        let k = self.known[me].clone();
        self.tick(me);
        k
    }

    pub fn acquire(&mut self, me: usize, k: &Known) {
        self.known[me].join(k);
    }

    pub fn bar_arrive(&mut self, me: usize, block: usize, id: u32) {
        let k = self.release(me);
        self.bars.entry((block, id)).or_default().arriving.join(&k);
    }

    pub fn bar_complete(&mut self, block: usize, id: u32) {
        self.bars.entry((block, id)).or_default().publish();
    }

    pub fn bar_wake(&mut self, me: usize, block: usize, id: u32) {
        if let Some(o) = self.bars.get(&(block, id)) {
            let k = o.published.clone();
            self.acquire(me, &k);
            self.tick(me);
        }
    }

    /// The agent that stands for copies completing on this mbarrier.
    pub fn mbar_agent(&mut self, block: u32, off: u32) -> usize {
        let next = self.mbar_objects.len();
        let k = *self.mbars.entry((block, off)).or_insert(next);
        if k == next {
            self.mbar_objects.push(SyncObject::default());
        }
        self.warps + k
    }

    pub fn mbar(&mut self, block: u32, off: u32) -> &mut SyncObject {
        let k = self.mbar_agent(block, off) - self.warps;
        &mut self.mbar_objects[k]
    }

    pub fn mbar_arrive(&mut self, me: usize, block: u32, off: u32) {
        let k = self.release(me);
        self.mbar(block, off).arriving.join(&k);
    }

    pub fn mbar_complete(&mut self, block: u32, off: u32) {
        let agent = self.mbar_agent(block, off);
        let o = self.mbar(block, off);
        let time = o.phase + 1;
        if o.arriving.all.len() <= agent {
            o.arriving.all.resize(agent + 1, 0);
        }
        o.arriving.all[agent] = time;
        o.publish();
    }

    pub fn mbar_wake(&mut self, me: usize, block: u32, off: u32) {
        let k = self.mbar(block, off).published.clone();
        self.acquire(me, &k);
    }

    /// The agent that stands for a warpgroup's matrix multiplications; its time is the group number.
    pub fn warpgroup_agent(&mut self, block: usize, group: usize) -> usize {
        self.mbar_agent(block as u32, u32::MAX - group as u32)
    }

    /// `me` learns that `agent` has got to `time`.
    pub fn learn(&mut self, me: usize, agent: usize, time: u32) {
        let v = &mut self.known[me].all;
        if v.len() <= agent {
            v.resize(agent + 1, 0);
        }
        v[agent] = v[agent].max(time);
    }

    pub fn is_warp(&self, agent: usize) -> bool {
        agent < self.warps
    }
}
