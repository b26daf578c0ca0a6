//! Rounds the sums of dQ that are left: those of the last turns, after which no turn comes that would round them.

use cuda_std::float::Half;
use cuda_std::{kernel, thread};

use super::ring::Ring;
use super::{CONSUMERS, WARPGROUP, WARPS};
use crate::ops::attention::{Gradients, Problem, nonzero};

/// Threads of a block: a warp for each part of a piece.
pub const THREADS: u32 = WARPGROUP;

/// Scales and rounds the sums of heads of K from `first` on, and writes them to dQ, one block per piece.
///
/// # Safety
/// `sums` is as [`attention_backward_hopper`](super::attention_backward_hopper) of the same `D` and `places` leaves it,
/// `dq` is valid at its strides with rows at multiples of 16 bytes, and the grid has a block for each piece.
#[kernel(dtypes(T: half), values(D: 64, 128), block = THREADS, arch = "sm_90a", no_spills, programmatic)]
pub unsafe fn attention_finish<T: Half, const D: u32>(
    sums: *mut f32,
    dq: *mut T,
    places: u32,
    first: u32,
    problem: Problem,
    gradients: Gradients,
) {
    let block = thread::block_idx_x();
    let pieces = nonzero(problem.group * problem.q_len.div_ceil(super::queries(D)) * CONSUMERS);
    let ring = Ring::<D> { sums, counts: core::ptr::null_mut(), places, behind: 0 };
    let part = block % pieces * WARPS + thread::thread_idx_x() / 32;
    ring.round_part::<T, false>(first + block / pieces, part, dq, &problem, &gradients);
}
