//! The Hopper path: one kernel for all three gradients, five products a tile on warpgroup MMA.
//!
//! A block owns [`KEYS`] keys and walks over tiles of 64 or 128 [`queries`]. One thread of the producer warpgroup loads
//! the tiles, with dO and the per-query numbers, into a ring of stages; two consumer warpgroups own 64 keys each. A
//! consumer computes Sᵀ = K·Qᵀ and dPᵀ = V·dOᵀ with its keys as rows, so that Pᵀ and dSᵀ are operand A, from registers,
//! of dV += Pᵀ·dO and dK += dSᵀ·Q: the same tiles of Q and dO serve as K-major operands of the first two products and
//! as MN-major operands of the last two.
//!
//! **dQ** = dS·K is a sum over keys, and hence over consumers and blocks. dSᵀ goes through shared memory, where both
//! consumers' halves meet; each consumer then forms half of the result over all the block's keys, and adds it to an f32
//! sum in global memory. At d = 128 the copy engine does this addition from shared memory, where a warp leaves its
//! part; at d = 64 shared memory is full, and a warp adds from registers, four values at a time. The sum is kept in the
//! order in which threads hold their results, one [`PIECE`] per consumer and tile. Only a few heads have sums at a time
//! (`ring`): [`prepare`] zeroes those of the first, the warps of the producer warpgroup that load nothing round those of
//! earlier heads and zero them for later ones, and [`finish`] rounds those of the last. The order of these additions is
//! not deterministic: the last bits of dQ vary from run to run, which is why [`mma`](super::mma) stays as the
//! deterministic form.
//!
//! **Overlap.** If the consumers ran in step, both would compute exponentials and then both would multiply. The second
//! consumer therefore waits for dS of the first before it starts the tile: they stay half a tile apart, and one's
//! arithmetic overlaps the other's products. dV overlaps a consumer's own arithmetic for dS. When the first consumer
//! forms dQ, it needs dS of the second, which comes half a tile later: at d = 128 it waits for it (`at_once`), at d =
//! 64 a tile's dQ is formed with the next tile (`later`). No product is in flight across the loop's back edge, because
//! ptxas would lose track of it there.
//!
//! **Heads.** A block reads, and adds to, data of all of its heads' queries, 8·d bytes for each query. Blocks that run
//! at the same time share as few heads as they can, so that L2 holds this data.
//!
//! # Cost
//! For 128 keys and 64 queries at d = 128, or 128 at d = 64: 10.5 MFLOP, 2560 cycles of a multiprocessor at 4096 FLOP
//! per cycle; 8192 exponentials, 512 cycles, or 1024. Shared memory, 128 bytes per cycle: the products read 256 or 224
//! KiB (those of 64 × 64 both operands, as fast as there is), copies write 32, dS 16 or 32, and pieces of dQ are
//! written and read once, 64, or go from registers, 32: in all 2940 or 2560 cycles. Predicted were 3000 cycles, if the
//! halves fit into each other.
//!
//! Measured on an H200, in cycles a tile:
//!
//! | | d = 128 | d = 64 |
//! |---|---|---|
//! | consumers in step | 4340 | 4670 |
//! | half a tile apart, dQ formed at once | 3980 | 4430 |
//!
//! Changes since then, each relative to before:
//! - d = 64 with dQ formed later: a tenth less, on an H100;
//! - d = 128 with pieces by the copy engine, numbers loaded ahead of products, and descriptors that do not spill: 0.945,
//!   by the fastest launches;
//! - sums for few heads at a time, in place of kernels that zero and round all: 0.95 to 0.98 for 2048 tokens.
//!
//! What is left is the sum of dQ: 32 KiB go to L2 for it and 33 KiB come from it. Without these additions a tile of d =
//! 128 would take 0.83 of the time on an H200, with half of them 0.915. All multiprocessors together add a piece's
//! 32 KiB in 2110 cycles at best, by either way.
//!
//! # Registers and shared memory
//! A thread holds d of dK and dV, and of S and dP 64 at d = 128 and 128 at d = 64; beside them `EARLY` steps of P packed: 208 of 240. A quarter or half of S is gone
//! before there is dQ, 32. Shared memory: 512·d bytes of K and V, 96 KiB of Q and dO, 32 or 64 KiB of two buffers of dS, numbers and barriers: 195 KiB at d = 64, and
//! 226 at d = 128, with 32 KiB of pieces.

mod at_once;
mod consume;
pub mod finish;
mod later;
pub mod prepare;
mod ring;

use cuda_std::float::Half;
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{atomic, grid, kernel, regs, thread, tma, warp};

use self::consume::Consumer;
use self::ring::Ring;
pub use self::ring::{COUNTS, TURNS};
use crate::ops::attention::{Bounds, Gradients, Problem, Side, Tile, nonzero};

