//! What a consumer warpgroup does with its 64 keys.

use core::array;

use cuda_std::float::Half;
use cuda_std::math::{ex2_approx_ftz, fma};
use cuda_std::vector::Pack;
use cuda_std::wgmma::{self, Accumulators, Descriptor, K_MAJOR, MN_MAJOR, Registers};
use cuda_std::{fence, matrix, shared::SharedPtr, thread, tma};

use super::{CONSUMERS, KEYS, Memory, PANEL, QUERIES, WARPGROUP, WG_KEYS, Walk, piece, stages};
use crate::ops::attention::fragments::{self, Rows};
use crate::ops::attention::{Gradients, LOG2_E, Problem, Span, Tile};

/// The barrier at which both consumers meet; those after it are theirs alone.
const MEETING: u32 = 1;

/// A consumer warpgroup.
pub(super) struct Consumer<'a, T, const D: u32> {
    pub(super) memory: Memory<T, D>,
    pub(super) index: u32,
    pub(super) walk: Walk,
    pub(super) problem: &'a Problem,
}

/// A thread's part of 64 keys by 64 queries: rows (keys) l/4 and 8 below it of its warp's 16, columns (queries) 8j + 2(l mod 4) and
/// the next, in `[4j..4j + 4]`.
type Square = [f32; 32];

