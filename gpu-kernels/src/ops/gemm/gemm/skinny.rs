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
//! A cluster of [four](Cut::FOUR) blocks, or of a [pair](Cut::PAIR), computes [`ROWS`] rows of the weight by all
//! vectors: its blocks take stages of 64 elements of k in turn. In a block, one warp produces, one thread of which
//! issues every copy, and two warpgroups multiply 64 rows each. Each block adds up the sums of its share of the rows:
//! the other blocks write their sums to its shared memory, in the tensor core's layout, by stores that complete a
//! barrier, and it adds them in the order of the blocks, so that the result is the same every time. Each block of a
//! pair has a whole multiprocessor, which suits problems of one wave: clusters of four cannot all start at once,
//! because the number of multiprocessors in a chip's groups is not a multiple of four. With clusters of four, two
//! blocks share a multiprocessor, so that with several waves one streams while the other starts or ends, and even few
//! rows of the weight occupy all multiprocessors. If there are so few that each block could have a multiprocessor, it
//! is better to use the [memory of a whole one](Cut::FOUR_ALONE).
//!
//! # Shared memory
//! Stages of ([`ROWS`] + 2·`R`)·128 bytes: 6 of 18 KiB, 4 of 24 KiB or 3 of 32 KiB; if the block has a multiprocessor
//! to itself, 12, 9 or 7; and their barriers. The sums reuse the memory of the stages.
//!
//! # Numerics
//! As of [`gemm`](super), with the sums of the parts of k added in f32.
//!
//! # Cost
//! The bytes of the weight, once: n·k·2 over the bandwidth, 31.7 µs for 8192 × 8192 at 4.23 TB/s. Pairs take 37 µs of an H200
//! for up to 16 vectors, 40 for 64 and 43 for 128: the vectors come from L2 once for each [`ROWS`] rows, 128 of them as many bytes as the weight.
//! Clusters of four take 40, 46 and 59. 64 vectors by 2048 × 8192 take 15.6 µs alone, 18.6 with half the memory.
//!
//! # Limits
//! 128 vectors, one product. Compute capability 9.0.
//!
//! # Sources
//! Those of [`gemm`](super); Osama et al., "Stream-K" (arXiv:2301.03598), on splitting k.

use core::iter::StepBy;
use core::ops::Range;

use cuda_std::float::{Element, Half};
use cuda_std::launch::{Fields, TensorMap};
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::wgmma::{self, Accumulators, Descriptor, K_MAJOR};
use cuda_std::{cluster, fence, kernel, math, thread, tma, warp};

use super::super::epilogue::{Epilogue, Factor};
use super::super::hopper::Cursor;

pub use super::cut::Cut;

/// Two warpgroups that multiply, and the warp that produces.
pub const THREADS: u32 = CONSUMERS * WARPGROUP + 32;
/// Rows of the weight that a cluster takes.
pub const ROWS: u32 = CONSUMERS * WARPGROUP_ROWS;
/// The most vectors.
pub const MOST: u32 = 128;

const WARPGROUP: u32 = 128;
const CONSUMERS: u32 = 2;
/// Rows of a product, and of a warp's share of it.
const WARPGROUP_ROWS: u32 = 64;
const WARP_ROWS: u32 = 16;
/// Elements of k in a stage, and their bytes: a row of the widest swizzle.
const DEPTH: u32 = 64;
const ROW_BYTES: u32 = DEPTH * 2;
/// Warps whose sums a block of `share` adds.
const fn part(share: u32) -> u32 {
    ROWS / WARP_ROWS / share
}

/// Vectors of a kernel whose threads have `r` sums.
pub const fn vectors(r: usize) -> u32 {
    2 * r as u32
}

const fn stage_bytes(r: usize) -> u32 {
    (ROWS + vectors(r)) * ROW_BYTES
}

