//! What there is one of for each query: D, and the logsumexp as exponents take it.

use core::array;
use core::num::NonZeroU64;

use cuda_std::float::Half;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread, warp};

use crate::ops::attention::{Gradients, LOG2_E, Problem, nonzero};

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Threads that share a query.
const TEAM: u32 = 16;
/// Queries of a block.
pub const ROWS: u32 = THREADS / TEAM;

/// For every query of every tile, `padded` of them a head: D, and the logsumexp to base 2; for those that do not exist or see nothing
/// +∞, which makes their weights 0.
///
/// # Safety
/// `o` and `d_o` are valid at their strides with rows at multiples of 16 bytes, `lse` for batch · heads · q_len values, `exponents` and `deltas` for
/// batch · heads · `padded`. The grid has a block for every [`ROWS`] of those.
#[kernel(dtypes(T: half), block = THREADS, arch = "sm_90a", no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_prepare<T: Half>(
    o: *const T,
    d_o: *const T,
    lse: *const f32,
    exponents: *mut f32,
    deltas: *mut f32,
    rows: u64,
    padded: u32,
    problem: Problem,
    gradients: Gradients,
) {
    let thread = thread::thread_idx_x();
    let row = u64::from(thread::block_idx_x()) * u64::from(ROWS) + u64::from(thread / TEAM);
    let head = (row / NonZeroU64::from(nonzero(padded))) as u32;
    let query = (row - u64::from(head) * u64::from(padded)) as u32;
    // All lanes stay for the reduction.
    let inside = row < rows && query < problem.q_len;
    let heads = nonzero(problem.heads);
    let mut sum = 0.0;
    if inside {
        let o = o.add(Problem::at(problem.o, head / heads, head % heads, query));
        let d_o = d_o.add(Problem::at(gradients.d_o, head / heads, head % heads, query));
        let mut at = thread % TEAM * 8;
        while at < problem.d {
            let a = Pack::<T, 8>::load_nc(o.add(at as usize)).to_f32();
            let b = Pack::<T, 8>::load_nc(d_o.add(at as usize)).to_f32();
            let products: [f32; 8] = array::from_fn(|e| a[e] * b[e]);
            sum += products.into_iter().sum::<f32>();
            at += TEAM * 8;
        }
    }
    let sum = warp::reduce_width::<TEAM, f32>(sum, |a, b| a + b);
    if row < rows && thread.is_multiple_of(TEAM) {
        let mut exponent = f32::INFINITY;
        if inside {
            let lse = *lse.add((u64::from(head) * u64::from(problem.q_len) + u64::from(query)) as usize);
            exponent = if lse == f32::NEG_INFINITY { f32::INFINITY } else { lse * LOG2_E };
        }
        *exponents.add(row as usize) = exponent;
        *deltas.add(row as usize) = sum;
    }
}