/// Keys of a block.
pub const KEYS: u32 = 128;
/// Elements of d that are loaded at a time: the 128 bytes of the widest swizzle.
pub const PANEL: u32 = 64;
const WARPGROUP: u32 = 128;
const CONSUMERS: u32 = 2;
/// Keys of a consumer: rows of a warpgroup's product.
const WG_KEYS: u32 = 64;
/// One producer and two consumer warpgroups.
pub const THREADS: u32 = (1 + CONSUMERS) * WARPGROUP;

/// Queries of a tile: as many as registers hold the scores of.
pub const fn queries(d: u32) -> u32 {
    if d == 64 { 128 } else { 64 }
}

/// Queries of a piece of dQ's sum, and its columns: what a consumer adds at a time.
pub const PIECE_QUERIES: u32 = 64;
/// f32 of a piece.
pub const PIECE: u32 = PIECE_QUERIES * PANEL;
/// Warps of a consumer, and f32 of a warp's part of a piece, in the order in which its lanes hold it: four at a time.
const WARPS: u32 = WARPGROUP / 32;
const PART: u32 = PIECE / WARPS;

/// The barrier at which consumers wait for sums that are zero, and the one at which additions to them are complete.
const ZEROS: u32 = 5;
const ADDED: u32 = 6;
/// Who meets there: the consumers and a warp.
const CONSUMERS_AND_WARP: u32 = CONSUMERS * WARPGROUP + 32;

/// Tiles of queries in flight.
const STAGES: u32 = 3;

/// Elements of K or V, of a tile of queries, and of dS.
const fn keys_elements(d: u32) -> u32 {
    KEYS * d
}
const fn tile_elements(d: u32) -> u32 {
    queries(d) * d
}
const fn scores(d: u32) -> u32 {
    KEYS * queries(d)
}

/// Bytes before the pieces that are on their way to dQ's sum, and bytes of those: one a consumer, where there is room.
const fn tiles_bytes(d: u32) -> u32 {
    2 * (2 * keys_elements(d) + 2 * STAGES * tile_elements(d) + 2 * scores(d))
}
const fn pieces_bytes(d: u32) -> u32 {
    if d == 64 { 0 } else { CONSUMERS * PIECE * 4 }
}

/// K, V, the ring of Q and dO, two buffers of dS, pieces, the ring of numbers, and barriers.
pub const fn shared_bytes(d: u32) -> usize {
    let numbers = STAGES * 2 * queries(d) * 4;
    (tiles_bytes(d) + pieces_bytes(d) + numbers) as usize + (3 + 2 * STAGES) as usize * size_of::<Barrier>()
}

/// The block's shared memory by name. Tiles are panels of [`PANEL`] columns, in 128-byte swizzle.
#[derive(Clone, Copy)]
struct Memory<T, const D: u32>(SharedPtr<T>);

impl<T, const D: u32> Memory<T, D> {
    #[inline(always)]
    fn k(self) -> SharedPtr<T> {
        self.0
    }

    #[inline(always)]
    fn v(self) -> SharedPtr<T> {
        self.0.add(keys_elements(D))
    }

    #[inline(always)]
    fn q(self, stage: u32) -> SharedPtr<T> {
        self.0.add(2 * keys_elements(D) + stage * tile_elements(D))
    }

    #[inline(always)]
    fn d_o(self, stage: u32) -> SharedPtr<T> {
        self.0.add(2 * keys_elements(D) + (STAGES + stage) * tile_elements(D))
    }

    /// dSᵀ: a row a key, panels of 64 queries.
    #[inline(always)]
    fn ds(self, buffer: u32) -> SharedPtr<T> {
        self.0.add(2 * keys_elements(D) + 2 * STAGES * tile_elements(D) + buffer * scores(D))
    }

    /// A consumer's piece of dQ.
    #[inline(always)]
    fn piece(self, consumer: u32) -> SharedPtr<f32> {
        self.0.cast::<u8>().add(tiles_bytes(D)).cast::<f32>().add(consumer * PIECE)
    }

    /// The exponent terms, and D, of a stage's queries.
    #[inline(always)]
    fn exponents(self, stage: u32) -> SharedPtr<f32> {
        self.piece(0).cast::<u8>().add(pieces_bytes(D)).cast::<f32>().add(stage * 2 * queries(D))
    }

    #[inline(always)]
    fn deltas(self, stage: u32) -> SharedPtr<f32> {
        self.exponents(stage).add(queries(D))
    }

    #[inline(always)]
    fn barrier(self, index: u32) -> SharedPtr<Barrier> {
        self.exponents(STAGES).cast::<Barrier>().add(index)
    }

