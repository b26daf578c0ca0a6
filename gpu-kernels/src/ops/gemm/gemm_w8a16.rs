//! Product of 16-bit activations with a weight of 8-bit integers, C = A·(diag(scales)·W)ᵀ: for decoding, which is bound by
//! reading the weight.
//!
//! # Math
//! cᵢⱼ = scalesⱼ·Σₖ aᵢₖ·wⱼₖ.
//!
//! # Layout
//! `a` is m × k, `w` n × k and `c` m × n, with row strides as [`Sizes`] states them; `scales` has a value for each row
//! of `w`, as [`quantize_rows_int8`](crate::ops::quant::quantize_rows_int8) writes them. Rows at multiples of 16 bytes
//! are copied in packs, others element by element.
//!
//! # Mapping
//! That of `weight_only`. Up to eight rows of A are multiplied by blocks of 256 threads that take 32 rows of the weight, from memory to registers ([`gemm_w8a16_skinny`]), if k is of whole packs; of 512
//! threads where a multiprocessor finds no second block. On Hopper ([`gemm_w8a16_cluster`]) two warpgroups take 128 rows of the weight and 16, 32, 64, 96, 128, 160 or 192 of A: of more than 64, what
//! leaves the fewest multiprocessors empty in the last wave. Up to four blocks of a cluster share k, as many as there are multiprocessors for. With up to 64 rows of A
//! so do two teams of such warpgroups in each block; where there are more tiles than multiprocessors these are two blocks instead, one of which begins or ends while the other multiplies. On other GPUs, and where rows are
//! not at multiples of 16 bytes, 256 threads take 128 rows of the weight and 16 or 64 of A, and y of the grid
//! shares k, into a workspace whose parts [`gemv_sum`](crate::ops::gemv::gemv::gemv_sum) adds ([`gemm_w8a16_parts`]). More rows of A than a block takes
//! are slices, each of which reads the weight: from L2, because slices of the same rows are neighbours.
//!
//! # Shared memory
//! Of several rows of A, up to eight, 3 steps of 1 KiB per warp, and of one 1 KiB for its sums. Else stages of 16 KiB
//! and 256 bytes for each row of A: on Hopper as many as 216 KiB hold, or the half of it that is a team's or a block's
//! of two; elsewhere 4 × 20 or 3 × 32. The sums lie where the stages were.
//!
//! # Numerics
//! Integers become floats of A's type exactly; products are exact and accumulate in f32 as the tensor core does, parts
//! of k are added in f32, the scale is applied in f32 and C is rounded once. If Σ |aᵢₖ·wⱼₖ| exceeds f32's greatest
//! number, which requires bf16 elements beyond 10³⁶, C is infinite or NaN whatever the scale.
//!
//! # Cost
//! The bytes of the weight, once: n·k over the bandwidth, 15.8 µs for 8192 × 8192 at 4.25 TB/s, where a copy of as many takes 19.9. An H200 takes 22.5 µs for one row of A, 22.8 for eight, 25 for 16, 26
//! for 32, 29 for 64, 38 for 128, 68 for 304, and 0.9 ms for 4096; for 4096 × 14336, 14.2 µs over that bandwidth, it takes 20.2, 20.9, 24.7, 27.5, 31.6 and 41.
//!
//! # Limits
//! m, n, k below 2³¹.
//!
//! # Sources
//! Dettmers et al., "LLM.int8()" (arXiv:2208.07339), for scales by row; Kim et al., "Who Says Elephants Can't Run" (arXiv:2211.10017), for the
//! conversion by byte permutation; Frantar et al., "MARLIN" (arXiv:2408.11743), for the pipeline.

use core::ptr;

use cuda_std::float::Half;
use cuda_std::kernel;
use cuda_std::launch::TensorMap;

pub use super::weight_only::skinny::{MOST as SKINNY_MOST, ROWS as SKINNY_ROWS, WARPS as SKINNY_WARPS, lane_depth};
pub use super::weight_only::{DEPTH, PANEL_BYTES, Plan, ROWS, Sizes, blocks_per_multiprocessor};

use super::weight_only::{Int8, THREADS, hopper, pending, run, shared_bytes, skinny};

