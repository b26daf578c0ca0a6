//! Turns scores into weights: the second of three launches, between two matrix products.
//!
//! # The readable baseline
//! S = scale·Q·Kᵀ, P = softmax(S) row by row, O = P·V, as the formula has it. S is in memory in f32 and P in the
//! storage type: 12 bytes for each query, key and head, written and read again, against 4·d FLOPs for the two products.
//! At d = 128 that is 43 FLOPs per byte, where an H200 needs some 200 to keep its tensor cores busy; and the memory
//! grows with the square of the tokens: at 16384 tokens 1.5 GiB a head. What the [one-kernel version](super::simple)
//! does instead, so that neither is ever in memory, is derived there.
//!
//! This kernel does all that a softmax does between the products: soft cap, ALiBi, masks, sinks, the row's maximum, its
//! sum, the weights and the logsumexp. One warp per query reads its scores three times, the second and the third time
//! from cache.

use cuda_std::float::Half;
use cuda_std::{kernel, math, thread, warp};

use crate::ops::attention::{self, Bias, Bounds, LOG2_E, Problem, Side, limits};

/// Queries of a block, a warp each.
pub const ROWS: u32 = 4;

/// P and the logsumexps of S, both a dense row of k_len for each of the logsumexps; 0 where a query does not see a key.
///
/// # Safety
/// `scores` is valid for reads and `weights` for writes of batch · heads · q_len rows of k_len values, `lse` of one a row; `key_lengths`, `slopes`
/// and `sinks` are valid or null; sequences are not packed; the grid has a block for every tile of [`ROWS`] queries.
#[kernel(dtypes(T: half), block = ROWS * 32, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_weights<T: Half>(
    scores: *const f32,
    weights: *mut T,
    lse: *mut f32,
    key_lengths: *const i32,
    slopes: *const f32,
    sinks: *const f32,
    problem: Problem,
) {
    let bounds = Bounds { cu_q: core::ptr::null(), cu_k: core::ptr::null(), key_lengths };
    let Some(tile) = problem.tile(bounds, Side::Queries, ROWS) else { return };
    let sequence = tile.sequence;
    let query = tile.first + warp::warp_id();
    if query >= sequence.q_len {
        return;
    }
    let lane = warp::lane_id();
    let row = problem.row(&sequence, tile.head, query);
    let first = row as u64 * u64::from(problem.k_len);
    let (scores, weights) = (scores.add(first as usize), weights.add(first as usize));
    let bias = Bias::of(&problem, slopes, &tile, tile.head);
    let span = problem.span(&sequence);
    // The masked score of key `key`; −∞ if the query does not see it.
    let score = |key: u32| {
        if !span.sees(query as i32, key as i32) {
            return f32::NEG_INFINITY;
        }
        let (capped, _) = bias.cap(*scores.add(key as usize));
        capped - bias.penalty(query as i32, key as i32)
    };

    let (sink, counted) = attention::start(sinks, tile.head);
    let mut max = sink;
    let mut key = lane;
    while key < problem.k_len {
        max = math::max_nan(max, score(key));
        key += 32;
    }
    let max = warp::reduce::<f32>(max, math::max_nan);
    // No key is seen: the reference point is 0.
    let reference = if max == f32::NEG_INFINITY { 0.0 } else { max };
    let weight = |score: f32| math::ex2_approx((score - reference) * LOG2_E);

    let mut sum = if lane == 0 && counted > 0.0 { weight(sink) } else { 0.0 };
    let mut key = lane;
    while key < problem.k_len {
        sum += weight(score(key));
        key += 32;
    }
    let sum = limits::checked(warp::reduce_sum(sum), max * LOG2_E, limits::of::<T>());
    let inverse = if sum == 0.0 { 0.0 } else { 1.0 / sum };

    let mut key = lane;
    while key < problem.k_len {
        *weights.add(key as usize) = T::from_f32(weight(score(key)) * inverse);
        key += 32;
    }
    if thread::thread_idx_x().is_multiple_of(32) {
        *lse.add(row) = if sum == 0.0 { f32::NEG_INFINITY } else { max + math::log(sum) };
    }
}
