//! The threads that share a row, and how they reduce.

use core::array;

use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::warp::Lane;
use cuda_std::{cluster, fence, shared_field, thread, warp};

use super::{MAX_THREADS, WARPS};

/// Blocks of a cluster that shares a row: the maximum that every GPU with clusters supports.
pub const CLUSTER: u32 = 8;

/// Threads that share a row.
pub trait Threads: Copy {
    /// The most threads of a block.
    const MAX: u32;
    /// Shared memory for `N` reductions of a value each.
    type Partials<const N: usize>;

    /// The distance, in packs, between a thread's packs: neighbouring lanes have neighbouring packs, and each warp has
    /// one stretch of the row.
    const STRIDE: usize = 32;
    /// The number of teams in a warp, or 1 if a warp is part of a team.
    const TEAMS_OF_WARP: u32 = 1;

    /// The number of this thread's row, and of the first row of its warp.
    fn rows() -> (u64, u64);

    /// Rows that a grid works on at once.
    fn rows_of_grid() -> u64;

    /// This thread's number among those of its row.
    fn rank() -> usize;

    /// The number of threads that share the row.
    fn size() -> usize;

    /// The distance in rows to the row whose team runs on a multiprocessor after `threads` threads of other teams, for
    /// teams so large that this is worth [knowing](super::Team::fetch_ahead).
    #[inline(always)]
    fn ahead(_threads: u32) -> Option<u64> {
        None
    }

    /// The sum of the values that the threads of this [`rank`](Self::rank) have in the teams of the warp.
    #[inline(always)]
    unsafe fn sum_of_teams(value: f32) -> f32 {
        let (mut sum, mut mask) = (value, 32 / Self::TEAMS_OF_WARP);
        while mask < 32 {
            sum += warp::shuffle_xor(sum, mask);
            mask *= 2;
        }
        sum
    }

    /// See [`Team::merge`](super::Team::merge).
    unsafe fn merge<L: Lane, const M: usize>(
        values: [L; M],
        identity: [L; M],
        slot: u32,
        merge: impl Merge<L, M>,
    ) -> [L; M];

    /// See [`Team::reduce`](super::Team::reduce).
    #[inline(always)]
    unsafe fn reduce<L: Lane, const M: usize>(
        values: [L; M],
        identity: [L; M],
        slot: u32,
        combine: impl Fn([L; M], [L; M]) -> [L; M],
    ) -> [L; M] {
        Self::merge(values, identity, slot, combine)
    }
}

/// The combination of two threads' values: usually a function of both.
pub trait Merge<L: Lane, const M: usize> {
    /// Combines two values.
    fn merge(&self, a: [L; M], b: [L; M]) -> [L; M];

    /// The same over groups of `W` neighbouring lanes, in each of them.
    #[inline(always)]
    unsafe fn merge_lanes<const W: u32>(&self, values: [L; M]) -> [L; M] {
        butterfly::<W, L, M>(values, |a, b| self.merge(a, b))
    }
}

impl<L: Lane, const M: usize, F: Fn([L; M], [L; M]) -> [L; M]> Merge<L, M> for F {
    #[inline(always)]
    fn merge(&self, a: [L; M], b: [L; M]) -> [L; M] {
        self(a, b)
    }
}

/// `combine` over groups of `W` neighbouring lanes.
#[inline(always)]
pub(crate) unsafe fn butterfly<const W: u32, L: Lane, const M: usize>(
    values: [L; M],
    combine: impl Fn([L; M], [L; M]) -> [L; M],
) -> [L; M] {
    let (mut values, mut mask) = (values, W / 2);
    while mask > 0 {
        values = combine(values, values.map(|value| warp::shuffle_xor(value, mask)));
        mask /= 2;
    }
    values
}

/// `W` neighbouring lanes a row, [`WARPS`] warps a block.
#[derive(Clone, Copy)]
pub struct Group<const W: u32>;

impl<const W: u32> Threads for Group<W> {
    const MAX: u32 = WARPS * 32;
    type Partials<const N: usize> = ();
    const STRIDE: usize = W as usize;
    const TEAMS_OF_WARP: u32 = 32 / W;

    #[inline(always)]
    fn rows() -> (u64, u64) {
        let warp = u64::from(thread::block_idx_x()) * u64::from(WARPS) + u64::from(warp::warp_id());
        let first = warp * u64::from(32 / W);
        (first + u64::from(warp::lane_id() / W), first)
    }

    #[inline(always)]
    fn rows_of_grid() -> u64 {
        u64::from(thread::grid_dim_x()) * u64::from(WARPS * (32 / W))
    }

    #[inline(always)]
    fn rank() -> usize {
        (warp::lane_id() % W) as usize
    }

    #[inline(always)]
    fn size() -> usize {
        W as usize
    }

    #[inline(always)]
    unsafe fn merge<L: Lane, const M: usize>(values: [L; M], _: [L; M], _: u32, merge: impl Merge<L, M>) -> [L; M] {
        merge.merge_lanes::<W>(values)
    }
}

/// One block per row. Its size is a multiple of 32.
#[derive(Clone, Copy)]
pub struct BlockThreads;

impl Threads for BlockThreads {
    const MAX: u32 = MAX_THREADS;
    type Partials<const N: usize> = [[u32; 32]; N];

    #[inline(always)]
    fn rows() -> (u64, u64) {
        let row = u64::from(thread::block_idx_x());
        (row, row)
    }

