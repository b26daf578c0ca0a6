//! The Hopper path: TMA loads tiles, warpgroups multiply them by wgmma, and a persistent grid walks over the queries.
//!
//! A block has a producer warpgroup, of which one thread issues every load, and consumer warpgroups of 64 queries each,
//! which stay in shared memory. A consumer's scores and its part of O are in registers, and so are the weights: an
//! accumulator's layout is that of operand A. Keys and values come in tiles of `N`, through one ring each, whose stages
//! have two mbarriers: `full` completes when a stage's bytes have landed, `empty` when all its readers are done.
//!
//! **Pairs.** A cluster of two blocks takes neighbouring queries of a head, the blocks taking 64 in turn. Both need the
//! same keys and values: each block loads half of every tile and multicasts it to both. A block of 128 queries alone
//! would read a byte from L2 for every 128 FLOPs, which at the tensor cores' rate is 5 TB/s; pairs halve that. A stage
//! is empty when the consumers of *both* blocks are done. Where a mask makes their first or last tiles differ, a
//! consumer skips the tiles that it does not see. If the queries left over of a head fit one block, they are not shared
//! by a pair: each block of the pair takes those of a different head by itself.
//!
//! **Overlap.** A consumer issues the scores of tile j together with the values of tile j − 1, and computes the weights
//! of tile j while the latter run; products of the other consumers fill the rest of its softmax. The consumers issue in
//! turn, ordered by one named barrier each: otherwise they drift into computing their weights at the same time and then
//! waiting for the tensor cores at the same time, which costs d = 64 a tenth.
//!
//! A block's next queries are loaded while it works on the current ones. A consumer that is done goes on with its own
//! next queries, so that its last values, its results and its first scores overlap the products of consumers that are
//! not done.
//!
//! **Edges.** Tiles are counted backwards from the last query and the last key. The diagonal therefore passes through
//! tile corners whatever the number of queries and keys, unless keys are padded, and nothing past a sequence's keys is
//! read, where memory may hold NaN. Before the first token TMA reads zeros and drops stores. Tiles that no query sees
//! are not loaded, and only tiles on an edge are masked.
//!
//! # Cost
//! For 128 queries and 128 keys, cycles of a multiprocessor:
//!
//! | | d = 64 | d = 128 |
//! |---|---|---|
//! | products, 4096 FLOPs a cycle | 1024 | 2048 |
//! | exponentials, 16 a cycle | 1024 | 1024 |
//! | instructions of the softmax, 128 threads a cycle: 4.6 an element of S and 1 of O | 660 | 720 |
//!
//! (4.6: a maximum, a fused scale, an exponential, a sum, half a conversion. With descriptors and waits the loop has 480 for d = 128.)
//! So d = 128 is bound by the tensor cores, if the softmax of one consumer runs under the products of another, and d = 64 by two units at
//! once, which takes more consumers to keep busy: three, and 192 queries.
//!
//! # Registers and shared memory
//! A consumer's thread has N/2 scores, N/4 registers of weights and d/2 of O: 160 of 232 registers for d = 128, 128 of
//! 160 for d = 64 with three consumers. Shared memory holds `BUFFERS` times 128·d bytes of queries per consumer,
//! through which O is stored as well, and [`stages`] times 4·N·d bytes of keys and values: 192 KiB for d = 128, 176 KiB
//! for d = 64.

pub(in crate::ops::attention) mod barriers;
mod consume;
mod produce;
pub(in crate::ops::attention) mod softmax;
pub(in crate::ops::attention) mod store;
mod turns;
pub(in crate::ops::attention) mod work;

use cuda_std::float::Half;
use cuda_std::launch::TensorMap;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{kernel, regs, thread, warp};

use self::barriers::Barriers;
use self::consume::consume;
use self::produce::produce;
use self::store::Output;
use self::work::Work;
use crate::ops::attention::Problem;

/// Blocks of a cluster: they take neighbouring queries.
pub const CLUSTER: u32 = 2;
/// Elements of d that are loaded at a time: the 128 bytes of the widest swizzle.
pub const PANEL: u32 = 64;
/// Queries of a consumer: rows of a warpgroup's product.
pub const WG_M: u32 = 64;
pub(in crate::ops::attention) const WARPGROUP: u32 = 128;

/// Queries of a block.
pub const fn block_m(consumers: u32) -> u32 {
    consumers * WG_M
}

/// Stages of each ring: a tile takes the same time to arrive for any d, but is used up in half the time for d = 64.
pub const fn stages(d: u32) -> u32 {
    256 / d
}

/// Buffers for the current queries and the next ones, which have arrived when the first consumer is done.
pub(in crate::ops::attention) const BUFFERS: u32 = 2;

