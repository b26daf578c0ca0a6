//! The schedule for d = 64, which forms dQ one tile later.
//!
//! A tile's dQ needs dS of both consumers, which run half a tile apart. One tile later both have long been written, so
//! neither consumer waits for the other, except to stay apart and because there are dS buffers for only two tiles. This
//! keeps dS in registers as an operand from tile to tile, for which only d = 64 has room.

use cuda_std::float::Half;
use cuda_std::wgmma::{self, Accumulators, Registers};

use super::STAGES;
use super::consume::{Consumer, Hidden, State, accumulate, pack, pin, slopes};

/// A tile's operands in registers: the weights of its first queries, the weights of the other queries, and dSᵀ.
type Operands<const EARLY: usize, const LATE: usize, const STEPS: usize> =
    ([[u32; 4]; EARLY], [[u32; 4]; LATE], [[u32; 4]; STEPS]);

impl<T: Half, const D: u32> Consumer<'_, T, D> {
    /// From S of the first tile to dS, which is returned and in shared memory, and dV. Nothing is on its way after that.
    #[inline(always)]
    unsafe fn begin<const S: usize, const HALF: usize, const STEPS: usize>(
        &self,
        state: &mut State<S, HALF>,
        hidden: Hidden,
    ) -> [[u32; 4]; STEPS]
    where
        [f32; S]: Accumulators,
        [f32; HALF]: Accumulators,
    {
        let Self { memory, index, .. } = *self;
        let State { s, dp, dv, .. } = state;
        self.weights::<S, STEPS>(s, &self.numbers(memory.exponents(0)), hidden);
        if index == 1 {
            self.wait_for_ds();
        }
        let mut p = pack::<T, S, STEPS>(s, 0);
        pin(&mut p);
        dp.pin();
        wgmma::fence_for(dv);
        accumulate::<T, HALF, STEPS>(dv, &p, self.turned(memory.d_o(0)));
        self.product(dp, memory.v(), memory.d_o(0));
        wgmma::wait_for::<0>(dp);
        dv.pin();
        pin(&mut p);
        slopes::<S, STEPS>(dp, s, &self.numbers(memory.deltas(0)));
        let ds = pack::<T, S, STEPS>(dp, 0);
        self.store_ds(&ds, 0);
        ds
    }

    /// From S of another tile to dS, likewise; dV of the early weights is on its way.
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
        self.weights::<S, STEPS>(s, &self.numbers(memory.exponents(stage)), hidden);
        if index == 1 {
            // This signal is earlier than necessary. It keeps the two consumers half a tile apart, so that one's
            // arithmetic overlaps the other's products.
            self.wait_for_ds();
        }
        // The fence before the rest of dV also orders the writes to these registers.
        dp.pin();
        self.product(dp, memory.v(), memory.d_o(stage));
        let mut p = pack::<T, S, EARLY>(s, 0);
        pin(&mut p);
        wgmma::fence_for(dv);
        accumulate::<T, HALF, EARLY>(dv, &p, self.turned(memory.d_o(stage)));
        wgmma::commit();
        wgmma::wait_for::<1>(dp);
        slopes::<S, STEPS>(dp, s, &self.numbers(memory.deltas(stage)));
        let (late, ds) = (pack::<T, S, LATE>(s, EARLY), pack::<T, S, STEPS>(dp, 0));
        if index == 0 {
            // The other consumer is done with the tile before the last, whose buffer this overwrites.
            self.wait_for_ds();
        }
        self.store_ds(&ds, step);
        (p, late, ds)
    }

    /// Starts dK of a tile. Does not commit a group.
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
        accumulate::<T, HALF, STEPS>(dk, ds, self.turned(self.memory.q(stage)));
    }

    /// Processes all tiles; S of the first is ready on entry.
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
        let mut ds = self.begin::<S, HALF, STEPS>(state, hidden(tile));
        self.signal();
        for step in 0..last {
            // This tile's dK, and S of the next.
            let (now, next) = (counted(head, tile), (step + 1) % STAGES);
            (head, tile) = walk.next(head, tile);
            self.dk(&mut state.dk, &mut ds, step % STAGES);
            wgmma::commit();
            memory.full(next).wait_parity((step + 1) / STAGES % 2);
            state.s.pin();
            self.product(&mut state.s, memory.k(), memory.q(next));
            wgmma::wait_for::<1>(&mut state.dk);
            pin(&mut ds);
            self.release(step % STAGES);
            wgmma::wait_for::<0>(&mut state.s);
            let (mut p, mut late, of_next) = self.open::<S, HALF, STEPS, EARLY, LATE>(state, step + 1, hidden(tile));
            // This tile's dQ, with the rest of the next one's dV.
            pin(&mut late);
            let dq = self.dq(step, || {
                wgmma::fence_for(&mut state.dv);
                let d_o = self.turned(memory.d_o(next)).advance(EARLY as u32 * 2048);
                accumulate::<T, HALF, LATE>(&mut state.dv, &late, d_o);
            });
            state.dv.pin();
            pin(&mut p);
            pin(&mut late);
            self.signal();
            self.add(dq, sums, now);
            ds = of_next;
        }
        self.dk(&mut state.dk, &mut ds, last % STAGES);
        if index == 0 {
            self.wait_for_ds();
        } else {
            self.wait_for_own_ds();
        }
        let dq = self.dq(last, || {});
        state.dk.pin();
        pin(&mut ds);
        self.add(dq, sums, counted(head, tile));
    }
}
