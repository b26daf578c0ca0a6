//! dK and dV: a block owns keys and walks over the queries that see them, of every head that shares the keys.

use core::num::NonZeroU32;

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{cp_async, kernel, math, thread, warp};

use super::{NT, PART, Square, THREADS, WALKED, accumulate, owned, product, shared_bytes};
use crate::ops::attention::fragments::{self, Rows};
use crate::ops::attention::{Bias, Bounds, Gradients, LOG2_E, Problem, Side, Tile};

/// Which gradients a launch computes.
pub const BOTH: u32 = 0;
/// dK alone.
pub const DK: u32 = 1;
/// dV alone.
pub const DV: u32 = 2;

/// dK and dV, or one of them, for heads of at most `D` elements, a multiple of 8. `BIASED` with a soft cap or ALiBi.
///
/// # Safety
/// As of [`attention_dkv_simple`](crate::ops::attention::backward::simple::attention_dkv_simple), with all rows at multiples of 16 bytes,
/// `exponents` and `delta` as [`attention_delta`](crate::ops::attention::backward::delta::attention_delta) leaves them, and a block for every tile of [`owned`] keys.
#[kernel(
    dtypes(T: half), values(D: 64, 128, 256, WHICH: 0, 1, 2, BIASED: false, true),
    where((D <= 128 && WHICH == 0) || (D == 256 && WHICH > 0)), block = THREADS,
    min_blocks = if D <= 128 { 2 } else { 1 }, shared = { shared_bytes(D) }
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_dkv_mma<T: Half, const D: u32, const WHICH: u32, const BIASED: bool>(
    q: *const T,
    k: *const T,
    v: *const T,
    d_o: *const T,
    exponents: *const f32,
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
    let Some(tile) = problem.tile(Bounds { cu_q, cu_k, key_lengths }, Side::Keys, owned(D)) else { return };
    let walk = Walk { q, k, v, d_o, exponents, delta, dk, dv, slopes, tile };
    match D {
        64 => walk.run::<8, 2, WHICH, BIASED>(&problem, &gradients),
        128 => walk.run::<16, 1, WHICH, BIASED>(&problem, &gradients),
        _ => walk.run::<32, 1, WHICH, BIASED>(&problem, &gradients),
    }
}

/// The tensors that a block reads and writes.
struct Walk<T> {
    q: *const T,
    k: *const T,
    v: *const T,
    d_o: *const T,
    exponents: *const f32,
    delta: *const f32,
    dk: *mut T,
    dv: *mut T,
    slopes: *const f32,
    tile: Tile,
}

