//! The path for every GPU from Ampere on: mma.sync on tiles that cp.async loads.
//!
//! A warp owns `MT` times 16 queries, its scores and its part of O in registers; scores become weights where they are, because an
//! accumulator's layout is that of operand A. One tile of K and one of V are in shared memory: V arrives under the first product, the
//! next K under the softmax and the second one.

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{cp_async, kernel, mma, thread, warp};

use crate::ops::attention::fragments::{self, Rows};
use crate::ops::attention::online::Online;
use crate::ops::attention::{self, Bias, Bounds, LOG2_E, Problem, Side, Span};

/// Threads of a block: four warps.
pub const THREADS: u32 = 128;

/// Queries of a block, for heads of up to `d` elements: 32 a warp while O fits the registers.
pub const fn block_m(d: u32) -> u32 {
    if d <= 128 { 128 } else { 64 }
}

/// Keys of a tile.
pub const BLOCK_N: u32 = 64;
/// Elements of K, and as many of V, that the running blocks read at a time: together 16 MiB, at most half of L2.
const L2_ELEMENTS: u32 = 4 << 20;
/// Products of 8 keys in a tile.
const NT: usize = (BLOCK_N / 8) as usize;

/// Bytes of the three tiles.
pub const fn shared_bytes(d: u32) -> usize {
    ((block_m(d) + 2 * BLOCK_N) * d * 2) as usize
}

/// O and its logsumexp, for heads of at most `D` elements, a multiple of 8. `BIASED` with a soft cap or ALiBi.
///
/// # Safety
/// As of [`attention_simple`](super::simple::attention_simple), with rows of `q`, `k`, `v` and `o` at multiples of 16 bytes and a block for
/// every tile of [`block_m`] queries.
#[kernel(
    dtypes(T: half), values(D: 32, 64, 96, 128, 192, 256, BIASED: false, true),
    where(!BIASED || D == 64 || D == 128 || D == 256), block = THREADS,
    min_blocks = 2, shared = { shared_bytes(D) }
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_mma<T: Half, const D: u32, const BIASED: bool>(
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
    match D {
        32 => forward::<T, 4, 2, BIASED>(q, k, v, o, lse, bounds, slopes, sinks, problem),
        64 => forward::<T, 8, 2, BIASED>(q, k, v, o, lse, bounds, slopes, sinks, problem),
        96 => forward::<T, 12, 2, BIASED>(q, k, v, o, lse, bounds, slopes, sinks, problem),
        128 => forward::<T, 16, 2, BIASED>(q, k, v, o, lse, bounds, slopes, sinks, problem),
        192 => forward::<T, 24, 1, BIASED>(q, k, v, o, lse, bounds, slopes, sinks, problem),
        _ => forward::<T, 32, 1, BIASED>(q, k, v, o, lse, bounds, slopes, sinks, problem),
    }
}

/// Scores of 16 queries and a tile's keys: of lane l, `[j][0..2]` are query l / 4, keys 8j + 2(l mod 4) and the next; `[j][2..4]` query l / 4 + 8.
type Scores = [[f32; 4]; NT];

/// Applies factor, soft cap and ALiBi. `query` and `key` are this thread's first.
#[inline(always)]
fn apply(scores: &mut Scores, scale: f32, bias: Bias, query: i32, key: i32) {
    for j in 0..NT {
        for e in 0..4 {
            (scores[j][e], _) = bias.cap(scores[j][e] * scale);
        }
    }
    for j in 0..NT {
        for e in 0..4 {
            scores[j][e] -= bias.penalty(query + (e as i32 / 2) * 8, key + j as i32 * 8 + e as i32 % 2);
        }
    }
}

