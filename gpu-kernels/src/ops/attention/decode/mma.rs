//! The fast path: mma.sync on 16 keys at a time, which each warp loads for itself.

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{bf16, cp_async, f8e4m3, f16, grid, kernel, math, mma, thread, warp};

use super::columns::{self, Online, apply};
use super::piece::{Piece, THREADS, WARPS, append, queries};
use super::stage::{KEYS, Tokens, scales, stage_bytes};
use super::stored::Operand;
use super::{Cache, Positions, TILE};
use crate::div_rem;
use crate::ops::attention::fragments;
use crate::ops::attention::{self, Bias, LOG2_E, Problem, Span};

/// Stages of 16 keys and values each: one is being processed, the others are in flight.
const STAGES: u32 = 3;
/// Padding, in elements beyond d, between rows of results in shared memory: rows that lanes write together fall into
/// different banks.
const PAD: u32 = 4;

/// Blocks that fit a multiprocessor of Hopper, by the size of a cache element in bytes: their rings take about 200 KiB
/// together, or 100 to 150 KiB where registers allow fewer blocks.
pub const fn blocks_per_multiprocessor(d: u32, rows: u32, bytes: u32) -> u32 {
    match (d, rows, bytes) {
        (64, 32, _) => 2,
        (128, 16, 1) => 3,
        (128, 8, 1) => 4,
        _ => 256 / d,
    }
}

/// Bytes of the queries and the warps' rings.
pub const fn shared_bytes(d: u32, rows: u32, bytes: u32) -> usize {
    (rows * d * 2 + WARPS * STAGES * stage_bytes(d, bytes)) as usize
}

/// O and its logsumexp for heads of at most `D` elements, `ROWS` rows per block: the queries of the heads that share
/// one of K and V, those of one token side by side. With several splits, O and logsumexp of a piece go to `partial_o`
/// and `partial_lse`. The block that has the piece a new token belongs to also writes it to the cache.
///
/// # Safety
/// As of [`attention_decode_simple`](super::simple::attention_decode_simple), with d a multiple of 8, of 16 where there are scales, and rows of all tensors at multiples of 16 bytes;
/// with several splits `partial_o` and `partial_lse` are valid for so many times a dense `o` and `lse`. The grid has a block for every `ROWS`
/// rows, head of K and V, split and sequence, the first of these innermost.
#[kernel(
    dtypes(T: half, C: f16, bf16, i8, f8e4m3), values(D: 64, 128, 256, ROWS: 8, 16, 32),
    where(C == T && (ROWS == 8 || D == 64 && ROWS == 32 || D > 64 && ROWS == 16) || (C == i8 || C == f8e4m3) && D <= 128 && ROWS <= 16), block = THREADS,
    min_blocks = blocks_per_multiprocessor(D, ROWS, size_of::<C>() as u32),
    shared = { shared_bytes(D, ROWS, size_of::<C>() as u32) }, no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_decode<T: Half, C: Operand, const D: u32, const ROWS: u32>(
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
    partial_o: *mut f32,
    partial_lse: *mut f32,
    problem: Problem,
    cache: Cache,
) {
    grid::launch_dependents();
    let rows = problem.group * problem.q_len;
    let (rest, row_tile) = div_rem(thread::block_idx_x(), rows.div_ceil(ROWS));
    let (rest, kv_head) = div_rem(rest, problem.heads / super::nonzero(problem.group));
    let (batch, split) = div_rem(rest, cache.splits);
    let sequence = problem.decoded(batch, lengths);
    let (first, end, per_split) = problem.pieces(&sequence, cache.splits);
    let first = first.saturating_add(split.saturating_mul(per_split));
    if first >= end && cache.splits > 1 {
        return;
    }
    let piece = Piece { sequence, kv_head, first_row: row_tile * ROWS, first, end: end.min(first + per_split) };
    let positions = Positions::of(&sequence, lengths, page_table, !k_new.is_null(), &cache);
    let keys = Problem::cached(k_cache, problem.k, k_new, cache.k_new, batch, kv_head);
    let values = Problem::cached(v_cache, problem.v, v_new, cache.v_new, batch, kv_head);
    if row_tile == 0 && !C::SCALED && !k_new.is_null() {
        append(&piece, &positions, &keys, &problem);
        append(&piece, &positions, &values, &problem);
    }
    let scales = cache.scales(warp::lane_id() < KEYS, [k_scales, v_scales], batch, kv_head);
    let output = Output { whole: (o, lse), partial: (partial_o, partial_lse), sinks, splits: cache.splits, split };
    let tokens = Tokens { positions, keys, values, scales };
    match (D, C::SCALED, ROWS) {
        (64, false, 8) => decode::<T, C, 8, 8, 4, 1>(q, &piece, &tokens, &problem, output),
        (64, false, _) => decode::<T, C, 8, 8, 4, 4>(q, &piece, &tokens, &problem, output),
        (64, true, 8) => decode::<T, C, 8, 4, 4, 1>(q, &piece, &tokens, &problem, output),
        (64, true, _) => decode::<T, C, 8, 4, 4, 2>(q, &piece, &tokens, &problem, output),
        (128, false, 8) => decode::<T, C, 16, 16, 8, 1>(q, &piece, &tokens, &problem, output),
        (128, false, _) => decode::<T, C, 16, 16, 8, 2>(q, &piece, &tokens, &problem, output),
        (128, true, 8) => decode::<T, C, 16, 8, 8, 1>(q, &piece, &tokens, &problem, output),
        (128, true, _) => decode::<T, C, 16, 8, 8, 2>(q, &piece, &tokens, &problem, output),
        (.., 8) => decode::<T, C, 32, 32, 16, 1>(q, &piece, &tokens, &problem, output),
        _ => decode::<T, C, 32, 32, 16, 2>(q, &piece, &tokens, &problem, output),
    }
}

