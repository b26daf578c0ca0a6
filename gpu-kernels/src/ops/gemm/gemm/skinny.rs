//! The product with few rows, or few columns, at the speed of memory: wgmma has its 64 rows along the long side.
//!
//! # Math
//! That of [`gemm`](super). The operand with the many rows along k is the *weight*, those of the other are the *vectors*: with few rows of A,
//! Cᵀ = B·Aᵀ is computed, and with few columns of B, C = A·B. Which of the two C is shows in its strides only.
//!
//! # Layout
//! Both operands K-major, rows at multiples of 16 bytes. Up to 16, 64 or 128 vectors, `2·R`; TMA writes zeros for those that are missing, and reads
//! nothing.
//!
//! # Mapping
//! A cluster of [four](Cut::FOUR) blocks, or of a [pair](Cut::PAIR), computes [`ROWS`] rows of the weight by all vectors: its blocks take turns along k, stages of 64
//! elements. In a block a warp produces, one thread of which issues every copy, and two warpgroups multiply 64 rows each. Each block adds the sums
//! of its part of the rows: the others write theirs to its shared memory, as the tensor core left them, by stores that complete a barrier, and it
//! adds them in the order of the blocks, the same result every time. Of a pair each has a multiprocessor, which suits where that is one round: of
//! clusters of four not all start at once, because the groups that a chip's multiprocessors form are no multiples of four. Of four, two blocks share a
//! multiprocessor, so that with more rounds one streams while the other starts or ends, and few rows of the weight still reach all of them. In one
//! round nothing keeps two from one multiprocessor while another stays empty, unless each takes the [memory of one](Cut::FOUR_ALONE). [Two pairs](Cut::TWO_PAIRS) of different rows need the same vectors: each loads half, for both.
//!
//! # Shared memory
//! Stages of ([`ROWS`] + 2·`R`)·128 bytes: 6 of 18 KiB, 4 of 24 KiB or 3 of 32 KiB, of blocks alone 12, 9 or 7, and their barriers. The sums lie where the
//! stages were.
//!
//! # Numerics
//! As of [`gemm`](super), with the sums of the parts of k added in f32.
//!
//! # Cost
//! The bytes of the weight, once: n·k·2 over the bandwidth, 31.7 µs for 8192 × 8192 at 4.23 TB/s. Pairs take 37 µs of an H200
//! for up to 16 vectors, 40 for 64 and 43 for 128: the vectors come from L2 once for each [`ROWS`] rows, 128 of them as many bytes as the weight,
//! 268 MB together, or 201 if two pairs share them. Clusters of four take 40, 46 and 59.
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
/// Rows of a product, and of a warp's part of it.
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

/// As many as a block's part of a multiprocessor's memory has room for.
const fn stages(blocks: u32, r: usize) -> u32 {
    224 * 1024 / blocks / stage_bytes(r)
}

const fn shared_bytes(blocks: u32, r: usize) -> usize {
    assert!(ROWS / WARP_ROWS * r as u32 * 32 * 4 <= stages(blocks, r) * stage_bytes(r));
    (stages(blocks, r) * stage_bytes(r)) as usize + (2 * stages(blocks, r) as usize + 2) * size_of::<Barrier>()
}

/// What there is to compute.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sizes {
    /// Elements of C from a row of the weight to the next, and from a vector to the next; one of them is 1.
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
    /// Zero.
    pub padding: u32,
}

// SAFETY: 2 u64 and 6 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Sizes {}

/// C = α·weight·vectorsᵀ + β·C; α times `scale`, unless that is null. `SHARE`, `SIDES` and `BLOCKS` are those of a [`Cut`].
///
/// `weight` loads boxes of [`ROWS`] × 64 of k, `vectors` a side's part of [`vectors()`] × 64, both in 128-byte swizzle and with a third dimension of one.
///
/// # Safety
/// The maps describe live tensors of these sizes; `c` is valid for reads and writes of its elements. No size is zero, and there are at most
/// [`vectors()`]; there is a set of `SHARE` blocks for each [`ROWS`] of the weight, and whole clusters; `scale` is null or valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(SHARE: 4, 2, SIDES: 1, 2, BLOCKS: 2, 1, R: 8, 32, 64),
    where((C == T || C == f32) && (SIDES == 1 && SHARE == 2 * BLOCKS || SIDES == 2 && SHARE == 2 && BLOCKS == 1 && R >= 32
        || SIDES == 1 && SHARE == 4 && BLOCKS == 1 && R == 32)),
    block = THREADS, min_blocks = BLOCKS, cluster = SHARE * SIDES,
    shared = { shared_bytes(BLOCKS, R) }, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_skinny<
    T: Half,
    C: Element,
    const SHARE: u32,
    const SIDES: u32,
    const BLOCKS: u32,
    const R: usize,
