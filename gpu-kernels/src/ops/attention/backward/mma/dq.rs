//! dQ: a block owns queries and walks over the keys that they see.

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{cp_async, kernel, math, thread, warp};

use super::{NT, PART, Square, THREADS, WALKED, accumulate, owned, product, shared_bytes};
use crate::ops::attention::fragments::{self, Rows};
use crate::ops::attention::{Bias, Bounds, Gradients, LOG2_E, Problem, Side};

/// dQ, for heads of at most `D` elements, a multiple of 8. `BIASED` with a soft cap or ALiBi.
///
/// # Safety
/// As of [`attention_dq_simple`](crate::ops::attention::backward::simple::attention_dq_simple), with all rows at multiples of 16 bytes,
/// `exponents` and `delta` as [`attention_delta`](crate::ops::attention::backward::delta::attention_delta) leaves them, and a block for every tile of [`owned`] queries.
#[kernel(
    dtypes(T: half), values(D: 64, 128, 256, BIASED: false, true), block = THREADS,
    min_blocks = if D <= 128 { 2 } else { 1 }, shared = { shared_bytes(D) }
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_dq_mma<T: Half, const D: u32, const BIASED: bool>(
    q: *const T,
    k: *const T,
    v: *const T,
    d_o: *const T,
    exponents: *const f32,
    delta: *const f32,
    dq: *mut T,
    cu_q: *const i32,
    cu_k: *const i32,
    key_lengths: *const i32,
    slopes: *const f32,
    problem: Problem,
    gradients: Gradients,
) {
    let Some(tile) = problem.tile(Bounds { cu_q, cu_k, key_lengths }, Side::Queries, owned(D)) else { return };
    let sequence = tile.sequence;
    let kv_head = problem.kv_head(tile.head);
    let rows = |data: *const T, strides: [u64; 3], head: u32, token: u32, len: u32| Rows {
        data: data.wrapping_add(Problem::at(strides, sequence.batch, head, token)),
        stride: strides[2],
        len,
        d: problem.d,
    };
    let walk = Walk {
        q: rows(q, problem.q, tile.head, sequence.q0, sequence.q_len),
        d_o: rows(d_o, gradients.d_o, tile.head, sequence.q0, sequence.q_len),
        k: rows(k, problem.k, kv_head, sequence.k0, sequence.k_len),
        v: rows(v, problem.v, kv_head, sequence.k0, sequence.k_len),
        dq: rows(dq, gradients.dq, tile.head, sequence.q0, sequence.q_len),
        exponents: exponents.add(problem.row(&sequence, tile.head, 0)),
        delta: delta.add(problem.row(&sequence, tile.head, 0)),
        first: tile.first,
        bias: Bias::of(&problem, slopes, &tile, tile.head),
    };
    let span = problem.span(&sequence);
    match D {
        64 => walk.run::<8, 2, BIASED>(&problem, span),
        128 => walk.run::<16, 1, BIASED>(&problem, span),
        _ => walk.run::<32, 1, BIASED>(&problem, span),
    }
}

/// The tensors that a block reads and writes.
struct Walk<T> {
    q: Rows<T>,
    d_o: Rows<T>,
    k: Rows<T>,
    v: Rows<T>,
    dq: Rows<T>,
    /// Of the sequence's first query.
    exponents: *const f32,
    delta: *const f32,
    /// The first query.
    first: u32,
    bias: Bias,
}

