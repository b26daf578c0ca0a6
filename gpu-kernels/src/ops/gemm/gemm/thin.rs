//! The product with few rows, or few columns, along all of k: a block's tile is the vectors by a few rows of the weight.
//!
//! # Math
//! That of [`gemm`](super), of weight and vectors as [`skinny`](super::skinny) calls the operands.
//!
//! # Layout
//! As of [`skinny`](super::skinny), for up to [`MOST`] vectors.
//!
//! # Mapping
//! A block computes [`ROWS`] rows of the weight by all vectors, so that 4096 rows are a block for nearly every multiprocessor. wgmma has its 64 rows along the
//! vectors and its [`ROWS`] columns along the weight. A stage is two panels of 64 elements of k: each of two warpgroups multiplies one, and they add
//! their sums. Blocks of a cluster load a panel of vectors each, for both. One thread of a last warp issues every copy.
//!
//! # Shared memory
//! 8 stages of 2 · (64 + 32) · 128 bytes, 16 KiB for the sums, and barriers: 214 016 B, one block a multiprocessor.
//!
//! # Numerics
//! As of [`gemm`](super), with the sums of the panels of even and of odd number added in f32.
//!
//! # Cost
//! The bytes of the weight, once: 7.9 µs for 4096 × 4096 at 4.25 TB/s. The vectors take twice as many on their way into each multiprocessor, half of
//! them read by its neighbour: 768 KiB in all, 7.0 µs at 64 bytes a clock. Cutting k takes half of that, but clusters that exchange and add sums. On an H200
//! 64 vectors take 14.9 µs, and 16.7 cut.
//!
//! # Limits
//! [`MOST`] vectors, one product. Compute capability 9.0.
//!
//! # Sources
//! Those of [`gemm`](super).

use cuda_std::float::{Element, Half};
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::wgmma::{self, Accumulators, Descriptor, K_MAJOR};
use cuda_std::{cluster, fence, kernel, math, shared_field, thread, tma, warp};

use super::super::epilogue::{Epilogue, Factor};
use super::super::hopper::Cursor;
use super::skinny::Sizes;

/// Blocks that share the vectors.
pub const CLUSTER: u32 = 2;
/// Two warpgroups that multiply, and the warp that produces.
pub const THREADS: u32 = CONSUMERS * WARPGROUP + 32;
/// Rows of the weight that a block takes.
pub const ROWS: u32 = 32;
/// The most vectors: rows of a product.
pub const MOST: u32 = 64;

const WARPGROUP: u32 = 128;
const CONSUMERS: u32 = 2;
/// Elements of k in a panel, and their bytes: a row of the widest swizzle.
const DEPTH: u32 = 64;
const ROW_BYTES: u32 = DEPTH * 2;
const VECTORS_BYTES: u32 = MOST * ROW_BYTES;
const WEIGHT_BYTES: u32 = ROWS * ROW_BYTES;
const STAGE_BYTES: u32 = CONSUMERS * (VECTORS_BYTES + WEIGHT_BYTES);
const STAGES: usize = 8;
/// Sums of a thread.
const SUMS: usize = (ROWS / 2) as usize;

/// The block's shared memory; a stage has a panel for each consumer.
#[repr(C, align(1024))]
pub struct Shared {
    vectors: [[[u8; VECTORS_BYTES as usize]; CONSUMERS as usize]; STAGES],
    weight: [[[u8; WEIGHT_BYTES as usize]; CONSUMERS as usize]; STAGES],
    sums: [[[f32; WARPGROUP as usize]; SUMS]; CONSUMERS as usize],
    full: [Barrier; STAGES],
    empty: [Barrier; STAGES],
}

#[derive(Clone, Copy)]
struct Memory(SharedPtr<Shared>);

impl Memory {
    #[inline(always)]
    fn vectors(self, stage: u32, panel: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        shared_field!(memory.vectors).at(stage).at(panel).cast()
    }

    #[inline(always)]
    fn weight(self, stage: u32, panel: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        shared_field!(memory.weight).at(stage).at(panel).cast()
    }

    /// Sum `i` of a thread of a consumer.
    #[inline(always)]
    fn sum(self, consumer: u32, i: u32, lane: u32) -> SharedPtr<f32> {
        let Self(memory) = self;
        shared_field!(memory.sums).at(consumer).at(i).at(lane)
    }

    #[inline(always)]
    fn full(self, stage: u32) -> SharedPtr<Barrier> {
        let Self(memory) = self;
        shared_field!(memory.full).at(stage)
    }

    #[inline(always)]
    fn empty(self, stage: u32) -> SharedPtr<Barrier> {
        let Self(memory) = self;
        shared_field!(memory.empty).at(stage)
    }
}