    /// Not 0 when the last tile has been asked for.
    #[inline(always)]
    fn all_loaded(self) -> SharedPtr<u32> {
        self.barrier(2 + 2 * STAGES).cast()
    }

    #[inline(always)]
    fn full_keys(self) -> SharedPtr<Barrier> {
        self.barrier(0)
    }

    #[inline(always)]
    fn full_values(self) -> SharedPtr<Barrier> {
        self.barrier(1)
    }

    #[inline(always)]
    fn full(self, stage: u32) -> SharedPtr<Barrier> {
        self.barrier(2 + stage)
    }

    #[inline(always)]
    fn empty(self, stage: u32) -> SharedPtr<Barrier> {
        self.barrier(2 + STAGES + stage)
    }
}

/// The walk of a block over the queries that see its keys: the tiles of the first head, then those of the next head
/// that shares these keys.
#[derive(Clone, Copy)]
struct Walk {
    tile: Tile,
    group: u32,
    first: u32,
    end: u32,
}

impl Walk {
    /// The walk of this block; neighbouring blocks share `at_once` heads.
    #[inline(always)]
    unsafe fn of<const D: u32>(problem: &Problem, at_once: u32) -> Option<Self> {
        let bounds = Bounds { cu_q: core::ptr::null(), cu_k: core::ptr::null(), key_lengths: core::ptr::null() };
        let tile = problem.tile_of_few_heads(bounds, Side::Keys, KEYS, at_once)?;
        let span = problem.span(&tile.sequence);
        let (first, end) = span.query_tiles(tile.first as i32, KEYS as i32, queries(D) as i32);
        Some(Self { tile, group: problem.group, first, end })
    }

    /// The head of K, counted over all batches.
    #[inline(always)]
    fn kv_head(self, problem: &Problem) -> u32 {
        self.tile.sequence.batch * (problem.heads / nonzero(problem.group)) + self.tile.head
    }

    /// The first head, and the first tile of its queries.
    #[inline(always)]
    fn start(self) -> (u32, u32) {
        (self.tile.head * self.group, self.first)
    }

    #[inline(always)]
    fn steps(self) -> u32 {
        (self.end - self.first) * self.group
    }

    /// The head and the tile that follow these.
    #[inline(always)]
    fn next(self, head: u32, tile: u32) -> (u32, u32) {
        if tile + 1 == self.end { (head + 1, self.first) } else { (head, tile + 1) }
    }
}

/// dK and dV, and the sum of dQ, for heads of exactly `D` elements, without soft cap, ALiBi, lengths and packed sequences.
///
/// The maps' dimensions are d, tokens, heads and batches: `q` and `d_o` load [`PANEL`] × [`queries`] boxes, `k` and `v` [`PANEL`] × [`KEYS`], in 128-byte
/// swizzle; loads outside a tensor read zero. `exponents`, `deltas`, `sums` and `counts` are as [`prepare`] leaves them. Blocks that are neighbours work on
/// `at_once` heads of K, above 0. `places` heads of K have sums: as many as [`TURNS`] turns have, or all. dQ of the heads of the last `TURNS` − 1 turns
/// is left to [`finish`].
///
/// # Safety
/// The maps describe live tensors of the problem's sizes, `dq`, `dk` and `dv` are valid at their strides with rows at multiples of 16 bytes, and the
/// grid has a block for every tile of [`KEYS`] keys of each head of K.
#[kernel(
    dtypes(T: half), values(D: 64, 128), block = THREADS, min_blocks = 1, shared = { shared_bytes(D) }, arch = "sm_90a",
    programmatic
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_backward_hopper<T: Half, const D: u32>(
    q: &TensorMap,
    k: &TensorMap,
    v: &TensorMap,
    d_o: &TensorMap,
    exponents: *const f32,
    deltas: *const f32,
    sums: *mut f32,
    counts: *mut u32,
    dq: *mut T,
    dk: *mut T,
    dv: *mut T,
    at_once: u32,
    places: u32,
    problem: Problem,
    gradients: Gradients,
) {
    grid::launch_dependents();
    let Some(walk) = Walk::of::<D>(&problem, at_once) else { return };
    let memory = Memory::<T, D>(shared::dynamic());
    // Read from lane 0, so that ptxas knows the value to be warp-uniform and may keep what depends on it in uniform
    // registers.
    let warpgroup = warp::shuffle_idx(thread::thread_idx_x() / WARPGROUP, 0);
    if thread::thread_idx_x() == 0 {
        memory.all_loaded().write(0);
        memory.full_keys().init(1);
        memory.full_values().init(1);
        for stage in 0..STAGES {
            memory.full(stage).init(1);
            memory.empty(stage).init(CONSUMERS * WARPGROUP);
        }
    }
    thread::sync_threads();
    let ring = Ring { sums, counts, places, behind: (TURNS - 1) * at_once };
    if warpgroup == 0 {
        // The block starts with 24·128 + 240·256 registers.
        regs::decrease::<24>();
        let warp = warp::shuffle_idx(thread::thread_idx_x() / 32, 0);
        if warp > 0 {
            keep_sums(memory, ring, warp, walk, dq, &problem, &gradients);
        } else if thread::thread_idx_x() == 0 && walk.steps() > 0 {
            produce(memory, [q, k, v, d_o], [exponents, deltas], walk, &problem);
        }
    } else {
        regs::increase::<240>();
        let consumer = Consumer { memory, index: warpgroup - 1, walk, ring, problem: &problem };
        match D {
            64 => consumer.run::<32, 64, 8, 4, 4, 8>([dk, dv], &gradients),
            _ => consumer.run::<64, 32, 4, 4, 0, 16>([dk, dv], &gradients),
        }
    }
}