>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) {
    match R {
        8 => run::<T, C, SHARE, SIDES, BLOCKS, 8>(weight, vectors, c, scale, sizes),
        32 => run::<T, C, SHARE, SIDES, BLOCKS, 32>(weight, vectors, c, scale, sizes),
        _ => run::<T, C, SHARE, SIDES, BLOCKS, 64>(weight, vectors, c, scale, sizes),
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

    /// Completes when no block that shares k reads its stages any more.
    #[inline(always)]
    fn read(self) -> SharedPtr<Barrier> {
        self.full(2 * stages(BLOCKS, R))
    }

    /// Completes when the sums of all these are here.
    #[inline(always)]
    fn complete(self) -> SharedPtr<Barrier> {
        self.full(2 * stages(BLOCKS, R) + 1)
    }

    /// The sums that a warp of `block` of them has for this one, and those of the next warps, where the stages were.
    #[inline(always)]
    fn sums(self, block: u32, warp: u32) -> SharedPtr<f32> {
        let Self(memory) = self;
        memory.cast::<f32>().add((block * part(SHARE) + warp) * R as u32 * 32)
    }
}

#[inline(always)]
unsafe fn run<T: Half, C: Element, const SHARE: u32, const SIDES: u32, const BLOCKS: u32, const R: usize>(
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
    let (turn, side) = (cluster::rank() % SHARE, cluster::rank() / SHARE);
    if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
        tma::prefetch_descriptor(weight);
        tma::prefetch_descriptor(vectors);
        for stage in 0..stages(BLOCKS, R) {
            memory.full(stage).init(1);
            memory.empty(stage).init(CONSUMERS * SIDES);
        }
        memory.read().init(SHARE * CONSUMERS);
        memory.complete().init(1);
        fence::mbarrier_init();
    }
    // Of the last two the cluster is told, in its own time.
    if SIDES == 1 {
        thread::sync_threads();
    }
    cluster::arrive_relaxed();
    // The other side's copies and releases land at once.
    if SIDES > 1 {
        cluster::wait();
    }

    let row0 = thread::block_idx_x() / SHARE * ROWS;
    // Blocks take turns, so that what they read at a time is one piece of each row.
    let steps = (turn..sizes.k.div_ceil(DEPTH)).step_by(SHARE as usize);
    let (mut sums, mut at) = ([0.0; R], Cursor::default());
    if warpgroup == CONSUMERS {
        if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
            at = produce::<SHARE, SIDES, BLOCKS, R>(memory, weight, vectors, row0, [turn, side], steps);
        }
    } else {
        consume::<T, SHARE, SIDES, BLOCKS, R>(memory, warpgroup, turn, steps, &mut sums);
    }

    if SIDES == 1 {
        cluster::wait();
    }
    let first = side * SHARE;
    if warpgroup != CONSUMERS {
        let lane = thread::thread_idx_x() % WARPGROUP;
        if lane < SHARE {
            cluster::map(memory.read(), first + lane).signal();
        }
        // Sums take the place of the stages.
        memory.read().wait_parity(0);
        send(memory, first, turn, sizes.vectors, &sums);
    } else if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
        memory.complete().arrive_expect_tx(SHARE * part(SHARE) * groups(sizes.vectors) * 4 * 32 * 4);
    }
    // They say themselves that they are there: for a barrier of the cluster all memory would first have to agree.
    memory.complete().wait_parity(0);
    add::<C, SHARE, BLOCKS, R>(
        memory,
        c,
        Factor::of(sizes.alpha, scale).factor(),
        row0 + turn * part(SHARE) * WARP_ROWS,
        sizes,
    );
    // A block that left would take the shared memory that the other side still signals: until all stages are released it stays.
    if SIDES > 1 && thread::thread_idx_x() == CONSUMERS * WARPGROUP {
        for _ in 0..stages(BLOCKS, R) {
            memory.empty(at.stage).wait_parity(at.parity ^ 1);
            at.advance(stages(BLOCKS, R) as usize);
        }
    }
}