/// As many stages as a block's share of a multiprocessor's shared memory has room for.
const fn stages(blocks: u32, r: usize) -> u32 {
    224 * 1024 / blocks / stage_bytes(r)
}

const fn shared_bytes(blocks: u32, r: usize) -> usize {
    assert!(ROWS / WARP_ROWS * r as u32 * 32 * 4 <= stages(blocks, r) * stage_bytes(r));
    (stages(blocks, r) * stage_bytes(r)) as usize + (2 * stages(blocks, r) as usize + 2) * size_of::<Barrier>()
}

/// Sizes, strides and factors of the product.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sizes {
    /// Strides of C in elements, from one row of the weight to the next and from one vector to the next; one of them is
    /// 1.
    pub c: [u64; 2],
    /// Rows of the weight.
    pub rows: u32,
    /// Vectors.
    pub vectors: u32,
    /// Elements of a row.
    pub k: u32,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what C holds.
    pub beta: f32,
    /// Padding, zero.
    pub padding: u32,
}

// SAFETY: 2 u64 and 6 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Sizes {}

/// C = α·weight·vectorsᵀ + β·C; α times `scale`, unless that is null. `SHARE` and `BLOCKS` are those of a [`Cut`].
///
/// `weight` loads boxes of [`ROWS`] × 64 of k, `vectors` of [`vectors()`] × 64, both in 128-byte swizzle and with a third dimension of one.
///
/// # Safety
/// The maps describe live tensors of these sizes; `c` is valid for reads and writes of its elements. No size is zero, and there are at most
/// [`vectors()`]; there is a cluster for each [`ROWS`] of the weight; `scale` is null or valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(SHARE: 4, 2, BLOCKS: 2, 1, R: 8, 32, 64),
    where((C == T || C == f32) && (SHARE == 2 * BLOCKS || SHARE == 4 && R == 32)),
    block = THREADS, min_blocks = BLOCKS, cluster = SHARE,
    shared = { shared_bytes(BLOCKS, R) }, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_skinny<T: Half, C: Element, const SHARE: u32, const BLOCKS: u32, const R: usize>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) {
    match R {
        8 => run::<T, C, SHARE, BLOCKS, 8>(weight, vectors, c, scale, sizes),
        32 => run::<T, C, SHARE, BLOCKS, 32>(weight, vectors, c, scale, sizes),
        _ => run::<T, C, SHARE, BLOCKS, 64>(weight, vectors, c, scale, sizes),
    }
}

/// Groups of 8 vectors, of which a thread has 4 sums each.
const fn groups(vectors: u32) -> u32 {
    vectors.div_ceil(8)
}

/// The block's shared memory.
#[derive(Clone, Copy)]
struct Memory<const SHARE: u32, const BLOCKS: u32, const R: usize>(SharedPtr<u8>);

impl<const SHARE: u32, const BLOCKS: u32, const R: usize> Memory<SHARE, BLOCKS, R> {
    #[inline(always)]
    fn weight(self, stage: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        memory.byte_add(stage * stage_bytes(R))
    }

    #[inline(always)]
    fn vectors(self, stage: u32) -> SharedPtr<u8> {
        self.weight(stage).byte_add(ROWS * ROW_BYTES)
    }

    #[inline(always)]
    fn full(self, stage: u32) -> SharedPtr<Barrier> {
        self.weight(stages(BLOCKS, R)).cast::<Barrier>().add(stage)
    }

    #[inline(always)]
    fn empty(self, stage: u32) -> SharedPtr<Barrier> {
        self.full(stages(BLOCKS, R) + stage)
    }

    /// Completes when no block of the cluster reads its stages any more.
    #[inline(always)]
    fn read(self) -> SharedPtr<Barrier> {
        self.full(2 * stages(BLOCKS, R))
    }

    /// Completes when the cluster's sums are here.
    #[inline(always)]
    fn complete(self) -> SharedPtr<Barrier> {
        self.full(2 * stages(BLOCKS, R) + 1)
    }

