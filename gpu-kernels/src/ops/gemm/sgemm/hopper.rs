//! The same product with TMA filling shared memory: no value passes through a register on its way there.
//!
//! # Layout
//! As [`sgemm`](super::sgemm), rows of `a` and `b` at multiples of 16 bytes. TMA reads what lies outside of them as zeros.
//!
//! # Mapping
//! A block of 128 threads computes a 128 × 128 tile of C in stages of 32 along k. Its warps in turn issue the TMA
//! copies, two stages ahead: were it always the same, it would fall behind, and the others wait for it. A thread owns 8 × 16 results:
//! eight rows, 8 apart, and four times four columns, 16 apart. Two blocks fit a multiprocessor.
//!
//! # Shared memory
//! 3 stages × (128 × 32 + 32 × 128) × 4 B, and their barriers. A lies as it does in memory, rows along k, of which a thread loads four elements at a time.
//! Its rows of 128 bytes are swizzled: what eight of them have of the same k lies in all the banks.
//!
//! # Cost
//! 93% of the instructions are multiply-adds. Each reads three registers, of which there are two banks, the even and
//! the odd, with one read each per cycle: it takes one cycle only if one factor is reused from the instruction before,
//! and its sum is in the other bank than its other factor. [`column`] is an order for which such registers exist, and ptxas finds them as
//! long as it leaves the order alone: at its first level of optimisation some 1,000 of 1,024 take one cycle, at its last one 714, with the
//! columns in any order that was tried at most 795. An H200 does 52.4 TFLOP/s, cuBLAS 50.4.

use core::array;
use core::hint::cold_path;

use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{kernel, math, shared_field, thread, tma, warp};

use super::{BLOCK_M, BLOCK_N, THREADS, place};

/// Depth of a stage: a row of A's swizzle.
pub const DEPTH: u32 = 32;
const STAGES: u32 = 3;
const STAGE_BYTES: u32 = 4 * DEPTH * (BLOCK_M + BLOCK_N);
const WARPS: u32 = THREADS / 32;

/// Elements of a row of A that are loaded at a time, and those of a stage.
const QUAD: u32 = 4;
const QUADS: u32 = DEPTH / QUAD;
/// From a thread's row to its next, and from four columns to the next four.
const DOWN: u32 = 8;
const ACROSS: u32 = 16;

/// The column that row `i` is multiplied with in turn `turn`, for element `e` of [`QUAD`].
///
/// Rows go through the columns forth and back, so that one factor is the one before's: a row's value, or where rows change a column's. The
/// other factor and the sum are then read from two banks: a row's value, which is in bank e mod 2, changes at a column of that bank.
const fn column(i: usize, turn: usize, e: usize) -> usize {
    let turn = if i.is_multiple_of(2) { turn } else { 15 - turn };
    match turn {
        0..4 => 2 * turn + e % 2,
        4..12 => 2 * (turn - 4) + (e + 1) % 2,
        _ => 2 * (turn - 8) + e % 2,
    }
}

/// The block's stages.
#[repr(C, align(1024))]
pub struct Stages {
    a: [[f32; (BLOCK_M * DEPTH) as usize]; STAGES as usize],
    b: [[f32; (DEPTH * BLOCK_N) as usize]; STAGES as usize],
    full: [Barrier; STAGES as usize],
    empty: [Barrier; STAGES as usize],
}

