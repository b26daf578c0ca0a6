//! The path for every GPU from Ampere on: cp.async fills a ring of shared-memory stages, ldmatrix and mma.sync drain it.
//!
//! Eight warps share a 128 × 128 tile of C, two down and four across, 64 × 32 each: four by four products of m16n8k16 a step of 16. Blocks are
//! numbered down m, then along n, then over the batch.
//!
//! The ring keeps the way that an operand lies: rows of 64 bytes along k, or of 256 bytes along m or n. An exclusive or of the 16-byte chunk with the
//! row spreads the eight rows of an ldmatrix over all banks; an MN-major tile is transposed by ldmatrix on the way into registers, for nothing.
//!
//! `V` is how many elements a thread copies at a time: 8, 16 bytes by cp.async, or 1, through a register, which takes any strides.

use core::num::NonZeroU32;

use cuda_std::float::{Element, Half};
use cuda_std::shared;
use cuda_std::vector::Pack;
use cuda_std::{cp_async, kernel, math, mma, shared_field, thread};

use super::super::operand::{self, Copier, fragments};
use super::{Problem, factor};

/// Rows and columns of C a block computes.
pub const BLOCK: u32 = operand::BLOCK;
/// Depth of a stage.
pub const BLOCK_K: u32 = operand::depth::<u16>();
/// Stages of the ring.
pub const STAGES: u32 = 4;
/// Threads of a block.
pub const THREADS: u32 = operand::THREADS;

const WARP_M: u32 = 64;
const WARP_N: u32 = 32;
const WARPS_N: u32 = BLOCK / WARP_N;
/// Products of 16 rows and of 8 columns in a warp's part of the tile.
const MMA_M: usize = (WARP_M / 16) as usize;
const MMA_N: usize = (WARP_N / 8) as usize;

/// The ring.
#[repr(C, align(128))]
pub struct Shared<T> {
    a: [[T; (BLOCK * BLOCK_K) as usize]; STAGES as usize],
    b: [[T; (BLOCK * BLOCK_K) as usize]; STAGES as usize],
}

