//! The readable kernel: one warp per query, key by key.

use cuda_std::float::Element;
use cuda_std::{bf16, f8e4m3, f16, kernel, math, warp};

use super::stored::Stored;
use super::{Cache, Positions, Rows};
use crate::div_rem;
use crate::ops::attention::{self, Bias, LOG2_E, Problem};

/// Queries of a block, a warp each.
pub const QUERIES: u32 = 4;
/// The greatest d: 8 elements per lane.
pub const MAX_D: u32 = 256;
const PER_LANE: usize = (MAX_D / 32) as usize;

/// A row, 32 elements apart in each lane; zeros past its end.
#[inline(always)]
unsafe fn read<U: Copy>(row: *const U, d: u32, widen: impl Fn(U) -> f32) -> [f32; PER_LANE] {
    core::array::from_fn(|e| {
        let column = e as u32 * 32 + warp::lane_id();
        if column < d { widen(*row.add(column as usize)) } else { 0.0 }
    })
}

/// O and its logsumexp. The first head of a group also writes what is new to the cache.
///
/// # Safety
/// The tensors are valid at the strides of `problem` and `cache`, `k_scales` and `v_scales` where the cache has 8-bit elements, to which there is
/// nothing new; `k_cache` and `v_cache` for writes as well if `k_new` is not null; `lse` for
/// batch · heads · q_len values, `lengths` (new tokens included) for one a sequence, `page_table`, if not null, for `max_pages` a sequence, and `sinks` for one a head. The grid has a block for
/// every [`QUERIES`] queries, and no size is 0 but the capacity and d.
#[kernel(
    dtypes(T: float, C: f32, f16, bf16, i8, f8e4m3), where(C == T || C == i8 || C == f8e4m3), block = QUERIES * 32, no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_decode_simple<T: Element, C: Stored>(
    q: *const T,
    k_cache: *mut C,
    v_cache: *mut C,
    k_scales: *const f32,
    v_scales: *const f32,
    k_new: *const C,
    v_new: *const C,
    lengths: *const i32,
    page_table: *const i32,
    sinks: *const f32,
    o: *mut T,
    lse: *mut f32,
    rows: u32,
    problem: Problem,
    cache: Cache,
) {
    let (d, lane) = (problem.d, warp::lane_id());
    let row = cuda_std::thread::block_idx_x() * QUERIES + warp::warp_id();
    if row >= rows {
        return;
    }
    let (rest, query) = div_rem(row, problem.q_len);
    let (batch, head) = div_rem(rest, problem.heads);
    let kv_head = problem.kv_head(head);
    let sequence = problem.decoded(batch, lengths);
    let span = problem.span(&sequence);
    let positions = Positions::of(&sequence, lengths, page_table, !k_new.is_null(), &cache);
    let keys = Problem::cached(k_cache, problem.k, k_new, cache.k_new, batch, kv_head);
    let values = Problem::cached(v_cache, problem.v, v_new, cache.v_new, batch, kv_head);

    let [key_scales, value_scales] =
        [true, false].map(|of_keys| cache.scales(of_keys, [k_scales, v_scales], batch, kv_head));
    let scale = |scales: &Rows<f32>, key: u32| if C::SCALED { *positions.places([scales], key)[0] } else { 1.0 };

    let query_row = read(q.add(Problem::at(problem.q, batch, head, query)), d, T::to_f32);
    let bias = Bias { softcap: problem.softcap, slope: 0.0, shift: 0 };
    let end = (query as i32 + span.high + 1).min(span.keys);

    let (mut max, mut sum) = attention::start(sinks, head);
    let mut acc = [0.0f32; PER_LANE];
    let mut key = (query as i32 + span.low).max(0);
    while key < end {
        let position = key as u32;
        let [key_row, value_row] = positions.rows([&keys, &values], position);
        key += 1;
        if key_row.is_null() {
            continue;
        }
        let (key_row, value_row) = (read(key_row, d, C::widen), read(value_row, d, C::widen));
        let mut dot = 0.0;
        for e in 0..PER_LANE {
            dot = math::fma(query_row[e], key_row[e], dot);
        }
        let (score, _) = bias.cap(warp::reduce_sum(dot) * scale(&key_scales, position) * problem.scale);
        let greater = math::max_nan(max, score);
        // Only −∞ has been seen so far: the reference point is 0.
        let reference = if greater == f32::NEG_INFINITY { 0.0 } else { greater };
        let old = math::ex2_approx((max - reference) * LOG2_E);
        let weight = math::ex2_approx((score - reference) * LOG2_E);
        let share = weight * scale(&value_scales, position);
        for e in 0..PER_LANE {
            acc[e] = math::fma(acc[e], old, share * value_row[e]);
        }
        sum = math::fma(sum, old, weight);
        max = greater;
    }

    let inverse = if sum == 0.0 { 0.0 } else { 1.0 / sum };
    let o = o.add(Problem::at(problem.o, batch, head, query));
    for e in 0..PER_LANE {
        let column = e as u32 * 32 + lane;
        if column < d {
            *o.add(column as usize) = T::from_f32(acc[e] * inverse);
        }
    }
    if lane == 0 {
        *lse.add(row as usize) = if sum == 0.0 { f32::NEG_INFINITY } else { max + math::log(sum) };
    }
    // Query n of each group's first head writes token n.
    if !k_new.is_null() && head == kv_head * problem.group {
        let copy = |rows: Rows<C>| {
            let (from, to) = (positions.new_row(&rows, query), positions.new_place(&rows, query, 0, sequence.k_len));
            let mut column = if to.is_null() { d } else { lane };
            while column < d {
                *to.add(column as usize) = *from.add(column as usize);
                column += 32;
            }
        };
        copy(keys);
        copy(values);
    }
}
