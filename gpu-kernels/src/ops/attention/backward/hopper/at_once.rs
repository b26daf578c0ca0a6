//! The schedule for d = 128, which forms dQ of a tile together with the rest of that tile's work: there are no
//! registers to defer it.

use cuda_std::float::Half;
use cuda_std::wgmma::{self, Accumulators, Registers};

use super::STAGES;
use super::consume::{Consumer, Hidden, State, accumulate, pack, pin, slopes, unchanged};

impl<T: Half, const D: u32> Consumer<'_, T, D> {
    /// Processes one tile, whose P is ready on entry. Unless it is the `LAST`, P of the next tile, masked by `hidden`,
    /// is ready on return.
    #[inline(always)]
    unsafe fn step<const S: usize, const HALF: usize, const STEPS: usize, const LAST: bool>(
        &self,
        state: &mut State<S, HALF>,
        step: u32,
        hidden: Hidden,
        sums: *mut f32,
        tile: u32,
    ) where
        [f32; S]: Accumulators,
        [f32; HALF]: Accumulators,
    {
        let Self { memory, index, .. } = *self;
        let State { s, dp, dk, dv } = state;
        let (stage, next) = (step % STAGES, (step + 1) % STAGES);
        // Per-query numbers are loaded before products start: while products run, shared memory responds late.
        let deltas = self.numbers(memory.deltas(stage));
        if index == 1 {
            // This signal is earlier than necessary. It keeps the two consumers half a tile apart, so that one's
            // arithmetic overlaps the other's products.
            self.wait_for_ds();
        }
        dp.pin();
        self.product(dp, unchanged(memory.v(), step), memory.d_o(stage));
        let mut p = pack::<T, S, STEPS>(s, 0);
        pin(&mut p);
        wgmma::fence_for(dv);
        accumulate::<T, HALF, STEPS>(dv, &p, self.turned(memory.d_o(stage)));
        wgmma::commit();
        wgmma::wait_for::<1>(dp);
        slopes::<S, STEPS>(dp, s, &deltas);
        let mut ds = pack::<T, S, STEPS>(dp, 0);
        self.store_ds(&ds, step);
        self.signal();
        pin(&mut ds);
        wgmma::fence_for(dk);
        accumulate::<T, HALF, STEPS>(dk, &ds, self.turned(memory.q(stage)));
        if !LAST {
            wgmma::commit();
            memory.full(next).wait_parity((step + 1) / STAGES % 2);
            let exponents = self.numbers(memory.exponents(next));
            s.pin();
            self.product(s, unchanged(memory.k(), step), memory.q(next));
            wgmma::wait_for::<1>(dk);
            dv.pin();
            pin(&mut p);
            pin(&mut ds);
            self.release(stage);
            wgmma::wait_for::<0>(s);
            self.weights::<S, STEPS>(s, &exponents, hidden);
        }
        if index == 0 {
            self.wait_for_ds();
        } else {
            self.wait_for_own_ds();
        }
        let dq = self.dq(step, || {});
        if LAST {
            dk.pin();
            dv.pin();
            pin(&mut p);
            pin(&mut ds);
        }
        self.send(dq, step, sums, tile);
    }

    /// Processes all tiles; S of the first is ready on entry.
    #[inline(always)]
    pub(super) unsafe fn at_once<const S: usize, const HALF: usize, const STEPS: usize>(
        &self,
        state: &mut State<S, HALF>,
        hidden: impl Fn(u32) -> Hidden,
        sums: *mut f32,
        counted: impl Fn(u32, u32) -> u32,
    ) where
        [f32; S]: Accumulators,
        [f32; HALF]: Accumulators,
    {
        let (mut head, mut tile) = self.walk.start();
        let last = self.walk.steps() - 1;
        wgmma::fence_for(&mut state.dp);
        self.weights::<S, STEPS>(&mut state.s, &self.numbers(self.memory.exponents(0)), hidden(tile));
        for step in 0..last {
            let now = counted(head, tile);
            (head, tile) = self.walk.next(head, tile);
            self.step::<S, HALF, STEPS, false>(state, step, hidden(tile), sums, now);
        }
        self.step::<S, HALF, STEPS, true>(state, last, None, sums, counted(head, tile));
    }
}