/// C = α·weight·vectorsᵀ + β·C; α times `scale`, unless that is null.
///
/// `weight` loads boxes of [`ROWS`] × 64 of k, `vectors` of [`MOST`] × 64, both in 128-byte swizzle and with a third dimension of one.
///
/// # Safety
/// The maps describe live tensors of these sizes; `c` is valid for reads and writes of its elements. No size is zero, and there are at most [`MOST`] vectors;
/// there is a block for each [`ROWS`] of the weight, and whole clusters; `scale` is null or valid for a read.
#[kernel(
    dtypes(T: half, C: float), where(C == T || C == f32),
    block = THREADS, min_blocks = 1, cluster = CLUSTER, shared = Shared, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_thin<T: Half, C: Element>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) {
    let memory = Memory(shared::dynamic());
    let warpgroup = warp::warp_id_uniform() / (WARPGROUP / 32);
    if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
        tma::prefetch_descriptor(weight);
        tma::prefetch_descriptor(vectors);
        for stage in 0..STAGES as u32 {
            memory.full(stage).init(1);
            memory.empty(stage).init(CLUSTER * CONSUMERS);
        }
        fence::mbarrier_init();
    }
    // The other block's copies and releases land here.
    cluster::arrive_relaxed();
    cluster::wait();

    let row0 = thread::block_idx_x() * ROWS;
    let steps = sizes.k.div_ceil(CONSUMERS * DEPTH);
    if warpgroup == CONSUMERS {
        if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
            produce(memory, weight, vectors, row0, steps);
        }
    } else {
        let lane = thread::thread_idx_x() % WARPGROUP;
        let mut sums = [0.0; SUMS];
        consume::<T>(memory, warpgroup, lane, steps, &mut sums);
        for (i, sum) in sums.iter().enumerate() {
            memory.sum(warpgroup, i as u32, lane).write(*sum);
        }
        thread::named_barrier::sync(1, CONSUMERS * WARPGROUP);
        add(memory, c, Factor::of(sizes.alpha, scale).factor(), row0, sizes);
    }
}

/// Loads the stages of the block: its panels of the weight, and the panel of the vectors that has its number, for the cluster. Run by one thread.
#[inline(always)]
unsafe fn produce(memory: Memory, weight: &TensorMap, vectors: &TensorMap, row0: u32, steps: u32) {
    let rank = cluster::rank();
    let mut at = Cursor::default();
    for step in 0..steps {
        // A fresh barrier counts as having completed the phase before its first: the first round does not wait.
        memory.empty(at.stage).wait_parity(at.parity ^ 1);
        let full = memory.full(at.stage);
        full.arrive_expect_tx(STAGE_BYTES);
        let [k0, k1] = [0, 1].map(|panel| ((step * CONSUMERS + panel) * DEPTH) as i32);
        tma::load_3d(memory.weight(at.stage, 0), weight, [k0, row0 as i32, 0], full);
        tma::load_3d(memory.weight(at.stage, 1), weight, [k1, row0 as i32, 0], full);
        let k0 = if rank == 0 { k0 } else { k1 };
        tma::load_3d_multicast(memory.vectors(at.stage, rank), vectors, [k0, 0, 0], full, (1 << CLUSTER) - 1);
        at.advance(STAGES);
    }
    // A block that left would take the shared memory that its neighbour still signals: this thread stays until all stages are released.
    for _ in 0..STAGES {
        memory.empty(at.stage).wait_parity(at.parity ^ 1);
        at.advance(STAGES);
    }
}

/// Multiplies one panel of each stage. Run by a whole warpgroup.
#[inline(always)]
unsafe fn consume<T: Half>(memory: Memory, consumer: u32, lane: u32, steps: u32, sums: &mut [f32; SUMS]) {
    let release = |stage: u32| {
        if lane < CLUSTER {
            cluster::map(memory.empty(stage), lane).signal();
        }
    };
    let mut at = Cursor::default();
    let mut previous = 0;
    for step in 0..steps {
        memory.full(at.stage).wait_parity(at.parity);
        let vectors = Descriptor::k_major_128b(memory.vectors(at.stage, consumer));
        let weight = Descriptor::k_major_128b(memory.weight(at.stage, consumer));
        wgmma::fence();
        // The first product overwrites.
        sums.product::<T, K_MAJOR, K_MAJOR>(vectors, weight, step != 0);
        sums.product::<T, K_MAJOR, K_MAJOR>(vectors.advance(32), weight.advance(32), true);
        sums.product::<T, K_MAJOR, K_MAJOR>(vectors.advance(64), weight.advance(64), true);
        sums.product::<T, K_MAJOR, K_MAJOR>(vectors.advance(96), weight.advance(96), true);
        wgmma::commit();
        // One group stays in flight; the stage before it has been read.
        wgmma::wait::<1>();
        if step != 0 {
            release(previous);
        }
        previous = at.stage;
        at.advance(STAGES);
    }
    wgmma::wait_for::<0>(sums);
    release(previous);
}

/// Adds the sums of the consumers, and stores them.
#[inline(always)]
unsafe fn add<C: Element>(
    memory: Memory,
    c: *mut C,
    factor: f32,
    row0: u32,
    Sizes { c: [c_row, c_vector], rows, vectors, beta, .. }: Sizes,
) {
    let pairs = c_row == 1 && c_vector.is_multiple_of(2) && (c as usize).is_multiple_of(2 * size_of::<C>());
    let mut at = thread::thread_idx_x();
    while at < SUMS as u32 / 2 * WARPGROUP {
        let (i, lane) = (at / WARPGROUP, at % WARPGROUP);
        // As the tensor core leaves them: of two vectors, 8 apart, two neighbouring rows of the weight every 8.
        let (row, vector) = (row0 + i / 2 * 8 + lane % 4 * 2, lane / 32 * 16 + lane % 32 / 4 + i % 2 * 8);
        let inside = if vector < vectors { rows.saturating_sub(row) } else { 0 };
        let to = |e: u32| c.wrapping_add((u64::from(row + e) * c_row + u64::from(vector) * c_vector) as usize);
        let result = |e: u32| {
            let [even, odd] = [0, 1].map(|consumer| memory.sum(consumer, 2 * i + e, lane).read());
            let old = if beta == 0.0 { 0.0 } else { beta * (*to(e)).to_f32() };
            math::fma(factor, even + odd, old)
        };
        if pairs && inside >= 2 {
            Pack::<C, 2>::from_f32([result(0), result(1)]).store(to(0));
        } else {
            let mut e = 0;
            while e < inside.min(2) {
                *to(e) = C::from_f32(result(e));
                e += 1;
            }
        }
        at += CONSUMERS * WARPGROUP;
    }
}
