//! The kernels of Hopper: those of whole tiles, and those of few rows.

use core::array;
use core::hint::cold_path;
use core::marker::PhantomData;

use cuda_std::float::Element;
use cuda_std::fp8::{Float8, f8e8m0};
use cuda_std::launch::TensorMap;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::thread::named_barrier;
use cuda_std::vector::Pack;
use cuda_std::wgmma::{self, Registers};
use cuda_std::{kernel, shared_field, thread, warp};

use super::super::Problem;
use super::super::epilogue::{Epilogue, Factor, Raw};
use super::super::gemm_fp8_blocks::factors::place_of_factor;
use super::super::hopper::{
    self, BLOCK_M, CLUSTER, CONSUMERS, Consume, Cursor, Floats8, Matrices, Memory, Multiply, Output, PANEL_BYTES,
    STAGE_BYTES, STORE_M, Swapped8, Tiles, WARPGROUP, Walk, b_bytes,
};
use super::{GROUP, GROUPS, Scales, add_scaled, column_factor, is_spared};

/// Columns of C a block computes.
pub const BLOCK_N: u32 = 128;
/// Rows of C that a tile of few rows can have.
pub const ROWS: [u32; 2] = [64, 32];

/// Factors of `N` columns of a stage, and of those of the next, for each consumer.
type Factors<const N: usize> = [[[[f32; N]; GROUPS as usize]; 2]; CONSUMERS as usize];

/// The block's shared memory.
#[repr(C, align(1024))]
pub struct Stages<const N: usize, const B: usize, const STAGES: usize> {
    /// The first field: it is the part that the producer knows of.
    ring: hopper::Shared<B, STAGES>,
    factors: Factors<N>,
}

/// As many stages as there is memory for beside the factors.
const fn stages(n: u32) -> usize {
    hopper::stages_beside(size_of::<Factors<1>>() * n as usize, CONSUMERS, n)
}

/// Shared memory of a block whose tile has `n` columns.
pub const fn shared_bytes(n: u32) -> usize {
    match n {
        128 => size_of::<Stages<128, { b_bytes(128) }, { stages(128) }>>(),
        64 => size_of::<Stages<64, { b_bytes(64) }, { stages(64) }>>(),
        _ => size_of::<Stages<32, { b_bytes(32) }, { stages(32) }>>(),
    }
}

/// C of A·Bᵀ with scales by group. Does nothing if `needed` is not null and points to zero.
///
/// # Safety
/// As for [`gemm_hopper`](super::super::gemm::hopper::gemm_hopper), boxes having 128 elements of k and those of B 64 rows; the scales are valid for every
/// group.
#[kernel(
    dtypes(Q: float8, C: float), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { shared_bytes(BLOCK_N) }, arch = "sm_90a", no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_mxfp8_hopper<Q: Float8, C: Element>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    problem: Problem,
    store: u32,
    a_scales: *const f8e8m0,
    b_scales: *const f8e8m0,
    needed: *const u32,
) {
    if is_spared(needed) {
        return;
    }
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    let tiles = Tiles::of(&problem, [BLOCK_M, BLOCK_N]);
    let scales = [Scales::new(a_scales, problem.m, problem.k), Scales::new(b_scales, problem.n, problem.k)];
    run::<Floats8<Q>, C, _, 64, { BLOCK_N as usize }, { b_bytes(BLOCK_N) }, { stages(BLOCK_N) }>(
        of,
        Factor::ONE,
        tiles,
        scales,
    );
}

/// Its sums in f32: of all of k, or of pieces of `each` elements, a multiple of a stage's 128, if that is not 0. Operands are swapped, as
/// [`gemm_swapped`](super::super::gemm::hopper::gemm_swapped)'s: a tile has 256 columns of C and `N` rows.
///
/// # Safety
/// As for [`gemm_swapped`](super::super::gemm::hopper::gemm_swapped), boxes having 128 elements of k; the scales are valid for every group, those of B
/// for `b_rows` rows.
#[kernel(
    dtypes(Q: float8), values(N: 64, 32), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { shared_bytes(N) }, arch = "sm_90a", no_spills, programmatic
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_mxfp8_pieces<Q: Float8, const N: u32>(
    b_map: &TensorMap,
    a_map: &TensorMap,
    pieces_map: &TensorMap,
    pieces: *mut f32,
    problem: Problem,
    store: u32,
    each: u32,
    a_scales: *const f8e8m0,
    b_scales: *const f8e8m0,
    b_rows: u32,
) {
    let of = Matrices { a: b_map, b: a_map, c_map: pieces_map, c: pieces, problem, store };
    let tiles = Tiles::of(&problem, [BLOCK_M, N]).in_pieces(each);
    // Rows of the pieces are whole packs, of which the last may reach behind B.
    let scales = [Scales::new(b_scales, b_rows, problem.k), Scales::new(a_scales, problem.n, problem.k)];
    match N {
        64 => run::<Swapped8<Q>, f32, _, 32, 64, { b_bytes(64) }, { stages(64) }>(of, Raw, tiles, scales),
        _ => run::<Swapped8<Q>, f32, _, 16, 32, { b_bytes(32) }, { stages(32) }>(of, Raw, tiles, scales),
    }
}

