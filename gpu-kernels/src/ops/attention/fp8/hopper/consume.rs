//! A consumer: a warpgroup that owns 64 queries.

use cuda_std::float::Half;
use cuda_std::fp8::pack_e4m3;
use cuda_std::math::{fma, max_nan};
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::wgmma::{self, Descriptor, Registers, Swizzle};
use cuda_std::{cluster, thread, warp};

use super::{BUFFERS, CLUSTER, Memory, PANEL, Scales, WARPGROUP, WG_M};
use crate::ops::attention::forward::hopper::softmax::{self, Visible, forget, pin};
use crate::ops::attention::forward::hopper::store::{self, Output, Rows};
use crate::ops::attention::forward::hopper::work::{self, Cursor, Queries, Work};
use crate::ops::attention::{self, LIMIT_E4M3, LOG2_E};

/// Weights are scaled by 2⁸ and are at most 256: E4M3 then represents them with all its bits down to 2⁻¹⁴ of the
/// greatest, and with fewer bits down to 2⁻¹⁷.
const SHIFT: u32 = 8;

/// The least factor of the scores: a smaller one is replaced by this, which does not change any weight.
const LEAST_FACTOR: f32 = 1e-30;

type Online = softmax::Online<SHIFT>;

/// Accumulators of products of 64 rows and twice their number of columns.
pub(super) trait Sums: Registers {
    /// Starts D = A·B + D, or A·B unless `accumulate`, over 32 bytes of k.
    unsafe fn product(&mut self, a: Descriptor, b: Descriptor, accumulate: bool);

    /// The same with A from registers.
    unsafe fn product_a_registers(&mut self, a: [u32; 4], b: Descriptor, accumulate: bool);
}

macro_rules! sums {
    ($count:literal, $product:ident, $product_a_registers:ident) => {
        impl Sums for [f32; $count] {
            #[inline(always)]
            unsafe fn product(&mut self, a: Descriptor, b: Descriptor, accumulate: bool) {
                wgmma::$product(self, a, b, accumulate);
            }

            #[inline(always)]
            unsafe fn product_a_registers(&mut self, a: [u32; 4], b: Descriptor, accumulate: bool) {
                wgmma::$product_a_registers(self, a, b, accumulate);
            }
        }
    };
}
sums!(16, m64n32k32_e4m3, m64n32k32_e4m3_a_registers);
sums!(32, m64n64k32_e4m3, m64n64k32_e4m3_a_registers);
sums!(64, m64n128k32_e4m3, m64n128k32_e4m3_a_registers);

/// What a consumer has in registers from tile to tile: scores that become weights, the weights as an operand, their product with a tile's values, and
/// its part of O.
struct State<const S: usize, const O: usize, const STEPS: usize, const PART: usize> {
    s: [f32; S],
    p: [[u32; 4]; STEPS],
    part: [f32; PART],
    o: [f32; O],
    /// The factor by which O is multiplied before the tile's part is added.
    factors: [f32; 2],
    online: Online,
}

/// One consumer of a block, and its position.
#[derive(Clone, Copy)]
struct Consumer<const D: u32, const N: u32, const CONSUMERS: u32, const STAGES: u32, const PART: usize> {
    memory: Memory<D, N, CONSUMERS>,
    index: u32,
    /// That of its queries.
    buffer: u32,
    /// Thread of the warpgroup.
    lane: u32,
    /// Factor of the scores, to base 2.
    scale: f32,
}

/// Computes and stores its queries of every tile of this block. Run by a whole warpgroup.
///
/// `S`, `O`, `PART` and `STEPS` are N/2, D/2, D/4 and N/32: a thread's accumulators of scores, of O and of a part of it, and products of 32 keys.
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
    const PART: usize,
