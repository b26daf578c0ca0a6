//! Few rows: tiles of swapped operands; or sums in f32, of pieces along k or whole, which
//! [`gemm_sum`](super::super::gemm::split::gemm_sum) adds.
//!
//! The rows of a block's tile are one group of the weight's rows, and its columns are rows of A. So the factors of a group of k are a scale
//! of B times one for each column, which warps that idle make ahead of the products. Sums of a tile, of a group and of
//! the next take `N`/2 registers each, and a group's factors a quarter of `N`.
//!
//! Shared memory is what bounds them. Of 80 columns a block's products read 36 KiB a group, 128 bytes a clock, 26 KiB arrive, and factors
//! take 160 clocks to get into all lanes' registers: on an H200 a group takes 560 clocks, where the tensor cores need 305.

use core::marker::PhantomData;

use cuda_std::float::Element;
use cuda_std::launch::TensorMap;
use cuda_std::vector::Pack;
use cuda_std::wgmma::Registers;
use cuda_std::{f8e4m3, kernel, math, thread};

use super::super::Problem;
use super::super::epilogue::{Epilogue, Factor, Raw, Swapped};
use super::super::hopper::{
    self, CLUSTER, CONSUMERS, Consume, Cursor, Matrices, Memory, Multiply, Narrow, Output, Swapped8, Tiles, WARPGROUP,
    Walk, swapped_bytes,
};
use super::GROUP;
use super::factors::{Columns, Ring, Scales, Slots};
use super::sum::{Factors, Summation};

/// Rows of C that a tile can have: more would not fit into registers.
pub const ROWS: [u32; 3] = [128, 96, 64];
/// Rows of C that a pair of blocks can have.
pub const NARROW: [u32; 2] = [160, 64];
/// Sums of a thread at most, where the products of the next group are under way while those of one are scaled: for both, beside the sums
/// of a tile, there are no registers in tiles of 128 columns.
const MOST_AHEAD: usize = 48;

/// Shared memory of a block whose tiles have `n` rows of C, of which it has half if they are `narrow`.
const fn bytes(n: u32, narrow: bool) -> usize {
    swapped_bytes(n, narrow) + size_of::<Slots>()
}

/// The product by tiles of `N` rows and 256 columns of C: operands are swapped, as [`gemm_swapped`](super::super::gemm::hopper::gemm_swapped)'s, whose
/// tiles may be `NARROW`.
///
/// # Safety
/// As for [`gemm_swapped`](super::super::gemm::hopper::gemm_swapped), boxes having 128 elements of k; the scales are valid for every block.
#[kernel(
    dtypes(C: float), values(N: 160, 128, 96, 64, NARROW: false, true), where(!NARROW && N <= 128 || NARROW && (N == 160 || N == 64)),
    block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { bytes(N, NARROW) }, arch = "sm_90a", no_spills, programmatic
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_fp8_blocks_swapped<C: Element, const N: u32, const NARROW: bool>(
    b_map: &TensorMap,
    a_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    problem: Problem,
    store: u32,
    a_scales: *const f32,
    b_scales: *const f32,
) {
    let of = Matrices { a: b_map, b: a_map, c_map, c, problem, store };
    let epilogue = Swapped(Factor::ONE);
    if !NARROW {
        run_by::<C, _, N>(of, epilogue, 0, a_scales, b_scales);
    } else if N == self::NARROW[0] {
        let tiles = Narrow::of(&of.problem, [hopper::BLOCK_M, self::NARROW[0] / CLUSTER]);
        walk::<C, _, _, { self::NARROW[0] / CLUSTER }>(of, epilogue, tiles, a_scales, b_scales);
    } else {
        let tiles = Narrow::of(&of.problem, [hopper::BLOCK_M, self::NARROW[1] / CLUSTER]);
        walk::<C, _, _, { self::NARROW[1] / CLUSTER }>(of, epilogue, tiles, a_scales, b_scales);
    }
}

/// Sums of A·Bᵀ with scales by block: of all of k, or of pieces of `each` elements, a multiple of [`GROUP`], if that is not 0. Operands are swapped, as
/// [`gemm_swapped`](super::super::gemm::hopper::gemm_swapped)'s: a tile has 256 columns of C and `N` rows.
///
/// # Safety
/// As for [`gemm_swapped`](super::super::gemm::hopper::gemm_swapped), boxes having 128 elements of k; the scales are valid for every block.
#[kernel(
    values(N: 128, 96, 64), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { bytes(N, false) }, arch = "sm_90a", no_spills, programmatic
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
    run_by::<f32, _, N>(of, Raw, each, a_scales, b_scales);
}

