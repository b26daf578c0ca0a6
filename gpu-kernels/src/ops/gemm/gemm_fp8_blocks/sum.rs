//! The sum of groups of k, each scaled by itself: the loop of consumers whose sums of a group fit beside those of a tile.

use cuda_std::wgmma::{self, Registers};

use super::super::hopper::{self, Cursor, Memory, Multiply, PANEL_BYTES};

/// What a group's sums are multiplied by.
pub(super) trait Factors {
    /// Those of a thread's sums.
    type Group;

    /// Those of the next group.
    unsafe fn next(&mut self) -> Self::Group;

    /// `group`'s sum `i` times its factor, added to `sum`.
    fn add(group: &Self::Group, i: usize, of_group: f32, sum: f32) -> f32;
}

/// A consumer warpgroup at its stages.
pub(super) struct Summation<const B: usize, const STAGES: usize> {
    pub(super) memory: Memory<B, STAGES>,
    pub(super) consumer: u32,
    /// In the warpgroup.
    pub(super) lane: u32,
    pub(super) at: Cursor,
}

impl<const B: usize, const STAGES: usize> Summation<B, STAGES> {
    /// Sums of as many groups, at least one, scaled by their factors. With `AHEAD` the products of the next group are under way while those of
    /// one are scaled, for which the second of two arrays of sums is used too.
    #[inline(always)]
    pub(super) unsafe fn sum<M, F: Factors, const R: usize, const AHEAD: bool>(
        &mut self,
        [one, other]: &mut [[f32; R]; 2],
        mut groups: u32,
        factors: &mut F,
    ) -> [f32; R]
    where
        M: Multiply<R, Sum = f32>,
        [f32; R]: Registers,
    {
        let mut sums = [0.0f32; R];
        if !AHEAD {
            for _ in 0..groups {
                let group = factors.next();
                self.start::<M, R>(one);
                self.finish::<F, R, 0>(&mut sums, one, &group, self.at.stage);
                self.at.advance(STAGES);
            }
            return sums;
        }
        self.start::<M, R>(one);
        // The arrays change places, which registers cannot: both turns are written out.
        macro_rules! group {
            ($this:ident, $next:ident) => {{
                let stage = self.at.stage;
                self.at.advance(STAGES);
                let group = factors.next();
                groups -= 1;
                if groups == 0 {
                    self.finish::<F, R, 0>(&mut sums, $this, &group, stage);
                    break;
                }
                self.start::<M, R>($next);
                self.finish::<F, R, 1>(&mut sums, $this, &group, stage);
            }};
        }
        loop {
            group!(one, other);
            group!(other, one);
        }
        sums
    }

    /// Starts the products of the stage it is at, which is a group.
    #[inline(always)]
    unsafe fn start<M: Multiply<R, Sum = f32>, const R: usize>(&self, of_group: &mut [f32; R])
    where
        [f32; R]: Registers,
    {
        let Self { memory, consumer, at, .. } = *self;
        memory.full(at.stage).wait_parity(at.parity);
        let a = hopper::descriptors(memory.a(at.stage).add(consumer * PANEL_BYTES), false);
        let b = hopper::descriptors(memory.b(at.stage), false);
        wgmma::fence_for(of_group);
        M::multiply(of_group, a[0], b[0], false);
        M::multiply(of_group, a[1], b[1], true);
        M::multiply(of_group, a[2], b[2], true);
        M::multiply(of_group, a[3], b[3], true);
        wgmma::commit();
    }

    /// Waits for the products of a group, until `PENDING` later ones are left, and adds them times their factors.
    #[inline(always)]
    unsafe fn finish<F: Factors, const R: usize, const PENDING: u32>(
        &self,
        sums: &mut [f32; R],
        of_group: &mut [f32; R],
        group: &F::Group,
        stage: u32,
    ) where
        [f32; R]: Registers,
    {
        wgmma::wait_for::<PENDING>(of_group);
        self.memory.release(stage, self.lane);
        let mut i = 0;
        while i < R {
            sums[i] = F::add(group, i, of_group[i], sums[i]);
            i += 1;
        }
    }
}
