//! The work of a consumer warpgroup on its 64 keys.

use core::array;

use cuda_std::float::Half;
use cuda_std::math::{ex2_approx_ftz, fma};
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::wgmma::{self, Accumulators, Descriptor, K_MAJOR, MN_MAJOR, Registers};
use cuda_std::{atomic, fence, matrix, thread, tma, warp};

use super::ring::Ring;
use super::{
    ADDED, CONSUMERS, CONSUMERS_AND_WARP, KEYS, Memory, PANEL, PART, PIECE, WARPGROUP, WG_KEYS, Walk, ZEROS,
    pieces_bytes, queries,
};
use crate::ops::attention::fragments::{self, Rows};
use crate::ops::attention::{Gradients, LOG2_E, Problem, Span, Tile, nonzero};

/// The barrier at which both consumers meet.
const MEETING: u32 = 1;
/// Two barriers, one for each consumer, at which it waits for the other's dS.
const OTHERS_DS: u32 = 2;
/// The barrier of the second consumer's warps.
const OWN_DS: u32 = 4;

/// A consumer warpgroup.
pub(super) struct Consumer<'a, T, const D: u32> {
    pub(super) memory: Memory<T, D>,
    pub(super) index: u32,
    pub(super) walk: Walk,
    pub(super) ring: Ring<D>,
    pub(super) problem: &'a Problem,
}

/// A consumer's registers: `S` scores of a thread, Sᵀ and dPᵀ of 64 keys, and its part of dK and dV.
///
/// A thread's rows (keys) are l/4 and l/4 + 8 of its warp's 16; its columns (queries) are 8j + 2(l mod 4) and the next,
/// in `[4j..4j + 4]`.
pub(super) struct State<const S: usize, const HALF: usize> {
    pub(super) s: [f32; S],
    pub(super) dp: [f32; S],
    pub(super) dk: [f32; HALF],
    pub(super) dv: [f32; HALF],
}

/// Which weights a mask hides: those of keys outside `span`, relative to this thread's first query and key.
pub(super) type Hidden = Option<(Span, i32, i32)>;

/// Per-query numbers of this thread's queries: four of every 16, in the order in which `prepare` stores them.
pub(super) type Numbers<const STEPS: usize> = [[f32; 4]; STEPS];

/// Turns Sᵀ into Pᵀ, with the `exponents` of this thread's queries.
#[inline(always)]
unsafe fn weights<const S: usize, const STEPS: usize>(
    s: &mut [f32; S],
    exponents: &Numbers<STEPS>,
    scale: f32,
    hidden: Hidden,
) {
    for j in 0..S / 4 {
        for e in 0..4 {
            let exponent = exponents[j / 2][j % 2 * 2 + e % 2];
            let weight = ex2_approx_ftz(fma(s[4 * j + e], scale, exponent));
            let sees = match hidden {
                Some((span, query, key)) => span.sees(query + (8 * j + e % 2) as i32, key + (e / 2 * 8) as i32),
                None => true,
            };
            s[4 * j + e] = if sees { weight } else { 0.0 };
        }
    }
}

/// dSᵀ = Pᵀ∘(dPᵀ − D), in place of dPᵀ.
#[inline(always)]
pub(super) fn slopes<const S: usize, const STEPS: usize>(dp: &mut [f32; S], p: &[f32; S], deltas: &Numbers<STEPS>) {
    for j in 0..S / 4 {
        for e in 0..4 {
            dp[4 * j + e] = p[4 * j + e] * (dp[4 * j + e] - deltas[j / 2][j % 2 * 2 + e % 2]);
        }
    }
}

/// Some steps from `first` on as operand A of products over queries: the accumulators' layout is that of the operand.
#[inline(always)]
pub(super) fn pack<T: Half, const S: usize, const STEPS: usize>(x: &[f32; S], first: usize) -> [[u32; 4]; STEPS] {
    array::from_fn(|step| {
        let at = 8 * (first + step);
        array::from_fn(|i| T::pack(x[at + 2 * i], x[at + 2 * i + 1]))
    })
}

/// Keeps an operand alive in its registers up to this point, while products read it.
#[inline(always)]
pub(super) fn pin<const STEPS: usize>(operand: &mut [[u32; 4]; STEPS]) {
    for step in operand {
        step.pin();
    }
}