    #[inline(always)]
    fn rows_of_grid() -> u64 {
        u64::from(thread::grid_dim_x())
    }

    // Assumes 132 multiprocessors.
    #[inline(always)]
    fn ahead(threads: u32) -> Option<u64> {
        Some(u64::from(132 * (threads / thread::block_dim_x()).max(1)))
    }

    #[inline(always)]
    fn rank() -> usize {
        thread::thread_idx_x() as usize
    }

    #[inline(always)]
    fn size() -> usize {
        thread::block_dim_x() as usize
    }

    #[inline(always)]
    unsafe fn merge<L: Lane, const M: usize>(
        values: [L; M],
        identity: [L; M],
        slot: u32,
        merge: impl Merge<L, M>,
    ) -> [L; M] {
        let partials: [SharedPtr<u32>; M] = array::from_fn(|i| shared::dynamic::<u32>().add(32 * (slot + i as u32)));
        let values = merge.merge_lanes::<32>(values);
        if warp::lane_id() == 0 {
            for i in 0..M {
                partials[i].add(warp::warp_id()).write(values[i].to_bits());
            }
        }
        thread::sync_threads();
        // Every warp combines the partial results of all, so no second barrier is needed.
        let lane = warp::lane_id();
        let mut values = identity;
        if lane < thread::block_dim_x() / 32 {
            values = array::from_fn(|i| L::from_bits(partials[i].add(lane).read()));
        }
        merge.merge_lanes::<32>(values)
    }
}

/// Partial results of a cluster's warps, for one reduction.
const CLUSTER_PARTIALS: u32 = CLUSTER * MAX_THREADS / 32;
/// A copy of the partial results of all of a cluster's warps, for `N` reductions of one value each.
#[repr(C)]
pub struct ClusterPartials<const N: usize> {
    /// This barrier completes when all results of the first reduction have arrived.
    complete: Barrier,
    values: [[u32; CLUSTER_PARTIALS as usize]; N],
}

/// One cluster of [`CLUSTER`] blocks per row, each of a multiple of 32 threads. sm_90.
#[derive(Clone, Copy)]
pub struct ClusterThreads;

impl Threads for ClusterThreads {
    const MAX: u32 = MAX_THREADS;
    type Partials<const N: usize> = ClusterPartials<N>;

    #[inline(always)]
    fn rows() -> (u64, u64) {
        let partials = shared::dynamic::<ClusterPartials<1>>();
        // SAFETY: every thread of the cluster calls this once, and waits in its first reduction: no thread writes into
        // a block's shared memory before that block's barrier is initialised.
        unsafe {
            if thread::thread_idx_x() == 0 {
                shared_field!(partials.complete).init(1);
                fence::mbarrier_init();
            }
            cluster::arrive_relaxed();
        }
        let row = u64::from(thread::block_idx_x() / CLUSTER);
        (row, row)
    }

    #[inline(always)]
    fn rows_of_grid() -> u64 {
        u64::from(thread::grid_dim_x() / CLUSTER)
    }

    #[inline(always)]
    fn rank() -> usize {
        (cluster::rank() * thread::block_dim_x() + thread::thread_idx_x()) as usize
    }

    #[inline(always)]
    fn size() -> usize {
        (CLUSTER * thread::block_dim_x()) as usize
    }

    // One wave on 132 multiprocessors, on each of which the resident threads together use half of the registers.
    #[inline(always)]
    fn ahead(_threads: u32) -> Option<u64> {
        Some(u64::from(132 / CLUSTER * (MAX_THREADS / thread::block_dim_x())))
    }

    #[inline(always)]
    unsafe fn merge<L: Lane, const M: usize>(
        values: [L; M],
        identity: [L; M],
        slot: u32,
        merge: impl Merge<L, M>,
    ) -> [L; M] {
        let memory = shared::dynamic::<ClusterPartials<1>>();
        let partials: [SharedPtr<u32>; M] =
            array::from_fn(|i| shared_field!(memory.values).cast::<u32>().add(CLUSTER_PARTIALS * (slot + i as u32)));
        let warps = thread::block_dim_x() / 32;
        let values = merge.merge_lanes::<32>(values);
        let (lane, place) = (warp::lane_id(), cluster::rank() * warps + warp::warp_id());
        // Every block gets all partial results, so that it reads only its own memory and may end at any time.
        let to = |i: usize| cluster::map(partials[i].add(place), lane);
        if slot == 0 {
            // These stores complete the receiver's barrier themselves: a cluster barrier would first have to make all
            // memory operations visible.
            let complete = shared_field!(memory.complete);
            // All blocks have started. Results that other blocks have already stored here count too: the phase does not
            // complete before this block's one arrival.
            cluster::wait();
            if thread::thread_idx_x() == 0 {
                complete.arrive_expect_tx(CLUSTER * warps * M as u32 * 4);
            }
            if lane < CLUSTER {
                for i in 0..M {
                    to(i).write_async(values[i].to_bits(), cluster::map(complete, lane));
                }
            }
            complete.wait_parity(0);
        } else {
            if lane < CLUSTER {
                for i in 0..M {
                    to(i).write(values[i].to_bits());
                }
            }
            cluster::sync();
        }
        let mut values = identity;
        let mut place = lane;
        while place < CLUSTER * warps {
            values = merge.merge(values, array::from_fn(|i| L::from_bits(partials[i].add(place).read())));
            place += 32;
        }
        merge.merge_lanes::<32>(values)
    }
}
