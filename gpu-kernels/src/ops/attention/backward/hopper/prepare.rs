//! Prepares the per-query numbers, D and the logsumexp in the form that exponents use, and zeroes the sums of dQ.

use core::array;

use cuda_std::float::Half;
use cuda_std::vector::Pack;
use cuda_std::{grid, kernel, thread, warp};

use super::ring::COUNTS;
use crate::ops::attention::{Gradients, LOG2_E, Problem, nonzero};

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Threads that share a query: one pack of each for d = 64, two for 128.
const TEAM: u32 = 8;
/// Queries of a block.
pub const ROWS: u32 = THREADS / TEAM;

/// The position of a query's numbers within its 16: a thread of a product has queries 2c, 2c + 1, 2c + 8 and 2c + 9,
/// and loads their numbers together.
const fn place(query: u32) -> u32 {
    query % 8 / 2 * 4 + query / 8 * 2 + query % 2
}

/// For every query of every tile, `padded` of them a head, a multiple of [`ROWS`]: D and the negative of the logsumexp to base 2; for those
/// that do not exist or see nothing −∞, which makes their weights 0. Numbers of 16 queries each are in the order of `place`. Sums and counts become zero.
///
/// # Safety
/// `o` and `d_o` are valid at their strides with rows at multiples of 16 bytes, `lse` for batch · heads · q_len values, `exponents` and `deltas` for
/// batch · heads · `padded`, `sums` for d times as many. d is 64 or 128. The grid has a block for every [`ROWS`] of those.
#[kernel(dtypes(T: half), block = THREADS, arch = "sm_90a", no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_prepare<T: Half>(
    o: *const T,
    d_o: *const T,
    lse: *const f32,
    exponents: *mut f32,
    deltas: *mut f32,
    sums: *mut f32,
    counts: *mut u32,
    summed: u64,
    padded: u32,
    problem: Problem,
    gradients: Gradients,
) {
    grid::launch_dependents();
    let (block, thread) = (thread::block_idx_x(), thread::thread_idx_x());
    let (blocks, heads) = (nonzero(padded / ROWS), nonzero(problem.heads));
    let (head, query) = (block / blocks, block % blocks * ROWS + thread / TEAM);
    let lane = thread % TEAM;
    let inside = query < problem.q_len;
    let row = (u64::from(block) * u64::from(ROWS) + u64::from(thread / TEAM)) as usize;
    let (o, d_o) = (
        o.wrapping_add(Problem::at(problem.o, head / heads, head % heads, query)),
        d_o.wrapping_add(Problem::at(gradients.d_o, head / heads, head % heads, query)),
    );
    let mut sum = 0.0;
    for pack in 0..2 {
        let at = ((pack * TEAM + lane) * 8) as usize;
        if inside && at < problem.d as usize {
            let a = Pack::<T, 8>::load_nc(o.add(at)).to_f32();
            let b = Pack::<T, 8>::load_nc(d_o.add(at)).to_f32();
            let products: [f32; 8] = array::from_fn(|e| a[e] * b[e]);
            sum += products.into_iter().sum::<f32>();
        }
    }
    if (row as u64) < summed {
        let zeros = sums.add(row * problem.d as usize);
        for pack in 0..problem.d / (4 * TEAM) {
            Pack([0.0f32; 4]).store(zeros.add(((pack * TEAM + lane) * 4) as usize));
        }
    }
    if block < problem.batch * problem.heads / nonzero(problem.group) && thread < COUNTS {
        *counts.add((block * COUNTS + thread) as usize) = 0;
    }
    let sum = warp::reduce_width::<TEAM, f32>(sum, |a, b| a + b);
    if lane == 0 {
        let mut exponent = f32::NEG_INFINITY;
        if inside {
            let lse = *lse.add((u64::from(head) * u64::from(problem.q_len) + u64::from(query)) as usize);
            exponent = if lse == f32::NEG_INFINITY { f32::NEG_INFINITY } else { -lse * LOG2_E };
        }
        let at = (u64::from(block) * u64::from(ROWS) + u64::from(place(thread / TEAM))) as usize;
        *exponents.add(at) = exponent;
        *deltas.add(at) = sum;
    }
}