/// Where results go: of the only piece, or of one of several.
#[derive(Clone, Copy)]
struct Output<T> {
    whole: (*mut T, *mut f32),
    partial: (*mut f32, *mut f32),
    sinks: *const f32,
    splits: u32,
    split: u32,
}

/// Sets the scores of keys that a query does not see, or that do not exist, to `hidden`. `first` is the first of the
/// scores' keys, `found` has a bit for each key, and `queries_at` holds the tokens of a lane's queries.
#[inline(always)]
unsafe fn mask<const NT: usize>(
    scores: &mut [[f32; 4]; NT],
    span: Span,
    found: u32,
    first: u32,
    queries_at: &[[i32; 2]; NT],
    lane: u32,
    hidden: f32,
) {
    for n in 0..NT {
        for e in 0..4 {
            let key = columns::key(lane, e);
            if found >> key & 1 == 0 || !span.sees(queries_at[n][e % 2], (first + key) as i32) {
                scores[n][e] = hidden;
            }
        }
    }
}

/// Scales and caps scores.
#[inline(always)]
unsafe fn cap<const NT: usize>(scores: &mut [[f32; 4]; NT], bias: Bias, scale: f32) {
    for n in 0..NT {
        for e in 0..4 {
            (scores[n][e], _) = bias.cap(scores[n][e] * scale);
        }
    }
}

/// Multiplies the columns of O by their factors.
#[inline(always)]
fn rescale<const DM: usize, const NT: usize>(acc: &mut [[[f32; 4]; NT]; DM], factors: &[[f32; 2]; NT]) {
    for m in 0..DM {
        for n in 0..NT {
            for e in 0..4 {
                acc[m][n][e] *= factors[n][e % 2];
            }
        }
    }
}

