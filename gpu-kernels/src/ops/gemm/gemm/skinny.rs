//! The product with few rows, or few columns, at memory bandwidth: wgmma has its 64 rows along the long side.
//!
//! # Math
//! The formula of [`gemm`](super). The operand with the many rows along k is called the *weight*; the rows of the other
//! are the *vectors*. With few rows of A the kernel computes Cᵀ = B·Aᵀ, and with few columns of B it computes C = A·B.
//! The two cases differ only in the strides of C.
//!
//! # Layout
//! Both operands K-major, rows at multiples of 16 bytes. Up to 16, 64 or 128 vectors, `2·R`; missing vectors are filled
//! with zeros by TMA and read nothing.
//!
//! # Mapping
//! A cluster of four blocks computes [`ROWS`] rows of the weight by all vectors: its blocks take stages of 64 elements
//! of k in turn. In a block, one warp produces, one thread of which issues every copy, and two warpgroups multiply 64
//! rows each. Each block adds up the sums of its share of the rows: the other blocks write their sums to its shared
//! memory, in the tensor core's layout, by stores that complete a barrier, and it adds them in the order of the blocks,
//! so that the result is the same every time. Two blocks share a multiprocessor (`BLOCKS`), so that one streams while
//! the other starts or ends, and even few rows of the weight occupy all multiprocessors. If there are so few that each
//! block could have a multiprocessor, it is better to use the memory of a whole one. Many rows are better by
//! [`pairs`](super::pairs): clusters of four cannot all start at once, because the number of multiprocessors in a
//! chip's groups is not a multiple of four.
//!
//! # Shared memory
//! Stages of ([`ROWS`] + 2·`R`)·128 bytes: 6 of 18 KiB, 4 of 24 KiB or 3 of 32 KiB; if the block has a multiprocessor
//! to itself, 9 of 24 KiB; and their barriers. The sums reuse the memory of the stages.
//!
//! # Numerics
//! As of [`gemm`](super), with the sums of the parts of k added in f32.
//!
//! # Cost
//! The bytes of the weight, once, and the vectors from L2 once for each [`ROWS`] rows: n·k·2 over the bandwidth, 7.9 µs
//! for 4096 × 4096 at 4.25 TB/s. On an H200 16 vectors of that take 13.9 µs, and 64 by 2048 × 8192 15.6 µs alone, 18.6
//! with half the memory.
//!
//! # Limits
//! 128 vectors, one product. Compute capability 9.0.
//!
//! # Sources
//! Those of [`gemm`](super); Osama et al., "Stream-K" (arXiv:2301.03598), on splitting k.

use cuda_std::float::{Element, Half};
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::wgmma::Accumulators;
use cuda_std::{cluster, fence, kernel, thread, tma, warp};

use super::super::epilogue::{Epilogue, Factor};
use super::super::hopper::Cursor;
use super::ring::{CONSUMERS, ROWS, Ring, Rows, Sizes, THREADS, Turn, WARP_ROWS, WARPGROUP};
use super::ring::{groups, ring_bytes, stage_bytes, steps};

/// Blocks of a cluster, among which k is split.
pub const SHARE: u32 = 4;
/// The most vectors.
pub const MOST: u32 = 128;
/// The most vectors of the kernel whose blocks have a multiprocessor each.
pub const MOST_ALONE: u32 = 64;

/// Warps whose sums a block adds.
const PART: u32 = ROWS / WARP_ROWS / SHARE;

/// As many stages as a block's share of a multiprocessor's shared memory has room for.
const fn stages(blocks: u32, r: usize) -> u32 {
    224 * 1024 / blocks / stage_bytes(r)
}

const fn shared_bytes(blocks: u32, r: usize) -> usize {
    assert!(ROWS / WARP_ROWS * r as u32 * 32 * 4 <= stages(blocks, r) * stage_bytes(r));
    ring_bytes(stages(blocks, r), r) as usize + 2 * size_of::<Barrier>()
}

/// C = α·weight·vectorsᵀ + β·C; α times `scale`, unless that is null. `BLOCKS` blocks share a multiprocessor.
///
/// `weight` loads boxes of 64 × 64 of k, `vectors` of [`vectors`](super::ring::vectors) × 64, both in 128-byte swizzle and with a third dimension of one.
///
/// # Safety
/// The maps describe live tensors of these sizes; `c` is valid for reads and writes of its elements. No size is zero, and there are at most
/// [`vectors`](super::ring::vectors); there is a cluster for each [`ROWS`] of the weight; `scale` is null or valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(BLOCKS: 2, 1, R: 8, 32, 64),
    where((C == T || C == f32) && (BLOCKS == 2 || R == 32)),
    block = THREADS, min_blocks = BLOCKS, cluster = SHARE,
    shared = { shared_bytes(BLOCKS, R) }, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_skinny<T: Half, C: Element, const BLOCKS: u32, const R: usize>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) {
    match R {
        8 => run::<T, C, BLOCKS, 8>(weight, vectors, c, scale, sizes),
        32 => run::<T, C, BLOCKS, 32>(weight, vectors, c, scale, sizes),
        _ => run::<T, C, BLOCKS, 64>(weight, vectors, c, scale, sizes),
    }
}

