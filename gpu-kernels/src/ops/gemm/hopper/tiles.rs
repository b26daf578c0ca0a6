//! A cluster's walk over the tiles of all products.

use core::num::NonZeroU32;

use cuda_std::vector::Pack;
use cuda_std::{cluster, thread};

use super::super::Problem;
use super::CLUSTER;

/// Rows of tiles that are walked over before moving to the next column of tiles, so that a wave's panels of A and B
/// stay in L2.
const GROUP_M: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// The position of the block's tile.
#[derive(Clone, Copy)]
pub(in super::super) struct Tile {
    /// Its first row, and its first column.
    pub(in super::super) row: u32,
    pub(in super::super) column: u32,
    /// The index of the product, for A and C.
    pub(in super::super) product: u32,
    /// The index of the matrix, for B.
    pub(in super::super) b: u32,
    /// The end of its rows, if that is not where C ends.
    pub(in super::super) end: Option<u32>,
    /// Its range along k, if that is not all of k.
    pub(in super::super) k: Option<[u32; 2]>,
    /// Whether its columns differ from those of the pair's other block; otherwise each of the two blocks loads half of
    /// them.
    pub(in super::super) alone: bool,
}

/// The tiles of a cluster, one after the other.
pub(in super::super) trait Walk: Copy {
    /// Whether only the producer walks, and tells the consumers the places; otherwise consumers walk themselves.
    const TOLD: bool = false;

    /// Whether the blocks of a pair load the same columns of a B each, instead of half the columns of one.
    const TWO_BS: bool = false;

    /// Whether the blocks of a pair have the same rows, of which each loads half, and columns of their own.
    const SHARES_A: bool = false;

    /// Whether tiles have ranges along k, which the producer tells too. Of panels that go on behind the last one consumers clear the rest.
    const ALONG_K: bool = false;

    /// The number of stages of `depth` for a tile of that many elements along k. Each tile must have at least one, so
    /// that its place can be passed on.
    #[inline(always)]
    fn steps(k: u32, depth: u32) -> u32 {
        let steps = k.div_ceil(depth);
        if Self::ALONG_K { steps.max(1) } else { steps }
    }

    /// Whether there is a tile.
    unsafe fn find(&mut self) -> bool;

    /// The position of the tile. It is computed on demand: no registers hold it while the tile is multiplied.
    fn tile(&self) -> Tile;

    /// Its elements along k, of `all`, where consumers walk themselves.
    #[inline(always)]
    fn depth(&self, all: u32) -> u32 {
        all
    }

    /// Goes on to the next.
    fn advance(&mut self);

    /// The work of the producer's idle warps meanwhile.
    #[inline(always)]
    unsafe fn meanwhile(self) {}
}

/// Number `index` of `rows` by `columns` tiles: its row and its column.
#[inline(always)]
pub(in super::super) fn place(index: u32, rows: NonZeroU32, columns: NonZeroU32) -> [u32; 2] {
    let group_tiles = columns.saturating_mul(GROUP_M);
    let group = quotient(index, group_tiles);
    let first = group * GROUP_M.get();
    let height = at_least_one((rows.get() - first).min(GROUP_M.get()));
    let within = index - group * group_tiles.get();
    [first + within % height, within / height]
}

/// `n` / `d` without a division where that is 0: the first copies of a launch wait for the place of its first tile.
#[inline(always)]
fn quotient(n: u32, d: NonZeroU32) -> u32 {
    if n < d.get() { 0 } else { n / d }
}

#[inline(always)]
pub(in super::super) fn at_least_one(n: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(n - 1)
}

/// The tiles of products of one size.
#[derive(Clone, Copy)]
pub(in super::super) struct Tiles {
    rows: NonZeroU32,
    columns: NonZeroU32,
    batch: u32,
    block_m: u32,
    block_n: u32,
    index: u32,
    each: u32,
    k: u32,
}

