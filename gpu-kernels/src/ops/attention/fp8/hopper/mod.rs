//! The Hopper path: [`attention_hopper`](crate::ops::attention::forward::hopper)'s pairs of blocks, rings and order of work, for products of 8 bits.
//!
//! **Two sums.** The tensor cores' accumulators have too few bits to sum O over all keys. A tile's part of O therefore
//! goes into registers of its own, and is added to O with the factor that the online softmax applies anyway. This is
//! done for half of the columns at a time: the first half runs during the search for the maxima, the second during the
//! exponentials. So the part takes d/4 registers, and adding it to O takes no longer than multiplying O by the factor.
//!
//! **Registers.** Of 232 with two consumers (d = 128): 64 scores, 16 of weights, 64 of O, 32 of a part. Of 160 with
//! three (d = 64): 64, 16, 32 and 16. The latter is tight: values that derive from a thread's position in its warpgroup
//! are recomputed where they are used, not kept.

mod consume;
mod produce;

use cuda_std::float::Half;
use cuda_std::launch::TensorMap;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{f8e4m3, kernel, regs, thread, warp};

use self::consume::consume;
use self::produce::produce;
use super::Scales;
use crate::ops::attention::Problem;
use crate::ops::attention::forward::hopper::barriers::Barriers;
use crate::ops::attention::forward::hopper::store::Output;
use crate::ops::attention::forward::hopper::work::Work;
use crate::ops::attention::forward::hopper::{BUFFERS, PANEL, WARPGROUP, block_m};
pub use crate::ops::attention::forward::hopper::{CLUSTER, WG_M};

/// Stages of each ring: as many bytes for any d.
pub const fn stages(d: u32) -> u32 {
    512 / d
}

/// Buffers of queries and of results, which leave through them in 16 bits; the two rings; and barriers: two a buffer and two a stage for each ring.
pub const fn shared_bytes(d: u32, n: u32, consumers: u32) -> usize {
    let bytes = BUFFERS * 2 * block_m(consumers) * d + 2 * stages(d) * n * d;
    bytes as usize + Barriers::bytes(stages(d))
}

/// Typed views of the block's shared memory.
#[derive(Clone, Copy)]
struct Memory<const D: u32, const N: u32, const CONSUMERS: u32>(SharedPtr<f8e4m3>);

impl<const D: u32, const N: u32, const CONSUMERS: u32> Memory<D, N, CONSUMERS> {
    /// Bytes of a buffer of queries and results, of a tile, and of everything before the tiles and the barriers.
    const QUERIES: u32 = 2 * block_m(CONSUMERS) * D;
    const TILE: u32 = N * D;
    const TILES: u32 = BUFFERS * Self::QUERIES;
    const BARRIERS: u32 = Self::TILES + 2 * stages(D) * Self::TILE;

    /// A consumer's queries, rows of D bytes in the swizzle of that width.
    #[inline(always)]
    fn q(self, buffer: u32, consumer: u32) -> SharedPtr<f8e4m3> {
        self.0.add(buffer * Self::QUERIES + 2 * consumer * WG_M * D)
    }

    /// Keys, likewise.
    #[inline(always)]
    fn k(self, stage: u32) -> SharedPtr<f8e4m3> {
        self.0.add(Self::TILES + stage * Self::TILE)
    }

    /// Rows of Vᵀ, `N` bytes each, in 128-byte swizzle.
    #[inline(always)]
    fn v(self, stage: u32) -> SharedPtr<f8e4m3> {
        self.0.add(Self::TILES + (stages(D) + stage) * Self::TILE)
    }

    #[inline(always)]
    fn barriers(self) -> Barriers {
        Barriers { first: self.0.add(Self::BARRIERS).cast(), stages: stages(D) }
    }
}

/// O and its logsumexp, for heads of exactly `D` elements, without soft cap and ALiBi and for sequences that are not packed.
///
/// The maps' dimensions are d, tokens, heads and batches, but of `v`, which describes what [`prepare`](super::prepare) has written, its columns, d, heads and
/// batches. `q` loads `D` × [`WG_M`] boxes and `k` `D` × half of `N`, in the swizzle as wide as their rows; `v` `N` × half of `D`, and `o_map` stores
/// [`PANEL`] × [`WG_M`], in that of 128 bytes. Loads outside a tensor read zero and stores outside are dropped.
///
/// # Safety
/// The maps describe live tensors of the problem's sizes; `lse`, `key_lengths`, `sinks` and the scales are as for
/// [`attention_fp8_simple`](super::simple::attention_fp8_simple).
#[kernel(
    dtypes(T: half), values(D: 64, 128, N: 128, CONSUMERS: 2, 3),
    where(D == 128 && CONSUMERS == 2 || D == 64 && CONSUMERS == 3),
    block = (1 + CONSUMERS) * WARPGROUP, min_blocks = 1, cluster = CLUSTER,
    shared = { shared_bytes(D, N, CONSUMERS) }, arch = "sm_90a", no_spills, programmatic
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_fp8_hopper<T: Half, const D: u32, const N: u32, const CONSUMERS: u32>(
    q: &TensorMap,
    k: &TensorMap,
    v: &TensorMap,
    o_map: &TensorMap,
    o: *mut T,
    lse: *mut f32,
    key_lengths: *const i32,
    sinks: *const f32,
    q_scales: *const f32,
    k_scales: *const f32,
    v_scales: *const f32,
    q_step: u32,
    k_step: u32,
    v_step: u32,
    problem: Problem,
) {
    let memory = Memory::<D, N, CONSUMERS>(shared::dynamic());
    // Read from lane 0, so that ptxas knows the value to be warp-uniform and may keep what depends on it in uniform
    // registers.
    let warpgroup = warp::shuffle_idx(thread::thread_idx_x() / WARPGROUP, 0);
    let work = Work { problem: &problem, key_lengths, sinks, consumers: CONSUMERS, parts: false };
    let scales = Scales { of: [q_scales, k_scales, v_scales], steps: [q_step, k_step, v_step] };
    memory.barriers().start([q, k, v, o_map], CONSUMERS);

    if warpgroup == 0 {
        match CONSUMERS {
            2 => regs::decrease::<40>(),
            _ => regs::decrease::<32>(),
        }
        if thread::thread_idx_x() == 0 {
            match D {
                64 => produce::<D, N, CONSUMERS, 8>(memory, [q, k, v], work),
                _ => produce::<D, N, CONSUMERS, 4>(memory, [q, k, v], work),
            }
        }
    } else {
        match CONSUMERS {
            2 => regs::increase::<232>(),
            _ => regs::increase::<160>(),
        }
        let (index, output) = (warpgroup - 1, Output { map: o_map, o, lse });
        match D {
            64 => consume::<T, D, N, CONSUMERS, 8, 64, 32, 4, 16>(memory, index, work, scales, output),
            _ => consume::<T, D, N, CONSUMERS, 4, 64, 64, 4, 32>(memory, index, work, scales, output),
        }
    }
}
