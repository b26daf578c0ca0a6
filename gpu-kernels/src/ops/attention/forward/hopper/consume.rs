//! A consumer: a warpgroup that owns 64 queries.

use cuda_std::float::Half;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::wgmma::{self, Accumulators, Descriptor, K_MAJOR, MN_MAJOR, Registers};
use cuda_std::{cluster, thread, warp};

use super::softmax::{self, Online, Visible, forget, pin};
use super::store::{self, Output, Rows};
use super::turns::Turns;
use super::work::{self, Cursor, Queries, Work};
use super::{BUFFERS, CLUSTER, Memory, PANEL, WARPGROUP, WG_M};
use crate::ops::attention::{self, LOG2_E, limits};

/// A consumer's registers from tile to tile: scores that become weights, the weights as an operand, and its part of O.
struct State<const S: usize, const O: usize, const STEPS: usize> {
    s: [f32; S],
    p: [[u32; 4]; STEPS],
    o: [f32; O],
    online: Online,
}

/// One consumer of a block, and its position.
#[derive(Clone, Copy)]
struct Consumer<T, const D: u32, const N: u32, const CONSUMERS: u32, const STAGES: u32> {
    memory: Memory<T, D, N, CONSUMERS>,
    index: u32,
    /// That of its queries.
    buffer: u32,
    /// The block to which this thread signals that its consumer is done with a stage, if a block of that number exists.
    filler: u32,
    turns: Turns<CONSUMERS>,
    /// Thread of the warpgroup.
    lane: u32,
    /// Factor of the scores, to base 2.
    scale: f32,
}

/// Computes and stores its queries of every tile of this block. Run by a whole warpgroup.
///
/// `S`, `O` and `STEPS` are N/2, D/2 and N/16: a thread's accumulators of scores and of O, and products of 16 keys.
#[inline(always)]
pub(super) unsafe fn consume<
    T: Half,
    const D: u32,
    const N: u32,
    const CONSUMERS: u32,
    const STAGES: u32,
    const S: usize,
    const O: usize,
    const STEPS: usize,
>(
    memory: Memory<T, D, N, CONSUMERS>,
    index: u32,
    work: Work,
    output: Output<T>,
) where
    [f32; S]: Accumulators,
    [f32; O]: Accumulators,
{
    // Whether registers suffice to keep what derives from its position from one tile to another.
    let keeps = CONSUMERS == 2;
    let lane = thread::thread_idx_x() % WARPGROUP;
    let lane = if keeps { lane } else { forget(lane) };
    let scale = work.problem.scale * LOG2_E;
    let turns = Turns::start(index);
    let mut this = Consumer::<T, D, N, CONSUMERS, STAGES> { memory, index, buffer: 0, filler: 0, turns, lane, scale };
    let online = Online::of((f32::NEG_INFINITY, 0.0), lane);
    let mut state = State { s: [0.0; S], p: [[0; 4]; STEPS], o: [0.0; O], online };
    let (mut at, mut wave) = (Cursor::<STAGES>(0), Cursor::<{ BUFFERS }>(0));
    let give_back = |wave| store::give_back(wave, lane, |buffer| memory.barriers().empty_q(buffer));
    while let Some(queries) = work.queries(wave.0) {
        // Read from one lane, so that ptxas knows what depends on it to be warp-uniform.
        let span = work.span(warp::shuffle_idx(work.keys(queries.batch), 0));
        let row = work.first_of(queries, index);
        let (first, end) = work::seen::<N>(span, queries.shared.0, queries.shared.1);
        let (mine, mine_end) = work::seen::<N>(span, row, WG_M);
        let (whole, whole_end) = work::seen_whole::<N>(span, row, WG_M);
        let kept = Visible::of(span, row, lane);
        // Masks the invisible scores of a tile whose first key is `key`.
        let mask = |s: &mut [f32; S], key: i32| {
            let visible = if keeps { kept } else { Visible::of(span, row, forget(lane)) };
            visible.mask(s, key);
        };

        state.online = Online::of(attention::start(work.sinks, queries.head), lane);
        (this.buffer, this.filler) = (wave.stage(), queries.share.filler(lane));
        memory.barriers().full_q(this.buffer).wait_parity(wave.parity());
        state.o = [0.0; O];
        let mut tile = first;
        if mine < mine_end {
            while tile < mine {
                at = this.skip(at);
                tile += 1;
            }
            this.first_scores(&mut state, at);
            if tile < whole || tile >= whole_end {
                mask(&mut state.s, work::first_key::<N>(span, tile));
            }
            this.first_weights(&mut state);
            give_back(wave);
            tile += 1;
            // There are at most three ranges: an edge, a middle and another edge.
            while tile < mine_end {
                while tile < mine_end && (tile < whole || tile >= whole_end) {
                    let key = work::first_key::<N>(span, tile);
                    at = this.step(&mut state, at, |s| mask(s, key));
                    tile += 1;
                }
                while tile < mine_end.min(whole_end) {
                    at = this.step(&mut state, at, |_| ());
                    tile += 1;
                }
            }
            at = this.last_values(&mut state, at);
        } else {
            give_back(wave);
        }
        while tile < end {
            at = this.skip(at);
            tile += 1;
        }
        this.store(&mut state, work, queries, output);
        wave = wave.next();
    }
    give_back(wave);
}

