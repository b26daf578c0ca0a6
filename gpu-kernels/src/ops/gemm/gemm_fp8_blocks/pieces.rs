//! Few rows: sums of swapped operands in f32, of pieces along k or whole, which
//! [`gemm_sum`](super::super::gemm::split::gemm_sum) adds.
//!
//! The rows of a block's tile are one group of the weight's rows, and its columns are rows of A. So the scales of a group of k are one
//! of B times one for each column; threads compute these products for four groups at a time, a column each, and put them into the
//! shared memory that later holds the results. Sums of a group and of a tile are both in registers, `N`/2 each.

use core::array;
use core::marker::PhantomData;

use cuda_std::launch::TensorMap;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::wgmma::{self, Registers};
use cuda_std::{f8e4m3, kernel, math, thread, tma};

use super::super::Problem;
use super::super::epilogue::Raw;
use super::super::hopper::{
    self, CLUSTER, CONSUMERS, Consume, Cursor, Matrices, Memory, Multiply, Output, PANEL_BYTES, STAGE_BYTES, Swapped8,
    Tiles, WARPGROUP, Walk, shared_bytes,
};
use super::GROUP;

/// Groups whose scales are read at a time.
const AHEAD: u32 = 4;

/// Sums of A·Bᵀ with scales by block: of all of k, or of pieces of `each` elements, a multiple of [`GROUP`], if that is not 0. Operands are swapped, as
/// [`gemm_swapped`](super::super::gemm::hopper::gemm_swapped)'s: a tile has 256 columns of C and `N` rows.
///
/// # Safety
/// As for [`gemm_swapped`](super::super::gemm::hopper::gemm_swapped), boxes having 128 elements of k; the scales are valid for every block.
#[kernel(
    values(N: 160, 128, 96, 64), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { shared_bytes(N) }, arch = "sm_90a", no_spills, programmatic
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_fp8_blocks_pieces<const N: u32>(
    b_map: &TensorMap,
    a_map: &TensorMap,
    pieces_map: &TensorMap,
    pieces: *mut f32,
    problem: Problem,
    store: u32,
    each: u32,
    a_scales: *const f32,
    b_scales: *const f32,
) {
    let of = Matrices { a: b_map, b: a_map, c_map: pieces_map, c: pieces, problem, store };
    let tiles = Tiles::of(&problem, [hopper::BLOCK_M, N]).in_pieces(each);
    match N {
        160 => run::<80, { hopper::b_bytes(160) }, { hopper::stages(CONSUMERS, 160) }>(of, tiles, a_scales, b_scales),
        128 => run::<64, { hopper::b_bytes(128) }, { hopper::stages(CONSUMERS, 128) }>(of, tiles, a_scales, b_scales),
        96 => run::<48, { hopper::b_bytes(96) }, { hopper::stages(CONSUMERS, 96) }>(of, tiles, a_scales, b_scales),
        _ => run::<32, { hopper::b_bytes(64) }, { hopper::stages(CONSUMERS, 64) }>(of, tiles, a_scales, b_scales),
    }
}

#[inline(always)]
unsafe fn run<const R: usize, const B: usize, const STAGES: usize>(
    of: Matrices<'_, f32>,
    tiles: Tiles,
    a_scales: *const f32,
    b_scales: *const f32,
) where
    Swapped8<f8e4m3>: Multiply<R, Sum = f32>,
    [f32; R]: Registers,
{
    let consumers = Grouped::<R> { a_scales, b_scales, sums: PhantomData };
    hopper::split::<Swapped8<f8e4m3>, f32, Raw, _, _, B, STAGES, { CONSUMERS as usize }>(of, Raw, tiles, consumers);
}

/// Consumers that multiply the groups of every tile of this cluster, scale each, and store the sums.
struct Grouped<const R: usize> {
    a_scales: *const f32,
    b_scales: *const f32,
    sums: PhantomData<[f32; R]>,
}

impl<const R: usize> Grouped<R> {
    const COLUMNS: u32 = 2 * R as u32;
    /// Columns of a thread whose scales it reads.
    const EACH: usize = Self::COLUMNS.div_ceil(WARPGROUP) as usize;

    /// The products of scales of the groups from `group` on, for the columns of a thread; those behind the last group or column
    /// are other ones.
    #[inline(always)]
    unsafe fn scales(&self, problem: &Problem, tile: [u32; 2], group: u32, lane: u32) -> [[f32; AHEAD as usize]; 2] {
        let [row, column] = tile;
        let groups = problem.k.div_ceil(GROUP);
        let read = |scales: *const f32, line: u32| -> [f32; AHEAD as usize] {
            let line = scales.wrapping_add((u64::from(line) * u64::from(groups)) as usize);
            let from = line.wrapping_add(group as usize);
            if group + AHEAD <= groups && (from as usize).is_multiple_of(16) {
                return Pack::<f32, { AHEAD as usize }>::load(from).0;
            }
            array::from_fn(|i| *line.add((group + i as u32).min(groups - 1) as usize))
        };
        // Blocks past the last row have no scale of their own.
        let of_b = read(self.b_scales, row.min(problem.m - 1) / GROUP);
        let mut products = [[0.0; AHEAD as usize]; 2];
        let mut i = 0;
        while i < Self::EACH {
            let of_a = read(self.a_scales, (column + i as u32 * WARPGROUP + lane).min(problem.n - 1));
            products[i] = array::from_fn(|g| of_a[g] * of_b[g]);
            i += 1;
        }
        products
    }

