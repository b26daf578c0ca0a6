//! The barriers of a block, and what it does before its first tile.

use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::{cluster, fence, thread, tma};

use super::{BUFFERS, CLUSTER};

/// The barriers of the queries' buffers and of the rings of keys and of values, of so many stages each.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Barriers {
    pub(in crate::ops::attention) first: SharedPtr<Barrier>,
    pub(in crate::ops::attention) stages: u32,
}

impl Barriers {
    /// Their bytes.
    pub(in crate::ops::attention) const fn bytes(stages: u32) -> usize {
        (2 * BUFFERS + 4 * stages) as usize * size_of::<Barrier>()
    }

    #[inline(always)]
    pub(in crate::ops::attention) fn full_q(self, buffer: u32) -> SharedPtr<Barrier> {
        self.first.add(buffer)
    }

    #[inline(always)]
    pub(in crate::ops::attention) fn empty_q(self, buffer: u32) -> SharedPtr<Barrier> {
        self.first.add(BUFFERS + buffer)
    }

    #[inline(always)]
    pub(in crate::ops::attention) fn full_k(self, stage: u32) -> SharedPtr<Barrier> {
        self.first.add(2 * BUFFERS + stage)
    }

    #[inline(always)]
    pub(in crate::ops::attention) fn empty_k(self, stage: u32) -> SharedPtr<Barrier> {
        self.first.add(2 * BUFFERS + self.stages + stage)
    }

    #[inline(always)]
    pub(in crate::ops::attention) fn full_v(self, stage: u32) -> SharedPtr<Barrier> {
        self.first.add(2 * BUFFERS + 2 * self.stages + stage)
    }

    #[inline(always)]
    pub(in crate::ops::attention) fn empty_v(self, stage: u32) -> SharedPtr<Barrier> {
        self.first.add(2 * BUFFERS + 3 * self.stages + stage)
    }

    /// Initialises the barriers of both blocks for so many consumers in each, and fetches the descriptors of the maps.
    /// Run by all threads.
    #[inline(always)]
    pub(in crate::ops::attention) unsafe fn start(self, maps: [&TensorMap; 4], consumers: u32) {
        if thread::thread_idx_x() == 0 {
            let [q, k, v, o] = maps;
            tma::prefetch_descriptor(q);
            tma::prefetch_descriptor(k);
            tma::prefetch_descriptor(v);
            tma::prefetch_descriptor(o);
            for buffer in 0..BUFFERS {
                self.full_q(buffer).init(1);
                self.empty_q(buffer).init(consumers);
            }
            for stage in 0..self.stages {
                self.full_k(stage).init(1);
                self.full_v(stage).init(1);
                self.empty_k(stage).init(CLUSTER * consumers);
                self.empty_v(stage).init(CLUSTER * consumers);
            }
            fence::mbarrier_init();
        }
        // The other block's copies and signals land in this block: neither block may start before both have initialised
        // their barriers. The fence has already released these; a barrier with release semantics would make every
        // thread wait for all its memory operations.
        cluster::arrive_relaxed();
        cluster::wait();
    }
}