    /// The sums that a warp of `block` has for this one, followed by those of the next warps, in the memory of the
    /// stages.
    #[inline(always)]
    fn sums(self, block: u32, warp: u32) -> SharedPtr<f32> {
        let Self(memory) = self;
        memory.cast::<f32>().add((block * part(SHARE) + warp) * R as u32 * 32)
    }
}

#[inline(always)]
unsafe fn run<T: Half, C: Element, const SHARE: u32, const BLOCKS: u32, const R: usize>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) where
    [f32; R]: Accumulators,
{
    let memory = Memory::<SHARE, BLOCKS, R>(shared::dynamic());
    let warpgroup = warp::warp_id_uniform() / (WARPGROUP / 32);
    let rank = cluster::rank();
    if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
        tma::prefetch_descriptor(weight);
        tma::prefetch_descriptor(vectors);
        for stage in 0..stages(BLOCKS, R) {
            memory.full(stage).init(1);
            memory.empty(stage).init(CONSUMERS);
        }
        memory.read().init(SHARE * CONSUMERS);
        memory.complete().init(1);
        fence::mbarrier_init();
    }
    // The other blocks of the cluster use only the last two barriers, and only later: this block arrives here and waits
    // before they are used.
    thread::sync_threads();
    cluster::arrive_relaxed();

    let row0 = thread::block_idx_x() / SHARE * ROWS;
    // The cluster's blocks take stages in turn, so that what they read at a time is one contiguous piece of each row.
    let steps = (rank..sizes.k.div_ceil(DEPTH)).step_by(SHARE as usize);
    let mut sums = [0.0; R];
    if warpgroup == CONSUMERS {
        if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
            produce(memory, weight, vectors, row0, steps);
        }
    } else {
        consume::<T, SHARE, BLOCKS, R>(memory, warpgroup, steps, &mut sums);
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
        memory.complete().arrive_expect_tx(SHARE * part(SHARE) * groups(sizes.vectors) * 4 * 32 * 4);
    }
    // These stores complete the receiver's barrier themselves: a cluster barrier would first have to make all memory
    // operations visible.
    memory.complete().wait_parity(0);
    add::<C, SHARE, BLOCKS, R>(
        memory,
        c,
        Factor::of(sizes.alpha, scale).factor(),
        row0 + rank * part(SHARE) * WARP_ROWS,
        sizes,
    );
}

/// The order of a cluster's steps along k: those from its own place on, then those before.
///
/// All clusters read the same vectors. If all of them began with the first step, they would request the same few lines
/// at the same time, from the few slices of L2 that hold them.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    steps: u32,
    first: u32,
}

impl Turn {
    /// The order of this cluster of `SHARE` blocks: the clusters' starting steps are as far apart as the number of
    /// steps allows.
    #[inline(always)]
    pub(super) fn of<const SHARE: u32>(steps: u32) -> Self {
        let [cluster, clusters] = [thread::block_idx_x(), thread::grid_dim_x()].map(|blocks| u64::from(blocks / SHARE));
        Self { steps, first: (cluster * u64::from(steps) / clusters.max(1)) as u32 }
    }

    /// Step number `i`.
    #[inline(always)]
    pub(super) fn step(self, i: u32) -> u32 {
        let step = self.first + i;
        if step < self.steps { step } else { step - self.steps }
    }
}

/// Loads the stages of the block. Run by one thread.
#[inline(always)]
unsafe fn produce<const SHARE: u32, const BLOCKS: u32, const R: usize>(
    memory: Memory<SHARE, BLOCKS, R>,
    weight: &TensorMap,
    vectors: &TensorMap,
    row0: u32,
    steps: StepBy<Range<u32>>,
) {
    let mut at = Cursor::default();
    let turn = Turn::of::<SHARE>(steps.len() as u32);
    for i in 0..turn.steps {
        let step = cluster::rank() + turn.step(i) * SHARE;
        // A fresh barrier counts as having completed the phase before its first, so the first round does not wait.
        memory.empty(at.stage).wait_parity(at.parity ^ 1);
        let full = memory.full(at.stage);
        full.arrive_expect_tx(stage_bytes(R));
        let k0 = (step * DEPTH) as i32;
        tma::load_3d(memory.weight(at.stage), weight, [k0, row0 as i32, 0], full);
        tma::load_3d(memory.vectors(at.stage), vectors, [k0, 0, 0], full);
        at.advance(stages(BLOCKS, R) as usize);
    }
}

