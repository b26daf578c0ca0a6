//! Product, for decoding, of 16-bit activations with a weight of 4-bit integers that have a scale, and optionally a
//! zero point, for each 128 of k.
//!
//! # Math
//! cᵢⱼ = Σ_g scales(j, g)·Σ_{k in group g} aᵢₖ·(qⱼₖ − zeros(j, g)), over groups of 128 of k, q and zeros from 0 to 15; without zeros they are 8.
//!
//! # Layout
//! `a` is m × k and `c` m × n. `w` is n × ⌈k/2⌉ bytes: byte i of a row holds q of k = 2i in its lower half, and that of
//! k = 2i + 1 in its upper half. `scales` and `zeros` are n × ⌈k/128⌉, dense: as
//! [`quantize_int4`](crate::ops::quant::quantize_int4) writes them. Only the lower four bits of a byte of `zeros`
//! count. Rows at multiples of 16 bytes are copied in packs, others element by element. With an odd k the last byte's
//! upper half is ignored: it is multiplied by a zero.
//!
//! # Mapping
//! That of [`gemm_w8a16`](super::gemm_w8a16). Products of a group start from nothing, and are added times their scale to sums in registers.
//! Zero points cost no instruction on the integers: the multiply-add that takes the exponent's power off takes them off as well. With few rows of A and on Hopper each of the four lanes that
//! share rows reads the scales and zero points of one of four groups, four groups ahead, and gives them to the others; elsewhere scales are of a stage, and of zero points each reads the byte of
//! one of four rows, a stage ahead.
//!
//! # Shared memory
//! Of several rows of A, up to eight, 3 steps of 2 KiB per warp, and of one 1 KiB for its sums. On Hopper stages of 16 KiB and 512 bytes for each row
//! of A, from 64 rows on of half of that, as many as 216 KiB hold, or the half of it that is a team's or a block's of
//! two. Elsewhere stages of 8 KiB, 512 bytes of scales and 256 for each row of A, 7 × 12.5 or 4 × 24.5. The sums lie
//! where the stages were.
//!
//! # Numerics
//! Integers become floats of A's type exactly, and weights are never rounded: scales are applied to sums of groups, in
//! f32. C is rounded once.
//!
//! # Cost
//! The bytes of the weight and its scales, once: n·k·(1/2 + 4/128) over the bandwidth, 8.4 µs for 8192 × 8192 at 4.25 TB/s, where a copy of as many takes 12.9. An H200 takes 14.3 µs for one row of
//! A, 15.6 for eight, 18.7 for 16, 20 for 32, 26 for 64, 36 for 128, 67 for 304, and 0.88 ms for 4096, for 4096 × 14336 13.7, 17.9, 23, 25, 31 and 40; with zero points the same within a few percent. A pair of integers costs two integer operations, of
//! which a scheduler does a warp's in two cycles, one fused multiply-add, and with bf16 a multiplication; with few rows of A 1.25 or 1.75 integer operations, and no multiplication.
//!
//! # Limits
//! m, n, k below 2³¹.
//!
//! # Sources
//! Frantar et al., "GPTQ" (arXiv:2210.17323), and Lin et al., "AWQ" (arXiv:2306.00978), for groups of 128; Kim et al., "Who Says Elephants Can't Run"
//! (arXiv:2211.10017), for the conversion; Frantar et al., "MARLIN" (arXiv:2408.11743), for the pipeline.

use cuda_std::float::Half;
use cuda_std::kernel;
use cuda_std::launch::TensorMap;

pub use super::weight_only::skinny::{MOST as SKINNY_MOST, ROWS as SKINNY_ROWS, WARPS as SKINNY_WARPS, lane_depth};
pub use super::weight_only::{DEPTH, PANEL_BYTES, Plan, ROWS, Sizes, blocks_per_multiprocessor};

use super::weight_only::{Int4, THREADS, hopper, pending, run, shared_bytes, skinny};

/// Of an element.
const BITS: u32 = 4;