>(
    memory: Memory<D, N, CONSUMERS>,
    index: u32,
    work: Work,
    scales: Scales,
    output: Output<T>,
) where
    [f32; S]: Sums,
    [f32; O]: Sums,
    [f32; PART]: Sums,
{
    let lane = forget(thread::thread_idx_x() % WARPGROUP);
    let online = Online::of((f32::NEG_INFINITY, 0.0), lane);
    let mut state =
        State { s: [0.0; S], p: [[0; 4]; STEPS], part: [0.0; PART], o: [0.0; O], factors: [0.0; 2], online };
    let (mut at, mut wave) = (Cursor::<STAGES>(0), Cursor::<{ BUFFERS }>(0));
    let give_back = |wave| store::give_back(wave, lane, |buffer| memory.barriers().empty_q(buffer));
    while let Some(queries) = work.queries(wave.0) {
        // Read from one lane, so that ptxas knows what depends on it to be warp-uniform.
        let span = work.span(warp::shuffle_idx(work.keys(queries.batch), 0));
        let row = work.first_of(queries, index);
        let (first, end) = work::seen::<N>(span, queries.shared.0, queries.shared.1);
        let (mine, mine_end) = work::seen::<N>(span, row, WG_M);
        let (whole, whole_end) = work::seen_whole::<N>(span, row, WG_M);
        // Masks the invisible scores of a tile whose first key is `key`.
        let mask = |s: &mut [f32; S], key: i32| {
            Visible::of(span, row, forget(lane)).mask(s, key);
        };

        // Of all sequences' heads of K: groups do not cross sequences.
        let head = work.problem.kv_head(queries.batch * work.problem.heads + queries.head);
        let o_factor = warp::shuffle_idx(scales.of_values(head), 0);
        let factor = work.problem.scale * scales.of_scores(head);
        let scale = max_nan(factor * LOG2_E, LEAST_FACTOR);
        let this = Consumer::<D, N, CONSUMERS, STAGES, PART> { memory, index, buffer: wave.stage(), lane, scale };
        state.online = Online::of(attention::start(work.sinks, queries.head), lane);
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
        this.store(&mut state, work, queries, o_factor, output);
        wave = wave.next();
    }
    give_back(wave);
}