/// C = α·A·B + β·C of each of the problem's products; α times `scale`, unless that is null.
///
/// # Safety
/// `a`, `b` and `c` are valid for the problem's sizes at its strides; with `V` = 8 `a` and `b` start at multiples of 16 bytes, the stride along k
/// is 1, or along m (`A_MN`) or n (`B_MN`), and the others are multiples of 8; there is a block for every tile; `scale` is null or
/// valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(A_MN: false, true, B_MN: false, true, V: 8, 1),
    where((C == T || C == f32) && (V == 8 || !A_MN && !B_MN)), block = THREADS, shared = Shared<T>, no_spills
)]
pub unsafe fn gemm_mma<T: Half, C: Element, const A_MN: bool, const B_MN: bool, const V: usize>(
    a: *const T,
    b: *const T,
    c: *mut C,
    scale: *const f32,
    problem: Problem,
) {
    let ring = shared::dynamic::<Shared<T>>();
    let (ring_a, ring_b) = (shared_field!(ring.a), shared_field!(ring.b));
    let stage_a = |step: u32| ring_a.at(step % STAGES).cast::<T>();
    let stage_b = |step: u32| ring_b.at(step % STAGES).cast::<T>();
    let Problem { m, n, k, .. } = problem;
    let at_least_one = |n: u32| NonZeroU32::MIN.saturating_add(n - 1);
    let (tiles_m, tiles_n) = (at_least_one(m.div_ceil(BLOCK)), at_least_one(n.div_ceil(BLOCK)));
    // Consecutive blocks go down m: they share b, and their rows of a stay in L2 for the next column.
    let (row0, rest) = (thread::block_idx_x() % tiles_m * BLOCK, thread::block_idx_x() / tiles_m);
    let (column0, product) = (rest % tiles_n * BLOCK, u64::from(rest / tiles_n));
    let [a_product, a_row, a_k] = problem.a;
    let [b_product, b_column, b_k] = problem.b;
    let [c_product, ldc] = problem.c;
    let a = Copier::<T, A_MN, V>::new(a.add((product * a_product) as usize), [a_row, a_k], m, k, row0);
    let b = Copier::<T, B_MN, V>::new(b.add((product * b_product) as usize), [b_column, b_k], n, k, column0);
    let c = c.add((product * c_product) as usize);
    let lane = thread::thread_idx_x() % 32;
    let warp = thread::thread_idx_x() / 32;
    let (warp_m, warp_n) = (warp / WARPS_N * WARP_M, warp % WARPS_N * WARP_N);

    let steps = k.div_ceil(BLOCK_K);
    let fetch = |step: u32| {
        if step < steps {
            a.copy(stage_a(step), step * BLOCK_K);
            b.copy(stage_b(step), step * BLOCK_K);
        }
        if V == 8 {
            // An empty group keeps the count of groups in flight the same at the end.
            cp_async::commit();
        }
    };
    for step in 0..STAGES - 1 {
        fetch(step);
    }

    let mut acc = [[[0.0f32; 4]; MMA_N]; MMA_M];
    // Of four matrices, lanes 0-7 name the rows of the first, 8-15 those of the second, and so on.
    let (second, third) = (lane / 8 % 2 * 8, lane / 16 * 8);
    for step in 0..steps {
        // The group of this step has landed, and everybody is done with the stage that the next copy overwrites.
        if V == 8 {
            cp_async::wait_group::<{ STAGES - 2 }>();
        }
        thread::sync_threads();
        fetch(step + STAGES - 1);
        for half in 0..BLOCK_K / 16 {
            let mut fragments_a = [[0u32; 4]; MMA_M];
            for (i, fragment) in fragments_a.iter_mut().enumerate() {
                let row = warp_m + i as u32 * 16 + second;
                *fragment = fragments::<T, A_MN>(stage_a(step), row, half * 16 + third);
            }
            let mut fragments_b = [[0u32; 4]; MMA_N / 2];
            for (j, fragment) in fragments_b.iter_mut().enumerate() {
                let column = warp_n + j as u32 * 16 + third;
                *fragment = fragments::<T, B_MN>(stage_b(step), column, half * 16 + second);
            }
            for i in 0..MMA_M {
                for j in 0..MMA_N {
                    let [b0, b1, b2, b3] = fragments_b[j / 2];
                    let b = if j % 2 == 0 { [b0, b1] } else { [b2, b3] };
                    mma::m16n8k16::<T>(&mut acc[i][j], fragments_a[i], b);
                }
            }
        }
    }

    let (alpha, beta) = (factor(problem.alpha, scale), problem.beta);
    if alpha != 1.0 {
        acc.iter_mut().flatten().flatten().for_each(|sum| *sum *= alpha);
    }
    let pairs = ldc.is_multiple_of(2) && (c as usize).is_multiple_of(2 * size_of::<C>());
    for i in 0..MMA_M {
        for j in 0..MMA_N {
            let row = row0 + warp_m + i as u32 * 16 + lane / 4;
            let column = column0 + warp_n + j as u32 * 8 + lane % 4 * 2;
            for half in 0..2 {
                let row = row + half as u32 * 8;
                let inside = if row < m { n.saturating_sub(column) } else { 0 };
                let at = c.wrapping_add((u64::from(row) * ldc + u64::from(column)) as usize);
                let mut pair = [acc[i][j][half * 2], acc[i][j][half * 2 + 1]];
                for e in 0..2 {
                    if beta != 0.0 && (e as u32) < inside {
                        pair[e] = math::fma(beta, (*at.wrapping_add(e)).to_f32(), pair[e]);
                    }
                }
                if pairs && inside >= 2 {
                    Pack::<C, 2>::from_f32(pair).store(at);
                } else {
                    for e in 0..2 {
                        if (e as u32) < inside {
                            *at.wrapping_add(e) = C::from_f32(pair[e]);
                        }
                    }
                }
            }
        }
    }
}
