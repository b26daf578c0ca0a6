//! dQ a tile later: the order of d = 64.
//!
//! A tile's dQ needs dS of both consumers, and theirs are half a tile apart. A tile later both have long been there: nobody waits for the other, but to stay
//! apart and because memory for dS is of two tiles. What that takes, dS as an operand from tile to tile, registers have room for with d = 64 alone.

use cuda_std::float::Half;
use cuda_std::wgmma::{self, Accumulators, Descriptor, Registers};

use super::consume::{Consumer, Hidden, State, accumulate, pack, pin, slopes};
use super::{STAGES, queries};

/// Operands in registers: weights by halves of a tile's queries, and dSᵀ.
struct Operands<const EARLY: usize, const LATE: usize, const STEPS: usize> {
    p: [[u32; 4]; EARLY],
    late: [[u32; 4]; LATE],
    ds: [[u32; 4]; STEPS],
}

impl<const EARLY: usize, const LATE: usize, const STEPS: usize> Operands<EARLY, LATE, STEPS> {
    /// Keeps the weights where they are until here, while products read them.
    #[inline(always)]
    fn pin_weights(&mut self) {
        pin(&mut self.p);
        pin(&mut self.late);
    }
}

impl<T: Half, const D: u32> Consumer<'_, T, D> {
    /// From S of a tile to dS, which is in shared memory when this is done; dV is on its way.
    #[inline(always)]
    unsafe fn open<const S: usize, const HALF: usize, const STEPS: usize, const EARLY: usize, const LATE: usize>(
        &self,
        state: &mut State<S, HALF>,
        step: u32,
        hidden: Hidden,
    ) -> Operands<EARLY, LATE, STEPS>
    where
        [f32; S]: Accumulators,
        [f32; HALF]: Accumulators,
    {
        let Self { memory, index, .. } = *self;
        let State { s, dp, dv, .. } = state;
        let stage = step % STAGES;
        self.weights(s, stage, hidden);
        if index == 1 {
            // Earlier than it has to: so the two consumers stay half a tile apart, and one's arithmetic runs under the other's products.
            self.wait_for_ds();
        }
        wgmma::fence_for(dp);
        self.product(dp, memory.v(), memory.d_o(stage));
        let mut p = pack::<T, S, EARLY>(s, 0);
        pin(&mut p);
        wgmma::fence_for(dv);
        let d_o = Descriptor::mn_major_128b(memory.d_o(stage), 128 * queries(D));
        accumulate::<T, HALF, EARLY>(dv, &p, d_o);
        wgmma::commit();
        wgmma::wait_for::<1>(dp);
        slopes(dp, s, memory.deltas(stage).add(self.column()));
        let mut late = pack::<T, S, LATE>(s, EARLY);
        let ds = pack::<T, S, STEPS>(dp, 0);
        if index == 0 && step > 0 {
            // The other one is done with the tile before the last, which was where this goes.
            self.wait_for_ds();
        }
        self.store_ds(&ds, step);
        pin(&mut late);
        wgmma::fence();
        accumulate::<T, HALF, LATE>(dv, &late, d_o.advance(EARLY as u32 * 2048));
        wgmma::commit();
        Operands { p, late, ds }
    }

    /// Starts dK += dSᵀ·Q of a tile.
    #[inline(always)]
    unsafe fn dk<const HALF: usize, const STEPS: usize>(
        &self,
        dk: &mut [f32; HALF],
        ds: &mut [[u32; 4]; STEPS],
        stage: u32,
    ) where
        [f32; HALF]: Accumulators,
    {
        pin(ds);
        wgmma::fence_for(dk);
        accumulate::<T, HALF, STEPS>(dk, ds, Descriptor::mn_major_128b(self.memory.q(stage), 128 * queries(D)));
        wgmma::commit();
    }

    /// All tiles, of the first of which S is there.
    #[inline(always)]
    pub(super) unsafe fn later<
        const S: usize,
        const HALF: usize,
        const STEPS: usize,
        const EARLY: usize,
        const LATE: usize,
    >(
        &self,
        state: &mut State<S, HALF>,
        hidden: impl Fn(u32) -> Hidden,
        sums: *mut f32,
        counted: impl Fn(u32, u32) -> u32,
    ) where
        [f32; S]: Accumulators,
        [f32; HALF]: Accumulators,
    {
        let Self { memory, index, walk, .. } = *self;
        let (mut head, mut tile) = walk.start();
        let last = walk.steps() - 1;
        let mut operands = self.open::<S, HALF, STEPS, EARLY, LATE>(state, 0, hidden(tile));
        wgmma::wait_for::<0>(&mut state.dv);
        operands.pin_weights();
        self.signal();
        for step in 0..last {
            // This tile's dK, and S of the next.
            let (now, next) = (counted(head, tile), (step + 1) % STAGES);
            (head, tile) = walk.next(head, tile);
            self.dk(&mut state.dk, &mut operands.ds, step % STAGES);
            memory.full(next).wait_parity((step + 1) / STAGES % 2);
            state.s.pin();
            self.product(&mut state.s, memory.k(), memory.q(next));
            wgmma::wait_for::<1>(&mut state.dk);
            pin(&mut operands.ds);
            self.release(step % STAGES);
            wgmma::wait_for::<0>(&mut state.s);
            operands = self.open(state, step + 1, hidden(tile));
            // This tile's dQ, under the next one's dV.
            let dq = self.dq(step);
            state.dv.pin();
            operands.pin_weights();
            self.signal();
            self.add(dq, sums, now);
        }
        self.dk(&mut state.dk, &mut operands.ds, last % STAGES);
        if index == 0 {
            self.wait_for_ds();
        } else {
            self.wait_for_own_ds();
        }
        let dq = self.dq(last);
        state.dk.pin();
        pin(&mut operands.ds);
        self.add(dq, sums, counted(head, tile));
    }
}