/// The block's shared memory.
#[derive(Clone, Copy)]
struct Memory<const BLOCKS: u32, const R: usize>(SharedPtr<u8>);

impl<const BLOCKS: u32, const R: usize> Memory<BLOCKS, R> {
    #[inline(always)]
    fn ring(self) -> Ring<R> {
        let Self(memory) = self;
        Ring { memory, stages: stages(BLOCKS, R) }
    }

    /// Completes when no block of the cluster reads its stages any more.
    #[inline(always)]
    fn read(self) -> SharedPtr<Barrier> {
        self.ring().end()
    }

    /// Completes when the cluster's sums are here.
    #[inline(always)]
    fn complete(self) -> SharedPtr<Barrier> {
        self.read().add(1)
    }

    /// The sums that a warp of `block` has for this one, followed by those of the next warps, in the memory of the
    /// stages.
    #[inline(always)]
    fn sums(self, block: u32, warp: u32) -> SharedPtr<f32> {
        let Self(memory) = self;
        memory.cast::<f32>().add((block * PART + warp) * R as u32 * 32)
    }
}

#[inline(always)]
unsafe fn run<T: Half, C: Element, const BLOCKS: u32, const R: usize>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) where
    [f32; R]: Accumulators,
{
    let memory = Memory::<BLOCKS, R>(shared::dynamic());
    let warpgroup = warp::warp_id_uniform() / (WARPGROUP / 32);
    let rank = cluster::rank();
    if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
        tma::prefetch_descriptor(weight);
        tma::prefetch_descriptor(vectors);
        memory.ring().init();
        memory.read().init(SHARE * CONSUMERS);
        memory.complete().init(1);
        fence::mbarrier_init();
    }
    // The other blocks of the cluster use only the last two barriers, and only later: this block arrives here and waits
    // before they are used.
    thread::sync_threads();
    cluster::arrive_relaxed();

    let rows = Rows { first: thread::block_idx_x() / SHARE * ROWS, count: ROWS };
    // The cluster's blocks take stages in turn, so that what they read at a time is one contiguous piece of each row.
    let steps = steps::<SHARE>(sizes.k, rank);
    let mut sums = [0.0; R];
    if warpgroup == CONSUMERS {
        if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
            let turn = Turn::of::<SHARE>(steps);
            memory.ring().fill::<SHARE>([weight, vectors], rows, rank, turn, &mut Cursor::default());
        }
    } else {
        memory.ring().multiply::<T>(warpgroup, steps, &mut Cursor::default(), &mut sums);
    }

    cluster::wait();
    if warpgroup != CONSUMERS {
        let lane = thread::thread_idx_x() % WARPGROUP;
        if lane < SHARE {
            cluster::map(memory.read(), lane).signal();
        }
        // The sums overwrite the stages.
        memory.read().wait_parity(0);
        send(memory, rank, sizes.vectors, &sums);
    } else if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
        memory.complete().arrive_expect_tx(SHARE * PART * groups(sizes.vectors) * 4 * 32 * 4);
    }
    // These stores complete the receiver's barrier themselves: a cluster barrier would first have to make all memory
    // operations visible.
    memory.complete().wait_parity(0);
    add::<C, BLOCKS, R>(
        memory,
        c,
        Factor::of(sizes.alpha, scale).factor(),
        rows.first + rank * PART * WARP_ROWS,
        sizes,
    );
}

/// Writes each sum to the block that adds those of its row.
#[inline(always)]
unsafe fn send<const BLOCKS: u32, const R: usize>(memory: Memory<BLOCKS, R>, rank: u32, vectors: u32, sums: &[f32; R]) {
    let (warp, block) = (warp::warp_id() % PART, warp::warp_id() / PART);
    let to = cluster::map(memory.sums(rank, warp).add(warp::lane_id()), block);
    let complete = cluster::map(memory.complete(), block);
    for (i, sum) in sums.iter().enumerate() {
        if (i as u32 / 4) < groups(vectors) {
            to.add(i as u32 * 32).write_async(*sum, complete);
        }
    }
}

/// Adds the sums of the cluster's blocks for this block's rows, and stores them.
#[inline(always)]
unsafe fn add<C: Element, const BLOCKS: u32, const R: usize>(
    memory: Memory<BLOCKS, R>,
    c: *mut C,
    factor: f32,
    row0: u32,
    sizes: Sizes,
) {
    let mut at = thread::thread_idx_x();
    while at < PART * R as u32 * 32 {
        let (warp, i, lane) = (at / 32 / R as u32, at / 32 % R as u32, at % 32);
        if i / 4 < groups(sizes.vectors) {
            let sum = (0..SHARE).fold(0.0, |sum, block| sum + memory.sums(block, 0).add(at).read());
            sizes.store(c, factor, [row0 + warp * WARP_ROWS, i, lane], sum);
        }
        at += THREADS;
    }
}
