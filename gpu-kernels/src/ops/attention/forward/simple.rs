//! The readable kernel: one warp per query, key by key, and no score in memory.
//!
//! # From three passes to one
//! A softmax needs the row's greatest score m before its first weight, and the sum l of weights before its first quotient: the
//! [version in three launches](super::weights) walks the scores three times, and so has to keep them.
//!
//! The quotient can wait: o = (Σ wⱼ·vⱼ) / l with wⱼ = e^(sⱼ − m), so that l and a = Σ wⱼ·vⱼ are summed side by side and divided once. That leaves the
//! maximum. Take any reference point r in its place: wⱼ = e^(sⱼ − r) gives the same o, because e^(m − r) cancels, and
//! L = r + log l. The maximum is only there to keep exponentials from overflowing, and for that it is enough that r is the greatest score *so
//! far*. When key j brings a greater one r', what was summed relative to r becomes relative to r' by one factor:
//!
//! l ← l·e^(r − r') + e^(sⱼ − r'), a ← a·e^(r − r') + e^(sⱼ − r')·vⱼ.
//!
//! After each key l and a are the sums over the keys so far relative to r, by induction: both sides of a sum are multiplied alike. So a score
//! is used where it is computed and forgotten, and one pass over K and V is all. The faster kernels do this with tiles of keys in place of
//! single ones.

use cuda_std::float::Element;
use cuda_std::{kernel, math, warp};

use crate::ops::attention::{self, Bias, Bounds, LOG2_E, Problem, Side, limits};

/// Queries of a block, a warp each.
pub const ROWS: u32 = 4;
/// The greatest d: 8 elements per lane.
pub const MAX_D: u32 = 256;
const PER_LANE: usize = (MAX_D / 32) as usize;

/// O and its logsumexp.
///
/// # Safety
/// The tensors are valid at the problem's strides, `lse` for batch · heads · q_len values; `cu_q`, `cu_k` (both or none), `key_lengths`,
/// `slopes` and `sinks` are valid or null; the grid has a block for every tile of [`ROWS`] queries.
#[kernel(dtypes(T: float), block = ROWS * 32, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_simple<T: Element>(
    q: *const T,
    k: *const T,
    v: *const T,
    o: *mut T,
    lse: *mut f32,
    cu_q: *const i32,
    cu_k: *const i32,
    key_lengths: *const i32,
    slopes: *const f32,
    sinks: *const f32,
    problem: Problem,
) {
    let bounds = Bounds { cu_q, cu_k, key_lengths };
    let limit = limits::of::<T>();
    Simple { inputs: [q, k, v], o, lse, bounds, slopes, sinks, limit }.run(&problem, T::to_f32, |_| 1.0, |_| 1.0);
}

/// Tensors of elements of type `Q`, with results of type `T`.
pub(in crate::ops::attention) struct Simple<Q, T> {
    pub inputs: [*const Q; 3],
    pub o: *mut T,
    pub lse: *mut f32,
    pub bounds: Bounds,
    pub slopes: *const f32,
    pub sinks: *const f32,
    /// The value of the operator's other kernels, so that all give the same results.
    pub limit: f32,
}

impl<Q: Copy, T: Element> Simple<Q, T> {
    /// The work of a kernel on elements that `widen` converts to numbers. `factors` gives the factors of the scores and
    /// of O, by the number of a sequence's head of K.
    #[inline(always)]
    pub(in crate::ops::attention) unsafe fn run(
        self,
        problem: &Problem,
        widen: impl Fn(Q) -> f32,
        score_factor: impl Fn(u32) -> f32,
        o_factor: impl Fn(u32) -> f32,
    ) {
        let Self { inputs: [q, k, v], o, lse, bounds, slopes, sinks, limit } = self;
        let Some(tile) = problem.tile(bounds, Side::Queries, ROWS) else { return };
        let sequence = tile.sequence;
        let query = tile.first + warp::warp_id();
        if query >= sequence.q_len {
            return;
        }
        let (d, lane) = (problem.d, warp::lane_id());
        let kv_head = problem.kv_head(tile.head);
        let q = q.add(Problem::at(problem.q, sequence.batch, tile.head, sequence.q0 + query));
        let k = k.add(Problem::at(problem.k, sequence.batch, kv_head, sequence.k0));
        let v = v.add(Problem::at(problem.v, sequence.batch, kv_head, sequence.k0));
        let o = o.add(Problem::at(problem.o, sequence.batch, tile.head, sequence.q0 + query));
        let [_, _, k_stride] = problem.k;
        let [_, _, v_stride] = problem.v;

        let read = |row: *const Q| -> [f32; PER_LANE] {
            core::array::from_fn(|e| {
                let column = e as u32 * 32 + lane;
                if column < d { widen(*row.add(column as usize)) } else { 0.0 }
            })
        };
        let index = problem.kv_head(sequence.batch * problem.heads + tile.head);
        let factor = problem.scale * score_factor(index);
        let query_row = read(q);
        let bias = Bias::of(problem, slopes, &tile, tile.head);
        let span = problem.span(&sequence);
        let first = (query as i32 + span.low).max(0);
        let end = (query as i32 + span.high + 1).min(span.keys);

        let (mut max, mut sum) = attention::start(sinks, tile.head);
        let mut acc = [0.0f32; PER_LANE];
        let mut key = first;
        while key < end {
            let key_row = read(k.add((u64::from(key as u32) * k_stride) as usize));
            let mut dot = 0.0;
            for e in 0..PER_LANE {
                dot = math::fma(query_row[e], key_row[e], dot);
            }
            let (capped, _) = bias.cap(warp::reduce_sum(dot) * factor);
            let score = capped - bias.penalty(query as i32, key);
            let greater = math::max_nan(max, score);
            // Only −∞ has been seen so far: the reference point is 0.
            let reference = if greater == f32::NEG_INFINITY { 0.0 } else { greater };
            let old = math::ex2_approx((max - reference) * LOG2_E);
            let weight = math::ex2_approx((score - reference) * LOG2_E);
            let value_row = read(v.add((u64::from(key as u32) * v_stride) as usize));
            for e in 0..PER_LANE {
                acc[e] = math::fma(acc[e], old, weight * value_row[e]);
            }
            sum = math::fma(sum, old, weight);
            max = greater;
            key += 1;
        }

        let sum = limits::checked(sum, max * LOG2_E, limit);
        let inverse = if sum == 0.0 { 0.0 } else { o_factor(index) / sum };
        for e in 0..PER_LANE {
            let column = e as u32 * 32 + lane;
            if column < d {
                *o.add(column as usize) = T::from_f32(acc[e] * inverse);
            }
        }
        if warp::lane_id() == 0 {
            *lse.add(problem.row(&sequence, tile.head, query)) =
                if sum == 0.0 { f32::NEG_INFINITY } else { max + math::log(sum) };
        }
    }
}
