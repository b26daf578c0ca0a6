//! The same product where TMA fills shared memory: no value passes through a register on its way there.
//!
//! # Layout
//! As [`sgemm`](super::sgemm), rows of `a` and `b` at multiples of 16 bytes. TMA reads what lies outside them as zeros.
//!
//! # Mapping
//! A block of 128 threads computes a 128 × 128 tile of C in stages of 32 along k, which its first thread has TMA fill, two ahead. A thread owns 8 × 16 results: eight
//! rows of the tile, 8 apart, and four times four columns, 16 apart. Of A, which lies in shared memory as it does in memory, rows along k, it loads four
//! k of a row at a time, in the turn in which it last needs the four before them.
//!
//! # Shared memory
//! 3 stages × (128 × 32 + 32 × 128) × 4 B and their barriers. A's rows of 128 bytes are swizzled: eight rows' 16 bytes of one k lie in all the banks.

use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{fence, kernel, math, shared_field, thread, tma, warp};

use core::array;

use super::{BLOCK_M, BLOCK_N, THREADS, place};

/// Depth of a stage: a row of A's swizzle.
pub const DEPTH: u32 = 32;
const STAGES: usize = 3;
/// What is loaded of a row of A at a time.
const QUAD: u32 = 4;
const QUADS: u32 = DEPTH / QUAD;
/// Rows and columns between those that a thread has.
const DOWN: u32 = 8;
const ACROSS: u32 = 16;

const WARPS: u32 = THREADS / 32;

/// The block's stages.
#[repr(C, align(1024))]
pub struct Stages {
    a: [[f32; (BLOCK_M * DEPTH) as usize]; STAGES],
    b: [[f32; (DEPTH * BLOCK_N) as usize]; STAGES],
    full: [Barrier; STAGES],
    empty: [Barrier; STAGES],
}

const STAGE_BYTES: u32 = 4 * DEPTH * (BLOCK_M + BLOCK_N);

/// C = A·B as [`sgemm`](super::sgemm).
///
/// # Safety
/// The maps are of matrices of m × k and k × n elements, in boxes of 128 rows by [`DEPTH`] with the 128-byte swizzle, and of [`DEPTH`] rows by 128 without;
/// `c` is valid for m × n at its leading dimension; k is not 0.
#[kernel(block = THREADS, min_blocks = 2, shared = Stages, arch = "sm_90a", no_spills)]
pub unsafe fn sgemm_hopper(a: &TensorMap, b: &TensorMap, c: *mut f32, m: u32, n: u32, k: u32, ldc: u64) {
    let [row0, column0] = place(m);
    let memory = shared::dynamic::<Stages>();
    let (tiles_a, tiles_b) = (shared_field!(memory.a), shared_field!(memory.b));
    let (full, empty) = (shared_field!(memory.full), shared_field!(memory.empty));
    let tid = thread::thread_idx_x();
    let lane = tid % 32;
    let steps = k.div_ceil(DEPTH);
    let fill = |stage: u32, step: u32| {
        let k0 = (step * DEPTH) as i32;
        full.at(stage).arrive_expect_tx(STAGE_BYTES);
        tma::load_2d(tiles_a.at(stage), a, [k0, row0 as i32], full.at(stage));
        tma::load_2d(tiles_b.at(stage), b, [column0 as i32, k0], full.at(stage));
    };
    if tid == 0 {
        for stage in 0..STAGES as u32 {
            full.at(stage).init(1);
            empty.at(stage).init(WARPS);
        }
        fence::mbarrier_init();
        for stage in 0..steps.min(STAGES as u32) {
            fill(stage, stage);
        }
    }
    thread::sync_threads();

    let warp = warp::warp_id_uniform();
    let down = warp / 2 * 64 + lane % 8;
    let across = warp % 2 * 64 + lane / 8 * QUAD;
    // Four k of each of the thread's rows, of which the eight of a swizzle have theirs in all banks, and one k of its columns.
    let rows_of = |stage: u32| tiles_a.at(stage).at(down * DEPTH);
    let row = |from: SharedPtr<f32>, i: u32| from.add(i * DOWN * DEPTH).read_ahead();
    let columns_of = |stage: u32| tiles_b.at(stage).at(across);
    let columns_at =
        |from: SharedPtr<f32>| -> [[f32; 4]; 4] { array::from_fn(|j| from.add(j as u32 * ACROSS).read_ahead()) };

    let mut sums = [[[0.0f32; 4]; 4]; 8];
    full.at(0).wait_parity(0);
    let (mut stage, mut parity) = (0, 0);
    let (mut from_a, mut from_b) = (rows_of(0), columns_of(0));
    let mut rows: [[f32; 4]; 8] = array::from_fn(|i| row(from_a.add(lane % 8 * QUAD), i as u32));
    let mut columns = columns_at(from_b);
    let quads = k.div_ceil(QUAD);
    for at in 0..quads {
        let next = (at + 1) % QUADS;
        let mut next_b = from_b.add(QUAD * BLOCK_N);
        if at % 4 == 3 {
            let step = at / QUADS;
            let refills = step != 0 && step - 1 + (STAGES as u32) < steps;
            let previous = if stage == 0 { STAGES as u32 - 1 } else { stage - 1 };
            if next != 0 {
                if refills {
                    warp::sync(!0);
                    if lane == 0 {
                        empty.at(previous).arrive();
                    }
                }
            } else {
                if refills && tid == 0 {
                    empty.at(previous).wait_parity(parity ^ u32::from(stage == 0));
                    fill(previous, step - 1 + STAGES as u32);
                }
                // Behind the last four there are none: some are read again.
                if at + 1 < quads {
                    stage = if stage + 1 == STAGES as u32 { 0 } else { stage + 1 };
                    parity ^= u32::from(stage == 0);
                    full.at(stage).wait_parity(parity);
                }
                from_a = rows_of(stage);
                next_b = columns_of(stage);
            }
        }
        let next_a = from_a.add((next ^ lane % 8) * QUAD);
        for e in 0..4 {
            let ahead = columns_at(if e < 3 { from_b.add((e as u32 + 1) * BLOCK_N) } else { next_b });
            for i in 0..8 {
                for j in 0..16 {
                    let sum = &mut sums[i][j / 4][j % 4];
                    *sum = math::fma(rows[i][e], columns[j / 4][j % 4], *sum);
                }
                if e == 3 {
                    rows[i] = row(next_a, i as u32);
                }
            }
            columns = ahead;
        }
        from_b = next_b;
    }

    let wide = ldc.is_multiple_of(4) && (c as usize).is_multiple_of(16);
    for j in 0..4 {
        let column = column0 + across + j as u32 * ACROSS;
        let whole = wide && column + 4 <= n;
        for i in 0..8 {
            let row = row0 + down + i as u32 * DOWN;
            if row < m && column < n {
                let to = c.add((u64::from(row) * ldc + u64::from(column)) as usize);
                let results = sums[i][j];
                if whole {
                    Pack(results).store(to);
                } else {
                    for (e, result) in results.into_iter().enumerate() {
                        if column + (e as u32) < n {
                            *to.add(e) = result;
                        }
                    }
                }
            }
        }
    }
}
