//! Products of groups of rows with a matrix for each group: the experts of a mixture.
//!
//! # Math
//! yᵢⱼ = Σₖ xᵢₖ·w(g)ⱼₖ for the rows i of group g, offsets\[g\] ≤ i < offsets\[g + 1\]. Rows of no group are zeros.
//!
//! # Layout
//! `x` is m × k, rows sorted by group, and `y` m × n; `weight` is groups × n × k, each matrix K-major or, as its transpose is, MN-major. All have the
//! same 16-bit type. `offsets` are groups + 1 numbers that only the device knows; whatever they are, row numbers are held to 0 ..= m, and an
//! offset below the one before counts as that one.
//!
//! # Mapping
//! As [`gemm`](super::gemm), but that the tiles are those of each group in turn, so that none has rows of two: a walk over the groups adds up their
//! tiles until it comes to its own. On Hopper a cluster goes on from where it was; elsewhere there is a block for every tile that there could
//! be, ⌈m/128⌉ + groups down, and those without one write the zeros, as the producers' idle warps do on Hopper.
//!
//! # Shared memory
//! As [`gemm`](super::gemm).
//!
//! # Numerics
//! As [`gemm`](super::gemm).
//!
//! # Cost
//! 2·m·n·k FLOPs. A group's last tile is computed whole: with m/groups rows each, of a multiple of 256 (128 elsewhere) half a tile is lost a group. The walk
//! reads an offset a group and block, from L1 after the first of 32. On Hopper, the last 64 rows of a group leave shared memory by ordinary stores if they are fewer.
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
use super::hopper::{self, CLUSTER, Halves, Matrices, Tile, Walk, Wide, at_least_one, place};
use super::mma::{self, Shared};

/// Where the groups' rows are, as the device knows it.
#[derive(Clone, Copy)]
struct Offsets {
    offsets: *const i32,
    groups: u32,
    /// Of x.
    rows: u32,
}

impl Offsets {
    /// Offset `i`, not before row `least` nor past the last.
    #[inline(always)]
    unsafe fn at(self, i: u32, least: u32) -> u32 {
        let offset = (*self.offsets.add(i as usize)).max(0) as u32;
        offset.min(self.rows).max(least)
    }

    /// Writes zeros to the rows of no group, which are in front of the first and behind the last. Run by whole warps, of which this one is `worker`
    /// of `workers`.
    #[inline(always)]
    unsafe fn clear<T: Half>(self, y: *mut T, problem: &Problem, worker: u32, workers: u32) {
        let first = self.at(0, 0);
        let mut last = first;
        let mut i = 1;
        while i <= self.groups {
            last = self.at(i, last);
            i += 1;
        }
        let mut at = worker;
        while at < first + (self.rows - last) {
            let row = if at < first { at } else { at - first + last };
            let mut column = warp::lane_id();
            while column < problem.n {
                *y.add((u64::from(row) * problem.c[1] + u64::from(column)) as usize) = T::from_f32(0.0);
                column += 32;
            }
            at += workers;
        }
    }
}

/// A walk over the tiles of all groups.
#[derive(Clone, Copy)]
struct Groups {
    offsets: Offsets,
    /// Rows and columns of a tile.
    tile: [u32; 2],
    /// Tiles side by side.
    columns: u32,
    /// The number of the next tile, and how far it is to the one after.
    index: u32,
    step: u32,
    /// Groups that have been entered; of the last of them the rows, the first tile and how many it has.
    entered: u32,
    start: u32,
    end: u32,
    first: u32,
    tiles: u32,
}

impl Groups {
    /// Over every `step`th tile of `tile` rows and columns from `index` on.
    #[inline(always)]
    unsafe fn new(offsets: Offsets, n: u32, tile: [u32; 2], [index, step]: [u32; 2]) -> Self {
        let (columns, end) = (n.div_ceil(tile[1]), offsets.at(0, 0));
        Self { offsets, tile, columns, index, step, entered: 0, start: 0, end, first: 0, tiles: 0 }
    }

    /// Whether there is a tile: goes to its group.
    #[inline(always)]
    unsafe fn find(&mut self) -> bool {
        while self.index - self.first >= self.tiles {
            if self.entered == self.offsets.groups {
                return false;
            }
            self.entered += 1;
            self.start = self.end;
            self.end = self.offsets.at(self.entered, self.start);
            self.first += self.tiles;
            self.tiles = (self.end - self.start).div_ceil(self.tile[0]) * self.columns;
        }
        true
    }

    /// Where it is.
    #[inline(always)]
    fn tile(&self) -> Tile {
        let rows = at_least_one((self.end - self.start).div_ceil(self.tile[0]));
        let [row, column] = place(self.index - self.first, rows, at_least_one(self.columns));
        let [rows, columns] = self.tile;
        let (row, column) = (self.start + row * rows, column * columns);
        Tile { row, column, product: 0, b: self.entered - 1, end: Some(self.end) }
    }
}

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
    let mut walk = Groups::new(offsets, problem.n, [mma::BLOCK; 2], [thread::block_idx_x(), thread::grid_dim_x()]);
    if !walk.find() {
        let (warps, tiles) = (mma::THREADS / 32, walk.first + walk.tiles);
        let idle = [thread::block_idx_x(), thread::grid_dim_x()].map(|block| (block - tiles) * warps);
        return offsets.clear(y, &problem, idle[0] + warp::warp_id(), idle[1]);
    }
    let tile = walk.tile();
    let weight = weight.add((u64::from(tile.b) * problem.b[0]) as usize);
    problem.m = walk.end;
    let at = [tile.row, tile.column];
    mma::tile::<mma::Halves<T>, T, _, false, W_MN, V>(x, weight, y, problem, at, Factor::ONE, |_, _, _| ());
}

/// A walk of a cluster on Hopper.
#[derive(Clone, Copy)]
struct Clusters<T> {
    groups: Groups,
    y: *mut T,
    problem: Problem,
}

impl<T: Half> Walk for Clusters<T> {
    // Where the walk is takes ten registers, which consumers do not have.
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
        self.groups.index += self.groups.step;
    }

    #[inline(always)]
    unsafe fn meanwhile(self) {
        // All warps of a warpgroup but the producer's.
        let warps = hopper::WARPGROUP / 32 - 1;
        let worker = thread::block_idx_x() * warps + warp::warp_id() - 1;
        self.groups.offsets.clear(self.y, &self.problem, worker, thread::grid_dim_x() * warps);
    }
}

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), `x` K-major, all maps but that of `weight` of one matrix, and `store`
/// [`TILES`](hopper::TILES); `offsets` as for [`gemm_grouped_mma`].
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
    let clusters = [thread::block_idx_x(), thread::grid_dim_x()].map(|blocks| blocks / CLUSTER);
    let groups = Groups::new(offsets, problem.n, [CLUSTER * hopper::BLOCK_M, hopper::BLOCK_N], clusters);
    let of = Matrices { a: x_map, b: weight_map, c_map: y_map, c: y, problem, store };
    hopper::walk::<Halves<T, false, W_MN>, T, _>(of, Factor::ONE, Clusters { groups, y, problem });
}