/// Lets the consumers add to the head's sums once these are zero, rounds sums of an earlier head, and says when the
/// block has added all it has. Run by the warps of the producer warpgroup but its first.
#[inline(always)]
unsafe fn keep_sums<T: Half, const D: u32>(
    memory: Memory<T, D>,
    ring: Ring<D>,
    warp: u32,
    walk: Walk,
    dq: *mut T,
    problem: &Problem,
    gradients: &Gradients,
) {
    let head = walk.kv_head(problem);
    if warp == 1 {
        ring.wait_for_zeros(head, problem);
        thread::named_barrier::arrive(ZEROS, CONSUMERS_AND_WARP);
    }
    // A block that is about to end does not begin more. The head's first block does what is left.
    let ends = || walk.steps() == 0 || atomic::block::load_acquire_u32(memory.all_loaded().as_ptr()) != 0;
    let may_stop = || walk.tile.first > 0 && ends();
    ring.round(head, problem.k_len.div_ceil(KEYS), dq, problem, gradients, may_stop);
    if warp == 1 {
        thread::named_barrier::sync(ADDED, CONSUMERS_AND_WARP);
        if thread::thread_idx_x().is_multiple_of(32) {
            ring.has_added(head);
        }
    }
}

/// Loads K, every tile of the walk, and V behind the first tile, whose scores do not need V. Run by one thread.
#[inline(always)]
unsafe fn produce<T: Half, const D: u32>(
    memory: Memory<T, D>,
    [q, k, v, d_o]: [&TensorMap; 4],
    [exponents, deltas]: [*const f32; 2],
    walk: Walk,
    problem: &Problem,
) {
    let Tile { sequence, head: kv_head, first: first_key } = walk.tile;
    let batch = sequence.batch as i32;
    let load = |to: SharedPtr<T>, map: &TensorMap, full: SharedPtr<Barrier>| {
        full.arrive_expect_tx(2 * keys_elements(D));
        for panel in 0..D / PANEL {
            let at = [(panel * PANEL) as i32, first_key as i32, kv_head as i32, batch];
            tma::load_4d_hint(to.add(panel * KEYS * PANEL), map, at, full, tma::CachePolicy::evict_first());
        }
    };
    load(memory.k(), k, memory.full_keys());
    // Every query of a tile has a number, in the last tile too.
    let queries = queries(D);
    let padded = problem.q_len.div_ceil(queries) * queries;
    let (mut head, mut tile) = walk.start();
    let mut step = 0;
    while step < walk.steps() {
        let (stage, round) = (step % STAGES, step / STAGES);
        // A fresh barrier counts as having completed the phase before its first, so the first round does not wait.
        memory.empty(stage).wait_parity((round + 1) % 2);
        let full = memory.full(stage);
        full.arrive_expect_tx(2 * 2 * tile_elements(D) + 2 * 4 * queries);
        for panel in 0..D / PANEL {
            let at = [(panel * PANEL) as i32, (tile * queries) as i32, head as i32, batch];
            tma::load_4d(memory.q(stage).add(panel * queries * PANEL), q, at, full);
            tma::load_4d(memory.d_o(stage).add(panel * queries * PANEL), d_o, at, full);
        }
        let row = u64::from(sequence.batch * problem.heads + head) * u64::from(padded) + u64::from(tile * queries);
        tma::load_bytes(memory.exponents(stage), exponents.add(row as usize), 4 * queries, full);
        tma::load_bytes(memory.deltas(stage), deltas.add(row as usize), 4 * queries, full);
        if step == 0 {
            load(memory.v(), v, memory.full_values());
        }
        (head, tile) = walk.next(head, tile);
        step += 1;
    }
    atomic::block::store_release_u32(memory.all_loaded().as_ptr(), 1);
}