/// C of up to [`SKINNY_MOST`] rows of A, or of one, which is `ALONE`, by blocks of `WARPS`.
///
/// # Safety
/// As for `weight_only::skinny`'s `run`; x of the grid counts blocks of [`SKINNY_ROWS`] of the weight.
#[kernel(
    dtypes(T: half), values(ALONE: false, true, WARPS: 8, 16, ZEROS: false, true), where(ALONE || WARPS == 8),
    block = 32 * WARPS, min_blocks = 16 / WARPS,
    shared = { skinny::shared_bytes(ALONE, WARPS, BITS) }, no_spills
)]
pub unsafe fn gemm_w4a16_skinny<T: Half, const ALONE: bool, const WARPS: u32, const ZEROS: bool>(
    a: *const T,
    w: *const u8,
    scales: *const f32,
    zeros: *const u8,
    c: *mut T,
    sizes: Sizes,
) {
    skinny::run::<Int4, T, ALONE, WARPS, ZEROS>(a, w, scales, zeros, c, sizes);
}

/// C of up to `R` rows of A a block, by clusters of `SHARE` blocks, which share k; `BLOCKS` fit on a multiprocessor.
///
/// # Safety
/// As for `weight_only::hopper`'s `run`.
#[kernel(
    dtypes(T: half), values(R: 16, 32, 64, 96, 128, 160, 192, SHARE: 1, 2, 3, 4, BLOCKS: 1, 2, ZEROS: false, true),
    where(R < 96 && (SHARE == 2 || (SHARE == 1) == (BLOCKS == 2)) || R >= 96 && (SHARE < 3 || R <= 128) && BLOCKS == 1),
    block = { Plan::of(R, BITS, SHARE, BLOCKS).threads() }, min_blocks = BLOCKS, cluster = SHARE,
    shared = { Plan::of(R, BITS, SHARE, BLOCKS).bytes() }, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_w4a16_cluster<T: Half, const R: usize, const SHARE: u32, const BLOCKS: u32, const ZEROS: bool>(
    weight: &TensorMap,
    vectors: &TensorMap,
    scales: *const f32,
    zeros: *const u8,
    c: *mut T,
    sizes: Sizes,
) {
    match R {
        16 => hopper::run::<Int4, T, 8, SHARE, BLOCKS, ZEROS>(weight, vectors, scales, zeros, c, sizes),
        32 => hopper::run::<Int4, T, 16, SHARE, BLOCKS, ZEROS>(weight, vectors, scales, zeros, c, sizes),
        64 => hopper::run::<Int4, T, 32, SHARE, BLOCKS, ZEROS>(weight, vectors, scales, zeros, c, sizes),
        96 => hopper::run::<Int4, T, 48, SHARE, BLOCKS, ZEROS>(weight, vectors, scales, zeros, c, sizes),
        128 => hopper::run::<Int4, T, 64, SHARE, BLOCKS, ZEROS>(weight, vectors, scales, zeros, c, sizes),
        160 => hopper::run::<Int4, T, 80, SHARE, BLOCKS, ZEROS>(weight, vectors, scales, zeros, c, sizes),
        _ => hopper::run::<Int4, T, 96, SHARE, BLOCKS, ZEROS>(weight, vectors, scales, zeros, c, sizes),
    }
}

/// The same into `parts`, a dense C in f32 for each part of k, which y of the grid counts.
///
/// # Safety
/// As for `weight_only`'s `run`; there is a block for each 128 rows of the weight and `R` of A.
#[kernel(
    dtypes(T: half), values(R: 16, 64, PACKED: true, false, ZEROS: false, true), where(PACKED || R == 64),
    block = THREADS, min_blocks = if R == 16 { 2 } else { 1 }, shared = { shared_bytes(R as u32, BITS) }, no_spills
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
        16 => run::<Int4, T, 2, PACKED, ZEROS, { pending(16, BITS) }>(a, w, scales, zeros, parts, sizes),
        _ => run::<Int4, T, 8, PACKED, ZEROS, { pending(64, BITS) }>(a, w, scales, zeros, parts, sizes),
    }
}
