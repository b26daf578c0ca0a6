//! dQ from its sum.

use core::array;

use cuda_std::float::Half;
use cuda_std::shared;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

use super::{CONSUMERS, QUERIES, piece};
use crate::ops::attention::fragments::{self, Rows};
use crate::ops::attention::{Gradients, Problem, nonzero};

/// Threads of a block: a warpgroup, as that which summed.
pub const THREADS: u32 = 128;

/// Scales, rounds and places the pieces of `sums`, a block each.
///
/// # Safety
/// `sums` is as [`attention_backward_hopper`](super::attention_backward_hopper) leaves it, `dq` is valid at its strides with rows at multiples
/// of 16 bytes, and the grid has a block for each piece.
#[kernel(
    dtypes(T: half), values(D: 64, 128), block = THREADS, shared = { piece(D) as usize * 2 }, arch = "sm_90a", no_spills
)]
pub unsafe fn attention_finish<T: Half, const D: u32>(
    sums: *const f32,
    dq: *mut T,
    problem: Problem,
    gradients: Gradients,
) {
    match D {
        64 => place::<T, D, 4>(sums, dq, &problem, &gradients),
        _ => place::<T, D, 8>(sums, dq, &problem, &gradients),
    }
}

/// `DT` is the eighths of a piece's columns.
#[inline(always)]
unsafe fn place<T: Half, const D: u32, const DT: usize>(
    sums: *const f32,
    dq: *mut T,
    problem: &Problem,
    gradients: &Gradients,
) {
    let (thread, block) = (thread::thread_idx_x(), thread::block_idx_x());
    let from = sums.add((u64::from(block) * u64::from(piece(D))) as usize);
    let (half, tile) = (block % CONSUMERS, block / CONSUMERS);
    let (tiles, heads) = (nonzero(problem.q_len.div_ceil(QUERIES)), nonzero(problem.heads));
    let (tile, head) = (tile % tiles, tile / tiles);
    let acc: [[f32; 4]; DT] =
        array::from_fn(|i| Pack::<f32, 4>::load_nc(from.add((i as u32 * THREADS + thread) as usize * 4)).0);
    let [.., stride] = gradients.dq;
    let columns = D / CONSUMERS;
    let data = dq.add(Problem::at(gradients.dq, head / heads, head % heads, 0) + (half * columns) as usize);
    let to = Rows { data: data.cast_const(), stride, len: problem.q_len, d: columns };
    let (factors, row) = ([problem.scale; 2], thread / 32 * 16);
    fragments::store::<T, DT>(&acc, factors, shared::dynamic::<T>(), row, tile * QUERIES, to, thread % 32);
}
