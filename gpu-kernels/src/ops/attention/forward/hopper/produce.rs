//! The producer: one thread that keeps the rings of keys and values full.

use cuda_std::float::Half;
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::tma;

use super::work::{self, Cursor, Share, Work};
use super::{BUFFERS, CLUSTER, Memory, PANEL, WG_M};

/// The source of tiles of keys or values, a map with the head and batch in it, and their destination.
#[derive(Clone, Copy)]
struct Source<'a> {
    map: &'a TensorMap,
    head: u32,
    batch: u32,
    share: Share,
}

impl Source<'_> {
    /// Starts loading this block's share of a tile, whose first key is `key`, into stage `to`, once all blocks that
    /// receive it are done with the stage's previous content.
    #[inline(always)]
    unsafe fn load<T: Half, const D: u32, const N: u32>(
        self,
        to: SharedPtr<T>,
        key: i32,
        empty: SharedPtr<Barrier>,
        full: SharedPtr<Barrier>,
        parity: u32,
    ) {
        // A fresh barrier counts as having completed the phase before its first, so the first round does not wait.
        empty.wait_parity(parity ^ 1);
        full.arrive_expect_tx(N * D * 2);
        let Self { map, head, batch, share } = self;
        for half in share.halves() {
            let row = half * (N / CLUSTER);
            for panel in 0..D / PANEL {
                let at = [(panel * PANEL) as i32, key + row as i32, head as i32, batch as i32];
                tma::load_4d_multicast(to.add((panel * N + row) * PANEL), map, at, full, share.blocks());
            }
        }
    }
}

/// Loads this block's queries and, with the other block, the pair's tiles, in the order in which they are read: values after the next
/// keys. Run by one thread.
#[inline(always)]
pub(super) unsafe fn produce<T: Half, const D: u32, const N: u32, const CONSUMERS: u32, const STAGES: u32>(
    memory: Memory<T, D, N, CONSUMERS>,
    [q, k, v]: [&TensorMap; 3],
    work: Work,
) {
    let (mut at, mut wave) = (Cursor::<STAGES>(0), Cursor::<{ BUFFERS }>(0));
    while let Some(queries) = work.queries(wave.0) {
        let (batch, head) = (queries.batch, work.problem.kv_head(queries.head));
        let span = work.span(work.keys(batch));
        let (first, end) = work::seen::<N>(span, queries.shared.0, queries.shared.1);
        let share = queries.share;
        let k = Source { map: k, head, batch, share };
        let v = Source { map: v, head, batch, share };
        let mut key = work::first_key::<N>(span, first);
        let mut tiles = end - first;
        let load_k = |at: Cursor<STAGES>, key: i32| {
            let (full, empty) = (memory.barriers().full_k(at.stage()), memory.barriers().empty_k(at.stage()));
            k.load::<T, D, N>(memory.k(at.stage()), key, empty, full, at.parity());
        };
        if tiles > 0 {
            load_k(at, key);
        }
        // Queries are loaded last: results are stored through their memory.
        let (buffer, full) = (wave.stage(), memory.barriers().full_q(wave.stage()));
        memory.barriers().empty_q(buffer).wait_parity(wave.parity() ^ 1);
        full.arrive_expect_tx(CONSUMERS * WG_M * D * 2);
        for consumer in 0..CONSUMERS {
            let row = work.first_of(queries, consumer);
            for panel in 0..D / PANEL {
                let from = [(panel * PANEL) as i32, row, queries.head as i32, batch as i32];
                tma::load_4d(memory.q(buffer, panel, consumer), q, from, full);
            }
        }
        wave = wave.next();
        while tiles > 0 {
            if tiles > 1 {
                load_k(at.next(), key - N as i32);
            }
            let (full, empty) = (memory.barriers().full_v(at.stage()), memory.barriers().empty_v(at.stage()));
            v.load::<T, D, N>(memory.v(at.stage()), key, empty, full, at.parity());
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