/// Starts `acc` += `a`·`b`, with `a` from registers and one row of `b` per query. Does not commit a group.
#[inline(always)]
pub(super) unsafe fn accumulate<T: Half, const HALF: usize, const STEPS: usize>(
    acc: &mut [f32; HALF],
    a: &[[u32; 4]; STEPS],
    b: Descriptor,
) where
    [f32; HALF]: Accumulators,
{
    for (step, a) in a.iter().enumerate() {
        acc.product_a_registers::<T, MN_MAJOR>(*a, b.advance(step as u32 * 2048), true);
    }
}

/// Returns an opaque value that is the same in every step, since the step number stays below 2³¹. The compilers must
/// not know this, or they would keep the addresses of all parts of the tile in registers, and none are left.
#[inline(always)]
pub(super) fn unchanged<T>(tile: SharedPtr<T>, step: u32) -> SharedPtr<T> {
    tile.add((step >> 31) * 512)
}

impl<T: Half, const D: u32> Consumer<'_, T, D> {
    /// Starts `acc` = `own`·`other`ᵀ over d, for this consumer's rows of K or V and a tile of queries. A fence must
    /// separate it from earlier writes to `acc`.
    #[inline(always)]
    pub(super) unsafe fn product<const S: usize>(&self, acc: &mut [f32; S], own: SharedPtr<T>, other: SharedPtr<T>)
    where
        [f32; S]: Accumulators,
    {
        let own = Descriptor::k_major_128b(own.add(self.index * WG_KEYS * PANEL));
        let other = Descriptor::k_major_128b(other);
        for step in 0..D / 16 {
            let (panel, within) = (step / 4, step % 4 * 32);
            let (own, other) =
                (own.advance(panel * 128 * KEYS + within), other.advance(panel * 128 * queries(D) + within));
            acc.product::<T, K_MAJOR, K_MAJOR>(own, other, step != 0);
        }
        wgmma::commit();
    }

    /// Loads this thread's per-query numbers of a tile.
    #[inline(always)]
    pub(super) unsafe fn numbers<const STEPS: usize>(&self, tile: SharedPtr<f32>) -> Numbers<STEPS> {
        let first = tile.add(thread::thread_idx_x() % 4 * 4);
        array::from_fn(|step| Pack::<f32, 4>::load(first.add(step as u32 * 16).as_ptr()).0)
    }

    /// Turns S of a tile into P.
    #[inline(always)]
    pub(super) unsafe fn weights<const S: usize, const STEPS: usize>(
        &self,
        s: &mut [f32; S],
        exponents: &Numbers<STEPS>,
        hidden: Hidden,
    ) {
        let scale = self.problem.scale * LOG2_E;
        match hidden {
            None => weights(s, exponents, scale, None),
            hidden => weights(s, exponents, scale, hidden),
        }
    }

    /// A tile of Q or dO as operand B of products over its queries.
    #[inline(always)]
    pub(super) fn turned(&self, tile: SharedPtr<T>) -> Descriptor {
        Descriptor::mn_major_128b(tile, 128 * queries(D))
    }

    /// The offset of this warp's part of a piece, for a tile of queries counted over all heads.
    #[inline(always)]
    unsafe fn part(&self, sums: *mut f32, tile: u32) -> *mut f32 {
        let piece = u64::from(tile) * u64::from(CONSUMERS) + u64::from(self.index);
        sums.add((piece * u64::from(PIECE) + u64::from(self.part_in_piece())) as usize)
    }

    /// This warp's offset within its piece.
    #[inline(always)]
    fn part_in_piece(&self) -> u32 {
        thread::thread_idx_x() % WARPGROUP / 32 * PART
    }

    /// Waits until the other consumer has written its dS of the tile.
    #[inline(always)]
    pub(super) unsafe fn wait_for_ds(&self) {
        thread::named_barrier::sync(OTHERS_DS + self.index, CONSUMERS * WARPGROUP);
    }

    /// Signals to the other consumer that this one has written its dS of a tile.
    #[inline(always)]
    pub(super) unsafe fn signal(&self) {
        thread::named_barrier::arrive(OTHERS_DS + 1 - self.index, CONSUMERS * WARPGROUP);
    }

    /// Waits until this consumer's warps have written their dS, unless another barrier already makes them wait.
    #[inline(always)]
    pub(super) unsafe fn wait_for_own_ds(&self) {
        thread::named_barrier::sync(OWN_DS, WARPGROUP);
    }

    /// Writes this consumer's rows of dSᵀ for products that read them through the async proxy.
    #[inline(always)]
    pub(super) unsafe fn store_ds<const STEPS: usize>(&self, ds: &[[u32; 4]; STEPS], step: u32) {
        let (thread, lane) = (thread::thread_idx_x() % WARPGROUP, thread::thread_idx_x() % 32);
        // stmatrix: lanes 0-15 point at the rows of the left eight columns, the others at those of the right. The
        // swizzle is an exclusive or, so that all addresses derive from one.
        let row = self.index * WG_KEYS + thread / 32 * 16 + lane % 16;
        let to = self.memory.ds(step % 2).add(row * PANEL + ((lane / 16) ^ (row % 8)) * 8).addr();
        for (i, ds) in ds.iter().enumerate() {
            let (panel, pair) = (i as u32 / 4, i as u32 % 4);
            matrix::store_x4(SharedPtr::<T>::from_addr((to ^ (pair * 32)) + panel * KEYS * PANEL * 2), *ds);
        }
        fence::proxy_async_shared();
    }

    /// Signals that this thread is done with a stage: each has read numbers of it. The other consumer's threads release the stage too.
    #[inline(always)]
    pub(super) unsafe fn release(&self, stage: u32) {
        self.memory.empty(stage).arrive();
    }

    /// A piece of dQ over all the block's keys: this consumer's half of the queries, or of the columns. `before` starts what goes before it. Everything that was
    /// on its way has arrived then.
    #[inline(always)]
    pub(super) unsafe fn dq(&self, step: u32, before: impl FnOnce()) -> [f32; 32] {
        let Self { memory, index, .. } = *self;
        let (ds_panel, k_panel) = if D == 64 { (index, 0) } else { (0, index) };
        let turned = Descriptor::mn_major_128b(memory.ds(step % 2).add(ds_panel * KEYS * PANEL), 128 * KEYS);
        let k = unchanged(memory.k(), step).add(k_panel * KEYS * PANEL);
        let k_turned = Descriptor::mn_major_128b(k, 128 * KEYS);
        let mut dq = [0.0f32; 32];
        before();
        for i in 0..KEYS / 16 {
            dq.product::<T, MN_MAJOR, MN_MAJOR>(turned.advance(i * 2048), k_turned.advance(i * 2048), i != 0);
        }
        wgmma::commit();
        wgmma::wait_for::<0>(&mut dq);
        dq
    }

    /// Adds a piece to the sum from registers.
    #[inline(always)]
    pub(super) unsafe fn add(&self, dq: [f32; 32], sums: *mut f32, tile: u32) {
        let part = self.part(sums, tile).add((thread::thread_idx_x() % 32 * 4) as usize);
        for i in 0..8 {
            let values = array::from_fn(|e| dq[4 * i + e]);
            atomic::red_add_f32x4(part.add(i * 4 * 32), values);
        }
    }

    /// Adds a piece to the sum by the copy engine (TMA), which reads it from shared memory while this consumer goes on.
    /// If it were added from registers, these would be free for the next product only after the memory system has
    /// accepted all of it.
    #[inline(always)]
    pub(super) unsafe fn send(&self, dq: [f32; 32], step: u32, sums: *mut f32, tile: u32) {
        let lane = thread::thread_idx_x() % 32;
        let staged = unchanged(self.memory.piece(self.index), step).add(self.part_in_piece());
        let to = staged.add(lane * 4);
        self.wait_until_sent();
        warp::sync(u32::MAX);
        for i in 0..8 {
            let values = array::from_fn(|e| dq[4 * i + e]);
            Pack::<f32, 4>(values).store(to.add(i as u32 * 32 * 4).as_ptr());
        }
        fence::proxy_async_shared();
        warp::sync(u32::MAX);
        if lane == 0 {
            tma::add_f32(self.part(sums, tile), staged, PART * 4);
            tma::commit_group();
        }
    }

    /// Waits until the copy engine has read the data that this warp has submitted.
    #[inline(always)]
    unsafe fn wait_until_sent(&self) {
        if thread::thread_idx_x().is_multiple_of(32) {
            tma::wait_group_read::<0>();
        }
    }

    /// `HALF` and `DT` are a half and an eighth of `D`, `S` and `STEPS` a half and a sixteenth of a tile's queries, `EARLY` the
    /// steps of 16 queries whose P is multiplied before there is dS, as many as registers hold beside it, `LATE` the others: none where all are early.
    #[inline(always)]
    pub(super) unsafe fn run<
        const HALF: usize,
        const S: usize,
        const STEPS: usize,
        const EARLY: usize,
        const LATE: usize,
        const DT: usize,
    >(
        self,
        [dk, dv]: [*mut T; 2],
        gradients: &Gradients,
    ) where
        [f32; S]: Accumulators,
        [f32; HALF]: Accumulators,
    {
        let Self { memory, index, walk, ring, problem } = self;
        let Tile { sequence, head: kv_head, first: first_key } = walk.tile;
        let lane = thread::thread_idx_x() % 32;
        let warp_row = index * WG_KEYS + thread::thread_idx_x() % WARPGROUP / 32 * 16;
        let span = problem.span(&sequence);
        let hidden = |tile: u32| {
            let (query, key) = ((tile * queries(D)) as i32, first_key as i32);
            let whole = span.sees_all(query, queries(D) as i32, key, KEYS as i32);
            let (column, row) = (lane % 4 * 2, warp_row + lane / 4);
            if whole { None } else { Some((span, query + column as i32, key + row as i32)) }
        };
        let tiles = problem.q_len.div_ceil(queries(D));
        let kv_head_of_all = walk.kv_head(problem);
        let place = ring.place(kv_head_of_all);
        let counted = |head: u32, tile: u32| (place * problem.group + head % nonzero(problem.group)) * tiles + tile;
        thread::named_barrier::sync(ZEROS, CONSUMERS_AND_WARP);
        if pieces_bytes(D) > 0 {
            // Of the zeros, to which the copy engine adds.
            fence::proxy_async_global();
        }
        let mut state = State { s: [0.0f32; S], dp: [0.0f32; S], dk: [0.0f32; HALF], dv: [0.0f32; HALF] };
        if walk.steps() > 0 {
            memory.full_keys().wait_parity(0);
            memory.full(0).wait_parity(0);
            wgmma::fence_for(&mut state.s);
            self.product(&mut state.s, memory.k(), memory.q(0));
            memory.full_values().wait_parity(0);
            wgmma::wait_for::<0>(&mut state.s);
            match D {
                64 => self.later::<S, HALF, STEPS, EARLY, LATE>(&mut state, hidden, ring.sums, counted),
                _ => self.at_once::<S, HALF, STEPS>(&mut state, hidden, ring.sums, counted),
            }
        }
        if pieces_bytes(D) == 0 {
            thread::named_barrier::arrive(ADDED, CONSUMERS_AND_WARP);
        }

        // Each consumer's results leave through the shared memory of the other's keys, which is free when both are
        // done.
        thread::named_barrier::sync(MEETING, CONSUMERS * WARPGROUP);
        let (row, first) = (warp_row % WG_KEYS, first_key + index * WG_KEYS);
        let through = |tile: SharedPtr<T>| tile.add((1 - index) * WG_KEYS * D);
        let rows = |data: *mut T, strides: [u64; 3]| {
            let [.., stride] = strides;
            let data = data.add(Problem::at(strides, sequence.batch, kv_head, 0));
            Rows { data: data.cast_const(), stride, len: problem.k_len, d: D }
        };
        let grouped = |acc: [f32; HALF]| -> [[f32; 4]; DT] { array::from_fn(|j| array::from_fn(|e| acc[4 * j + e])) };
        let (to, factors) = (rows(dk, gradients.dk), [problem.scale; 2]);
        fragments::store::<T, DT>(&grouped(state.dk), factors, through(memory.k()), row, first, to, lane);
        if pieces_bytes(D) > 0 {
            // Until the data that this warp has submitted is added.
            tma::wait_group::<0>();
            thread::named_barrier::arrive(ADDED, CONSUMERS_AND_WARP);
        }
        let to = rows(dv, gradients.dv);
        fragments::store::<T, DT>(&grouped(state.dv), [1.0; 2], through(memory.v()), row, first, to, lane);
    }
}
