//! Gradients, with losses, of rows that only a cluster holds: rows are loaded while others are summed and stored.
//!
//! # Mapping
//! A persistent grid of clusters, each of which takes rows at a fixed distance. A row is cut into equal stretches, one
//! for each of the [`WARPS`] warps of each block. A warp has a ring of places for its stretches of the next rows and
//! fills them by bulk copies that it issues itself. It waits for no other warp except for a row's combined sums:
//!
//! | | | |
//! |---|---|---|
//! | under way | rows from r + 2 on | a place is asked for when the gradient that needed it is stored |
//! | summed | row r + 1 | in two steps: the stretch's maxima, and sums relative to them |
//! | stored | row r | by what a warp of its own has made of the sums meanwhile |
//!
//! That warp merges the sums of its block's other warps, sends the result to all blocks of the cluster, and merges what
//! it receives from them. The sums of row r + 1 are ready before the warps finish row r, so that no warp waits for it
//! or for other blocks.
//!
//! # Shared memory
//! [`PACKS`] packs of both rows as a ring, of as many places as it has room for: three of rows of 131,072 elements of 16 bits, which are 192 KB. Beside
//! it 2 KB of barriers and sums, of which there are two by turns.
//!
//! # Numerics
//! As in [`kl_divergence`](super::kl_divergence), the sums merged by warps, blocks and clusters in turn. Gradients by the logits of q take both
//! exponentials of 16-bit elements by a multiplication and an addition in one, and a factor for what that rounds.
//!
//! # Cost
//! Two reads and one write of rows × d elements: 1.52 ms for 8192 rows of 131,072 bf16 at 4.25 TB/s, 3.1 µs a row of a cluster. An element takes about
//! 26 instructions in both steps, and four exponentials, which take about 2 µs a row each. 64 KB a multiprocessor are under way.
//!
//! # Limits
//! Rows of up to 128 · [`STRETCH`] packs. The Jensen–Shannon divergence is not supported, because its second sums
//! depend on the first.

mod stretches;

use core::array;
use core::f32::consts::{LN_2, LOG2_E};

use cuda_std::float::Element;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{cluster, fence, kernel, math, shared_field, thread, warp};

use super::{BY_FROM, Moments, Role, Terms, weighed};
use crate::ops::loss::factor_of;
use crate::ops::softmax::{Powers, shift};
use crate::rows::{CLUSTER, Merge};
use stretches::{Place, Stretches};

/// Warps of a block that hold a part of a row.
pub const WARPS: u32 = 16;
/// Threads of a block, with the warp that merges.
const THREADS: u32 = (WARPS + 1) * warp::SIZE;
/// Stretches of a row.
const STRETCHES: u32 = CLUSTER * WARPS;
/// The most packs of a stretch: a multiprocessor's memory has room for three places of this size.
pub const STRETCH: u32 = 149;
/// The fewest places of a warp, and the most.
const LEAST_PLACES: u32 = 3;
const MOST_PLACES: u32 = 6;
/// Packs of each row in a warp's ring.
pub const PACKS: u32 = LEAST_PLACES * STRETCH;
/// Bytes of a pack.
const PACK: u32 = 16;

/// A pack's.
#[repr(C, align(16))]
struct Bytes([u8; PACK as usize]);

/// What stands for a row's stretches: two maxima, and three sums.
type Sums<const N: usize> = [[f32; N]; 5];

/// The shared memory of a block. Fields with two entries are used by rows in turn.
#[repr(C)]
pub struct Shared {
    rings: [[Bytes; 2 * PACKS as usize]; WARPS as usize],
    /// The values that a row's gradients need.
    told: [[f32; 4]; 2],
    /// Completes when the stretches have arrived.
    loaded: [[Barrier; MOST_PLACES as usize]; WARPS as usize],
    /// Barriers that complete when all warps' sums, all blocks' sums, and the values for the gradient are ready.
    summed: [Barrier; 2],
    met: [Barrier; 2],
    known: [Barrier; 2],
    /// Completes when all blocks have read the values that were sent to them.
    read: [Barrier; 2],
    of_warps: [Sums<{ WARPS as usize }>; 2],
    of_blocks: [Sums<{ CLUSTER as usize }>; 2],
}