/// C = A·B as [`sgemm`](super::sgemm).
///
/// # Safety
/// The maps are of matrices of m × k and k × n elements, in boxes of 128 rows by [`DEPTH`] with the 128-byte swizzle, and of [`DEPTH`] rows by 128 without;
/// `c` is valid for m × n at its leading dimension; k is not 0.
#[kernel(block = THREADS, min_blocks = 2, shared = Stages, arch = "sm_90a", no_spills, opt_level = 1)]
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
        for stage in 0..STAGES {
            full.at(stage).init(1);
            empty.at(stage).init(WARPS);
        }
    }
    thread::sync_threads();
    if tid == 0 {
        for stage in 0..steps.min(STAGES) {
            fill(stage, stage);
        }
    }

    // Eight threads down and four across a warp; two warps down and two across the block.
    let warp = warp::warp_id_uniform();
    let down = warp / 2 * 64 + lane % 8;
    let across = warp % 2 * 64 + lane / 8 * 4;
    let rows_of = |stage: u32| tiles_a.at(stage).at(down * DEPTH);
    let columns_of = |stage: u32| tiles_b.at(stage).at(across);
    let row = |from: SharedPtr<f32>, i: u32| from.add(i * DOWN * DEPTH).load_x4();
    let columns_at =
        |from: SharedPtr<f32>| -> [[f32; 4]; 4] { array::from_fn(|j| from.add(j as u32 * ACROSS).load_x4()) };

    let mut sums = [[[0.0f32; 4]; 4]; 8];
    full.at(0).wait_parity(0);
    let (mut stage, mut parity) = (0, 0);
    let (mut from_a, mut from_b) = (rows_of(0), columns_of(0));
    // Four k of the thread's rows and one of its columns; the next are loaded meanwhile.
    let mut rows: [[f32; QUAD as usize]; 8] = array::from_fn(|i| row(from_a.add(lane % 8 * QUAD), i as u32));
    let mut columns = columns_at(from_b);
    macro_rules! multiply {
        ($next_a:expr, $next_b:expr) => {{
            let (next_a, next_b) = ($next_a, $next_b);
            let mut next_rows = rows;
            for e in 0..4 {
                let next_columns = columns_at(if e < 3 { from_b.add((e as u32 + 1) * BLOCK_N) } else { next_b });
                for i in 0..8 {
                    for turn in 0..16 {
                        let j = column(i, turn, e);
                        let sum = &mut sums[i][j / 4][j % 4];
                        *sum = math::fma(rows[i][e], columns[j / 4][j % 4], *sum);
                    }
                }
                if e == 0 {
                    next_rows = array::from_fn(|i| row(next_a, i as u32));
                }
                columns = next_columns;
            }
            rows = next_rows;
            from_b = next_b;
        }};
    }
    let pairs = k.div_ceil(2 * QUAD);
    for pair in 0..pairs {
        let quad = 2 * pair % QUADS;
        multiply!(from_a.add(((quad + 1) ^ (lane % 8)) * QUAD), from_b.add(QUAD * BLOCK_N));
        let next = (quad + 2) % QUADS;
        let mut next_b = from_b.add(QUAD * BLOCK_N);
        let step = 2 * pair / QUADS;
        let previous = if stage == 0 { STAGES - 1 } else { stage - 1 };
        let refills = (step != 0) & (step - 1 + STAGES < steps);
        // Here lanes go on together, whatever of them did something alone.
        warp::sync(!0);
        // In the middle of a stage a warp has finished reading the one before,
        if refills & (next == QUADS / 2) & (lane == 0) {
            empty.at(previous).arrive();
        }
        if next == 0 {
            cold_path();
            // and at the stage's end all warps have, or soon will.
            if refills & (warp == step % WARPS) & (lane == 0) {
                empty.at(previous).wait_parity(parity ^ u32::from(stage == 0));
                fill(previous, step - 1 + STAGES);
            }
            // There are none after the last: some values are read again.
            if pair + 1 < pairs {
                stage = if stage + 1 == STAGES { 0 } else { stage + 1 };
                parity ^= u32::from(stage == 0);
                full.at(stage).wait_parity(parity);
            }
            from_a = rows_of(stage);
            next_b = columns_of(stage);
        }
        multiply!(from_a.add((next ^ (lane % 8)) * QUAD), next_b);
    }

    for i in 0..8 {
        let row = row0 + down + i as u32 * DOWN;
        for j in 0..16 {
            let column = column0 + across + j as u32 / 4 * ACROSS + j as u32 % 4;
            if row < m && column < n {
                *c.add((u64::from(row) * ldc + u64::from(column)) as usize) = sums[i][j / 4][j % 4];
            }
        }
    }
}