/// The kernel with the scales of the operands' rows.
#[inline(always)]
unsafe fn run<M, C: Element, E: Epilogue, const R: usize, const N: usize, const B: usize, const STAGES: usize>(
    of: Matrices<'_, C>,
    epilogue: E,
    tiles: Tiles,
    [rows, columns]: [Scales; 2],
) where
    M: Multiply<R, Sum = f32>,
    [f32; R]: Registers,
{
    let consumers = Scaled::<M, R, N> { rows, columns, of: PhantomData };
    hopper::split::<M, C, E, _, _, B, STAGES, { CONSUMERS as usize }>(of, epilogue, tiles, consumers);
}

/// Consumers that multiply the stages of every tile of `N` columns of this cluster, scale each group, and store C.
struct Scaled<M, const R: usize, const N: usize> {
    rows: Scales,
    columns: Scales,
    of: PhantomData<(M, [f32; R])>,
}

impl<M, C, E, const R: usize, const N: usize, const B: usize, const STAGES: usize> Consume<C, E, B, STAGES>
    for Scaled<M, R, N>
where
    M: Multiply<R, Sum = f32>,
    C: Element,
    E: Epilogue,
    [f32; R]: Registers,
{
    #[inline(always)]
    unsafe fn consume<W: Walk>(
        self,
        memory: Memory<B, STAGES>,
        consumer: u32,
        output: &Output<'_, C, E>,
        mut tiles: W,
    ) {
        let block: SharedPtr<Stages<N, B, STAGES>> = shared::dynamic();
        let factors = shared_field!(block.factors).at(consumer);
        let lane = thread::thread_idx_x() % WARPGROUP;
        let in_words = [self.rows.in_words(), self.columns.in_words()];
        let groups = self.rows.groups;
        let mut products = [0.0; R];
        let mut at = Cursor::default();
        let mut side = 0;
        while tiles.find() {
            let tile = tiles.tile();
            let row = tile.row + consumer * STORE_M + lane / 32 * 16 + lane % 32 / 4;
            let rows = [self.rows.row(row), self.rows.row(row + 8)];
            let column = self.columns.row(tile.column + lane % N as u32);
            let [start, end] = tile.k.unwrap_or([0, output.problem.k]);
            let (first, last) = (start / STAGE_BYTES, end.div_ceil(STAGE_BYTES) - 1);
            let mut sums = [0.0; R];
            // Scales are read a stage ahead, so that their latency is hidden.
            let of_stage = |stage: u32| {
                let rows = rows.map(|row| self.rows.word(row, stage, in_words[0]));
                (rows, self.columns.word(column, stage, in_words[1]))
            };
            let mut next = of_stage(first);
            for step in first..=last {
                let (mut rows, column) = next;
                let factors = factors.at(side);
                if lane < N as u32 {
                    for group in 0..GROUPS {
                        let factor = column_factor(column >> (8 * group) & 0xff);
                        factors.at(group).at(place_of_factor(lane)).write(factor);
                    }
                }
                next = of_stage((step + 1).min(last));
                // The two upper bits of a code.
                let great = rows.map(|codes| codes & codes << 1 & 0x8080_8080 != 0);
                let great = warp::any(great[0] || great[1]);
                named_barrier::sync(output.barrier, WARPGROUP);
                memory.full(at.stage).wait_parity(at.parity);
                let [a, ..] = hopper::descriptors(memory.a(at.stage).add(consumer * PANEL_BYTES), false);
                let [b, ..] = hopper::descriptors(memory.b(at.stage), false);
                // Its length is not known to the compiler: unrolled it would be more than the instruction cache holds.
                for group in 0..(groups - step * GROUPS).min(GROUPS) {
                    wgmma::fence_for(&mut products);
                    M::multiply(&mut products, a.advance(group * GROUP), b.advance(group * GROUP), false);
                    wgmma::commit();
                    let of_lane = factors.at(group).at(lane % 4 * 4).as_ptr();
                    let columns: [Pack<f32, 4>; 8] =
                        array::from_fn(|i| if i < R / 8 { Pack::load(of_lane.add(i * 16)) } else { Pack([0.0; 4]) });
                    let codes = rows.map(|codes| codes & 0xff);
                    rows = rows.map(|codes| codes >> 8);
                    wgmma::wait_for::<0>(&mut products);
                    if great {
                        cold_path();
                        add_scaled::<_, true>(&mut sums, &products, codes, |c| columns[c / 4].0[c % 4]);
                    } else {
                        add_scaled::<_, false>(&mut sums, &products, codes, |c| columns[c / 4].0[c % 4]);
                    }
                }
                memory.release(at.stage, lane);
                at.advance(STAGES);
                side ^= 1;
            }
            output.part(lane, consumer, tile).store(&mut sums);
            tiles.advance();
        }
        output.finish(lane);
    }
}
