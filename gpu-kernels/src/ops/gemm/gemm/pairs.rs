//! The product with few rows, or few columns, by pairs of blocks that stream the weight without a pause.
//!
//! # Math
//! The formula of [`gemm`](super), with weight and vectors as [`skinny`](super::skinny) defines them.
//!
//! # Layout
//! As of [`skinny`](super::skinny). Up to 16, 32, 48 or 64 vectors, `2·R`; missing vectors are filled with zeros by
//! TMA. These read nothing, but take their place in shared memory and their time to be written.
//!
//! # Mapping
//! A pair computes [`ROWS`] rows of the weight by all vectors at a time: its blocks take stages of 64 elements of k in
//! turn. There are as many pairs as fit on the multiprocessors, one block on each, and they take rows in waves; the
//! producer goes on to the next wave while the sums of the last one are added and stored. If at most half of the pairs
//! would have rows in the last wave, each takes half as many, so that twice as many multiprocessors load: one alone
//! gets some 50 GB/s from L2. In a block, one warp produces, one thread of which issues every copy, and two warpgroups
//! multiply 64 rows each. Warpgroup r of block r has its own sums in registers; the other block writes those of its
//! warpgroup r to this block's shared memory, by stores that complete a barrier. It adds both and stores the results.
//! There is one addition, so that the result is the same every time.
//!
//! # Shared memory
//! Stages of ([`ROWS`] + 2·`R`)·128 bytes: 12 of 18 KiB, 10 of 20, 9 of 22 or 8 of 24; 4 to 16 KiB for
//! the other block's sums; barriers. One block a multiprocessor.
//!
//! # Numerics
//! As of [`gemm`](super), with the sums of the two parts of k added in f32.
//!
//! # Cost
//! The bytes of the weight, once: n·k·2 over the bandwidth, 31.7 µs for 8192 × 8192 at 4.23 TB/s. On an H200 that takes
//! 36.7 µs with 16 vectors, 37.2 with 32, 37.9 with 48 and 38.5 with 64; 28672 × 8192 takes 114 µs with 16, 121 by clusters of
//! four.
//!
//! # Limits
//! 64 vectors, one product. Compute capability 9.0.
//!
//! # Sources
//! Those of [`skinny`](super::skinny).

use cuda_std::float::{Element, Half};
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::wgmma::Accumulators;
use cuda_std::{cluster, fence, kernel, thread, tma, warp};

use super::super::epilogue::{Epilogue, Factor};
use super::super::hopper::Cursor;
use super::ring::{CONSUMERS, ROWS, Ring, Rows, Sizes, THREADS, Turn, WARP_ROWS, WARPGROUP, WARPGROUP_ROWS};
use super::ring::{groups, ring_bytes, stage_bytes, steps, vectors};

/// Blocks of a cluster.
pub const PAIR: u32 = 2;
/// The most vectors.
pub const MOST: u32 = vectors(SUMS[SUMS.len() - 1]);
/// Sums of a thread of the kernels.
pub const SUMS: [usize; 4] = [8, 16, 24, 32];

/// The bytes of a warpgroup's sums.
const fn sum_bytes(r: usize) -> u32 {
    r as u32 * WARPGROUP * 4
}

/// As many stages as there is room for beside the sums.
const fn stages(r: usize) -> u32 {
    (224 * 1024 - sum_bytes(r)) / stage_bytes(r)
}

const fn shared_bytes(r: usize) -> usize {
    (ring_bytes(stages(r), r) + sum_bytes(r)) as usize + 2 * size_of::<Barrier>()
}

/// C = α·weight·vectorsᵀ + β·C; α times `scale`, unless that is null.
///
/// `weight` loads boxes of 64 × 64 of k, `vectors` of [`vectors`] × 64, both in 128-byte swizzle and with a third dimension of one.
///
/// # Safety
/// The maps describe live tensors of these sizes; `c` is valid for reads and writes of its elements. No size is zero, and there are at most
/// [`vectors`]; `scale` is null or valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(R: 8, 16, 24, 32), where(C == T || C == f32),
    block = THREADS, min_blocks = 1, cluster = PAIR, shared = { shared_bytes(R) }, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_pairs<T: Half, C: Element, const R: usize>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) {
    match R {
        8 => run::<T, C, 8>(weight, vectors, c, scale, sizes),
        16 => run::<T, C, 16>(weight, vectors, c, scale, sizes),
        24 => run::<T, C, 24>(weight, vectors, c, scale, sizes),
        _ => run::<T, C, 32>(weight, vectors, c, scale, sizes),
    }
}

/// The block's shared memory.
#[derive(Clone, Copy)]
struct Memory<const R: usize>(SharedPtr<u8>);

impl<const R: usize> Memory<R> {
    #[inline(always)]
    fn ring(self) -> Ring<R> {
        let Self(memory) = self;
        Ring { memory, stages: stages(R) }
    }

    /// Completes when the other block's sums of a tile are here.
    #[inline(always)]
    fn arrived(self) -> SharedPtr<Barrier> {
        self.ring().end()
    }

