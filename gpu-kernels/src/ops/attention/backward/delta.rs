//! D, the dot product of each query's rows of dO and O, and the query's logsumexp in the form that exponents use.

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread, warp};

use crate::ops::attention::{Gradients, LOG2_E, Problem};

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Threads that share a query.
const TEAM: u32 = 16;
/// Queries of a block.
pub const ROWS: u32 = THREADS / TEAM;

/// Computes D for every query, with `V` elements per access. If `exponents` is not null, it also writes what is
/// subtracted from the base-2 exponents: +∞ for a query that saw nothing, whose weights are 0.
///
/// # Safety
/// `o` and `d_o` are valid at their strides, `lse`, `exponents` and `delta` for batch · heads · q_len values; `V` divides d and the alignment of rows. The
/// grid has a block for every [`ROWS`] of those. Packed sequences count as one.
#[kernel(dtypes(T: float), values(V: 1, 8), where(V == 1 || bytes(T) == 2), block = THREADS, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_delta<T: Element, const V: usize>(
    o: *const T,
    d_o: *const T,
    lse: *const f32,
    exponents: *mut f32,
    delta: *mut f32,
    rows: u64,
    problem: Problem,
    gradients: Gradients,
) {
    let thread = thread::thread_idx_x();
    let row = u64::from(thread::block_idx_x()) * u64::from(ROWS) + u64::from(thread / TEAM);
    // All lanes stay for the reduction.
    let inside = row < rows;
    let row = if inside { row } else { 0 };
    let (q_len, heads) = (super::super::nonzero(problem.q_len), super::super::nonzero(problem.heads));
    let head = (row / core::num::NonZeroU64::from(q_len)) as u32;
    let query = (row - u64::from(head) * u64::from(q_len.get())) as u32;
    let (batch, head) = (head / heads, head % heads);
    let o = o.add(Problem::at(problem.o, batch, head, query));
    let d_o = d_o.add(Problem::at(gradients.d_o, batch, head, query));
    let mut sum = 0.0;
    let mut at = thread % TEAM * V as u32;
    while at < problem.d {
        let a = Pack::<T, V>::load_nc(o.add(at as usize)).to_f32();
        let b = Pack::<T, V>::load_nc(d_o.add(at as usize)).to_f32();
        let products: [f32; V] = array::from_fn(|e| a[e] * b[e]);
        sum += products.into_iter().sum::<f32>();
        at += TEAM * V as u32;
    }
    let sum = warp::reduce_width::<TEAM, f32>(sum, |a, b| a + b);
    if inside && thread.is_multiple_of(TEAM) {
        *delta.add(row as usize) = sum;
        if !exponents.is_null() {
            let lse = *lse.add(row as usize);
            *exponents.add(row as usize) = if lse == f32::NEG_INFINITY { f32::INFINITY } else { lse * LOG2_E };
        }
    }
}
