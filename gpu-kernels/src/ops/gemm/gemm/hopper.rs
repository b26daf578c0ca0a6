//! The entries of the Hopper path, which the products share: 16-bit operands that are K-major or MN-major.

use cuda_std::float::{Element, Half};
use cuda_std::kernel;
use cuda_std::launch::TensorMap;

use super::super::Problem;
use super::super::epilogue::{Factor, Swapped};
use super::super::hopper::{self, Halves, Matrices};

pub use super::super::hopper::{
    ADD, BLOCK_M, BLOCK_N, CLUSTER, DIRECT, FINE_WIDTHS, FINE_WIDTHS_F32, NARROW, NARROW_8, NARROW_COLUMNS, PANEL,
    PIECES_8, STAGE_BYTES, STORE_M, SWAPPED, SWAPPED_8, SWAPPED_COLUMNS, SWAPPED_ROWS, TALL, TALL_THREADS, THREADS,
    TILE, TILES, UNITS, WARP_ROWS, WIDTHS, loaded, shared_bytes, slab_columns, swapped_bytes, tall_shared_bytes,
};

/// Depth of a stage.
pub const BLOCK_K: u32 = hopper::depth::<u16>();

/// C = α·A·B + β·C of each of the problem's products; α times `scale`, unless that is null. If `each` is not 0, the
/// products are pieces of one, of so many elements of k, a multiple of [`BLOCK_K`], the last one of what is left.
///
/// A block's tile has `N` columns. `a_map` loads boxes of `BLOCK_M` × `BLOCK_K` and `b_map` half of `N` × `BLOCK_K`:
/// K-major boxes whole, MN-major ones in panels, which are halved along k where there are three of them. `c_map` stores
/// `WARP_ROWS` rows of 128 bytes. All maps have 128-byte swizzle, and their last dimension is the product; loads outside
/// a tensor read zero and stores outside are dropped. `store` selects how C is stored, and whether `c_map` is used:
/// [`TILES`] and [`ADD`] do, [`DIRECT`] and [`UNITS`] do not.
///
/// # Safety
/// The maps describe live tensors of the problem's sizes; `c` is valid for reads and writes of its elements. m, n and k are not zero;
/// `scale` is null or valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(A_MN: false, true, B_MN: false, true, N: 256, 192, 128, 64), where(C == T || C == f32),
    block = THREADS, min_blocks = 1, cluster = CLUSTER, shared = { shared_bytes(N) }, arch = "sm_90a", no_spills, programmatic
)]
pub unsafe fn gemm_hopper<T: Half, C: Element, const A_MN: bool, const B_MN: bool, const N: u32>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    scale: *const f32,
    problem: Problem,
    store: u32,
    each: u32,
) {
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    hopper::run_by::<Halves<T, A_MN, B_MN>, C, _, N>(of, Factor::of(problem.alpha, scale), each);
}

/// The same for tiles of the intermediate widths, `FINE_WIDTHS` and `FINE_WIDTHS_F32`, with K-major A. For
/// MN-major B, `b_map` loads half of the columns of whole panels.
///
/// # Safety
/// As for [`gemm_hopper`].
#[kernel(
    dtypes(T: half, C: float), values(B_MN: false, true, N: 240, 224, 208, 160, 144, 96),
    where(C == T || C == f32 && (N == 160 || N == 96)),
    block = THREADS, min_blocks = 1, cluster = CLUSTER, shared = { shared_bytes(loaded(N, B_MN)) }, arch = "sm_90a", no_spills, programmatic
)]
pub unsafe fn gemm_fine<T: Half, C: Element, const B_MN: bool, const N: u32>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    scale: *const f32,
    problem: Problem,
    store: u32,
) {
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    hopper::run_by::<Halves<T, false, B_MN>, C, _, N>(of, Factor::of(problem.alpha, scale), 0);
}

/// The same by tiles of [`TALL`] rows and columns: `a_map` loads boxes of so many rows.
///
/// # Safety
/// As for [`gemm_hopper`].
#[kernel(
    dtypes(T: half, C: float), values(A_MN: false, true, B_MN: false, true), where(C == T || C == f32),
    block = TALL_THREADS, min_blocks = 1, cluster = CLUSTER, shared = { tall_shared_bytes() }, arch = "sm_90a", no_spills, programmatic
)]
pub unsafe fn gemm_tall<T: Half, C: Element, const A_MN: bool, const B_MN: bool>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    scale: *const f32,
    problem: Problem,
    store: u32,
) {
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    hopper::run_tall::<Halves<T, A_MN, B_MN>, C, _>(of, Factor::of(problem.alpha, scale));
}

/// The same for rows that fill no tiles of 256, as Cᵀ = Bᵀ·Aᵀ: columns of C are the 256 rows of a tile, and rows of C its `N` columns.
/// `a_map`, `b_map` and `problem` are those of the swapped operands, both K-major; C and `c_map` are those of the original,
/// untransposed C, of which `c_map` stores `SWAPPED_ROWS` rows.
///
/// Where 256 columns of C are too much for the multiprocessors to have a tile each, tiles are `NARROW`: a pair of blocks has 128 of them and
/// `N` rows, of which each block has half. `a_map` then loads half as many rows, `b_map` those of a block, and `each` is 0.
///
/// # Safety
/// As for [`gemm_hopper`], and `store` is [`TILES`] or [`ADD`].
#[kernel(
    dtypes(T: half, C: float), values(N: 208, 192, 160, 144, 128, 96, 64, NARROW: false, true),
    where((C == T || C == f32) && (!NARROW || N != 192 && N != 144)),
    block = THREADS, min_blocks = 1, cluster = CLUSTER, shared = { swapped_bytes(N, NARROW) }, arch = "sm_90a", no_spills, programmatic
)]
pub unsafe fn gemm_swapped<T: Half, C: Element, const N: u32, const NARROW: bool>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    scale: *const f32,
    problem: Problem,
    store: u32,
    each: u32,
) {
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    let epilogue = Swapped(Factor::of(problem.alpha, scale));
    if NARROW {
        hopper::run_narrow::<Halves<T, false, false>, C, _, N>(of, epilogue);
    } else {
        hopper::run_by::<Halves<T, false, false>, C, _, N>(of, epilogue, each);
    }
}
