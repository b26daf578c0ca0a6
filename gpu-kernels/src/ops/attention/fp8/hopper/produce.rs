//! The producer: one thread that keeps the rings of keys and values full.

use cuda_std::cluster;
use cuda_std::f8e4m3;
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::tma;

use super::super::prepare;
use super::{BUFFERS, CLUSTER, Memory, WG_M};
use crate::ops::attention::forward::hopper::work::{self, Cursor, Work};

/// Every block of the pair.
const PAIR: u16 = (1 << CLUSTER) - 1;

/// Starts loading this block's half of a tile of `bytes`, which is at `from`, into both blocks' stage `to`, once both are done with what was there.
#[inline(always)]
unsafe fn load(
    to: SharedPtr<f8e4m3>,
    bytes: u32,
    map: &TensorMap,
    from: [i32; 4],
    [full, empty]: [SharedPtr<Barrier>; 2],
    parity: u32,
) {
    // A fresh barrier counts as having completed the phase before its first, so the first round does not wait.
    empty.wait_parity(parity ^ 1);
    full.arrive_expect_tx(bytes);
    tma::load_4d_multicast(to.add(cluster::rank() * (bytes / CLUSTER)), map, from, full, PAIR);
}

/// Loads this block's queries and, with the other block, the pair's tiles, in the order in which they are read: values after the next
/// keys. Run by one thread.
#[inline(always)]
pub(super) unsafe fn produce<const D: u32, const N: u32, const CONSUMERS: u32, const STAGES: u32>(
    memory: Memory<D, N, CONSUMERS>,
    [q, k, v]: [&TensorMap; 3],
    work: Work,
) {
    let rank = cluster::rank() as i32;
    let (mut at, mut wave) = (Cursor::<STAGES>(0), Cursor::<{ BUFFERS }>(0));
    while let Some(queries) = work.queries(wave.0) {
        let (batch, head) = (queries.batch as i32, work.problem.kv_head(queries.head) as i32);
        let span = work.span(work.keys(queries.batch));
        let (first, end) = work::seen::<N>(span, queries.shared.0, queries.shared.1);
        let mut key = work::first_key::<N>(span, first);
        // The offset of a sequence's first key in its rows of Vᵀ.
        let column = prepare::columns(work.problem.k_len) as i32 - span.keys;
        let mut tiles = end - first;
        let load_k = |at: Cursor<STAGES>, key: i32| {
            let barriers = [memory.barriers().full_k(at.stage()), memory.barriers().empty_k(at.stage())];
            let from = [0, key + rank * (N / CLUSTER) as i32, head, batch];
            load(memory.k(at.stage()), N * D, k, from, barriers, at.parity());
        };
        if tiles > 0 {
            load_k(at, key);
        }
        // Queries are loaded last: results are stored through their memory.
        let (buffer, full) = (wave.stage(), memory.barriers().full_q(wave.stage()));
        memory.barriers().empty_q(buffer).wait_parity(wave.parity() ^ 1);
        full.arrive_expect_tx(CONSUMERS * WG_M * D);
        for consumer in 0..CONSUMERS {
            let from = [0, work.first_of(queries, consumer), queries.head as i32, batch];
            tma::load_4d(memory.q(buffer, consumer), q, from, full);
        }
        wave = wave.next();
        while tiles > 0 {
            if tiles > 1 {
                load_k(at.next(), key - N as i32);
            }
            let barriers = [memory.barriers().full_v(at.stage()), memory.barriers().empty_v(at.stage())];
            let from = [key + column, rank * (D / CLUSTER) as i32, head, batch];
            load(memory.v(at.stage()), N * D, v, from, barriers, at.parity());
            at = at.next();
            key -= N as i32;
            tiles -= 1;
        }
    }
    // The other block's consumers signal barriers in this block's memory, so this block must not end before they have
    // done so.
    for _ in 0..STAGES {
        memory.barriers().empty_k(at.stage()).wait_parity(at.parity() ^ 1);
        memory.barriers().empty_v(at.stage()).wait_parity(at.parity() ^ 1);
        at = at.next();
    }
    for _ in 0..BUFFERS {
        memory.barriers().empty_q(wave.stage()).wait_parity(wave.parity() ^ 1);
        wave = wave.next();
    }
}