    /// Completes when the other block has read the sums that this one sent.
    #[inline(always)]
    fn read(self) -> SharedPtr<Barrier> {
        self.arrived().add(1)
    }

    /// Sum `i` of the other block's thread `lane`.
    #[inline(always)]
    fn sum(self, i: u32, lane: u32) -> SharedPtr<f32> {
        self.arrived().add(2).cast::<f32>().add(i * WARPGROUP + lane)
    }
}

#[inline(always)]
unsafe fn run<T: Half, C: Element, const R: usize>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) where
    [f32; R]: Accumulators,
{
    let memory = Memory::<R>(shared::dynamic());
    let warpgroup = warp::warp_id_uniform() / (WARPGROUP / 32);
    let rank = cluster::rank();
    let is_producer = thread::thread_idx_x() == CONSUMERS * WARPGROUP;
    if is_producer {
        tma::prefetch_descriptor(weight);
        tma::prefetch_descriptor(vectors);
        memory.ring().init();
        memory.arrived().init(1);
        memory.read().init(WARPGROUP / 32);
        fence::mbarrier_init();
    }
    // The other block uses two of the barriers, and this one's consumers use all of them: they wait for this arrival before.
    cluster::arrive_relaxed();

    let (pair, pairs) = (thread::block_idx_x() / PAIR, thread::grid_dim_x() / PAIR);
    let waves = Waves { left: sizes.rows, first: 0, pair, pairs };
    let steps = steps::<PAIR>(sizes.k, rank);
    if warpgroup == CONSUMERS {
        if is_producer {
            let (turn, mut at) = (Turn::of::<PAIR>(steps), Cursor::default());
            for rows in waves {
                memory.ring().fill::<PAIR>([weight, vectors], rows, rank, turn, &mut at);
            }
        }
        cluster::wait();
    } else {
        cluster::wait();
        consume::<T, C, R>(memory, warpgroup, waves, steps, c, scale, sizes);
    }
    // A block that has ended could not be told that its sums have been read.
    cluster::sync();
}

/// The rows of a pair, those of one wave after another.
#[derive(Clone, Copy)]
struct Waves {
    /// Rows from the next wave on, and the first of them.
    left: u32,
    first: u32,
    pair: u32,
    pairs: u32,
}

impl Iterator for Waves {
    type Item = Rows;

    #[inline(always)]
    fn next(&mut self) -> Option<Rows> {
        let count = if self.left <= self.pairs * WARPGROUP_ROWS { WARPGROUP_ROWS } else { ROWS };
        let before = self.pair * count;
        let rows = Rows { first: self.first + before, count };
        let has_rows = before < self.left;
        self.first += self.pairs * count;
        self.left = self.left.saturating_sub(self.pairs * count);
        has_rows.then_some(rows)
    }
}

/// Multiplies 64 rows of each wave and stores those of them that the block adds. Run by a whole warpgroup.
#[inline(always)]
unsafe fn consume<T: Half, C: Element, const R: usize>(
    memory: Memory<R>,
    consumer: u32,
    waves: Waves,
    steps: u32,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) where
    [f32; R]: Accumulators,
{
    let (rank, lane) = (cluster::rank(), thread::thread_idx_x() % WARPGROUP);
    let groups = groups(sizes.vectors);
    let factor = Factor::of(sizes.alpha, scale).factor();
    let (mut at, mut parity) = (Cursor::default(), 0);
    for rows in waves {
        if consumer * WARPGROUP_ROWS >= rows.count {
            memory.ring().skip(steps, &mut at);
            continue;
        }
        let mut sums = [0.0; R];
        let last = memory.ring().multiply::<T>(consumer, steps, &mut at, &mut sums);
        if let Some(last) = last
            && lane == 0
        {
            memory.ring().give_back(last);
        }
        if consumer == rank {
            if lane == 0 {
                memory.arrived().arrive_expect_tx(groups * 4 * WARPGROUP * 4);
            }
            memory.arrived().wait_parity(parity);
            for (i, sum) in sums.iter_mut().enumerate() {
                if (i as u32 / 4) < groups {
                    *sum += memory.sum(i as u32, lane).read();
                }
            }
            warp::sync(warp::FULL_MASK);
            if warp::lane_id() == 0 {
                cluster::map(memory.read(), rank ^ 1).signal();
            }
            let row0 = rows.first + consumer * WARPGROUP_ROWS + lane / 32 * WARP_ROWS;
            for (i, sum) in sums.iter().enumerate() {
                sizes.store(c, factor, [row0, i as u32, lane % 32], *sum);
            }
        } else {
            memory.read().wait_parity(parity ^ 1);
            let to = cluster::map(memory.sum(0, lane), rank ^ 1);
            let arrived = cluster::map(memory.arrived(), rank ^ 1);
            for (i, sum) in sums.iter().enumerate() {
                if (i as u32 / 4) < groups {
                    to.add(i as u32 * WARPGROUP).write_async(*sum, arrived);
                }
            }
        }
        parity ^= 1;
    }
}
