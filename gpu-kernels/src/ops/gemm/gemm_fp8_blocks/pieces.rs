//! Few rows: tiles of swapped operands; or sums in f32, of pieces along k or whole, which
//! [`gemm_sum`](super::super::gemm::split::gemm_sum) adds.
//!
//! The rows of a block's tile are one group of the weight's rows, and its columns are rows of A. So the factors of a group of k are a scale
//! of B times one for each column, which [`factors`](super::factors) are made of ahead of the products. Sums of a group and of a tile take
//! `N`/2 registers each, and a group's factors a quarter of `N`.

use core::array;
use core::marker::PhantomData;

use cuda_std::float::Element;
use cuda_std::launch::TensorMap;
use cuda_std::vector::Pack;
use cuda_std::wgmma::{self, Registers};
use cuda_std::{f8e4m3, kernel, math, thread};

use super::super::Problem;
use super::super::epilogue::{Epilogue, Factor, Raw, Swapped};
use super::super::hopper::{
    self, CLUSTER, CONSUMERS, Consume, Cursor, Matrices, Memory, Multiply, Narrow, Output, PANEL_BYTES, Swapped8,
    Tiles, WARPGROUP, Walk, swapped_bytes,
};
use super::GROUP;
use super::factors::{Factors, Ring, Scales};

/// Rows of C that a tile can have: more would not fit into registers.
pub const ROWS: [u32; 3] = [128, 96, 64];
/// Rows of C that a pair of blocks can have.
pub const NARROW: [u32; 2] = [160, 64];
/// Shared memory of a block whose tiles have `n` rows of C, of which it has half if they are `narrow`.
const fn bytes(n: u32, narrow: bool) -> usize {
    swapped_bytes(n, narrow) + size_of::<Ring>()
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
        Factors(memory.behind()).initialise();
    }

    #[inline(always)]
    unsafe fn assist<W: Walk>(&self, memory: Memory<B, STAGES>, problem: &Problem, tiles: W) {
        Factors(memory.behind()).make(self.scales, 2 * R as u32, problem, tiles);
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
        let ring = Factors(memory.behind());
        let (mut at, mut slot) = (Cursor::default(), Cursor::default());
        while tiles.find() {
            let tile = tiles.tile();
            let [start, end] = tile.k.unwrap_or([0, output.problem.k]);
            let (mut sums, mut of_group) = ([0.0f32; R], [0.0f32; R]);
            for _ in start / GROUP..end.div_ceil(GROUP) {
                // Ahead of the products, for which ptxas would wait before the loop in here.
                let from = ring.wait(slot, lane).as_ptr();
                let factors: [Pack<f32, 4>; 8] =
                    array::from_fn(|i| if i < R / 8 { Pack::load(from.add(i * 16)) } else { Pack([0.0; 4]) });
                memory.full(at.stage).wait_parity(at.parity);
                let a = hopper::descriptors(memory.a(at.stage).add(consumer * PANEL_BYTES), false);
                let b = hopper::descriptors(memory.b(at.stage), false);
                wgmma::fence_for(&mut of_group);
                Swapped8::<f8e4m3>::multiply(&mut of_group, a[0], b[0], false);
                Swapped8::<f8e4m3>::multiply(&mut of_group, a[1], b[1], true);
                Swapped8::<f8e4m3>::multiply(&mut of_group, a[2], b[2], true);
                Swapped8::<f8e4m3>::multiply(&mut of_group, a[3], b[3], true);
                wgmma::commit();
                wgmma::wait_for::<0>(&mut of_group);
                memory.release(at.stage, lane);
                ring.release(slot, lane);
                at.advance(STAGES);
                Factors::advance(&mut slot);
                let mut i = 0;
                while i < R {
                    // Two rows of two neighbouring columns, every 8 columns.
                    let Pack([a, b, c, d]) = factors[i / 8];
                    let [left, right] = if i.is_multiple_of(8) { [a, b] } else { [c, d] };
                    sums[i] = math::fma(of_group[i], left, sums[i]);
                    sums[i + 1] = math::fma(of_group[i + 1], right, sums[i + 1]);
                    sums[i + 2] = math::fma(of_group[i + 2], left, sums[i + 2]);
                    sums[i + 3] = math::fma(of_group[i + 3], right, sums[i + 3]);
                    i += 4;
                }
            }
            output.part(lane, consumer, tile).store(&mut sums);
            tiles.advance();
        }
        output.finish(lane);
    }
}
