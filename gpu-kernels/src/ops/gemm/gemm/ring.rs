//! What [`skinny`](super::skinny) and [`pairs`](super::pairs) share: a ring of stages of the weight and of all vectors,
//! which a thread loads and two warpgroups multiply.

use cuda_std::float::{Element, Half};
use cuda_std::launch::{Fields, TensorMap};
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::wgmma::{self, Accumulators, Descriptor, K_MAJOR};
use cuda_std::{math, thread, tma};

use super::super::hopper::Cursor;

/// Two warpgroups that multiply, and the warp that produces.
pub const THREADS: u32 = CONSUMERS * WARPGROUP + 32;
/// Rows of the weight in a stage.
pub const ROWS: u32 = CONSUMERS * WARPGROUP_ROWS;

pub(super) const WARPGROUP: u32 = 128;
pub(super) const CONSUMERS: u32 = 2;
/// Rows of a product, and of a warp's share of it.
pub const WARPGROUP_ROWS: u32 = 64;
pub(super) const WARP_ROWS: u32 = 16;
/// Elements of k in a stage, and their bytes: a row of the widest swizzle.
const DEPTH: u32 = 64;
const ROW_BYTES: u32 = DEPTH * 2;

/// Vectors of a kernel whose threads have `r` sums.
pub const fn vectors(r: usize) -> u32 {
    2 * r as u32
}

pub(super) const fn stage_bytes(r: usize) -> u32 {
    (ROWS + vectors(r)) * ROW_BYTES
}

/// The bytes of a ring of so many stages, with its barriers.
pub(super) const fn ring_bytes(stages: u32, r: usize) -> u32 {
    stages * (stage_bytes(r) + 2 * size_of::<Barrier>() as u32)
}

/// The steps of block `rank` along k: the cluster's `SHARE` blocks take them in turn, so that what they read at a time is one
/// contiguous piece of each row.
#[inline(always)]
pub(super) fn steps<const SHARE: u32>(k: u32, rank: u32) -> u32 {
    k.div_ceil(DEPTH).saturating_sub(rank).div_ceil(SHARE)
}

/// Groups of 8 vectors, of which a thread has 4 sums each.
pub(super) const fn groups(vectors: u32) -> u32 {
    vectors.div_ceil(8)
}

/// Sizes, strides and factors of the product.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sizes {
    /// Strides of C in elements, from one row of the weight to the next and from one vector to the next; one of them is
    /// 1.
    pub c: [u64; 2],
    /// Rows of the weight.
    pub rows: u32,
    /// Vectors.
    pub vectors: u32,
    /// Elements of a row.
    pub k: u32,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what C holds.
    pub beta: f32,
    /// Padding, zero.
    pub padding: u32,
}

// SAFETY: 2 u64 and 6 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Sizes {}

impl Sizes {
    /// Stores sum `i` of a thread, times `factor`, where it belongs in C: a warp has 16 rows of the weight from `row0` on.
    #[inline(always)]
    pub(super) unsafe fn store<C: Element>(&self, c: *mut C, factor: f32, [row0, i, lane]: [u32; 3], sum: f32) {
        // The tensor core's layout: two neighbouring vectors, then the same two of the row 8 below.
        let row = row0 + lane / 4 + i / 2 % 2 * 8;
        let vector = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if row < self.rows && vector < self.vectors {
            let [c_row, c_vector] = self.c;
            let to = c.add((u64::from(row) * c_row + u64::from(vector) * c_vector) as usize);
            let old = if self.beta == 0.0 { 0.0 } else { self.beta * (*to).to_f32() };
            *to = C::from_f32(math::fma(factor, sum, old));
        }
    }
}

/// The order of a cluster's steps along k: those from its own place on, then those before.
///
/// All clusters read the same vectors. If all of them began with the first step, they would request the same few lines
/// at the same time, from the few slices of L2 that hold them.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    steps: u32,
    first: u32,
}

impl Turn {
    /// The order of this cluster of `SHARE` blocks: the clusters' starting steps are as far apart as the number of
    /// steps allows.
    #[inline(always)]
    pub(super) fn of<const SHARE: u32>(steps: u32) -> Self {
        let [cluster, clusters] = [thread::block_idx_x(), thread::grid_dim_x()].map(|blocks| u64::from(blocks / SHARE));
        Self { steps, first: (cluster * u64::from(steps) / clusters.max(1)) as u32 }
    }

    /// Step number `i`.
    #[inline(always)]
    pub(super) fn step(self, i: u32) -> u32 {
        let step = self.first + i;
        if step < self.steps { step } else { step - self.steps }
    }
}

/// Rows of the weight that a cluster takes at a time: [`ROWS`], or half as many.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// The ring at the start of the block's shared memory: `stages` stages, and their barriers.
#[derive(Clone, Copy)]
pub(super) struct Ring<const R: usize> {
    pub(super) memory: SharedPtr<u8>,
    pub(super) stages: u32,
}