/// Whether rows of `packs` packs fit.
pub const fn holds(packs: usize) -> bool {
    packs <= (STRETCHES * STRETCH) as usize
}

/// As [`kl_divergence`](super::kl_divergence()), by clusters that take rows in turn.
///
/// # Safety
/// As for [`kl_divergence`](super::kl_divergence()), with a gradient, which is not Jensen–Shannon's; rows are whole packs at multiples of 16 bytes, which
/// are [held](holds).
#[kernel(dtypes(T: float), block = THREADS, cluster = CLUSTER, arch = "sm_90a", shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn kl_divergence_ring<T: Element>(
    from: *const T,
    to: *const T,
    targets: *const i32,
    dlosses: *const f32,
    share: *const f32,
    losses: *mut f32,
    gradient: *mut T,
    from_stride: u64,
    to_stride: u64,
    g_stride: u64,
    terms: Terms,
    rows: u64,
    d: u64,
) {
    let Terms { kind, scale, ignored, .. } = terms;
    let memory = shared::dynamic::<Shared>();
    if thread::thread_idx_x() == 0 {
        for turn in 0..2 {
            shared_field!(memory.summed).at(turn).init(WARPS);
            shared_field!(memory.met).at(turn).init(1);
            shared_field!(memory.known).at(turn).init(1);
            shared_field!(memory.read).at(turn).init(CLUSTER);
        }
        for place in 0..WARPS * MOST_PLACES {
            shared_field!(memory.loaded).cast::<Barrier>().add(place).init(1);
        }
        fence::mbarrier_init();
    }
    cluster::arrive_relaxed();
    cluster::wait();
    let clusters = u64::from((thread::grid_dim_x() / CLUSTER).max(1));
    let first = u64::from(thread::block_idx_x() / CLUSTER);
    let work = Work {
        first,
        clusters,
        turns: (rows - first).div_ceil(clusters) as u32,
        moments: Moments { scale: scale * LOG2_E },
    };
    let role = |turn: u32| Role::of(targets, work.row(turn), d as usize, ignored);
    if warp::warp_id_uniform() == WARPS {
        for turn in 0..work.turns {
            let row = work.row(turn);
            let role = role(turn);
            // Issued before the wait for the sums.
            let factor = scale * factor_of(role.counts, row, [dlosses, share]);
            let [p_max, q_max, from_sum, to_sum, ratios] = work.merged(turn);
            let (shares, mean) = role.shares([from_sum, to_sum, ratios]);
            let loss = role.loss(from_sum, shares[1], mean);
            let factor = role.factor(factor, loss);
            let [of_p, of_q] = shares.map(|share| share * factor);
            let [a, b] = if kind == BY_FROM { [of_p * LN_2, mean] } else { [of_p, of_q] };
            if warp::lane_id() == 0 && cluster::rank() == 0 && !losses.is_null() {
                *losses.add(row) = loss;
            }
            work.tell(turn, [shift(p_max), shift(q_max), a, b]);
        }
        return;
    }
    let mut stretches = Stretches::of::<T>(d);
    let inputs = [(from, from_stride), (to, to_stride)];
    let (mut place, mut last) = (Place::FIRST, Place::FIRST);
    for turn in 0..work.turns.min(stretches.places) {
        stretches.ask(place, turn, work.row(turn), inputs, role(turn).counts);
        place = place.next(stretches.places);
    }
    place = Place::FIRST;
    for turn in 0..=work.turns {
        // Early: what is asked for when the gradient is stored.
        let next = turn + stretches.places - 1;
        let asks = turn > 0 && next < work.turns;
        let counts = asks && role(next).counts;
        if turn < work.turns {
            work.add(turn, stretches.sums::<T>(place, turn, work.moments));
        }
        if turn > 0 {
            let turn = turn - 1;
            let [p_max, q_max, a, b] = work.told(turn);
            let (row, output) = (work.row(turn), (gradient, g_stride));
            if kind == BY_FROM {
                let [factor, mean] = [a, b];
                stretches.store(last, turn, row, output, |x| {
                    let [u, v] = work.moments.powers(x, [p_max, q_max]);
                    let p = math::ex2_approx_ftz(u);
                    weighed(p, p * (u - v - mean)) * factor
                });
            } else {
                let [p, q] = [p_max, q_max].map(|max| Powers::of::<T>(max, work.moments.scale));
                let (of_p, of_q) = (-a * p.correction, b * q.correction);
                stretches.store(last, turn, row, output, |x| math::fma(q.at(x[1]), of_q, p.at(x[0]) * of_p));
            }
        }
        // All lanes have read the values that are overwritten next.
        warp::sync(u32::MAX);
        if asks {
            stretches.ask(last, next, work.row(next), inputs, counts);
        }
        (last, place) = (place, place.next(stretches.places));
    }
}