/// `DT` and `CH` are chunks of 16 bytes of a query and of a stored key, `DM` products of 16 rows that d takes, `NT` products of 8 columns
/// that the queries take.
#[inline(always)]
unsafe fn decode<T: Half, C: Operand, const DT: usize, const CH: usize, const DM: usize, const NT: usize>(
    q: *const T,
    piece: &Piece,
    tokens: &Tokens<C>,
    problem: &Problem,
    output: Output<T>,
) {
    // The struct is taken apart before any loop: selecting between its pointers would put them into local memory.
    let Output { whole: (o, lse), partial: (partial_o, partial_lse), sinks, splits, split } = output;
    let width = DT as u32 * 8;
    let rows = NT as u32 * 8;
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let tile_q = shared::dynamic::<T>();
    // In elements of T.
    let stage_size = stage_bytes(width, size_of::<C>() as u32) / 2;
    let ring: SharedPtr<T> = tile_q.add(rows * width + warp * STAGES * stage_size);
    queries::<T, C, DT>(q, tile_q, rows, piece, problem);
    let total = problem.group * problem.q_len;
    let fetch = |tile: u32, stage: u32| {
        let mut found = 0;
        if tile < piece.end {
            let stage = ring.add(stage * stage_size);
            found = tokens.load::<T, CH>(stage, tile * TILE + warp * KEYS, problem.d, lane);
        }
        cp_async::commit();
        found
    };
    // The low bits say which keys of this tile exist, the bits above them which of the next.
    let mut found = fetch(piece.first, 0);
    found |= fetch(piece.first + 1, 1) << KEYS;
    // The queries have landed together with the first keys, unless they were stored directly.
    if !C::SCALED {
        cp_async::wait_group::<{ STAGES - 2 }>();
    }
    thread::sync_threads();

    let span = problem.span(&piece.sequence);
    let bias = Bias { softcap: problem.softcap, slope: 0.0, shift: 0 };
    // The factor of the exponents: with a soft cap the scores already include their scale.
    let scale = if bias.softcap > 0.0 { LOG2_E } else { problem.scale * LOG2_E };
    // Of O, rows are d and columns queries.
    let (mut online, mut acc) = (Online::<NT>::START, [[[0.0f32; 4]; NT]; DM]);
    let mut queries_at = [[0; 2]; NT];
    for n in 0..NT {
        queries_at[n] = [0, 1].map(|column| piece.row(columns::query(n, lane, column), problem).0 as i32);
    }
    let constants = C::constants::<T>();
    let (mut tile, mut stage) = (piece.first, 0);
    while tile < piece.end {
        // This tile has landed, and all lanes are done with the one before it.
        cp_async::wait_group::<{ STAGES - 2 }>();
        warp::sync(u32::MAX);
        let free = if stage == 0 { STAGES - 1 } else { stage - 1 };
        let here = found & ((1 << KEYS) - 1);
        found = found >> KEYS | fetch(tile + STAGES - 1, free) << KEYS;
        let tile_k = ring.add(stage * stage_size);
        let tile_v = tile_k.add(KEYS * CH as u32 * 8);
        let key = tile * TILE + warp * KEYS;

        // Of all queries, the first one sees the least far forward, and the last one the least far back.
        let whole = here == (1 << KEYS) - 1 && span.sees_all(0, problem.q_len as i32, key as i32, KEYS as i32);
        let mut scores = [[0.0f32; 4]; NT];
        for pair in 0..DT as u32 / 4 {
            let keys = C::keys::<T, CH>(tile_k, pair, lane, constants);
            for n in 0..NT {
                let queries = fragments::b_of_two_steps::<T, DT>(tile_q, n as u32 * 8, pair, lane);
                for step in 0..2 {
                    mma::m16n8k16::<T>(&mut scores[n], keys[step], queries[step]);
                }
            }
        }
        if C::SCALED {
            apply(&mut scores, scales::<T, CH>(tile_k), lane);
        }
        if bias.softcap > 0.0 {
            cap(&mut scores, bias, problem.scale);
        }
        if !whole {
            mask(&mut scores, span, here, key, &queries_at, lane, f32::NEG_INFINITY);
        }
        let factors = online.update(&mut scores, scale);
        // A maximum seldom changes after the first tiles.
        if warp::any(factors.iter().flatten().any(|factor| *factor != 1.0)) {
            rescale(&mut acc, &factors);
        }
        if C::SCALED {
            apply(&mut scores, scales::<T, CH>(tile_k).add(KEYS), lane);
            // This holds even if the scale of such a key is NaN.
            if !whole {
                mask(&mut scores, span, here, key, &queries_at, lane, 0.0);
            }
        }
        let mut weights = [[0; 2]; NT];
        for n in 0..NT {
            weights[n] = columns::operand::<C::Weight>(scores[n]);
        }
        for pair in 0..DT as u32 / 4 {
            let values = C::values::<T, CH>(tile_v, pair, lane, constants);
            for group in 0..2 {
                for n in 0..NT {
                    mma::m16n8k16::<C::Weight>(&mut acc[2 * pair as usize + group][n], values[group], weights[n]);
                }
            }
        }
        tile += 1;
        stage = if stage == STAGES - 1 { 0 } else { stage + 1 };
    }

    // Each warp's O overwrites its keys, and the logsumexps overwrite the queries: all warps are done with both.
    let results: SharedPtr<f32> = tile_q.add(rows * width).cast();
    let pitch = width + PAD;
    let of_warp = |warp: u32| results.add(warp * STAGES * stage_size / 2);
    let sums: SharedPtr<f32> = tile_q.cast();
    thread::sync_threads();
    for n in 0..NT {
        for c in 0..2 {
            let row = columns::query(n, lane, c);
            let (inverse, lse) = online.finish::<C::Weight>(n, c);
            let to = of_warp(warp).add(row * pitch);
            for m in 0..DM {
                let [upper, lower] = [acc[m][n][c] * inverse, acc[m][n][c + 2] * inverse];
                let first = m as u32 * 16;
                if C::SCALED {
                    // Even columns are above odd ones.
                    Pack([upper, lower]).store(to.add(first + lane / 4 * 2).as_ptr());
                } else {
                    to.add(first + lane / 4).write(upper);
                    to.add(first + lane / 4 + 8).write(lower);
                }
            }
            if lane < 4 {
                sums.add(warp * rows + row).write(lse);
            }
        }
    }
    thread::sync_threads();
    let mut at = thread::thread_idx_x();
    while at < rows * width / 4 {
        let (row, column) = (at / (width / 4), at % (width / 4) * 4);
        at += THREADS;
        if piece.first_row + row >= total || column >= problem.d {
            continue;
        }
        let (query, head) = piece.row(row, problem);
        let sum_of = |warp: u32| sums.add(warp * rows + row).read();
        // A sink counts once: here, or where the pieces meet.
        let sink = if splits == 1 { attention::sink(sinks, head) } else { f32::NEG_INFINITY };
        let mut max = sink;
        for warp in 0..WARPS {
            max = max.max(sum_of(warp));
        }
        let reference = if max == f32::NEG_INFINITY { 0.0 } else { max };
        let mut sum = math::ex2_approx_ftz((sink - reference) * LOG2_E);
        let mut merged = [0.0f32; 4];
        for warp in 0..WARPS {
            let weight = math::ex2_approx_ftz((sum_of(warp) - reference) * LOG2_E);
            sum += weight;
            let values = Pack::<f32, 4>::load(of_warp(warp).add(row * pitch + column).as_ptr()).0;
            for e in 0..4 {
                merged[e] = math::fma(weight, values[e], merged[e]);
            }
        }
        let inverse = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        let merged = merged.map(|x| x * inverse);
        let merged_lse = if sum == 0.0 { f32::NEG_INFINITY } else { max + math::log(sum) };
        let index = problem.row(&piece.sequence, head, query);
        if splits == 1 {
            let at = Problem::at(problem.o, piece.sequence.batch, head, query) + column as usize;
            Pack::<T, 4>::from_f32(merged).store(o.add(at));
            if column == 0 {
                *lse.add(index) = merged_lse;
            }
        } else {
            let all = u64::from(problem.batch) * u64::from(problem.heads) * u64::from(problem.q_len);
            let index = index + (u64::from(split) * all) as usize;
            Pack(merged).store(partial_o.add(index * problem.d as usize + column as usize));
            if column == 0 {
                *partial_lse.add(index) = merged_lse;
            }
        }
    }
}