impl<const D: u32, const N: u32, const CONSUMERS: u32, const STAGES: u32, const PART: usize>
    Consumer<D, N, CONSUMERS, STAGES, PART>
{
    /// Signals to both blocks, which fill the stage together, that this consumer is done with it.
    #[inline(always)]
    unsafe fn release(self, empty: SharedPtr<Barrier>) {
        if self.lane < CLUSTER {
            cluster::map(empty, self.lane).signal();
        }
    }

    /// Skips a tile that is only for other consumers of the pair. The wait for its arrival is still needed: if no
    /// thread here waited for this phase, its parity would be mistaken for that of the phase after next.
    #[inline(always)]
    unsafe fn skip(self, at: Cursor<STAGES>) -> Cursor<STAGES> {
        let memory = self.memory;
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
        [f32; S]: Sums,
    {
        let swizzle = if D == 64 { Swizzle::B64 } else { Swizzle::B128 };
        let q = Descriptor::k_major(self.memory.q(self.buffer, self.index), swizzle);
        let k = Descriptor::k_major(self.memory.k(stage), swizzle);
        for step in 0..D / 32 {
            s.product(q.advance(step * 32), k.advance(step * 32), step != 0);
        }
        wgmma::commit();
    }

    /// Starts the product of weights with the first or last (`half` = 1) columns of the values at a stage that has landed.
    #[inline(always)]
    unsafe fn values<const STEPS: usize>(self, part: &mut [f32; PART], p: &[[u32; 4]; STEPS], stage: u32, half: u32)
    where
        [f32; PART]: Sums,
    {
        let v = Descriptor::k_major_128b(self.memory.v(stage).add(half * D / 2 * N));
        for step in 0..STEPS {
            part.product_a_registers(p[step], v.advance(step as u32 * 32), step != 0);
        }
        wgmma::commit();
    }

    /// The scores of the first tile.
    #[inline(always)]
    unsafe fn first_scores<const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS, PART>,
        at: Cursor<STAGES>,
    ) where
        [f32; S]: Sums,
    {
        self.memory.barriers().full_k(at.stage()).wait_parity(at.parity());
        wgmma::fence_for(&mut state.s);
        self.scores(&mut state.s, at.stage());
        wgmma::wait_for::<0>(&mut state.s);
        self.release(self.memory.barriers().empty_k(at.stage()));
    }

    #[inline(always)]
    unsafe fn first_weights<const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS, PART>,
    ) {
        state.factors = state.online.renew(&state.s, self.scale);
        state.online.weigh(&mut state.s, self.scale);
        pack(&state.s, &mut state.p);
    }

    /// Computes the scores of the tile after `at`, and adds the values of `at`, whose weights are ready: the tensor
    /// cores multiply the values while this warpgroup computes the next weights. `mask` hides scores where not all keys
    /// are visible.
    #[inline(always)]
    unsafe fn step<const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS, PART>,
        at: Cursor<STAGES>,
        mask: impl FnOnce(&mut [f32; S]),
    ) -> Cursor<STAGES>
    where
        [f32; S]: Sums,
        [f32; O]: Sums,
        [f32; PART]: Sums,
    {
        let State { s, p, part, o, factors, online } = state;
        let (memory, next) = (self.memory, at.next());
        memory.barriers().full_k(next.stage()).wait_parity(next.parity());
        pin(p);
        s.pin();
        wgmma::fence_for(part);
        self.scores(s, next.stage());
        memory.barriers().full_v(at.stage()).wait_parity(at.parity());
        self.values(part, p, at.stage(), 0);
        wgmma::wait_for::<1>(s);
        self.release(memory.barriers().empty_k(next.stage()));
        mask(s);
        let next_factors = online.renew(s, self.scale);
        wgmma::wait_for::<0>(part);
        pin(p);
        add(o, 0, part, *factors);
        // Added before, not from copies of the part later.
        o.pin();
        wgmma::fence_for(part);
        self.values(part, p, at.stage(), 1);
        online.weigh(s, self.scale);
        // All of this is placed before the wait. ptxas moves the wait up again, but only to among the exponentials
        // instead of before them.
        s.pin();
        online.sum.pin();
        wgmma::wait_for::<0>(part);
        pin(p);
        self.release(memory.barriers().empty_v(at.stage()));
        add(o, PART, part, *factors);
        *factors = next_factors;
        pack(s, p);
        next
    }

    /// The values of the last tile.
    #[inline(always)]
    unsafe fn last_values<const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS, PART>,
        at: Cursor<STAGES>,
    ) -> Cursor<STAGES>
    where
        [f32; O]: Sums,
        [f32; PART]: Sums,
    {
        let State { p, part, o, factors, .. } = state;
        self.memory.barriers().full_v(at.stage()).wait_parity(at.parity());
        pin(p);
        for half in 0..2 {
            wgmma::fence_for(part);
            self.values(part, p, at.stage(), half);
            wgmma::wait_for::<0>(part);
            pin(p);
            add(o, half as usize * PART, part, *factors);
            o.pin();
        }
        self.release(self.memory.barriers().empty_v(at.stage()));
        at.next()
    }

    /// Divides O by the sums and stores it through the shared memory of this consumer's queries, which are no longer
    /// needed.
    #[inline(always)]
    unsafe fn store<T: Half, const S: usize, const O: usize, const STEPS: usize>(
        self,
        state: &mut State<S, O, STEPS, PART>,
        work: Work,
        queries: Queries,
        factor: f32,
        output: Output<T>,
    ) {
        let Self { memory, index, buffer, lane, .. } = self;
        let (inverse, lse) = state.online.finish(LIMIT_E4M3);
        softmax::rescale(&mut state.o, inverse.map(|inverse| inverse * factor));
        let rows = Rows { panels: memory.q(buffer, index).cast(), stride: WG_M * PANEL, index, queries };
        rows.store(&state.o, lse, forget(lane), work, output);
    }
}

/// Weights as operand A of the second product, whose lanes have four neighbours of k: 4t to 4t + 3 of 16 are what an accumulator has at 2t, 2t + 1, 2t + 8
/// and 2t + 9. [`prepare`](super::super::prepare) has values in the same order.
#[inline(always)]
fn pack<const S: usize, const STEPS: usize>(s: &[f32; S], p: &mut [[u32; 4]; STEPS]) {
    for step in 0..STEPS {
        p[step] = [0, 2, 8, 10].map(|i| {
            let i = 16 * step + i;
            let [low, high] = [i, i + 4].map(|i| u32::from(pack_e4m3(s[i], s[i + 1])));
            low | high << 16
        });
    }
}

/// Adds a tile's part of O's columns from accumulator `first` on, relative to the reference points that `factors` change O's to.
#[inline(always)]
fn add<const O: usize, const PART: usize>(o: &mut [f32; O], first: usize, part: &[f32; PART], factors: [f32; 2]) {
    for i in 0..PART {
        o[first + i] = fma(o[first + i], factors[i / 2 % 2], part[i]);
    }
}