impl<T: Half> Walk<T> {
    #[inline(always)]
    unsafe fn run<const DT: usize, const MT: usize, const BIASED: bool>(
        self,
        problem: &Problem,
        span: crate::ops::attention::Span,
    ) {
        let (own, elements) = (MT as u32 * 64, DT as u32 * 8);
        let tile_q = shared::dynamic::<T>();
        let tile_o: SharedPtr<T> = tile_q.add(own * elements);
        let walked = tile_o.add(own * elements);
        let tile_k = |n: u32| walked.add(n % 2 * 2 * WALKED * elements);
        let tile_v = |n: u32| walked.add((n % 2 * 2 + 1) * WALKED * elements);
        let (lane, row) = (warp::lane_id(), warp::warp_id() * MT as u32 * 16);
        let (first, end) = span.key_tiles(self.first as i32, own as i32, WALKED as i32);

        // Of this thread's rows, l/4 and 8 below in each 16.
        let (mut exponents, mut deltas) = ([[f32::INFINITY; 2]; MT], [[0.0f32; 2]; MT]);
        for i in 0..MT {
            for r in 0..2 {
                let query = self.first + row + i as u32 * 16 + lane / 4 + r as u32 * 8;
                if query < self.q.len {
                    exponents[i][r] = *self.exponents.add(query as usize);
                    deltas[i][r] = *self.delta.add(query as usize);
                }
            }
        }
        let load = |n: u32| {
            self.k.copy::<DT, WALKED, THREADS>(tile_k(n), n * WALKED);
            self.v.copy::<DT, WALKED, THREADS>(tile_v(n), n * WALKED);
            cp_async::commit();
        };
        let mut acc = [[[0.0f32; 4]; DT]; MT];
        if first < end {
            if MT == 2 {
                self.q.copy::<DT, 128, THREADS>(tile_q, self.first);
                self.d_o.copy::<DT, 128, THREADS>(tile_o, self.first);
            } else {
                self.q.copy::<DT, 64, THREADS>(tile_q, self.first);
                self.d_o.copy::<DT, 64, THREADS>(tile_o, self.first);
            }
            load(first);
        }
        let mut n = first;
        while n < end {
            // This tile has landed, and all warps are done with the one before.
            cp_async::wait_group::<0>();
            thread::sync_threads();
            if n + 1 < end {
                load(n + 1);
            }
            let whole = span.sees_all(self.first as i32, own as i32, (n * WALKED) as i32, WALKED as i32);
            let mut part = 0;
            while part < WALKED {
                let mut p: Square<MT> = [[[0.0; 4]; NT]; MT];
                product::<T, DT, MT>(&mut p, tile_q, row, tile_k(n), part, lane);
                let mut ds: Square<MT> =
                    core::array::from_fn(|i| [[-deltas[i][0], -deltas[i][0], -deltas[i][1], -deltas[i][1]]; NT]);
                product::<T, DT, MT>(&mut ds, tile_o, row, tile_v(n), part, lane);
                for i in 0..MT {
                    for j in 0..NT {
                        for e in 0..4 {
                            let query = (self.first + row + i as u32 * 16 + lane / 4) as i32 + (e as i32 / 2) * 8;
                            let key = (n * WALKED + part + lane % 4 * 2) as i32 + j as i32 * 8 + e as i32 % 2;
                            let (mut score, mut slope) = (p[i][j][e] * (problem.scale * LOG2_E), 1.0);
                            if BIASED {
                                let (capped, capped_slope) = self.bias.cap(p[i][j][e] * problem.scale);
                                score = (capped - self.bias.penalty(query, key)) * LOG2_E;
                                slope = capped_slope;
                            }
                            let mut weight = math::ex2_approx_ftz(score - exponents[i][e / 2]);
                            if !whole && !span.sees(query, key) {
                                weight = 0.0;
                            }
                            ds[i][j][e] *= weight * slope;
                        }
                    }
                }
                accumulate::<T, DT, MT>(&mut acc, &ds, tile_k(n), part, lane);
                part += PART;
            }
            n += 1;
        }
        for i in 0..MT {
            // A warp reads only its own queries, so their shared memory is free for its results.
            let factors = [problem.scale; 2];
            fragments::store::<T, DT>(&acc[i], factors, tile_q, row + i as u32 * 16, self.first, self.dq, lane);
        }
    }
}