impl<const R: usize> Ring<R> {
    /// What follows the ring in shared memory.
    #[inline(always)]
    pub(super) fn end<T>(self) -> SharedPtr<T> {
        self.memory.byte_add(ring_bytes(self.stages, R)).cast()
    }

    #[inline(always)]
    fn weight(self, stage: u32) -> SharedPtr<u8> {
        self.memory.byte_add(stage * stage_bytes(R))
    }

    #[inline(always)]
    fn vectors(self, stage: u32) -> SharedPtr<u8> {
        self.weight(stage).byte_add(ROWS * ROW_BYTES)
    }

    #[inline(always)]
    fn full(self, stage: u32) -> SharedPtr<Barrier> {
        self.weight(self.stages).cast::<Barrier>().add(stage)
    }

    #[inline(always)]
    fn empty(self, stage: u32) -> SharedPtr<Barrier> {
        self.full(self.stages + stage)
    }

    /// Prepares the barriers. Run by one thread, before a fence.
    #[inline(always)]
    pub(super) unsafe fn init(self) {
        for stage in 0..self.stages {
            self.full(stage).init(1);
            self.empty(stage).init(CONSUMERS);
        }
    }

    /// Loads the stages of all steps of block `rank` of a cluster of `SHARE` for these rows. Run by one thread.
    #[inline(always)]
    pub(super) unsafe fn fill<const SHARE: u32>(
        self,
        maps: [&TensorMap; 2],
        rows: Rows,
        rank: u32,
        turn: Turn,
        at: &mut Cursor,
    ) {
        for i in 0..turn.steps {
            self.load(maps, rows, rank + turn.step(i) * SHARE, at);
        }
    }

    /// Loads the stage of this step along k.
    #[inline(always)]
    unsafe fn load(self, maps: [&TensorMap; 2], rows: Rows, step: u32, at: &mut Cursor) {
        // A fresh barrier counts as having completed the phase before its first, so the first round does not wait.
        self.empty(at.stage).wait_parity(at.parity ^ 1);
        let full = self.full(at.stage);
        full.arrive_expect_tx((rows.count + vectors(R)) * ROW_BYTES);
        let k0 = (step * DEPTH) as i32;
        let [weight, vectors] = maps;
        tma::load_3d(self.weight(at.stage), weight, [k0, rows.first as i32, 0], full);
        if rows.count == ROWS {
            let second = self.weight(at.stage).byte_add(WARPGROUP_ROWS * ROW_BYTES);
            tma::load_3d(second, weight, [k0, (rows.first + WARPGROUP_ROWS) as i32, 0], full);
        }
        tma::load_3d(self.vectors(at.stage), vectors, [k0, 0, 0], full);
        at.advance(self.stages as usize);
    }

    /// Gives so many stages back as they arrive. Run by a whole warpgroup that has no rows of them.
    #[inline(always)]
    pub(super) unsafe fn skip(self, steps: u32, at: &mut Cursor) {
        for _ in 0..steps {
            self.full(at.stage).wait_parity(at.parity);
            if thread::thread_idx_x().is_multiple_of(WARPGROUP) {
                self.give_back(at.stage);
            }
            at.advance(self.stages as usize);
        }
    }

    /// Multiplies 64 rows of so many stages, and gives all but the last of them back, which it returns. Run by a whole
    /// warpgroup.
    #[inline(always)]
    pub(super) unsafe fn multiply<T: Half>(
        self,
        consumer: u32,
        steps: u32,
        at: &mut Cursor,
        sums: &mut [f32; R],
    ) -> Option<u32>
    where
        [f32; R]: Accumulators,
    {
        let is_first_lane = thread::thread_idx_x().is_multiple_of(WARPGROUP);
        let mut previous = None;
        for _ in 0..steps {
            self.full(at.stage).wait_parity(at.parity);
            let rows = self.weight(at.stage).byte_add(consumer * WARPGROUP_ROWS * ROW_BYTES);
            let (rows, vectors) = (Descriptor::k_major_128b(rows), Descriptor::k_major_128b(self.vectors(at.stage)));
            wgmma::fence();
            // The first product overwrites.
            sums.product::<T, K_MAJOR, K_MAJOR>(rows, vectors, previous.is_some());
            sums.product::<T, K_MAJOR, K_MAJOR>(rows.advance(32), vectors.advance(32), true);
            sums.product::<T, K_MAJOR, K_MAJOR>(rows.advance(64), vectors.advance(64), true);
            sums.product::<T, K_MAJOR, K_MAJOR>(rows.advance(96), vectors.advance(96), true);
            wgmma::commit();
            // One group stays in flight; the stage before it has been read.
            wgmma::wait::<1>();
            if let Some(previous) = previous.replace(at.stage)
                && is_first_lane
            {
                self.give_back(previous);
            }
            at.advance(self.stages as usize);
        }
        wgmma::wait_for::<0>(sums);
        previous
    }

    /// Gives a stage back that [`multiply`](Self::multiply) has left. Run by one thread of the warpgroup.
    #[inline(always)]
    pub(super) unsafe fn give_back(self, stage: u32) {
        self.empty(stage).arrive();
    }
}