impl Tile {
    /// The same, for certain computed here: the compiler would compute it where it is used.
    #[inline(always)]
    pub(super) fn computed_here(self) -> Self {
        let Pack([row, column, product, b]) = Pack([self.row, self.column, self.product, self.b]).forget();
        Self { row, column, product, b, ..self }
    }
}

impl Tiles {
    /// Those of a problem whose m and n are not zero, of `block_m` rows per block and `block_n` columns.
    #[inline(always)]
    pub(in super::super) fn of(problem: &Problem, [block_m, block_n]: [u32; 2]) -> Self {
        Self {
            rows: at_least_one(problem.m.div_ceil(CLUSTER * block_m)),
            columns: at_least_one(problem.n.div_ceil(block_n)),
            batch: problem.batch,
            block_m,
            block_n,
            index: thread::block_idx_x() / CLUSTER,
            each: 0,
            k: problem.k,
        }
    }

    /// Those of pieces of one product, each of so many elements along k; of whole products, if that is 0.
    #[inline(always)]
    pub(in super::super) fn in_pieces(self, each: u32) -> Self {
        Self { each, ..self }
    }

    /// Where it starts along k, and where it ends.
    #[inline(always)]
    fn range(&self) -> Option<[u32; 2]> {
        (self.each != 0).then(|| {
            let first = self.product() * self.each;
            [first, self.each.min(self.k - first) + first]
        })
    }

    /// Which product it is at, and the row and column of its tile there.
    #[inline(always)]
    fn place(&self) -> [u32; 3] {
        // Each time anew.
        let Pack([index, ..]) = Pack([self.index; 4]).forget();
        let product = Self { index, ..*self }.product();
        let [row, column] = place(index - product * (self.rows.get() * self.columns.get()), self.rows, self.columns);
        [product, row, column]
    }

    /// Which product it is at.
    #[inline(always)]
    pub(in super::super) fn product(&self) -> u32 {
        quotient(self.index, self.rows.saturating_mul(self.columns))
    }
}

impl Walk for Tiles {
    #[inline(always)]
    unsafe fn find(&mut self) -> bool {
        self.index < self.rows.get() * self.columns.get() * self.batch
    }

    #[inline(always)]
    fn tile(&self) -> Tile {
        let [product, row, column] = self.place();
        let (row, column) = ((row * CLUSTER + cluster::rank()) * self.block_m, column * self.block_n);
        Tile { row, column, product, b: product, end: None, k: self.range(), alone: false }
    }

    #[inline(always)]
    fn depth(&self, all: u32) -> u32 {
        self.range().map_or(all, |[first, last]| last - first)
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.index += thread::grid_dim_x() / CLUSTER;
    }
}

/// The tiles of products whose blocks of a pair have the same rows, and half of the columns each.
#[derive(Clone, Copy)]
pub(in super::super) struct Narrow(Tiles);

impl Narrow {
    /// Those of a problem whose m and n are not zero, of `block_m` rows and `block_n` columns per block.
    #[inline(always)]
    pub(in super::super) fn of(problem: &Problem, [block_m, block_n]: [u32; 2]) -> Self {
        Self(Tiles {
            rows: at_least_one(problem.m.div_ceil(block_m)),
            columns: at_least_one(problem.n.div_ceil(CLUSTER * block_n)),
            ..Tiles::of(problem, [block_m, block_n])
        })
    }
}

impl Walk for Narrow {
    const SHARES_A: bool = true;

    #[inline(always)]
    unsafe fn find(&mut self) -> bool {
        self.0.find()
    }

    #[inline(always)]
    fn tile(&self) -> Tile {
        let Self(tiles) = self;
        let [product, row, column] = tiles.place();
        let (row, column) = (row * tiles.block_m, (column * CLUSTER + cluster::rank()) * tiles.block_n);
        Tile { row, column, product, b: product, end: None, k: None, alone: false }
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.0.advance();
    }
}
