//! Product of 16-bit activations with a weight of 8-bit integers, C = A·(W·diag)ᵀ: for decoding, where reading the weight is all that counts.
//!
//! # Math
//! cᵢⱼ = scalesⱼ·Σₖ aᵢₖ·wⱼₖ.
//!
//! # Layout
//! `a` is m × k, `w` n × k and `c` m × n, rows apart as [`Sizes`] say; `scales` has a value for each row of `w`, as
//! [`quantize_rows_int8`](crate::ops::quant::quantize_rows_int8) writes them. Rows at multiples of 16 bytes are copied in packs, others element by
//! element.
//!
//! # Mapping
//! That of `weight_only`: 256 threads take 128 rows of the weight and 16, 64 or 128 of A. On Hopper pairs of blocks share k, and in a block for 16 rows of A two
//! teams of 256 threads do ([`gemm_w8a16_cluster`]): one block fills a multiprocessor. Elsewhere, and where rows are not at multiples of 16 bytes, y of the grid
//! shares k, into a workspace whose parts [`gemv_sum`](crate::ops::gemv::gemv::gemv_sum) adds ([`gemm_w8a16_parts`]). More rows of A than a block takes
//! are slices, each of which reads the weight: from L2, because slices of the same rows are neighbours.
//!
//! # Shared memory
//! Stages of 16 KiB and 256 bytes for each row of A: on Hopper two rings of 5 × 20 KiB, or one of 6 × 32 or 4 × 48; elsewhere 4 × 20 or 3 × 32. The sums lie where
//! the stages were.
//!
//! # Numerics
//! Integers become floats of A's type exactly; products are exact and accumulate in f32 as the tensor core does, parts of k are added in f32, the
//! scale is applied in f32 and C is rounded once. Where Σ |aᵢₖ·wⱼₖ| passes f32's greatest, which takes bf16 elements beyond 10³⁶, C is infinite or NaN
//! whatever the scale.
//!
//! # Cost
//! The bytes of the weight, once: n·k over the bandwidth, 15.8 µs for 8192 × 8192 at 4.25 TB/s. An H200 takes 24 µs for up to 16 rows of A, 39 for 64 and 63 for 128:
//! some 7 are the launch, the first bytes and the sums at the end. A pair of integers costs three integer operations in bf16, of which a scheduler does a
//! warp's in two cycles, a third of the time; and from 64 rows on there are the products, by mma.sync at half of wgmma's rate.
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

pub use super::weight_only::{CLUSTER, DEPTH, ROWS, Sizes, blocks_per_multiprocessor};

use super::weight_only::{COMMON, HOPPER, Int8, TEAMS, THREADS, pending, run, shared_bytes, teams};

/// Of an element.
const BITS: u32 = 8;

/// C of up to `R` rows of A a block, whose clusters share k.
///
/// # Safety
/// As for `weight_only`'s `run`, all rows of `a` and `w` being at multiples of 16 bytes; there is a cluster for each 128 rows of
/// the weight and `R` of A.
#[kernel(
    dtypes(T: half), values(R: 16, 64, 128),
    block = THREADS * teams(R), min_blocks = 1, cluster = CLUSTER,
    shared = { teams(R) as usize * shared_bytes(R as u32, BITS, HOPPER / teams(R)) }, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_w8a16_cluster<T: Half, const R: usize>(
    a: *const T,
    w: *const i8,
    scales: *const f32,
    c: *mut T,
    sizes: Sizes,
) {
    match R {
        16 => {
            const PENDING: u32 = pending(16, BITS, HOPPER / TEAMS);
            run::<Int8, T, T, 2, false, true, CLUSTER, TEAMS, false, PENDING>(
                a,
                w.cast(),
                scales,
                ptr::null(),
                c,
                sizes,
            )
        }
        64 => run::<Int8, T, T, 8, false, true, CLUSTER, 1, false, { pending(64, BITS, HOPPER) }>(
            a,
            w.cast(),
            scales,
            ptr::null(),
            c,
            sizes,
        ),
        _ => run::<Int8, T, T, 8, true, true, CLUSTER, 1, false, { pending(128, BITS, HOPPER) }>(
            a,
            w.cast(),
            scales,
            ptr::null(),
            c,
            sizes,
        ),
    }
}

/// The same into `parts`, a dense C in f32 for each part of k, which y of the grid counts.
///
/// # Safety
/// As for `weight_only`'s `run`; there is a block for each 128 rows of the weight and `R` of A.
#[kernel(
    dtypes(T: half), values(R: 16, 64, PACKED: true, false), where(PACKED || R == 64),
    block = THREADS, min_blocks = if R == 16 { 2 } else { 1 }, shared = { shared_bytes(R as u32, BITS, COMMON) }, no_spills
)]
pub unsafe fn gemm_w8a16_parts<T: Half, const R: usize, const PACKED: bool>(
    a: *const T,
    w: *const i8,
    scales: *const f32,
    parts: *mut f32,
    sizes: Sizes,
) {
    match R {
        16 => run::<Int8, T, f32, 2, false, PACKED, 1, 1, false, { pending(16, BITS, COMMON) }>(
            a,
            w.cast(),
            scales,
            ptr::null(),
            parts,
            sizes,
        ),
        _ => run::<Int8, T, f32, 8, false, PACKED, 1, 1, false, { pending(64, BITS, COMMON) }>(
            a,
            w.cast(),
            scales,
            ptr::null(),
            parts,
            sizes,
        ),
    }
}