    /// Puts them where the threads of the consumer find them.
    #[inline(always)]
    unsafe fn put(buffer: SharedPtr<f32>, scales: [[f32; AHEAD as usize]; 2], lane: u32) {
        let mut i = 0;
        while i < Self::EACH {
            let column = i as u32 * WARPGROUP + lane;
            if column < Self::COLUMNS {
                let mut g = 0;
                while g < AHEAD {
                    buffer.add(g * Self::COLUMNS + column).write(scales[i][g as usize]);
                    g += 1;
                }
            }
            i += 1;
        }
    }
}

impl<const R: usize, const B: usize, const STAGES: usize> Consume<f32, Raw, B, STAGES> for Grouped<R>
where
    Swapped8<f8e4m3>: Multiply<R, Sum = f32>,
    [f32; R]: Registers,
{
    #[inline(always)]
    unsafe fn consume<W: Walk>(
        self,
        memory: Memory<B, STAGES>,
        consumer: u32,
        output: &Output<'_, f32, Raw>,
        mut tiles: W,
    ) {
        const { assert!(2 * AHEAD * Self::COLUMNS * 4 <= 2 * 64 * STAGE_BYTES) };
        let lane = thread::thread_idx_x() % WARPGROUP;
        let problem = &output.problem;
        // Two buffers for scales, one behind the other.
        let [buffers, _] = memory.slabs(consumer);
        let buffer = |group: u32| buffers.cast::<f32>().add(group / AHEAD % 2 * AHEAD * Self::COLUMNS);
        let mut at = Cursor::default();
        while tiles.find() {
            let tile = tiles.tile();
            let place = [tile.row, tile.column];
            let first = tile.k.map_or(0, |[first, _]| first / GROUP);
            let groups = tiles.depth(problem.k).div_ceil(GROUP);
            let mut sums = [0.0f32; R];
            let mut of_group = [0.0f32; R];
            // The last tile's results have left the buffers.
            if lane.is_multiple_of(32) {
                tma::wait_group_read::<0>();
            }
            thread::named_barrier::sync(output.barrier, WARPGROUP);
            let mut ahead = self.scales(problem, place, first, lane);
            for group in 0..groups {
                if group.is_multiple_of(AHEAD) {
                    Self::put(buffer(group), ahead, lane);
                    thread::named_barrier::sync(output.barrier, WARPGROUP);
                    ahead = self.scales(problem, place, first + group + AHEAD, lane);
                }
                memory.full(at.stage).wait_parity(at.parity);
                let a = hopper::descriptors(memory.a(at.stage).add(consumer * PANEL_BYTES), false);
                let b = hopper::descriptors(memory.b(at.stage), false);
                wgmma::fence_for(&mut of_group);
                Swapped8::<f8e4m3>::multiply(&mut of_group, a[0], b[0], false);
                Swapped8::<f8e4m3>::multiply(&mut of_group, a[1], b[1], true);
                Swapped8::<f8e4m3>::multiply(&mut of_group, a[2], b[2], true);
                Swapped8::<f8e4m3>::multiply(&mut of_group, a[3], b[3], true);
                wgmma::commit();
                let scales = buffer(group).add(group % AHEAD * Self::COLUMNS + lane % 4 * 2);
                wgmma::wait_for::<0>(&mut of_group);
                memory.release(at.stage, lane);
                at.advance(STAGES);
                let mut i = 0;
                while i < R {
                    // Two rows of two neighbouring columns.
                    let Pack([left, right]) = Pack::<f32, 2>::load(scales.add(i as u32 * 2).as_ptr());
                    sums[i] = math::fma(of_group[i], left, sums[i]);
                    sums[i + 1] = math::fma(of_group[i + 1], right, sums[i + 1]);
                    sums[i + 2] = math::fma(of_group[i + 2], left, sums[i + 2]);
                    sums[i + 3] = math::fma(of_group[i + 3], right, sums[i + 3]);
                    i += 4;
                }
            }
            // Every thread has read the scales, whose place the results take.
            thread::named_barrier::sync(output.barrier, WARPGROUP);
            output.part(lane, consumer, tile).store(&mut sums);
            tiles.advance();
        }
        output.finish(lane);
    }
}