impl<T: Half, const D: u32, const N: u32, const CONSUMERS: u32, const STAGES: u32>
    Consumer<T, D, N, CONSUMERS, STAGES>
{
    /// Signals to the producers that fill a stage that this consumer is done with it.
    #[inline(always)]
    unsafe fn release(self, empty: SharedPtr<Barrier>) {
        if self.filler < CLUSTER {
            cluster::map(empty, self.filler).signal();
        }
    }

    /// Skips a tile that is only for other consumers of the pair. The wait for its arrival is still needed: if no
    /// thread here waited for this phase, its parity would be mistaken for that of the phase after next.
    #[inline(always)]
    unsafe fn skip(self, at: Cursor<STAGES>) -> Cursor<STAGES> {
        let memory = self.memory;
        self.turns.wait();
        self.turns.pass();
        memory.barriers().full_k(at.stage()).wait_parity(at.parity());
        self.release(memory.barriers().empty_k(at.stage()));
        memory.barriers().full_v(at.stage()).wait_parity(at.parity());
        self.release(memory.barriers().empty_v(at.stage()));
        at.next()
    }

    /// Starts S = Q·Kᵀ with the keys at a stage that has landed.
    #[inline(always)]
    unsafe fn scores<const S: usize>(self, s: &mut [f32; S], stage: u32)
    where
        [f32; S]: Accumulators,
    {
        let q = Descriptor::k_major_128b(self.memory.q(self.buffer, 0, self.index));
        let k = Descriptor::k_major_128b(self.memory.k(stage));
        for step in 0..D / 16 {
            let (panel, within) = (step / 4, step % 4 * 32);
            let q = q.advance(panel * CONSUMERS * WG_M * PANEL * 2 + within);
            s.product::<T, K_MAJOR, K_MAJOR>(q, k.advance(panel * N * PANEL * 2 + within), step != 0);
        }
        wgmma::commit();
    }

    /// Starts O += P·V with the values at a stage that has landed.
    #[inline(always)]
    unsafe fn values<const O: usize, const STEPS: usize>(self, o: &mut [f32; O], p: &[[u32; 4]; STEPS], stage: u32)
    where
        [f32; O]: Accumulators,
    {
        let v = Descriptor::mn_major_128b(self.memory.v(stage), N * PANEL * 2);
        for step in 0..STEPS {
            o.product_a_registers::<T, MN_MAJOR>(p[step], v.advance(step as u32 * 16 * PANEL * 2), true);
        }
        wgmma::commit();
    }

    /// The scores of the first tile.
    #[inline(always)]
    unsafe fn first_scores<const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS>,
        at: Cursor<STAGES>,
    ) where
        [f32; S]: Accumulators,
    {
        self.memory.barriers().full_k(at.stage()).wait_parity(at.parity());
        wgmma::fence_for(&mut state.s);
        self.turns.wait();
        self.scores(&mut state.s, at.stage());
        self.turns.pass();
        wgmma::wait_for::<0>(&mut state.s);
        self.release(self.memory.barriers().empty_k(at.stage()));
    }

    #[inline(always)]
    unsafe fn first_weights<const S: usize, const O: usize, const STEPS: usize>(self, state: &mut State<S, O, STEPS>) {
        state.online.renew(&state.s, self.scale);
        state.online.weigh(&mut state.s, self.scale);
        softmax::pack::<T, S, STEPS>(&state.s, &mut state.p);
    }

    /// Computes the scores of the tile after `at`, and adds the values of `at`, whose weights are ready: the tensor
    /// cores multiply the values while this warpgroup computes the next weights. `mask` hides scores where not all keys
    /// are visible.
    #[inline(always)]
    unsafe fn step<const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS>,
        at: Cursor<STAGES>,
        mask: impl FnOnce(&mut [f32; S]),
    ) -> Cursor<STAGES>
    where
        [f32; S]: Accumulators,
        [f32; O]: Accumulators,
    {
        let State { s, p, o, online } = state;
        let (memory, next) = (self.memory, at.next());
        memory.barriers().full_k(next.stage()).wait_parity(next.parity());
        self.turns.wait();
        pin(p);
        s.pin();
        wgmma::fence_for(o);
        self.scores(s, next.stage());
        // The wait is here and not before the scores: this makes the whole kernel 5 % faster on an H200.
        memory.barriers().full_v(at.stage()).wait_parity(at.parity());
        self.values(o, p, at.stage());
        self.turns.pass();
        wgmma::wait_for::<1>(s);
        self.release(memory.barriers().empty_k(next.stage()));
        mask(s);
        let factors = online.renew(s, self.scale);
        online.weigh(s, self.scale);
        // All of this is placed before the wait. ptxas moves the wait up again, but only to among the exponentials
        // instead of before them.
        s.pin();
        online.sum.pin();
        wgmma::wait_for::<0>(o);
        pin(p);
        self.release(memory.barriers().empty_v(at.stage()));
        softmax::rescale(o, factors);
        softmax::pack::<T, S, STEPS>(s, p);
        next
    }

    /// The values of the last tile.
    #[inline(always)]
    unsafe fn last_values<const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS>,
        at: Cursor<STAGES>,
    ) -> Cursor<STAGES>
    where
        [f32; O]: Accumulators,
    {
        let State { p, o, .. } = state;
        self.memory.barriers().full_v(at.stage()).wait_parity(at.parity());
        pin(p);
        wgmma::fence_for(o);
        self.values(o, p, at.stage());
        wgmma::wait_for::<0>(o);
        self.release(self.memory.barriers().empty_v(at.stage()));
        at.next()
    }

    /// Divides O by the sums and stores it through the shared memory of this consumer's queries, which are no longer
    /// needed.
    #[inline(always)]
    unsafe fn store<const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS>,
        work: Work,
        queries: Queries,
        output: Output<T>,
    ) {
        let Self { memory, index, buffer, lane, .. } = self;
        let (inverse, lse) = state.online.finish(limits::of::<T>());
        softmax::rescale(&mut state.o, inverse);
        let rows = Rows { panels: memory.q(buffer, 0, index), stride: CONSUMERS * WG_M * PANEL, index, queries };
        rows.store(&state.o, lse, lane, work, output);
    }
}
