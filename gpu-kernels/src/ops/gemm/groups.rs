//! Where groups of rows are, as only the device knows it, and the walk over their tiles.

use cuda_std::float::Half;
use cuda_std::{cluster, thread, warp};

use super::Problem;
use super::hopper::{self, BLOCK_M, BLOCK_N, CLUSTER, Tile, Walk, at_least_one, place};

/// The rows of groups.
pub(super) trait Rows: Copy {
    /// Whether each group is a product of its own, of which it has the first rows; otherwise all have rows of one.
    const PRODUCTS: bool;

    /// How many groups there are.
    fn groups(self) -> u32;

    /// Where rows of the first one may start.
    unsafe fn first(self) -> u32;

    /// First row and end of that group; `before` is where the one in front of it ends.
    unsafe fn of(self, group: u32, before: u32) -> [u32; 2];
}

/// Groups one behind the other.
#[derive(Clone, Copy)]
pub(super) struct Offsets {
    pub(super) offsets: *const i32,
    pub(super) groups: u32,
    /// Of the matrix.
    pub(super) rows: u32,
}

impl Offsets {
    /// Offset `i`, not before row `least` nor past the last.
    #[inline(always)]
    pub(super) unsafe fn at(self, i: u32, least: u32) -> u32 {
        let offset = (*self.offsets.add(i as usize)).max(0) as u32;
        offset.min(self.rows).max(least)
    }

    /// Writes zeros to the rows of no group, which are in front of the first and behind the last. Run by whole warps, of which this one is `worker`
    /// of `workers`.
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

/// Groups that are each at the start of a matrix.
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
/// The rows of a group are cut into those of pairs of blocks. Where no more than one block's are left at its end, the blocks of a pair take these by
/// columns beside each other, and load all of what they multiply themselves.
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
    // Where the walk is takes ten registers, which consumers do not have.
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

/// The warp's number among those that have nothing to do while a grid of the Hopper path multiplies, and how many there are.
#[inline(always)]
pub(super) fn idle_warps() -> [u32; 2] {
    // All warps of a warpgroup but the producer's.
    let warps = hopper::WARPGROUP / 32 - 1;
    [thread::block_idx_x() * warps + warp::warp_id() - 1, thread::grid_dim_x() * warps]
}