/// Turns Sᵀ into Pᵀ. `key` and `query` are this thread's first, `exponents` those of its first query.
#[inline(always)]
unsafe fn weights(s: &mut Square, exponents: SharedPtr<f32>, scale: f32, hidden: Option<(Span, i32, i32)>) {
    for j in 0..8 {
        let Pack([left, right]) = Pack::<f32, 2>::load(exponents.add(8 * j as u32).as_ptr());
        for e in 0..4 {
            let exponent = if e % 2 == 0 { left } else { right };
            let weight = ex2_approx_ftz(fma(s[4 * j + e], scale, -exponent));
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
unsafe fn slopes(dp: &mut Square, p: &Square, deltas: SharedPtr<f32>) {
    for j in 0..8 {
        let Pack(deltas) = Pack::<f32, 2>::load(deltas.add(8 * j as u32).as_ptr());
        for e in 0..4 {
            dp[4 * j + e] = p[4 * j + e] * (dp[4 * j + e] - deltas[e % 2]);
        }
    }
}

/// As operand A of products over queries: the accumulators' layout is the operand's.
#[inline(always)]
fn pack<T: Half>(x: &Square) -> [[u32; 4]; 4] {
    array::from_fn(|step| array::from_fn(|i| T::pack(x[8 * step + 2 * i], x[8 * step + 2 * i + 1])))
}

/// Starts `acc` = `a`·`b`ᵀ over d, panels of either operand `a_panel` and `b_panel` bytes apart.
#[inline(always)]
unsafe fn product<T: Half, const D: u32>(acc: &mut Square, a: Descriptor, a_panel: u32, b: Descriptor, b_panel: u32) {
    for step in 0..D / 16 {
        let (panel, within) = (step / 4, step % 4 * 32);
        let (a, b) = (a.advance(panel * a_panel + within), b.advance(panel * b_panel + within));
        acc.product::<T, K_MAJOR, K_MAJOR>(a, b, step != 0);
    }
}

impl<T: Half, const D: u32> Consumer<'_, T, D> {
    /// `HALF`, `QUARTER` and `DT` are a half, a quarter and an eighth of `D`.
    #[inline(always)]
    pub(super) unsafe fn run<const HALF: usize, const QUARTER: usize, const DT: usize>(
        self,
        sums: *mut f32,
        [dk, dv]: [*mut T; 2],
        gradients: &Gradients,
    ) where
        [f32; HALF]: Accumulators,
        [f32; QUARTER]: Accumulators,
    {
        let Self { memory, index, walk, problem } = self;
        let Tile { sequence, head: kv_head, first: first_key } = walk.tile;
        let (thread, lane) = (thread::thread_idx_x() % WARPGROUP, thread::thread_idx_x() % 32);
        let warp_row = index * WG_KEYS + thread / 32 * 16;
        let span = problem.span(&sequence);
        let k = Descriptor::k_major_128b(memory.k().add(index * WG_KEYS * PANEL));
        let v = Descriptor::k_major_128b(memory.v().add(index * WG_KEYS * PANEL));
        // For dQ, this consumer's half of K's columns: a panel of two, or half of the only one.
        let columns = if D == 64 { index * 32 } else { index * KEYS * PANEL };
        let k_turned = Descriptor::mn_major_128b(memory.k().add(columns), 128 * KEYS);

        let (mut acc_k, mut acc_v) = ([0.0f32; HALF], [0.0f32; HALF]);
        let (mut head, mut tile) = (kv_head * walk.group, walk.first);
        let steps = walk.steps();
        if steps > 0 {
            memory.full_keys().wait_parity(0);
        }
        let mut step = 0;
        while step < steps {
            let stage = step % stages(D);
            memory.full(stage).wait_parity(step / stages(D) % 2);
            let (q, d_o) = (memory.q(stage), memory.d_o(stage));
            let (mut s, mut dp) = ([0.0f32; 32], [0.0f32; 32]);
            s.pin();
            wgmma::fence_for(&mut dp);
            product::<T, D>(&mut s, k, 128 * KEYS, Descriptor::k_major_128b(q), 128 * QUERIES);
            wgmma::commit();
            product::<T, D>(&mut dp, v, 128 * KEYS, Descriptor::k_major_128b(d_o), 128 * QUERIES);
            wgmma::commit();
            wgmma::wait_for::<1>(&mut s);

            let column = lane % 4 * 2;
            let (query, key) = ((tile * QUERIES) as i32, first_key as i32);
            let hidden = (span, query + column as i32, key + (warp_row + lane / 4) as i32);
            let exponents = memory.exponents(stage).add(column);
            if span.sees_all(query, QUERIES as i32, key, KEYS as i32) {
                weights(&mut s, exponents, problem.scale * LOG2_E, None);
            } else {
                weights(&mut s, exponents, problem.scale * LOG2_E, Some(hidden));
            }
            let mut p = pack::<T>(&s);
            for p in &mut p {
                p.pin();
            }
            wgmma::fence_for(&mut acc_v);
            let turned = Descriptor::mn_major_128b(d_o, 128 * QUERIES);
            for (i, p) in p.iter().enumerate() {
                acc_v.product_a_registers::<T, MN_MAJOR>(*p, turned.advance(i as u32 * 2048), true);
            }
            wgmma::commit();
            wgmma::wait_for::<1>(&mut dp);
            slopes(&mut dp, &s, memory.deltas(stage).add(column));
            let mut ds = pack::<T>(&dp);
            let buffer = memory.ds(step % 2);
            // stmatrix: lanes 0-15 point at the rows of the left eight columns, the others at those of the right.
            let row = warp_row + lane % 16;
            for (i, ds) in ds.iter().enumerate() {
                let chunk = (i as u32 * 2 + lane / 16) ^ (row % 8);
                matrix::store_x4(buffer.add(row * QUERIES + chunk * 8), *ds);
            }
            fence::proxy_async_shared();
            for ds in &mut ds {
                ds.pin();
            }
            wgmma::fence_for(&mut acc_k);
            let turned = Descriptor::mn_major_128b(q, 128 * QUERIES);
            for (i, ds) in ds.iter().enumerate() {
                acc_k.product_a_registers::<T, MN_MAJOR>(*ds, turned.advance(i as u32 * 2048), true);
            }
            wgmma::commit();
            thread::named_barrier::sync(MEETING, CONSUMERS * WARPGROUP);
            let mut dq = [0.0f32; QUARTER];
            wgmma::fence_for(&mut dq);
            let turned = Descriptor::mn_major_128b(buffer, 128 * KEYS);
            for i in 0..KEYS / 16 {
                dq.product::<T, MN_MAJOR, MN_MAJOR>(turned.advance(i * 2048), k_turned.advance(i * 2048), i != 0);
            }
            wgmma::commit();
            wgmma::wait_for::<0>(&mut dq);
            acc_k.pin();
            acc_v.pin();
            for (p, ds) in p.iter_mut().zip(&mut ds) {
                p.pin();
                ds.pin();
            }
            if thread == 0 {
                memory.empty(stage).arrive();
                // The copy of the piece before has read this memory.
                tma::wait_group_read::<0>();
            }
            let own = MEETING + 1 + index;
            thread::named_barrier::sync(own, WARPGROUP);
            let staged = memory.dq(index);
            for i in 0..QUARTER / 4 {
                let values = array::from_fn(|e| dq[4 * i + e]);
                Pack::<f32, 4>(values).store(staged.add((i as u32 * WARPGROUP + thread) * 4).as_ptr());
            }
            fence::proxy_async_shared();
            thread::named_barrier::sync(own, WARPGROUP);
            if thread == 0 {
                let tiles = u64::from(problem.q_len.div_ceil(QUERIES));
                let tile = u64::from(sequence.batch * problem.heads + head) * tiles + u64::from(tile);
                let to = sums.add(((tile * u64::from(CONSUMERS) + u64::from(index)) * u64::from(piece(D))) as usize);
                tma::add_f32(to, staged, piece(D) * 4);
                tma::commit_group();
            }
            (head, tile) = walk.next(head, tile);
            step += 1;
        }

        // Both consumers read all of K: only now is its memory free for results. So is V's, where rows lie otherwise than in results.
        thread::named_barrier::sync(MEETING, CONSUMERS * WARPGROUP);
        let rows = |data: *mut T, strides: [u64; 3]| {
            let [.., stride] = strides;
            let data = data.add(Problem::at(strides, sequence.batch, kv_head, 0));
            Rows { data: data.cast_const(), stride, len: problem.k_len, d: D }
        };
        let grouped = |acc: [f32; HALF]| -> [[f32; 4]; DT] { array::from_fn(|j| array::from_fn(|e| acc[4 * j + e])) };
        let (to, factors) = (rows(dk, gradients.dk), [problem.scale; 2]);
        fragments::store::<T, DT>(&grouped(acc_k), factors, memory.k(), warp_row, first_key, to, lane);
        let to = rows(dv, gradients.dv);
        fragments::store::<T, DT>(&grouped(acc_v), [1.0; 2], memory.v(), warp_row, first_key, to, lane);
        // Shared memory goes with the block: the last piece must have been read.
        if thread == 0 {
            tma::wait_group_read::<0>();
        }
    }
}