/// Shared memory of the queries' buffers, the two rings, and the barriers: two per buffer, and two per stage for each
/// ring.
pub const fn shared_bytes(d: u32, n: u32, consumers: u32) -> usize {
    let elements = BUFFERS * block_m(consumers) * d + 2 * stages(d) * n * d;
    (elements * 2) as usize + Barriers::bytes(stages(d))
}

/// Typed views of the block's shared memory. Tiles are panels of [`PANEL`] columns, in 128-byte swizzle.
#[derive(Clone, Copy)]
struct Memory<T, const D: u32, const N: u32, const CONSUMERS: u32>(SharedPtr<T>);

impl<T, const D: u32, const N: u32, const CONSUMERS: u32> Memory<T, D, N, CONSUMERS> {
    /// Elements of a buffer of queries, of a tile, and of everything before the tiles and the barriers.
    const QUERIES: u32 = block_m(CONSUMERS) * D;
    const TILE: u32 = N * D;
    const TILES: u32 = BUFFERS * Self::QUERIES;
    const BARRIERS: u32 = Self::TILES + 2 * stages(D) * Self::TILE;

    /// A consumer's rows of a panel of the queries.
    #[inline(always)]
    fn q(self, buffer: u32, panel: u32, consumer: u32) -> SharedPtr<T> {
        self.0.add(buffer * Self::QUERIES + (panel * CONSUMERS + consumer) * WG_M * PANEL)
    }

    #[inline(always)]
    fn k(self, stage: u32) -> SharedPtr<T> {
        self.0.add(Self::TILES + stage * Self::TILE)
    }

    #[inline(always)]
    fn v(self, stage: u32) -> SharedPtr<T> {
        self.0.add(Self::TILES + (stages(D) + stage) * Self::TILE)
    }

    #[inline(always)]
    fn barriers(self) -> Barriers {
        Barriers { first: self.0.add(Self::BARRIERS).cast(), stages: stages(D) }
    }
}

/// O and its logsumexp, for heads of exactly `D` elements, without soft cap and ALiBi and for sequences that are not packed.
///
/// The maps' dimensions are d, tokens, heads and batches. `q` loads [`PANEL`] × [`WG_M`] boxes, `k` and `v` [`PANEL`] × half of `N`,
/// and `o_map` stores [`PANEL`] × [`WG_M`], all in 128-byte swizzle; loads outside a tensor read zero and stores outside are dropped.
///
/// # Safety
/// The maps describe live tensors of the problem's sizes, and `lse`, `key_lengths` and `sinks` are as for
/// [`attention_simple`](super::simple::attention_simple).
#[kernel(
    dtypes(T: half), values(D: 64, 128, N: 128, CONSUMERS: 2, 3),
    where(D == 128 && CONSUMERS == 2 || D == 64 && CONSUMERS == 3),
    block = (1 + CONSUMERS) * WARPGROUP, min_blocks = 1, cluster = CLUSTER,
    shared = { shared_bytes(D, N, CONSUMERS) }, arch = "sm_90a", no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_hopper<T: Half, const D: u32, const N: u32, const CONSUMERS: u32>(
    q: &TensorMap,
    k: &TensorMap,
    v: &TensorMap,
    o_map: &TensorMap,
    o: *mut T,
    lse: *mut f32,
    key_lengths: *const i32,
    sinks: *const f32,
    problem: Problem,
) {
    let memory = Memory::<T, D, N, CONSUMERS>(shared::dynamic());
    // Read from lane 0, so that ptxas knows the value to be warp-uniform and may keep what depends on it in uniform
    // registers.
    let warpgroup = warp::shuffle_idx(thread::thread_idx_x() / WARPGROUP, 0);
    let work = Work { problem: &problem, key_lengths, sinks, consumers: CONSUMERS, parts: CONSUMERS == 3 };
    memory.barriers().start([q, k, v, o_map], CONSUMERS);

    if warpgroup == 0 {
        match CONSUMERS {
            2 => regs::decrease::<40>(),
            _ => regs::decrease::<32>(),
        }
        if thread::thread_idx_x() == 0 {
            match D {
                64 => produce::<T, D, N, CONSUMERS, 4>(memory, [q, k, v], work),
                _ => produce::<T, D, N, CONSUMERS, 2>(memory, [q, k, v], work),
            }
        }
    } else {
        match CONSUMERS {
            2 => regs::increase::<232>(),
            _ => regs::increase::<160>(),
        }
        let (index, output) = (warpgroup - 1, Output { map: o_map, o, lse });
        match D {
            64 => consume::<T, D, N, CONSUMERS, 4, 64, 32, 8>(memory, index, work, output),
            _ => consume::<T, D, N, CONSUMERS, 2, 64, 64, 8>(memory, index, work, output),
        }
    }
}