/// Hides keys that a query does not see.
#[inline(always)]
fn mask(scores: &mut Scores, span: Span, query: i32, key: i32) {
    for j in 0..NT {
        for e in 0..4 {
            if !span.sees(query + (e as i32 / 2) * 8, key + j as i32 * 8 + e as i32 % 2) {
                scores[j][e] = f32::NEG_INFINITY;
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // The kernel's.
unsafe fn forward<T: Half, const DT: usize, const MT: usize, const BIASED: bool>(
    q: *const T,
    k: *const T,
    v: *const T,
    o: *mut T,
    lse: *mut f32,
    bounds: Bounds,
    slopes: *const f32,
    sinks: *const f32,
    problem: Problem,
) {
    let block_m = MT as u32 * 64;
    let at_once = (L2_ELEMENTS / problem.d.max(1) / problem.k_len.max(1)).max(1);
    let Some(tile) = problem.tile_of_few_heads(bounds, Side::Queries, block_m, at_once) else { return };
    let sequence = tile.sequence;
    let kv_head = problem.kv_head(tile.head);
    let rows = |data: *const T, strides: [u64; 3], head: u32, token: u32, len: u32| Rows {
        data: data.wrapping_add(Problem::at(strides, sequence.batch, head, token)),
        stride: strides[2],
        len,
        d: problem.d,
    };
    let q = rows(q, problem.q, tile.head, sequence.q0, sequence.q_len);
    let k = rows(k, problem.k, kv_head, sequence.k0, sequence.k_len);
    let v = rows(v, problem.v, kv_head, sequence.k0, sequence.k_len);
    let o = rows(o, problem.o, tile.head, sequence.q0, sequence.q_len);

    let tile_q = shared::dynamic::<T>();
    let tile_k: SharedPtr<T> = tile_q.add(block_m * DT as u32 * 8);
    let tile_v = tile_k.add(BLOCK_N * DT as u32 * 8);
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let warp_row = warp * MT as u32 * 16;
    let bias = Bias::of(&problem, slopes, &tile, tile.head);
    let span = problem.span(&sequence);
    let (first, end) = span.key_tiles(tile.first as i32, block_m as i32, BLOCK_N as i32);
    // The factor of the exponents: with a bias the scores already include their scale.
    let scale = if BIASED { LOG2_E } else { problem.scale * LOG2_E };

    let mut online = [Online::of(attention::start(sinks, tile.head), lane); MT];
    let mut acc = [[[0.0f32; 4]; DT]; MT];
    if first < end {
        if MT == 2 {
            q.copy::<DT, 128, THREADS>(tile_q, tile.first);
        } else {
            q.copy::<DT, 64, THREADS>(tile_q, tile.first);
        }
        k.copy::<DT, BLOCK_N, THREADS>(tile_k, (end - 1) * BLOCK_N);
        cp_async::commit();
    }
    let mut n = end;
    while n > first {
        n -= 1;
        let key = n * BLOCK_N;
        // These keys have landed, and all warps are done with the values before them.
        cp_async::wait_group::<0>();
        thread::sync_threads();
        v.copy::<DT, BLOCK_N, THREADS>(tile_v, key);
        cp_async::commit();

        let mut scores = [[[0.0f32; 4]; NT]; MT];
        for step in 0..DT as u32 / 2 {
            let queries: [[u32; 4]; MT] =
                core::array::from_fn(|i| fragments::a::<T, DT>(tile_q, warp_row + i as u32 * 16, step, lane));
            for j in 0..NT / 2 {
                let keys = fragments::b::<T, DT>(tile_k, j as u32 * 16, step, lane);
                for i in 0..MT {
                    mma::m16n8k16::<T>(&mut scores[i][2 * j], queries[i], keys[0]);
                    mma::m16n8k16::<T>(&mut scores[i][2 * j + 1], queries[i], keys[1]);
                }
            }
        }

        // The values have landed, and all warps are done with the keys.
        cp_async::wait_group::<0>();
        thread::sync_threads();
        if n > first {
            k.copy::<DT, BLOCK_N, THREADS>(tile_k, key - BLOCK_N);
            cp_async::commit();
        }

        let whole = span.sees_all(tile.first as i32, block_m as i32, key as i32, BLOCK_N as i32);
        for i in 0..MT {
            let query = (tile.first + warp_row + i as u32 * 16 + lane / 4) as i32;
            let first_key = (key + lane % 4 * 2) as i32;
            if BIASED {
                apply(&mut scores[i], problem.scale, bias, query, first_key);
            }
            if !whole {
                mask(&mut scores[i], span, query, first_key);
            }
            let factors = online[i].update(&mut scores[i], scale);
            // A maximum seldom changes after the first tiles.
            if warp::any(factors != [1.0; 2]) {
                for j in 0..DT {
                    for e in 0..4 {
                        acc[i][j][e] *= factors[e / 2];
                    }
                }
            }
        }
        for step in 0..NT / 2 {
            let weights: [[u32; 4]; MT] =
                core::array::from_fn(|i| fragments::pack::<T>(scores[i][2 * step], scores[i][2 * step + 1]));
            for j in 0..DT / 2 {
                let values = fragments::b_transposed::<T, DT>(tile_v, step as u32 * 16, j as u32, lane);
                for i in 0..MT {
                    mma::m16n8k16::<T>(&mut acc[i][2 * j], weights[i], values[0]);
                    mma::m16n8k16::<T>(&mut acc[i][2 * j + 1], weights[i], values[1]);
                }
            }
        }
    }

    for i in 0..MT {
        let row = warp_row + i as u32 * 16;
        let (inverse, sums) = online[i].finish::<T>();
        // A warp reads only its own queries, so their shared memory is free for its results.
        fragments::store::<T, DT>(&acc[i], inverse, tile_q, row, tile.first, o, lane);
        for r in 0..2 {
            let query = tile.first + row + lane / 4 + r as u32 * 8;
            if lane % 4 == 0 && query < sequence.q_len {
                *lse.add(problem.row(&sequence, tile.head, query)) = sums[r];
            }
        }
    }
}
