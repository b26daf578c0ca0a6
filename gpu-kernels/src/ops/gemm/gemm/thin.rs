//! The product with few rows, or few columns, without splitting k: a block's tile is all vectors by a few rows of the
//! weight.
//!
//! # Math
//! The formula of [`gemm`](super), with weight and vectors as [`skinny`](super::skinny) defines them.
//!
//! # Layout
//! As of [`skinny`](super::skinny).
//!
//! # Mapping
//! A block computes 32 or 64 rows of the weight by all vectors, so that 4096 or 8192 rows give nearly every
//! multiprocessor a block. wgmma has its 64 rows along the vectors and its columns along the weight. For up to 64
//! vectors a stage is two panels of 64 elements of k, by 32 rows: each of two warpgroups multiplies one panel, and they
//! add their sums. For up to 128 vectors a stage is one panel, by 64 rows, and each warpgroup takes 64 of the vectors,
//! the second one the last 64. Each block of a cluster loads half of a stage's vectors, for both. One thread of the
//! last warp issues every copy.
//!
//! # Shared memory
//! 8 stages of (128 + 64) · 128 bytes, 16 KiB for the sums, and barriers: 214 016 B, one block a multiprocessor.
//!
//! # Numerics
//! As of [`gemm`](super), with the sums of the panels of even and of odd number, where each warpgroup has one, added in f32.
//!
//! # Cost
//! The bytes of the weight, once: 7.9 µs for 4096 × 4096 at 4.25 TB/s. The vectors are twice as many bytes into each
//! multiprocessor, half of them loaded by its neighbour: 768 KiB in all, 7.0 µs at 64 bytes per clock. Splitting k
//! halves that, but clusters then exchange and add sums. On an H200 64 vectors take 14.9 µs, and 16.7 with k split; 128
//! of 8192 × 8192 take 40.8 µs, and 43.5 with k split.
//!
//! # Limits
//! 128 vectors, one product. Compute capability 9.0.
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
use super::ring::{Sizes, Turn};

/// Blocks of a cluster, which share the loads of the vectors.
pub const CLUSTER: u32 = 2;
/// Two warpgroups that multiply, and the warp that produces.
pub const THREADS: u32 = CONSUMERS * WARPGROUP + 32;
/// Rows of the weight that a block can take.
pub const ROWS: [u32; 2] = [32, 64];
/// Vectors that are loaded at a time: rows of a product.
pub const VECTORS: u32 = 64;

/// The most vectors of a block that takes so many rows.
pub const fn most(rows: u32) -> u32 {
    rows / ROWS[0] * VECTORS
}

/// Panels of a stage.
const fn panels(rows: u32) -> u32 {
    ROWS[1] / rows
}

const WARPGROUP: u32 = 128;
const CONSUMERS: u32 = 2;
/// Elements of k in a panel, and their bytes: a row of the widest swizzle.
const DEPTH: u32 = 64;
const ROW_BYTES: u32 = DEPTH * 2;
const VECTORS_BYTES: u32 = VECTORS * ROW_BYTES;
const WEIGHT_BYTES: u32 = ROWS[1] * ROW_BYTES;
const STAGE_BYTES: u32 = CONSUMERS * VECTORS_BYTES + WEIGHT_BYTES;
const STAGES: usize = 8;
/// Sums of a thread that consumers add.
const ADDED: usize = sums(ROWS[0]);

/// Sums of a thread for so many rows.
const fn sums(rows: u32) -> usize {
    (rows / 2) as usize
}

/// The block's shared memory.
#[repr(C, align(1024))]
pub struct Shared {
    /// For each consumer its panel, or its half of the vectors.
    vectors: [[[u8; VECTORS_BYTES as usize]; CONSUMERS as usize]; STAGES],
    /// A panel, or two one after the other.
    weight: [[u8; WEIGHT_BYTES as usize]; STAGES],
    sums: [[[f32; WARPGROUP as usize]; ADDED]; CONSUMERS as usize],
    full: [Barrier; STAGES],
    empty: [Barrier; STAGES],
}

