//! Products of groups of rows with one matrix per group: the experts of a mixture (MoE).
//!
//! # Math
//! yᵢⱼ = Σₖ xᵢₖ·w(g)ⱼₖ for the rows i of group g, offsets\[g\] ≤ i < offsets\[g + 1\]. Rows of no group are zeros.
//!
//! # Layout
//! `x` is m × k, rows sorted by group, and `y` m × n; `weight` is groups × n × k, each matrix K-major or, if
//! transposed, MN-major. All have the same 16-bit type. `offsets` are groups + 1 numbers that are known only on the
//! device. They need not be valid: row numbers are clamped to 0 ..= m, and an offset below the one before counts as
//! that one.
//!
//! # Mapping
//! As [`gemm`](super::gemm), but the tiles are those of each group in turn, so that no tile has rows of two groups: a
//! walk over the groups counts their tiles until it reaches its own. On Hopper a cluster continues from its previous
//! position. Where a group ends in no more rows than one block takes, the blocks of a pair take these rows by adjacent
//! columns; a consumer without rows multiplies nothing. Elsewhere the grid has a block for every possible tile,
//! ⌈m/128⌉ + groups down, and blocks without a tile write the zeros, as the producers' idle warps do on Hopper.
//!
//! # Shared memory
//! As [`gemm`](super::gemm).
//!
//! # Numerics
//! As [`gemm`](super::gemm).
//!
//! # Cost
//! 2·m·n·k FLOPs. The last 128 rows of a group take the time of a full tile: if sizes are no multiples of it, on
//! average 64 rows per group are lost. The walk reads one offset per group and block, from L1 after the first of 32. On
//! Hopper, the last 16 rows of a group are stored from shared memory by ordinary stores if they are incomplete.
//!
//! # Limits
//! As [`gemm`](super::gemm); ⌈m/128⌉ + groups rows of tiles.
//!
//! # Sources
//! Gale et al., "MegaBlocks" (arXiv:2211.15841), for products of the experts' rows without padding.

use cuda_std::float::Half;
use cuda_std::launch::TensorMap;
use cuda_std::{kernel, thread, warp};

use super::Problem;
use super::epilogue::Factor;
use super::groups::{Groups, Offsets, Rows, idle_warps};
use super::hopper::{self, CLUSTER, Halves, Matrices, TILES, Tile, UNITS, Walk, Wide, at_least_one, place};
use super::mma::{self, Shared};

/// Rows of groups times a matrix each.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), `x` K-major and one matrix of the problem's m rows, `weight` one for each of `groups`; `offsets` is
/// valid for reads of `groups` + 1 numbers; there are blocks for (⌈m/128⌉ + `groups`) · ⌈n/128⌉ tiles.
#[kernel(
    dtypes(T: half), values(W_MN: false, true, V: 8, 1), where(V == 8 || !W_MN), block = mma::THREADS, shared = Shared,
    no_spills
)]
pub unsafe fn gemm_grouped_mma<T: Half, const W_MN: bool, const V: usize>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    mut problem: Problem,
    offsets: *const i32,
    groups: u32,
) {
    let offsets = Offsets { offsets, groups, rows: problem.m };
    let (block, columns) = (thread::block_idx_x(), problem.n.div_ceil(mma::BLOCK));
    // The group that the block's tile is in, its rows and its first tile.
    let (mut group, mut end, mut first) = (0, offsets.first(), 0);
    let [start, rows] = loop {
        if group == groups {
            // The remaining blocks of the grid have no tile.
            let (warps, idle) = (mma::THREADS / 32, [block, thread::grid_dim_x()].map(|block| block - first));
            return offsets.clear(y, &problem, idle[0] * warps + warp::warp_id(), idle[1] * warps);
        }
        let [start, next] = offsets.of(group, end);
        end = next;
        let rows = (end - start).div_ceil(mma::BLOCK);
        if block - first < rows * columns {
            break [start, rows];
        }
        first += rows * columns;
        group += 1;
    };
    let [row, column] = place(block - first, at_least_one(rows), at_least_one(columns));
    let weight = weight.add((u64::from(group) * problem.b[0]) as usize);
    problem.m = end;
    let at = [start + row * mma::BLOCK, column * mma::BLOCK];
    mma::tile::<mma::Halves<T>, T, _, false, W_MN, V>(x, weight, y, problem, at, Factor::ONE, |_, _, _| ());
}

/// A walk over the groups, which also writes zeros to rows of no group.
#[derive(Clone, Copy)]
struct WithZeros<T> {
    groups: Groups<Offsets>,
    offsets: Offsets,
    y: *mut T,
    problem: Problem,
}

impl<T: Half> Walk for WithZeros<T> {
    const TOLD: bool = true;

    #[inline(always)]
    unsafe fn find(&mut self) -> bool {
        self.groups.find()
    }

    #[inline(always)]
    fn tile(&self) -> Tile {
        self.groups.tile()
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.groups.advance();
    }

    #[inline(always)]
    unsafe fn meanwhile(self) {
        let [worker, workers] = idle_warps();
        self.offsets.clear(self.y, &self.problem, worker, workers);
    }
}

/// `store`, which is one of the ways that store whole units of 16 bytes: for code of the others there are no registers.
#[inline(always)]
pub(super) fn whole_units(store: u32) -> u32 {
    if store == UNITS { UNITS } else { TILES }
}

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), `x` K-major, all maps but that of `weight` of one matrix, and `store`
/// not [`DIRECT`](hopper::DIRECT); `offsets` as for [`gemm_grouped_mma`].
#[kernel(
    dtypes(T: half), values(W_MN: false, true), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = Wide,
    arch = "sm_90a", no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_grouped_hopper<T: Half, const W_MN: bool>(
    x_map: &TensorMap,
    weight_map: &TensorMap,
    y_map: &TensorMap,
    y: *mut T,
    problem: Problem,
    store: u32,
    offsets: *const i32,
    groups: u32,
) {
    let offsets = Offsets { offsets, groups, rows: problem.m };
    let tiles = WithZeros { groups: Groups::new(offsets, problem.n), offsets, y, problem };
    let of = Matrices { a: x_map, b: weight_map, c_map: y_map, c: y, problem, store: whole_units(store) };
    hopper::walk::<Halves<T, false, W_MN>, T, _>(of, Factor::ONE, tiles);
}
