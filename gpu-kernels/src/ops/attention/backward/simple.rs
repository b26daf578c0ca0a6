//! The readable kernels: one warp per query for dQ, one warp per key for dK and dV.
//!
//! # Derivation
//! For one query, with scores sⱼ, L = log Σ e^sⱼ, weights pⱼ = e^(sⱼ − L) and o = Σ pⱼ·vⱼ, and a loss whose gradient by o is dO:
//!
//! 1. ∂L/∂sⱼ = pⱼ, since d log x = dx / x. Therefore ∂pₖ/∂sⱼ = pₖ·(δₖⱼ − pⱼ).
//! 2. o is linear in v and in p: dvⱼ = pⱼ·dO, and dpⱼ = dO·vⱼ.
//! 3. dsⱼ = Σₖ dpₖ·∂pₖ/∂sⱼ = pⱼ·(dpⱼ − Σₖ pₖ·dpₖ). The sum has all keys in it, which would take a pass of its own, but
//!    Σₖ pₖ·(dO·vₖ) = dO·Σₖ pₖ·vₖ = dO·o = D: o is there from the forward.
//! 4. sⱼ = scale·q·kⱼ: dq = scale·Σⱼ dsⱼ·kⱼ, and dkⱼ = scale·dsⱼ·q. A soft cap in between multiplies dsⱼ with its slope.
//!
//! Given L and D of a query, each pⱼ and dsⱼ comes from q, kⱼ, vⱼ and dO alone: no row of them is ever whole, and dK and dV of a key are sums over the
//! queries that see it, in any order.

use core::array;

use cuda_std::float::Element;
use cuda_std::{kernel, math, warp};

use crate::ops::attention::{Bias, Bounds, Gradients, LOG2_E, Problem, Side};

/// Queries, or keys, of a block: one warp for each.
pub const ROWS: u32 = 4;
/// Elements of d that a lane has, up to 256 in all.
const PER_LANE: usize = 8;

/// A row; each lane has elements 32 apart; zeros past the row's end.
#[inline(always)]
unsafe fn read<T: Element>(row: *const T, d: u32) -> [f32; PER_LANE] {
    array::from_fn(|e| {
        let column = e as u32 * 32 + warp::lane_id();
        if column < d { (*row.add(column as usize)).to_f32() } else { 0.0 }
    })
}

#[inline(always)]
unsafe fn write<T: Element>(row: *mut T, d: u32, values: [f32; PER_LANE], factor: f32) {
    for e in 0..PER_LANE {
        let column = e as u32 * 32 + warp::lane_id();
        if column < d {
            *row.add(column as usize) = T::from_f32(values[e] * factor);
        }
    }
}

#[inline(always)]
unsafe fn dot(a: &[f32; PER_LANE], b: &[f32; PER_LANE]) -> f32 {
    let mut sum = 0.0;
    for e in 0..PER_LANE {
        sum = math::fma(a[e], b[e], sum);
    }
    warp::reduce_sum(sum)
}

/// A weight and the derivative by its score's x, for query `i` and key `j` with x = q·k·scale.
#[inline(always)]
fn weight(bias: Bias, x: f32, i: i32, j: i32, lse: f32) -> (f32, f32) {
    let (capped, slope) = bias.cap(x);
    // A query that saw nothing has only weights of 0.
    let lse = if lse == f32::NEG_INFINITY { f32::INFINITY } else { lse };
    (math::ex2_approx((capped - bias.penalty(i, j) - lse) * LOG2_E), slope)
}