/// The rows of a cluster, and what its warps tell each other of them.
#[derive(Clone, Copy)]
struct Work {
    first: u64,
    clusters: u64,
    turns: u32,
    moments: Moments,
}

impl Work {
    /// The row of a turn.
    #[inline(always)]
    fn row(&self, turn: u32) -> usize {
        (self.first + u64::from(turn) * self.clusters) as usize
    }

    /// Adds the sums of this warp's stretch to the block's.
    #[inline(always)]
    unsafe fn add(&self, turn: u32, sums: [f32; 5]) {
        let memory = shared::dynamic::<Shared>();
        if warp::lane_id() == 0 {
            let places = shared_field!(memory.of_warps).at(turn % 2);
            for i in 0..5 {
                places.at(i).at(warp::warp_id()).write(sums[i as usize]);
            }
            shared_field!(memory.summed).at(turn % 2).arrive();
        }
    }

    /// The sums of the row, in the first lane: first over a block's warps and then over the cluster's blocks.
    #[inline(always)]
    unsafe fn merged(&self, turn: u32) -> [f32; 5] {
        let memory = shared::dynamic::<Shared>();
        let (lane, slot, parity) = (warp::lane_id(), turn % 2, turn / 2 % 2);
        let met = shared_field!(memory.met).at(slot);
        let of_blocks = shared_field!(memory.of_blocks).at(slot);
        if lane == 0 {
            met.arrive_expect_tx(CLUSTER * 5 * 4);
        }
        shared_field!(memory.summed).at(slot).wait_parity(parity);
        let of_block = self.of(shared_field!(memory.of_warps).at(slot));
        if turn >= 2 {
            shared_field!(memory.read).at(slot).wait_parity_cluster((turn / 2 - 1) % 2);
        }
        if lane < CLUSTER {
            for i in 0..5 {
                let place = of_blocks.at(i).at(cluster::rank());
                cluster::map(place, lane).write_async(of_block[i as usize], cluster::map(met, lane));
            }
        }
        met.wait_parity(parity);
        self.of(of_blocks)
    }

    /// What stands for `N` of them.
    #[inline(always)]
    unsafe fn of<const N: usize>(&self, places: SharedPtr<Sums<N>>) -> [f32; 5] {
        let lane = warp::lane_id();
        let mut sums = Moments::NOTHING;
        if lane < N as u32 {
            sums = array::from_fn(|i| places.at(i as u32).at(lane).read());
        }
        self.moments.merge_lanes::<{ warp::SIZE }>(sums)
    }

    /// Passes the values for the row's gradient to the block, and signals to the cluster that the places of its sums
    /// are free for those of the next row but one.
    #[inline(always)]
    unsafe fn tell(&self, turn: u32, values: [f32; 4]) {
        let memory = shared::dynamic::<Shared>();
        let (lane, slot) = (warp::lane_id(), turn % 2);
        // All lanes have read.
        warp::sync(u32::MAX);
        if lane == 0 {
            shared_field!(memory.told).at(slot).write(values);
            shared_field!(memory.known).at(slot).arrive();
        }
        if lane < CLUSTER && turn + 2 < self.turns {
            cluster::map(shared_field!(memory.read).at(slot), lane).arrive();
        }
    }

    /// The values that were passed.
    #[inline(always)]
    unsafe fn told(&self, turn: u32) -> [f32; 4] {
        let memory = shared::dynamic::<Shared>();
        shared_field!(memory.known).at(turn % 2).wait_parity(turn / 2 % 2);
        shared_field!(memory.told).at(turn % 2).cast::<f32>().load_x4()
    }
}