/// Loads the stages of the block, and says which would be next. Run by one thread.
#[inline(always)]
unsafe fn produce<const SHARE: u32, const SIDES: u32, const BLOCKS: u32, const R: usize>(
    memory: Memory<SHARE, BLOCKS, R>,
    weight: &TensorMap,
    vector_map: &TensorMap,
    row0: u32,
    [turn, side]: [u32; 2],
    steps: StepBy<Range<u32>>,
) -> Cursor {
    let mut at = Cursor::default();
    // Vectors that a side loads, for those that have the same turn.
    let count = vectors(R) / SIDES;
    let sides = (0..SIDES).fold(0, |mask, side| mask | 1 << (side * SHARE + turn));
    for step in steps {
        // A fresh barrier counts as having completed the phase before its first: the first round does not wait.
        memory.empty(at.stage).wait_parity(at.parity ^ 1);
        let full = memory.full(at.stage);
        full.arrive_expect_tx(stage_bytes(R));
        let k0 = (step * DEPTH) as i32;
        tma::load_3d(memory.weight(at.stage), weight, [k0, row0 as i32, 0], full);
        let to = memory.vectors(at.stage).byte_add(side * count * ROW_BYTES);
        if SIDES > 1 {
            tma::load_3d_multicast(to, vector_map, [k0, (side * count) as i32, 0], full, sides);
        } else {
            tma::load_3d(to, vector_map, [k0, 0, 0], full);
        }
        at.advance(stages(BLOCKS, R) as usize);
    }
    at
}

/// Multiplies the stages of the block. Run by a whole warpgroup.
#[inline(always)]
unsafe fn consume<T: Half, const SHARE: u32, const SIDES: u32, const BLOCKS: u32, const R: usize>(
    memory: Memory<SHARE, BLOCKS, R>,
    consumer: u32,
    turn: u32,
    steps: StepBy<Range<u32>>,
    sums: &mut [f32; R],
) where
    [f32; R]: Accumulators,
{
    let lane = thread::thread_idx_x() % WARPGROUP;
    let release = |stage: u32| {
        if SIDES > 1 && lane < SIDES {
            cluster::map(memory.empty(stage), lane * SHARE + turn).signal();
        } else if SIDES == 1 && lane == 0 {
            memory.empty(stage).arrive();
        }
    };
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
        if let Some(previous) = previous.replace(at.stage) {
            release(previous);
        }
        at.advance(stages(BLOCKS, R) as usize);
    }
    wgmma::wait_for::<0>(sums);
    if SIDES > 1
        && let Some(last) = previous
    {
        release(last);
    }
}

/// Writes each sum to the block that adds those of its row, of the ones that share k, from block `first` of the cluster on.
#[inline(always)]
unsafe fn send<const SHARE: u32, const BLOCKS: u32, const R: usize>(
    memory: Memory<SHARE, BLOCKS, R>,
    first: u32,
    turn: u32,
    vectors: u32,
    sums: &[f32; R],
) {
    let (warp, block) = (warp::warp_id() % part(SHARE), first + warp::warp_id() / part(SHARE));
    let to = cluster::map(memory.sums(turn, warp).add(warp::lane_id()), block);
    let complete = cluster::map(memory.complete(), block);
    for (i, sum) in sums.iter().enumerate() {
        if (i as u32 / 4) < groups(vectors) {
            to.add(i as u32 * 32).write_async(*sum, complete);
        }
    }
}

/// Adds the sums of the blocks that share k, of the rows that are this block's, and stores them.
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
        // As the tensor core leaves them: two neighbouring vectors, then the same of the row 8 below.
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