#[derive(Clone, Copy)]
struct Memory(SharedPtr<Shared>);

impl Memory {
    #[inline(always)]
    fn vectors(self, stage: u32, consumer: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        shared_field!(memory.vectors).at(stage).at(consumer).cast()
    }

    /// Panel `panel` of so many rows.
    #[inline(always)]
    fn weight(self, stage: u32, panel: u32, rows: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        shared_field!(memory.weight).at(stage).cast::<u8>().add(panel * rows * ROW_BYTES)
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
/// `weight` loads boxes of `N` × 64 of k, `vectors` of [`VECTORS`] × 64, both in 128-byte swizzle and with a third dimension of one.
///
/// # Safety
/// The maps describe live tensors of these sizes; `c` is valid for reads and writes of its elements. No size is zero, and there are at most [`most`] vectors;
/// there is a block for each `N` rows of the weight, and whole clusters; `scale` is null or valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(N: 32, 64), where(C == T || C == f32),
    block = THREADS, min_blocks = 1, cluster = CLUSTER, shared = Shared, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_thin<T: Half, C: Element, const N: u32>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) {
    match N {
        32 => multiply::<T, C, { sums(32) }>(weight, vectors, c, scale, sizes),
        _ => multiply::<T, C, { sums(64) }>(weight, vectors, c, scale, sizes),
    }
}

/// For twice as many rows of the weight as there are sums of a thread, `R`.
#[inline(always)]
unsafe fn multiply<T: Half, C: Element, const R: usize>(
    weight: &TensorMap,
    vectors: &TensorMap,
    c: *mut C,
    scale: *const f32,
    sizes: Sizes,
) where
    [f32; R]: Accumulators,
{
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
    // The other block's copies and releases land in this block.
    cluster::arrive_relaxed();
    cluster::wait();

    let rows = 2 * R as u32;
    let row0 = thread::block_idx_x() * rows;
    let steps = sizes.k.div_ceil(panels(rows) * DEPTH);
    if warpgroup == CONSUMERS {
        if thread::thread_idx_x() == CONSUMERS * WARPGROUP {
            produce(memory, weight, vectors, [row0, rows], second(&sizes), steps);
        }
        return;
    }
    let lane = thread::thread_idx_x() % WARPGROUP;
    let mut sums = [0.0; R];
    consume::<T, R>(memory, warpgroup, lane, steps, &mut sums);
    let factor = Factor::of(sizes.alpha, scale).factor();
    // Of vectors from `first` on, those from `own` on.
    let store = |i: u32, lane: u32, first: u32, own: u32, pair: [f32; 2]| {
        // The tensor core's layout: for two vectors, 8 apart, two neighbouring rows of the weight every 8.
        let row = row0 + i / 2 * 8 + lane % 4 * 2;
        let vector = first + lane / 32 * 16 + lane % 32 / 4 + i % 2 * 8;
        if vector >= own {
            store(c, factor, [row, vector], pair, &sizes);
        }
    };
    if panels(rows) == 1 {
        let first = if warpgroup == 0 { 0 } else { second(&sizes) };
        for i in 0..R / 2 {
            store(i as u32, lane, first, warpgroup * VECTORS, [sums[2 * i], sums[2 * i + 1]]);
        }
        return;
    }
    for (i, sum) in sums.iter().enumerate() {
        memory.sum(warpgroup, i as u32, lane).write(*sum);
    }
    thread::named_barrier::sync(1, CONSUMERS * WARPGROUP);
    let mut at = thread::thread_idx_x();
    while at < R as u32 / 2 * WARPGROUP {
        let (i, lane) = (at / WARPGROUP, at % WARPGROUP);
        let added = |e: u32| {
            let [even, odd] = [0, 1].map(|consumer| memory.sum(consumer, 2 * i + e, lane).read());
            even + odd
        };
        store(i, lane, 0, 0, [added(0), added(1)]);
        at += CONSUMERS * WARPGROUP;
    }
}

/// The first vector of the second warpgroup, where each warpgroup has some: chosen so that all of its vectors exist.
/// The copy engine would fill in zeros for missing ones, which is slow when multicast to two blocks: with 96 vectors,
/// 32 of 128 missing, the kernel took 51 µs instead of 43.
#[inline(always)]
fn second(sizes: &Sizes) -> u32 {
    sizes.vectors.saturating_sub(VECTORS).min(VECTORS)
}

/// Loads the stages of the block: its panels of the weight, and, for the whole cluster, its share of the vectors. Run
/// by one thread.
#[inline(always)]
unsafe fn produce(
    memory: Memory,
    weight: &TensorMap,
    vectors: &TensorMap,
    [row0, rows]: [u32; 2],
    second: u32,
    steps: u32,
) {
    let rank = cluster::rank();
    let panels = panels(rows);
    let turn = Turn::of::<CLUSTER>(steps);
    let mut at = Cursor::default();
    for i in 0..steps {
        let step = turn.step(i);
        // A fresh barrier counts as having completed the phase before its first, so the first round does not wait.
        memory.empty(at.stage).wait_parity(at.parity ^ 1);
        let full = memory.full(at.stage);
        full.arrive_expect_tx(STAGE_BYTES);
        let k0 = |panel: u32| ((step * panels + panel) * DEPTH) as i32;
        for panel in 0..panels {
            tma::load_3d(memory.weight(at.stage, panel, rows), weight, [k0(panel), row0 as i32, 0], full);
        }
        let from = if panels == 1 { [k0(0), (rank * second) as i32, 0] } else { [k0(rank), 0, 0] };
        tma::load_3d_multicast(memory.vectors(at.stage, rank), vectors, from, full, (1 << CLUSTER) - 1);
        at.advance(STAGES);
    }
    // If this block ended, the shared memory that its neighbour still signals would be gone: this thread stays until
    // all stages are released.
    for _ in 0..STAGES {
        memory.empty(at.stage).wait_parity(at.parity ^ 1);
        at.advance(STAGES);
    }
}

/// Multiplies a panel of each stage by all vectors, or by half of them. Run by a whole warpgroup.
#[inline(always)]
unsafe fn consume<T: Half, const R: usize>(memory: Memory, consumer: u32, lane: u32, steps: u32, sums: &mut [f32; R])
where
    [f32; R]: Accumulators,
{
    let release = |stage: u32| {
        if lane < CLUSTER {
            cluster::map(memory.empty(stage), lane).signal();
        }
    };
    let rows = 2 * R as u32;
    let panel = if panels(rows) == 1 { 0 } else { consumer };
    let mut at = Cursor::default();
    let mut previous = 0;
    for step in 0..steps {
        memory.full(at.stage).wait_parity(at.parity);
        let vectors = Descriptor::k_major_128b(memory.vectors(at.stage, consumer));
        let weight = Descriptor::k_major_128b(memory.weight(at.stage, panel, rows));
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

/// Stores the sums of `row` and the next by a vector.
#[inline(always)]
unsafe fn store<C: Element>(c: *mut C, factor: f32, [row, vector]: [u32; 2], sums: [f32; 2], sizes: &Sizes) {
    let Sizes { c: [c_row, c_vector], rows, vectors, beta, .. } = *sizes;
    let pairs = c_row == 1 && c_vector.is_multiple_of(2) && (c as usize).is_multiple_of(2 * size_of::<C>());
    let inside = if vector < vectors { rows.saturating_sub(row) } else { 0 };
    let to = |e: u32| c.wrapping_add((u64::from(row + e) * c_row + u64::from(vector) * c_vector) as usize);
    let result = |e: u32| {
        let old = if beta == 0.0 { 0.0 } else { beta * (*to(e)).to_f32() };
        math::fma(factor, sums[e as usize], old)
    };
    if pairs && inside >= 2 {
        Pack::<C, 2>::from_f32([result(0), result(1)]).store(to(0));
        return;
    }
    for e in 0..2 {
        if e < inside {
            *to(e) = C::from_f32(result(e));
        }
    }
}
