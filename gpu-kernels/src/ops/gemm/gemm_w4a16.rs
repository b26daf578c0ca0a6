//! Product of 16-bit activations with a weight of 4-bit integers and a scale for each 128 of k, and zero points if there are any, for decoding.
//!
//! # Math
//! cᵢⱼ = Σ_g scales(j, g)·Σ_{k in group g} aᵢₖ·(qⱼₖ − zeros(j, g)), over groups of 128 of k, q and zeros from 0 to 15; without zeros they are 8.
//!
//! # Layout
//! `a` is m × k and `c` m × n. `w` is n × ⌈k/2⌉ bytes: byte i of a row has q of k = 2i in its lower half, and that of k = 2i + 1 in its upper one. `scales` and
//! `zeros` are n × ⌈k/128⌉, dense: as [`quantize_int4`](crate::ops::quant::quantize_int4) writes them. Of a byte of `zeros` the lower four bits
//! count. Rows at multiples of 16 bytes are copied in packs, others element by element. With an odd k what the last byte's upper half has means nothing: it meets a zero.
//!
//! # Mapping
//! That of [`gemm_w8a16`](super::gemm_w8a16). A stage is a group: its products start from nothing, and are added times their scale to sums in registers.
//! Zero points cost no instruction on the integers: the multiply-add that takes the exponent's power off takes them off as well. Of the
//! four lanes that share rows each reads the byte of one, a stage ahead, and gives it to the others.
//!
//! # Shared memory
//! Stages of 8 KiB, 512 bytes of scales and 256 for each row of A: on Hopper two rings of 8 × 12.5 KiB, or one of 8 × 24.5 or 5 × 40.5; elsewhere 7 × 12.5 or
//! 4 × 24.5. The sums lie where the stages were.
//!
//! # Numerics
//! Integers become floats of A's type exactly, and no weight is ever rounded: scales are applied to sums of groups, in f32. C is rounded once.
//!
//! # Cost
//! The bytes of the weight and its scales, once: n·k·(1/2 + 4/128) over the bandwidth, 8.4 µs for 8192 × 8192 at 4.25 TB/s. An H200 takes 24 µs for up to 16 rows of A,
//! 42 for 64 and 64 for 128: no less than [`gemm_w8a16`](super::gemm_w8a16), because a weight costs as many operations, and these are what it waits for.
//! With zero points 28, 45 and 67.
//!
//! # Limits
//! m, n, k below 2³¹.
//!
//! # Sources
//! Frantar et al., "GPTQ" (arXiv:2210.17323), and Lin et al., "AWQ" (arXiv:2306.00978), for groups of 128; Kim et al., "Who Says Elephants Can't Run"
//! (arXiv:2211.10017), for the conversion; Frantar et al., "MARLIN" (arXiv:2408.11743), for the pipeline.

use cuda_std::float::Half;
use cuda_std::kernel;

pub use super::weight_only::{CLUSTER, DEPTH, ROWS, Sizes, blocks_per_multiprocessor};

use super::weight_only::{COMMON, HOPPER, Int4, TEAMS, THREADS, pending, run, shared_bytes, teams};

/// Of an element.
const BITS: u32 = 4;

/// C of up to `R` rows of A a block, whose clusters share k.
///
/// # Safety
/// As for `weight_only`'s `run`, all rows of `a` and `w` being at multiples of 16 bytes; there is a cluster for each 128 rows of
/// the weight and `R` of A.
#[kernel(
    dtypes(T: half), values(R: 16, 64, 128, ZEROS: false, true),
    block = THREADS * teams(R), min_blocks = 1, cluster = CLUSTER,
    shared = { teams(R) as usize * shared_bytes(R as u32, BITS, HOPPER / teams(R)) }, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_w4a16_cluster<T: Half, const R: usize, const ZEROS: bool>(
    a: *const T,
    w: *const u8,
    scales: *const f32,
    zeros: *const u8,
    c: *mut T,
    sizes: Sizes,
) {
    match R {
        16 => {
            const PENDING: u32 = pending(16, BITS, HOPPER / TEAMS);
            run::<Int4, T, T, 2, false, true, CLUSTER, TEAMS, ZEROS, PENDING>(a, w, scales, zeros, c, sizes)
        }
        64 => run::<Int4, T, T, 8, false, true, CLUSTER, 1, ZEROS, { pending(64, BITS, HOPPER) }>(
            a, w, scales, zeros, c, sizes,
        ),
        _ => run::<Int4, T, T, 8, true, true, CLUSTER, 1, ZEROS, { pending(128, BITS, HOPPER) }>(
            a, w, scales, zeros, c, sizes,
        ),
    }
}

/// The same into `parts`, a dense C in f32 for each part of k, which y of the grid counts.
///
/// # Safety
/// As for `weight_only`'s `run`; there is a block for each 128 rows of the weight and `R` of A.
#[kernel(
    dtypes(T: half), values(R: 16, 64, PACKED: true, false, ZEROS: false, true), where(PACKED || R == 64),
    block = THREADS, min_blocks = if R == 16 { 2 } else { 1 }, shared = { shared_bytes(R as u32, BITS, COMMON) }, no_spills
)]
pub unsafe fn gemm_w4a16_parts<T: Half, const R: usize, const PACKED: bool, const ZEROS: bool>(
    a: *const T,
    w: *const u8,
    scales: *const f32,
    zeros: *const u8,
    parts: *mut f32,
    sizes: Sizes,
) {
    match R {
        16 => run::<Int4, T, f32, 2, false, PACKED, 1, 1, ZEROS, { pending(16, BITS, COMMON) }>(
            a, w, scales, zeros, parts, sizes,
        ),
        _ => run::<Int4, T, f32, 8, false, PACKED, 1, 1, ZEROS, { pending(64, BITS, COMMON) }>(
            a, w, scales, zeros, parts, sizes,
        ),
    }
}
