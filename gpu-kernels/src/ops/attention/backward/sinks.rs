//! The gradients of sinks, from the per-query numbers.

use cuda_std::{kernel, math, thread};

use crate::ops::attention::{LOG2_E, Problem};
use crate::rows::{BlockThreads, Threads};

/// Threads of a block.
pub const THREADS: u32 = 256;

/// −Σ e^(b − L)·D over the queries of each head, in a fixed order.
///
/// # Safety
/// `sinks` and `dsinks` are valid for a value a head, `lse` and `delta` for `batch` · heads · q_len; the grid has a block for each head. Packed
/// sequences count as one.
#[kernel(block = THREADS, shared = <BlockThreads as Threads>::Partials<1>, no_spills)]
pub unsafe fn attention_dsinks(
    sinks: *const f32,
    lse: *const f32,
    delta: *const f32,
    dsinks: *mut f32,
    batch: u32,
    problem: Problem,
) {
    let head = thread::block_idx_x();
    let sink = *sinks.add(head as usize);
    let mut sum = 0.0;
    for sequence in 0..batch {
        let first = (u64::from(sequence) * u64::from(problem.heads) + u64::from(head)) * u64::from(problem.q_len);
        let mut query = thread::thread_idx_x();
        while query < problem.q_len {
            let at = (first + u64::from(query)) as usize;
            let lse = *lse.add(at);
            // The query saw nothing, not even a sink: this head's sink is −∞.
            let weight = if lse == f32::NEG_INFINITY { 0.0 } else { math::ex2_approx((sink - lse) * LOG2_E) };
            sum = math::fma(-weight, *delta.add(at), sum);
            query += THREADS;
        }
    }
    let [sum] = BlockThreads::reduce([sum], [0.0], 0, |[a], [b]| [a + b]);
    if thread::thread_idx_x() == 0 {
        *dsinks.add(head as usize) = sum;
    }
}
