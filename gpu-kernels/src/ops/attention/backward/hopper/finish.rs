//! Converts the f32 sum of dQ to dQ.

use core::array;

use cuda_std::float::Half;
use cuda_std::shared;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

use super::{PANEL, PART, PIECE, PIECE_QUERIES};
use crate::ops::attention::fragments::{self, Rows};
use crate::ops::attention::{Gradients, Problem, nonzero};

/// Threads of a block: one warpgroup, like the one that formed the sum.
pub const THREADS: u32 = 128;
/// Eighths of a piece's columns.
const DT: usize = (PANEL / 8) as usize;

/// Scales and rounds the pieces of `sums` and writes them to dQ, one block per piece, for heads that have pieces for
/// `padded` queries.
///
/// # Safety
/// `sums` is as [`attention_backward_hopper`](super::attention_backward_hopper) leaves it, `dq` is valid at its strides with rows at multiples
/// of 16 bytes, and the grid has a block for each piece.
#[kernel(dtypes(T: half), block = THREADS, shared = { PIECE as usize * 2 }, arch = "sm_90a", no_spills, programmatic)]
pub unsafe fn attention_finish<T: Half>(
    sums: *const f32,
    dq: *mut T,
    padded: u32,
    problem: Problem,
    gradients: Gradients,
) {
    let (thread, block) = (thread::thread_idx_x(), thread::block_idx_x());
    let from = sums.add((u64::from(block) * u64::from(PIECE) + u64::from(thread / 32 * PART)) as usize);
    // Queries first, then halves of the columns.
    let (halves, heads) = (nonzero(problem.d / PANEL), nonzero(problem.heads));
    let (rows, half) = (block / halves, block % halves);
    let tiles = nonzero(padded / PIECE_QUERIES);
    let (tile, head) = (rows % tiles, rows / tiles);
    let acc: [[f32; 4]; DT] =
        array::from_fn(|i| Pack::<f32, 4>::load(from.add((i as u32 * 32 + thread % 32) as usize * 4)).0);
    let [.., stride] = gradients.dq;
    let data = dq.add(Problem::at(gradients.dq, head / heads, head % heads, 0) + (half * PANEL) as usize);
    let to = Rows { data: data.cast_const(), stride, len: problem.q_len, d: PANEL };
    let (factors, row) = ([problem.scale; 2], thread / 32 * 16);
    fragments::store::<T, DT>(&acc, factors, shared::dynamic::<T>(), row, tile * PIECE_QUERIES, to, thread % 32);
}
