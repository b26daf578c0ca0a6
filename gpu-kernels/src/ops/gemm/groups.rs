//! The row ranges of groups, which only the device knows, and the walk over their tiles.

use cuda_std::float::Half;
use cuda_std::{cluster, thread, warp};

use super::Problem;
use super::hopper::{self, BLOCK_M, BLOCK_N, CLUSTER, Tile, Walk, at_least_one, place};

/// The rows of groups.
pub(super) trait Rows: Copy {
    /// Whether each group is a product of its own and takes that product's first rows; otherwise all groups are row
    /// ranges of one matrix.
    const PRODUCTS: bool;

    /// How many groups there are.
    fn groups(self) -> u32;

    /// The first row at which the first group may start.
    unsafe fn first(self) -> u32;

    /// First row and end of that group; `before` is the end of the group in front of it.
    unsafe fn of(self, group: u32, before: u32) -> [u32; 2];
}

/// Groups that follow each other in one matrix.
#[derive(Clone, Copy)]
pub(super) struct Offsets {
    pub(super) offsets: *const i32,
    pub(super) groups: u32,
    /// Of the matrix.
    pub(super) rows: u32,
}

impl Offsets {
    /// Offset `i`, clamped to between row `least` and the last row.
    #[inline(always)]
    pub(super) unsafe fn at(self, i: u32, least: u32) -> u32 {
        let offset = (*self.offsets.add(i as usize)).max(0) as u32;
        offset.min(self.rows).max(least)
    }

    /// Writes zeros to the rows of no group, which are before the first group and after the last. Run by whole warps,
    /// of which this one is `worker` of `workers`.
    #[inline(always)]
    pub(super) unsafe fn clear<T: Half>(self, y: *mut T, problem: &Problem, worker: u32, workers: u32) {
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

impl Rows for Offsets {
    const PRODUCTS: bool = false;

    #[inline(always)]
    fn groups(self) -> u32 {
        self.groups
    }

    #[inline(always)]
    unsafe fn first(self) -> u32 {
        self.at(0, 0)
    }

    #[inline(always)]
    unsafe fn of(self, group: u32, before: u32) -> [u32; 2] {
        [before, self.at(group + 1, before)]
    }
}

/// Groups each of which starts at the beginning of its own matrix.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) counts: *const i32,
    pub(super) groups: u32,
    /// Of each matrix.
    pub(super) rows: u32,
}

impl Rows for Counts {
    const PRODUCTS: bool = true;

    #[inline(always)]
    fn groups(self) -> u32 {
        self.groups
    }

    #[inline(always)]
    unsafe fn first(self) -> u32 {
        0
    }

    #[inline(always)]
    unsafe fn of(self, group: u32, _: u32) -> [u32; 2] {
        let count = (*self.counts.add(group as usize)).max(0) as u32;
        [0, count.min(self.rows)]
    }
}

/// Rows of a pair's tile.
const PAIR_M: u32 = CLUSTER * BLOCK_M;

/// A cluster's walk over the tiles of all groups on Hopper.
///
/// The rows of a group are divided among pairs of blocks. Where at most one block's rows are left at its end, the
/// blocks of a pair take these rows by adjacent columns, and each loads everything that it multiplies itself.
#[derive(Clone, Copy)]
pub(super) struct Groups<R> {
    rows: R,
    /// Tiles side by side.
    columns: u32,
    /// The number of the next tile.
    index: u32,
    /// Groups that have been entered; of the last of them the rows, the first tile, and tiles of pairs' rows and all.
    entered: u32,
    start: u32,
    end: u32,
    first: u32,
    whole: u32,
    tiles: u32,
}

impl<R: Rows> Groups<R> {
    /// Of results with `n` columns.
    #[inline(always)]
    pub(super) unsafe fn new(rows: R, n: u32) -> Self {
        let index = thread::block_idx_x() / CLUSTER;
        let (columns, end) = (n.div_ceil(BLOCK_N), rows.first());
        Self { rows, columns, index, entered: 0, start: 0, end, first: 0, whole: 0, tiles: 0 }
    }
}

impl<R: Rows> Walk for Groups<R> {
    // The position of the walk takes ten registers, which consumers do not have.
    const TOLD: bool = true;

    #[inline(always)]
    unsafe fn find(&mut self) -> bool {
        while self.index - self.first >= self.tiles {
            if self.entered == self.rows.groups() {
                return false;
            }
            [self.start, self.end] = self.rows.of(self.entered, self.end);
            self.entered += 1;
            self.first += self.tiles;
            let rows = self.end - self.start;
            let (pairs, rest) = (rows / PAIR_M, rows % PAIR_M);
            let is_pair = u32::from(rest > BLOCK_M);
            self.whole = (pairs + is_pair) * self.columns;
            let rest = if rest > 0 && is_pair == 0 { self.columns.div_ceil(CLUSTER) } else { 0 };
            self.tiles = self.whole + rest;
        }
        true
    }

    #[inline(always)]
    fn tile(&self) -> Tile {
        let columns = at_least_one(self.columns);
        let (at, rows) = (self.index - self.first, self.whole / columns);
        let alone = at >= self.whole;
        let [row, column] = if alone {
            [rows * CLUSTER, (at - self.whole) * CLUSTER + cluster::rank()]
        } else {
            let [row, column] = place(at, at_least_one(rows), columns);
            [row * CLUSTER + cluster::rank(), column]
        };
        let group = self.entered - 1;
        let product = if R::PRODUCTS { group } else { 0 };
        let (row, column) = (self.start + row * BLOCK_M, column * BLOCK_N);
        Tile { row, column, product, b: group, end: Some(self.end), k: None, alone }
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.index += thread::grid_dim_x() / CLUSTER;
    }
}

/// The number of this warp among those that idle while a grid of the Hopper path multiplies, and the number of those
/// warps.
#[inline(always)]
pub(super) fn idle_warps() -> [u32; 2] {
    let warps = hopper::IDLE_WARPS;
    [thread::block_idx_x() * warps + warp::warp_id() - 1, thread::grid_dim_x() * warps]
}
