//! Product of matrices of 8-bit integers on the tensor cores, with scales: C = diag(sᵃ)·(A·Bᵀ)·diag(sᵇ).
//!
//! # Math
//! cᵢⱼ = sᵃᵢ·sᵇⱼ·Σₖ aᵢₖ·bⱼₖ; either scale may be one for all.
//!
//! # Layout
//! `a` is m × k, `b` is n × k, `c` is m × n, rows `lda`, `ldb` and `ldc` elements apart: activations quantized by row times a weight quantized by output
//! channel. `V` = 16 takes rows of `a` and `b` at multiples of 16 bytes, `V` = 1 any.
//!
//! # Mapping
//! As [`gemm`](super::gemm): eight warps of 64 × 32 share a 128 × 128 tile of C, in products of m16n8k32.
//!
//! # Shared memory
//! A ring of 4 stages of 128 × 64 of either operand, 64 KiB.
//!
//! # Numerics
//! Products and sums are exact in i32. A sum is rounded to f32 (only above 2²⁴), multiplied by the row's scale, then by the column's, and rounded to
//! the type of C.
//!
//! # Cost
//! 2·m·n·k operations against m·k + n·k bytes and C: the tensor cores do twice as many in 8 bits as in 16, from half of the bytes.
//!
//! # Limits
//! m and n below 2³¹, 2³¹ − 1 tiles; k below 2¹⁷, so that sums of products up to 2¹⁴ cannot overflow.
//!
//! # Sources
//! Dettmers et al., "LLM.int8()" (arXiv:2208.07339), for scales by row and column; Jacob et al., "Quantization and training of neural networks for
//! efficient integer-arithmetic-only inference" (arXiv:1712.05877).

use core::num::NonZeroU32;

use cuda_std::float::Element;
use cuda_std::shared;
use cuda_std::{cp_async, kernel, mma, shared_field, thread};

use super::operand::{self, Copier, fragments};

/// Rows and columns of C a block computes.
pub const BLOCK: u32 = operand::BLOCK;
/// The greatest k.
pub const MAX_K: u32 = (1 << 17) - 1;

const BLOCK_K: u32 = operand::depth::<i8>();
const STAGES: u32 = 4;
const WARP_M: u32 = 64;
const WARP_N: u32 = 32;
const WARPS_N: u32 = BLOCK / WARP_N;
/// Products of 16 rows and of 8 columns in a warp's part of the tile.
const MMA_M: usize = (WARP_M / 16) as usize;
const MMA_N: usize = (WARP_N / 8) as usize;

/// The ring.
#[repr(C, align(128))]
pub struct Shared {
    a: [[i8; (BLOCK * BLOCK_K) as usize]; STAGES as usize],
    b: [[i8; (BLOCK * BLOCK_K) as usize]; STAGES as usize],
}

/// C = diag(sᵃ)·(A·Bᵀ)·diag(sᵇ). Scales are `a_step` and `b_step` apart, 1, or 0 for one that all share.
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes, and the scales for those steps; k is at most [`MAX_K`]; with `V` = 16 the rows of `a` and `b` start at
/// multiples of 16 bytes; there is a block for every tile.
#[kernel(dtypes(T: float), values(V: 16, 1), block = operand::THREADS, shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_int8<T: Element, const V: usize>(
    a: *const i8,
    a_scales: *const f32,
    b: *const i8,
    b_scales: *const f32,
    c: *mut T,
    m: u32,
    n: u32,
    k: u32,
    a_step: u32,
    b_step: u32,
    lda: u64,
    ldb: u64,
    ldc: u64,
) {
    let ring = shared::dynamic::<Shared>();
    let (ring_a, ring_b) = (shared_field!(ring.a), shared_field!(ring.b));
    let stage_a = |step: u32| ring_a.at(step % STAGES).cast::<i8>();
    let stage_b = |step: u32| ring_b.at(step % STAGES).cast::<i8>();
    // Consecutive blocks go down m: they share b, and their rows of a stay in L2 for the next column.
    let tiles_m = NonZeroU32::MIN.saturating_add((m - 1) / BLOCK);
    let (row0, column0) = (thread::block_idx_x() % tiles_m * BLOCK, thread::block_idx_x() / tiles_m * BLOCK);
    let a = Copier::<i8, false, V>::new(a, [lda, 1], m, k, row0);
    let b = Copier::<i8, false, V>::new(b, [ldb, 1], n, k, column0);
    let lane = thread::thread_idx_x() % 32;
    let warp = thread::thread_idx_x() / 32;
    let (warp_m, warp_n) = (warp / WARPS_N * WARP_M, warp % WARPS_N * WARP_N);

    let steps = k.div_ceil(BLOCK_K);
    let fetch = |step: u32| {
        if step < steps {
            a.copy(stage_a(step), step * BLOCK_K);
            b.copy(stage_b(step), step * BLOCK_K);
        }
        if V > 1 {
            // An empty group keeps the count of groups in flight the same at the end.
            cp_async::commit();
        }
    };
    for step in 0..STAGES - 1 {
        fetch(step);
    }

    let mut acc = [[[0i32; 4]; MMA_N]; MMA_M];
    // Of four matrices, lanes 0-7 name the rows of the first, 8-15 those of the second, and so on.
    let (second, third) = (lane / 8 % 2, lane / 16);
    for step in 0..steps {
        // The group of this step has landed, and everybody is done with the stage that the next copy overwrites.
        if V > 1 {
            cp_async::wait_group::<{ STAGES - 2 }>();
        }
        thread::sync_threads();
        fetch(step + STAGES - 1);
        for half in 0..BLOCK_K / 32 {
            let mut fragments_a = [[0u32; 4]; MMA_M];
            for (i, fragment) in fragments_a.iter_mut().enumerate() {
                let row = warp_m + i as u32 * 16 + second * 8;
                *fragment = fragments::<i8, false>(stage_a(step), row, half * 32 + third * 16);
            }
            let mut fragments_b = [[0u32; 4]; MMA_N / 2];
            for (j, fragment) in fragments_b.iter_mut().enumerate() {
                let column = warp_n + j as u32 * 16 + third * 8;
                *fragment = fragments::<i8, false>(stage_b(step), column, half * 32 + second * 16);
            }
            for i in 0..MMA_M {
                for j in 0..MMA_N {
                    let [b0, b1, b2, b3] = fragments_b[j / 2];
                    let b = if j % 2 == 0 { [b0, b1] } else { [b2, b3] };
                    mma::m16n8k32_s8(&mut acc[i][j], fragments_a[i], b);
                }
            }
        }
    }

    for j in 0..MMA_N {
        let column = column0 + warp_n + j as u32 * 8 + lane % 4 * 2;
        for e in 0..2 {
            let column = column + e as u32;
            if column >= n {
                continue;
            }
            let b_scale = *b_scales.add((column * b_step) as usize);
            for i in 0..MMA_M {
                for half in 0..2 {
                    let row = row0 + warp_m + i as u32 * 16 + half as u32 * 8 + lane / 4;
                    if row < m {
                        let a_scale = *a_scales.add((row * a_step) as usize);
                        let at = c.add((u64::from(row) * ldc + u64::from(column)) as usize);
                        *at = T::from_f32(acc[i][j][half * 2 + e] as f32 * a_scale * b_scale);
                    }
                }
            }
        }
    }
}