/// By tiles of `N` rows of C.
#[inline(always)]
unsafe fn run_by<C: Element, E: Epilogue, const N: u32>(
    of: Matrices<'_, C>,
    epilogue: E,
    each: u32,
    a_scales: *const f32,
    b_scales: *const f32,
) {
    let tiles = Tiles::of(&of.problem, [hopper::BLOCK_M, N]).in_pieces(each);
    walk::<C, E, _, N>(of, epilogue, tiles, a_scales, b_scales);
}

/// Over tiles of which a block has `N` rows of C.
#[inline(always)]
unsafe fn walk<C: Element, E: Epilogue, W: Walk, const N: u32>(
    of: Matrices<'_, C>,
    epilogue: E,
    tiles: W,
    a_scales: *const f32,
    b_scales: *const f32,
) {
    macro_rules! rows {
        ($n:literal) => {{
            let consumers =
                Grouped::<{ $n / 2 }> { scales: Scales { columns: a_scales, rows: b_scales }, sums: PhantomData };
            hopper::split::<
                Swapped8<f8e4m3>,
                C,
                E,
                _,
                _,
                { hopper::b_bytes($n) },
                { hopper::stages(CONSUMERS, $n) },
                { CONSUMERS as usize },
            >(of, epilogue, tiles, consumers)
        }};
    }
    match N {
        128 => rows!(128),
        96 => rows!(96),
        80 => rows!(80),
        64 => rows!(64),
        _ => rows!(32),
    }
}

/// Consumers that multiply the groups of every tile of this cluster, scale each, and store the sums.
struct Grouped<const R: usize> {
    scales: Scales,
    sums: PhantomData<[f32; R]>,
}

impl<C, E, const R: usize, const B: usize, const STAGES: usize> Consume<C, E, B, STAGES> for Grouped<R>
where
    C: Element,
    E: Epilogue,
    Swapped8<f8e4m3>: Multiply<R, Sum = f32>,
    [f32; R]: Registers,
{
    #[inline(always)]
    unsafe fn initialise(&self, memory: Memory<B, STAGES>) {
        Ring(memory.behind()).initialise();
    }

    #[inline(always)]
    unsafe fn assist<W: Walk>(&self, memory: Memory<B, STAGES>, problem: &Problem, tiles: W) {
        Ring(memory.behind()).make(self.scales, 2 * R as u32, problem, tiles);
    }

    #[inline(always)]
    unsafe fn consume<W: Walk>(
        self,
        memory: Memory<B, STAGES>,
        consumer: u32,
        output: &Output<'_, C, E>,
        mut tiles: W,
    ) {
        let lane = thread::thread_idx_x() % WARPGROUP;
        let mut summation = Summation { memory, consumer, lane, at: Cursor::default() };
        let mut factors = Taken::<R> { ring: Ring(memory.behind()), slot: Cursor::default(), lane };
        let mut of_group = [[0.0f32; R]; 2];
        while tiles.find() {
            let tile = tiles.tile();
            let [start, end] = tile.k.unwrap_or([0, output.problem.k]);
            let groups = end.div_ceil(GROUP) - start / GROUP;
            let mut sums = if R > MOST_AHEAD {
                summation.sum::<Swapped8<f8e4m3>, _, R, false>(&mut of_group, groups, &mut factors)
            } else {
                summation.sum::<Swapped8<f8e4m3>, _, R, true>(&mut of_group, groups, &mut factors)
            };
            // The addresses are computed only now: there are no registers to keep them during the products.
            let Pack([hidden, ..]) = Pack([lane, 0, 0, 0]).forget();
            output.part(hidden, consumer, tile).store(&mut sums);
            tiles.advance();
        }
        output.finish(lane);
    }
}

/// The factors of `R` sums, from the ring.
struct Taken<const R: usize> {
    ring: Ring,
    slot: Cursor,
    lane: u32,
}

impl<const R: usize> Factors for Taken<R> {
    type Group = Columns;

    #[inline(always)]
    unsafe fn next(&mut self) -> Columns {
        self.ring.take(&mut self.slot, self.lane, R / 8)
    }

    #[inline(always)]
    fn add(columns: &Columns, i: usize, of_group: f32, sum: f32) -> f32 {
        // Two rows of each of two columns.
        math::fma(of_group, columns[i / 8].0[i / 4 % 2 * 2 + i % 2], sum)
    }
}
