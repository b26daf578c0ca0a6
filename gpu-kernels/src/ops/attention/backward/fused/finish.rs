//! Converts the f32 sum of dQ to dQ.

use core::array;

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

use super::{THREADS, first_piece, queries, query_at};
use crate::ops::attention::fragments::place;
use crate::ops::attention::{Bounds, Gradients, Problem, Side, Tile};

/// Bytes of a tile.
pub const fn shared_bytes(d: u32) -> usize {
    (queries(d) * d * 2) as usize
}

/// Scales and rounds the pieces of `sums` and writes them to dQ, one block per piece.
///
/// # Safety
/// `sums` is as [`attention_backward_fused`](super::attention_backward_fused) of the same `D` and `pieces` leaves it, `dq` is valid at its strides with
/// rows at multiples of 16 bytes, `cu_q` and `cu_k` are valid or null, and the grid has a block for every tile of [`queries`].
#[kernel(dtypes(T: half), values(D: 64, 128), block = THREADS, shared = { shared_bytes(D) }, no_spills, programmatic)]
pub unsafe fn attention_finish_fused<T: Half, const D: u32>(
    sums: *const f32,
    dq: *mut T,
    cu_q: *const i32,
    cu_k: *const i32,
    pieces: u32,
    problem: Problem,
    gradients: Gradients,
) {
    let bounds = Bounds { cu_q, cu_k, key_lengths: core::ptr::null() };
    let Some(tile) = problem.tile(bounds, Side::Queries, queries(D)) else { return };
    match D {
        64 => finish::<T, 8>(sums, dq, pieces, tile, &problem, &gradients),
        _ => finish::<T, 16>(sums, dq, pieces, tile, &problem, &gradients),
    }
}

#[inline(always)]
unsafe fn finish<T: Half, const DT: usize>(
    sums: *const f32,
    dq: *mut T,
    pieces: u32,
    tile: Tile,
    problem: &Problem,
    gradients: &Gradients,
) {
    let (d, sequence) = (DT as u32 * 8, &tile.sequence);
    let queries = queries(d);
    let (thread, lane) = (thread::thread_idx_x(), thread::thread_idx_x() % 32);
    let (warp, across) = (thread / 32, d / 32);
    let head = u64::from(sequence.batch * problem.heads + tile.head);
    let piece = head * u64::from(pieces) + u64::from(first_piece(sequence, queries) + tile.first / queries);
    let from = sums.add((piece * u64::from(queries * d) + u64::from(warp * 1024 + lane)) as usize);
    let rounded: SharedPtr<T> = shared::dynamic();
    // The layout in which threads held the piece: two times 16 rows by four times 8 columns.
    for i in 0..2 {
        for j in 0..4 {
            let [a, b, c, e]: [f32; 4] = array::from_fn(|e| {
                let Pack([value]) = Pack::<f32, 1>::load(from.add((i * 16 + j * 4 + e) * 32));
                value * problem.scale
            });
            for (r, pair) in [(0, T::pack(a, b)), (8, T::pack(c, e))] {
                let position = warp / across * 32 + i as u32 * 16 + r + lane / 4;
                let at = place::<DT>(query_at(position), warp % across * 4 + j as u32);
                rounded.add(at + lane % 4 * 2).cast::<u32>().write(pair);
            }
        }
    }
    thread::sync_threads();
    let [.., stride] = gradients.dq;
    let to = dq.add(Problem::at(gradients.dq, sequence.batch, tile.head, sequence.q0 + tile.first));
    let mut at = thread;
    while at < queries * DT as u32 {
        let (row, chunk) = (at / DT as u32, at % DT as u32);
        if tile.first + row < sequence.q_len && chunk * 8 < problem.d {
            let value = Pack::<T, 8>::load(rounded.add(place::<DT>(row, chunk)).as_ptr());
            value.store(to.add((u64::from(row) * stride + u64::from(chunk * 8)) as usize));
        }
        at += THREADS;
    }
}