/// Of an element.
const BITS: u32 = 8;

/// C of up to [`SKINNY_MOST`] rows of A, or of one, which is `ALONE`, by blocks of `WARPS`.
///
/// # Safety
/// As for `weight_only::skinny`'s `run`; x of the grid counts blocks of [`SKINNY_ROWS`] of the weight.
#[kernel(
    dtypes(T: half), values(ALONE: false, true, WARPS: 8, 16), block = 32 * WARPS, min_blocks = 16 / WARPS,
    shared = { skinny::shared_bytes(ALONE, WARPS, BITS) }, no_spills
)]
pub unsafe fn gemm_w8a16_skinny<T: Half, const ALONE: bool, const WARPS: u32>(
    a: *const T,
    w: *const i8,
    scales: *const f32,
    c: *mut T,
    sizes: Sizes,
) {
    skinny::run::<Int8, T, ALONE, WARPS, false>(a, w.cast(), scales, ptr::null(), c, sizes);
}

/// C of up to `R` rows of A a block, by clusters of `SHARE` blocks, which share k; `BLOCKS` fit on a multiprocessor.
///
/// # Safety
/// As for `weight_only::hopper`'s `run`.
#[kernel(
    dtypes(T: half), values(R: 16, 32, 64, 96, 128, 160, 192, SHARE: 1, 2, 3, 4, BLOCKS: 1, 2),
    where(R < 96 && (SHARE == 2 || (SHARE == 1) == (BLOCKS == 2)) || R >= 96 && (SHARE < 3 || R <= 128) && BLOCKS == 1),
    block = { Plan::of(R, BITS, SHARE, BLOCKS).threads() }, min_blocks = BLOCKS, cluster = SHARE,
    shared = { Plan::of(R, BITS, SHARE, BLOCKS).bytes() }, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_w8a16_cluster<T: Half, const R: usize, const SHARE: u32, const BLOCKS: u32>(
    weight: &TensorMap,
    vectors: &TensorMap,
    scales: *const f32,
    c: *mut T,
    sizes: Sizes,
) {
    match R {
        16 => hopper::run::<Int8, T, 8, SHARE, BLOCKS, false>(weight, vectors, scales, ptr::null(), c, sizes),
        32 => hopper::run::<Int8, T, 16, SHARE, BLOCKS, false>(weight, vectors, scales, ptr::null(), c, sizes),
        64 => hopper::run::<Int8, T, 32, SHARE, BLOCKS, false>(weight, vectors, scales, ptr::null(), c, sizes),
        96 => hopper::run::<Int8, T, 48, SHARE, BLOCKS, false>(weight, vectors, scales, ptr::null(), c, sizes),
        128 => hopper::run::<Int8, T, 64, SHARE, BLOCKS, false>(weight, vectors, scales, ptr::null(), c, sizes),
        160 => hopper::run::<Int8, T, 80, SHARE, BLOCKS, false>(weight, vectors, scales, ptr::null(), c, sizes),
        _ => hopper::run::<Int8, T, 96, SHARE, BLOCKS, false>(weight, vectors, scales, ptr::null(), c, sizes),
    }
}

/// The same into `parts`, a dense C in f32 for each part of k, which y of the grid counts.
///
/// # Safety
/// As for `weight_only`'s `run`; there is a block for each 128 rows of the weight and `R` of A.
#[kernel(
    dtypes(T: half), values(R: 16, 64, PACKED: true, false), where(PACKED || R == 64),
    block = THREADS, min_blocks = if R == 16 { 2 } else { 1 }, shared = { shared_bytes(R as u32, BITS) }, no_spills
)]
pub unsafe fn gemm_w8a16_parts<T: Half, const R: usize, const PACKED: bool>(
    a: *const T,
    w: *const i8,
    scales: *const f32,
    parts: *mut f32,
    sizes: Sizes,
) {
    match R {
        16 => run::<Int8, T, 2, PACKED, false, { pending(16, BITS) }>(a, w.cast(), scales, ptr::null(), parts, sizes),
        _ => run::<Int8, T, 8, PACKED, false, { pending(64, BITS) }>(a, w.cast(), scales, ptr::null(), parts, sizes),
    }
}