/// Multiplies the stages of the block. Run by a whole warpgroup.
#[inline(always)]
unsafe fn consume<T: Half, const SHARE: u32, const BLOCKS: u32, const R: usize>(
    memory: Memory<SHARE, BLOCKS, R>,
    consumer: u32,
    steps: StepBy<Range<u32>>,
    sums: &mut [f32; R],
) where
    [f32; R]: Accumulators,
{
    let is_first_lane = thread::thread_idx_x().is_multiple_of(WARPGROUP);
    let mut at = Cursor::default();
    let mut previous = None;
    for _ in steps {
        memory.full(at.stage).wait_parity(at.parity);
        let rows = memory.weight(at.stage).byte_add(consumer * WARPGROUP_ROWS * ROW_BYTES);
        let (rows, vectors) = (Descriptor::k_major_128b(rows), Descriptor::k_major_128b(memory.vectors(at.stage)));
        wgmma::fence();
        // The first product overwrites.
        sums.product::<T, K_MAJOR, K_MAJOR>(rows, vectors, previous.is_some());
        sums.product::<T, K_MAJOR, K_MAJOR>(rows.advance(32), vectors.advance(32), true);
        sums.product::<T, K_MAJOR, K_MAJOR>(rows.advance(64), vectors.advance(64), true);
        sums.product::<T, K_MAJOR, K_MAJOR>(rows.advance(96), vectors.advance(96), true);
        wgmma::commit();
        // One group stays in flight; the stage before it has been read.
        wgmma::wait::<1>();
        if let Some(previous) = previous.replace(at.stage)
            && is_first_lane
        {
            memory.empty(previous).arrive();
        }
        at.advance(stages(BLOCKS, R) as usize);
    }
    wgmma::wait_for::<0>(sums);
}

/// Writes each sum to the block that adds those of its row.
#[inline(always)]
unsafe fn send<const SHARE: u32, const BLOCKS: u32, const R: usize>(
    memory: Memory<SHARE, BLOCKS, R>,
    rank: u32,
    vectors: u32,
    sums: &[f32; R],
) {
    let (warp, block) = (warp::warp_id() % part(SHARE), warp::warp_id() / part(SHARE));
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
unsafe fn add<C: Element, const SHARE: u32, const BLOCKS: u32, const R: usize>(
    memory: Memory<SHARE, BLOCKS, R>,
    c: *mut C,
    factor: f32,
    row0: u32,
    Sizes { c: [c_row, c_vector], rows, vectors, beta, .. }: Sizes,
) {
    let mut at = thread::thread_idx_x();
    while at < part(SHARE) * R as u32 * 32 {
        let (warp, i, lane) = (at / 32 / R as u32, at / 32 % R as u32, at % 32);
        // The tensor core's layout: two neighbouring vectors, then the same two of the row 8 below.
        let row = row0 + warp * WARP_ROWS + lane / 4 + i / 2 % 2 * 8;
        let vector = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if row < rows && vector < vectors {
            let sum = (0..SHARE).fold(0.0, |sum, block| sum + memory.sums(block, 0).add(at).read());
            let to = c.add((u64::from(row) * c_row + u64::from(vector) * c_vector) as usize);
            let old = if beta == 0.0 { 0.0 } else { beta * (*to).to_f32() };
            *to = C::from_f32(math::fma(factor, sum, old));
        }
        at += THREADS;
    }
}