/// dQ.
///
/// # Safety
/// The tensors are valid at their strides, `lse` and `delta` for batch · heads · q_len values; `cu_q`, `cu_k` (both or none), `key_lengths`
/// and `slopes` are valid or null; the grid has a block for every tile of [`ROWS`] queries.
#[kernel(dtypes(T: float), block = ROWS * 32, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_dq_simple<T: Element>(
    q: *const T,
    k: *const T,
    v: *const T,
    d_o: *const T,
    lse: *const f32,
    delta: *const f32,
    dq: *mut T,
    cu_q: *const i32,
    cu_k: *const i32,
    key_lengths: *const i32,
    slopes: *const f32,
    problem: Problem,
    gradients: Gradients,
) {
    let Some(tile) = problem.tile(Bounds { cu_q, cu_k, key_lengths }, Side::Queries, ROWS) else { return };
    let (sequence, d) = (tile.sequence, problem.d);
    let query = tile.first + warp::warp_id();
    if query >= sequence.q_len {
        return;
    }
    let token = sequence.q0 + query;
    let kv_head = problem.kv_head(tile.head);
    let q = read(q.add(Problem::at(problem.q, sequence.batch, tile.head, token)), d);
    let d_o = read(d_o.add(Problem::at(gradients.d_o, sequence.batch, tile.head, token)), d);
    let row = problem.row(&sequence, tile.head, query);
    let (lse, delta) = (*lse.add(row), *delta.add(row));
    let bias = Bias::of(&problem, slopes, &tile, tile.head);
    let span = problem.span(&sequence);
    let mut key = (query as i32 + span.low).max(0);
    let end = (query as i32 + span.high + 1).min(span.keys);
    let mut acc = [0.0f32; PER_LANE];
    while key < end {
        let token = sequence.k0 + key as u32;
        let k = read(k.add(Problem::at(problem.k, sequence.batch, kv_head, token)), d);
        let v = read(v.add(Problem::at(problem.v, sequence.batch, kv_head, token)), d);
        let (p, slope) = weight(bias, dot(&q, &k) * problem.scale, query as i32, key, lse);
        let ds = p * (dot(&d_o, &v) - delta) * slope;
        for e in 0..PER_LANE {
            acc[e] = math::fma(ds, k[e], acc[e]);
        }
        key += 1;
    }
    write(dq.add(Problem::at(gradients.dq, sequence.batch, tile.head, token)), d, acc, problem.scale);
}

/// dK and dV.
///
/// # Safety
/// As of [`attention_dq_simple`], with a block for every tile of [`ROWS`] keys of each head of K.
#[kernel(dtypes(T: float), block = ROWS * 32, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_dkv_simple<T: Element>(
    q: *const T,
    k: *const T,
    v: *const T,
    d_o: *const T,
    lse: *const f32,
    delta: *const f32,
    dk: *mut T,
    dv: *mut T,
    cu_q: *const i32,
    cu_k: *const i32,
    key_lengths: *const i32,
    slopes: *const f32,
    problem: Problem,
    gradients: Gradients,
) {
    let Some(tile) = problem.tile(Bounds { cu_q, cu_k, key_lengths }, Side::Keys, ROWS) else { return };
    let (sequence, d) = (tile.sequence, problem.d);
    let key = tile.first + warp::warp_id();
    if key >= problem.keys_in_memory(&sequence) {
        return;
    }
    let token = sequence.k0 + key;
    let (mut acc_k, mut acc_v) = ([0.0f32; PER_LANE], [0.0f32; PER_LANE]);
    // Keys past a sequence's length belong to no query: their gradients are zeros.
    if key < sequence.k_len {
        let k = read(k.add(Problem::at(problem.k, sequence.batch, tile.head, token)), d);
        let v = read(v.add(Problem::at(problem.v, sequence.batch, tile.head, token)), d);
        let span = problem.span(&sequence);
        let first = (key as i32 - span.high).max(0);
        let end = (key as i32 - span.low + 1).min(span.queries);
        let mut head = tile.head * problem.group;
        while head < (tile.head + 1) * problem.group {
            let bias = Bias::of(&problem, slopes, &tile, head);
            let mut query = first;
            while query < end {
                let token = sequence.q0 + query as u32;
                let q = read(q.add(Problem::at(problem.q, sequence.batch, head, token)), d);
                let d_o = read(d_o.add(Problem::at(gradients.d_o, sequence.batch, head, token)), d);
                let row = problem.row(&sequence, head, query as u32);
                let (p, slope) = weight(bias, dot(&q, &k) * problem.scale, query, key as i32, *lse.add(row));
                let ds = p * (dot(&d_o, &v) - *delta.add(row)) * slope;
                for e in 0..PER_LANE {
                    acc_k[e] = math::fma(ds, q[e], acc_k[e]);
                    acc_v[e] = math::fma(p, d_o[e], acc_v[e]);
                }
                query += 1;
            }
            head += 1;
        }
    }
    write(dk.add(Problem::at(gradients.dk, sequence.batch, tile.head, token)), d, acc_k, problem.scale);
    write(dv.add(Problem::at(gradients.dv, sequence.batch, tile.head, token)), d, acc_v, 1.0);
}
