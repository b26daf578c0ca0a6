//! Tiles of 128 columns, one group of B's: half of what the others have, for results that leave multiprocessors empty with those.
//!
//! A thread's sums are in two rows, so that a group of k has two factors for it. Sums of a tile, of a group and of the next take 64
//! registers each. Shared memory gives the products 48 KiB a group, 128 bytes a clock, while 32 KiB arrive; the tensor cores need 490
//! clocks.

use cuda_std::float::Element;
use cuda_std::launch::TensorMap;
use cuda_std::vector::Pack;
use cuda_std::{f8e4m3, kernel, math, thread};

use super::super::Problem;
use super::super::epilogue::Factor;
use super::super::hopper::{
    self, CLUSTER, CONSUMERS, Consume, Cursor, Floats8, Matrices, Memory, Output, STORE_M, Tiles, WARPGROUP, Walk,
    shared_bytes,
};
use super::sum::{Factors, Summation};
use super::{GROUP, Scales};

/// Columns of C a block computes.
pub const COLUMNS: u32 = GROUP;

const B_BYTES: usize = hopper::b_bytes(COLUMNS);
const STAGES: usize = hopper::stages(CONSUMERS, COLUMNS);
const SUMS: usize = (COLUMNS / 2) as usize;

/// C of A·Bᵀ with scales by block, by tiles of [`COLUMNS`].
///
/// # Safety
/// As for [`gemm_hopper`](super::super::gemm::hopper::gemm_hopper), boxes having 128 elements of k; k is not 0, and the scales are valid for every
/// block.
#[kernel(
    dtypes(C: float), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = { shared_bytes(COLUMNS) },
    arch = "sm_90a", no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_fp8_blocks_columns<C: Element>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    problem: Problem,
    store: u32,
    a_scales: *const f32,
    b_scales: *const f32,
) {
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    let tiles = Tiles::of(&of.problem, [hopper::BLOCK_M, COLUMNS]);
    let consumers = Scaled { a_scales, b_scales };
    hopper::split::<Floats8<f8e4m3>, C, Factor, _, _, B_BYTES, STAGES, _>(of, Factor::ONE, tiles, consumers);
}

/// Consumers that multiply the groups of every tile of this cluster, scale each, and store C.
struct Scaled {
    a_scales: *const f32,
    b_scales: *const f32,
}

/// The scales of a thread's rows, which are read a group ahead, so that their latency is hidden.
struct Rows {
    rows: [*const f32; 2],
    column: *const f32,
    group: u32,
    last: u32,
    ahead: [f32; 2],
}

impl Rows {
    #[inline(always)]
    unsafe fn new(rows: [*const f32; 2], column: *const f32, groups: u32) -> Self {
        let mut all = Self { rows, column, group: 0, last: groups - 1, ahead: [0.0; 2] };
        all.ahead = all.of_group();
        all
    }

    #[inline(always)]
    unsafe fn of_group(&self) -> [f32; 2] {
        self.rows.map(|row| *row.add(self.group as usize) * *self.column.add(self.group as usize))
    }
}

impl Factors for Rows {
    type Group = [f32; 2];

    #[inline(always)]
    unsafe fn next(&mut self) -> [f32; 2] {
        let group = self.ahead;
        self.group = (self.group + 1).min(self.last);
        self.ahead = self.of_group();
        group
    }

    #[inline(always)]
    fn add(rows: &[f32; 2], i: usize, of_group: f32, sum: f32) -> f32 {
        math::fma(of_group, rows[i / 2 % 2], sum)
    }
}

impl<C: Element> Consume<C, Factor, B_BYTES, STAGES> for Scaled {
    #[inline(always)]
    unsafe fn consume<W: Walk>(
        self,
        memory: Memory<B_BYTES, STAGES>,
        consumer: u32,
        output: &Output<'_, C, Factor>,
        mut tiles: W,
    ) {
        let lane = thread::thread_idx_x() % WARPGROUP;
        let problem = &output.problem;
        let mut summation = Summation { memory, consumer, lane, at: Cursor::default() };
        let mut of_group = [[0.0f32; SUMS]; 2];
        while tiles.find() {
            let tile = tiles.tile();
            let row = tile.row + consumer * STORE_M + lane / 32 * 16 + lane % 32 / 4;
            let scales = Scales::new(self.a_scales, self.b_scales, problem, tile.column);
            let mut rows = Rows::new([scales.row(row), scales.row(row + 8)], scales.b, scales.groups);
            let mut sums = summation.sum::<Floats8<f8e4m3>, _, SUMS, true>(&mut of_group, scales.groups, &mut rows);
            // The addresses are computed only now: there are no registers to keep them during the products.
            let Pack([hidden, ..]) = Pack([lane, 0, 0, 0]).forget();
            output.part(hidden, consumer, tile).store(&mut sums);
            tiles.advance();
        }
        output.finish(lane);
    }
}