impl<T: Half> Walk<T> {
    #[inline(always)]
    unsafe fn run<const DT: usize, const MT: usize, const WHICH: u32, const BIASED: bool>(
        self,
        problem: &Problem,
        gradients: &Gradients,
    ) {
        let Tile { sequence, head: kv_head, first: first_key } = self.tile;
        let rows = |data: *const T, strides: [u64; 3], head: u32, token: u32, len: u32| Rows {
            data: data.wrapping_add(Problem::at(strides, sequence.batch, head, token)),
            stride: strides[2],
            len,
            d: problem.d,
        };
        let (own, elements) = (MT as u32 * 64, DT as u32 * 8);
        let tile_k = shared::dynamic::<T>();
        let tile_v: SharedPtr<T> = tile_k.add(own * elements);
        let walked = tile_v.add(own * elements);
        let tile_q = |n: u32| walked.add(n % 2 * 2 * WALKED * elements);
        let tile_o = |n: u32| walked.add((n % 2 * 2 + 1) * WALKED * elements);
        let numbers: SharedPtr<f32> = walked.add(4 * WALKED * elements).cast();
        let exponents = |n: u32| numbers.add(n % 2 * 2 * WALKED);
        let deltas = |n: u32| numbers.add((n % 2 * 2 + 1) * WALKED);
        let (lane, row) = (warp::lane_id(), warp::warp_id() * MT as u32 * 16);

        let span = problem.span(&sequence);
        let (first, end) = span.query_tiles(first_key as i32, own as i32, WALKED as i32);
        // The walk goes over the tiles of the first head, then of the next that shares these keys.
        let count = NonZeroU32::MIN.saturating_add((end - first).saturating_sub(1));
        let steps = (end - first) * problem.group;
        let place = |step: u32| (kv_head * problem.group + step / count, (first + step % count) * WALKED);
        let load = |step: u32| {
            let (head, query) = place(step);
            let q = rows(self.q, problem.q, head, sequence.q0, sequence.q_len);
            q.copy::<DT, WALKED, THREADS>(tile_q(step), query);
            let d_o = rows(self.d_o, gradients.d_o, head, sequence.q0, sequence.q_len);
            d_o.copy::<DT, WALKED, THREADS>(tile_o(step), query);
            // One number per thread: half of the threads copy the exponents, the others D.
            let thread = thread::thread_idx_x();
            let i = query + thread % WALKED;
            let (from, to) =
                if thread < WALKED { (self.exponents, exponents(step)) } else { (self.delta, deltas(step)) };
            let inside = i < sequence.q_len;
            let from = from.add(problem.row(&sequence, head, if inside { i } else { 0 }));
            cp_async::copy_4_zero_fill(to.add(thread % WALKED), from, if inside { 4 } else { 0 });
            cp_async::commit();
        };
        let (mut acc_k, mut acc_v) = ([[[0.0f32; 4]; DT]; MT], [[[0.0f32; 4]; DT]; MT]);
        if steps > 0 {
            let k = rows(self.k, problem.k, kv_head, sequence.k0, sequence.k_len);
            let v = rows(self.v, problem.v, kv_head, sequence.k0, sequence.k_len);
            if MT == 2 {
                k.copy::<DT, 128, THREADS>(tile_k, first_key);
                v.copy::<DT, 128, THREADS>(tile_v, first_key);
            } else {
                k.copy::<DT, 64, THREADS>(tile_k, first_key);
                v.copy::<DT, 64, THREADS>(tile_v, first_key);
            }
            load(0);
        }
        let mut step = 0;
        while step < steps {
            // This tile has landed, and all warps are done with the one before.
            cp_async::wait_group::<0>();
            thread::sync_threads();
            if step + 1 < steps {
                load(step + 1);
            }
            let (head, first_query) = place(step);
            let bias = Bias::of(problem, self.slopes, &self.tile, head);
            // Queries past the end are zeros and add nothing; with a bias, however, their weights could be infinite.
            let there = !BIASED || first_query + WALKED <= sequence.q_len;
            let whole = there && span.sees_all(first_query as i32, WALKED as i32, first_key as i32, own as i32);
            let mut part = 0;
            while part < WALKED {
                let mut p: Square<MT> = [[[0.0; 4]; NT]; MT];
                product::<T, DT, MT>(&mut p, tile_k, row, tile_q(step), part, lane);
                let mut slopes: Square<MT> = [[[1.0; 4]; NT]; MT];
                for j in 0..NT {
                    for c in 0..2 {
                        let column = part + j as u32 * 8 + lane % 4 * 2 + c as u32;
                        let exponent = exponents(step).add(column).read();
                        let query = (first_query + column) as i32;
                        for i in 0..MT {
                            for r in 0..2 {
                                let e = r * 2 + c;
                                let key = (first_key + row + i as u32 * 16 + lane / 4) as i32 + r as i32 * 8;
                                let mut score = p[i][j][e] * (problem.scale * LOG2_E);
                                if BIASED {
                                    let (capped, slope) = bias.cap(p[i][j][e] * problem.scale);
                                    score = (capped - bias.penalty(query, key)) * LOG2_E;
                                    slopes[i][j][e] = slope;
                                }
                                p[i][j][e] = math::ex2_approx_ftz(score - exponent);
                                if !(whole || span.sees(query, key) && query < span.queries) {
                                    p[i][j][e] = 0.0;
                                }
                            }
                        }
                    }
                }
                if WHICH != DK {
                    accumulate::<T, DT, MT>(&mut acc_v, &p, tile_o(step), part, lane);
                }
                if WHICH != DV {
                    let mut ds: Square<MT> = [[[0.0; 4]; NT]; MT];
                    for j in 0..NT {
                        for c in 0..2 {
                            let delta = deltas(step).add(part + j as u32 * 8 + lane % 4 * 2 + c as u32).read();
                            for i in 0..MT {
                                (ds[i][j][c], ds[i][j][c + 2]) = (-delta, -delta);
                            }
                        }
                    }
                    product::<T, DT, MT>(&mut ds, tile_v, row, tile_o(step), part, lane);
                    for i in 0..MT {
                        for j in 0..NT {
                            for e in 0..4 {
                                ds[i][j][e] *= p[i][j][e] * slopes[i][j][e];
                            }
                        }
                    }
                    accumulate::<T, DT, MT>(&mut acc_k, &ds, tile_q(step), part, lane);
                }
                part += PART;
            }
            step += 1;
        }
        // Keys past a sequence's length belong to no query: their gradients are zeros. A warp reads only its own keys
        // and values, so their shared memory is free for its results.
        let len = problem.keys_in_memory(&sequence);
        for i in 0..MT {
            let row = row + i as u32 * 16;
            if WHICH != DV {
                let to = rows(self.dk, gradients.dk, kv_head, sequence.k0, len);
                fragments::store::<T, DT>(&acc_k[i], [problem.scale; 2], tile_k, row, first_key, to, lane);
            }
            if WHICH != DK {
                let to = rows(self.dv, gradients.dv, kv_head, sequence.k0, len);
                fragments::store::<T, DT>(&acc_v[i], [1.0; 2], tile_v, row, first_key, to, lane);
            }
        }
    }
}
