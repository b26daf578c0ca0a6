//! The walk of a cluster over the tiles of all products.

use core::num::NonZeroU32;

use super::super::Problem;
use super::{BLOCK_M, CLUSTER};

/// Cluster rows that are walked before moving to the next column of tiles, so that a wave's panels of A and B stay in L2.
const GROUP_M: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// The tiles of a problem, in the same order for producer and consumers.
#[derive(Clone, Copy)]
pub(in super::super) struct Tiles {
    rows: NonZeroU32,
    columns: NonZeroU32,
    batch: u32,
}

/// Where a cluster's tile is.
#[derive(Clone, Copy)]
pub(in super::super) struct Tile {
    /// In tiles of `CLUSTER * BLOCK_M` rows.
    pub(in super::super) row: u32,
    /// In tiles of a block's columns.
    pub(in super::super) column: u32,
    pub(in super::super) product: u32,
}

impl Tiles {
    /// Those of a problem whose m and n are not zero, of `block_n` columns.
    #[inline(always)]
    pub(in super::super) fn of(problem: &Problem, block_n: u32) -> Self {
        let at_least_one = |n: u32| NonZeroU32::MIN.saturating_add(n - 1);
        Self {
            rows: at_least_one(problem.m.div_ceil(CLUSTER * BLOCK_M)),
            columns: at_least_one(problem.n.div_ceil(block_n)),
            batch: problem.batch,
        }
    }

    #[inline(always)]
    pub(in super::super) fn count(self) -> u32 {
        self.rows.get() * self.columns.get() * self.batch
    }

    #[inline(always)]
    pub(in super::super) fn at(self, index: u32) -> Tile {
        let each = self.rows.saturating_mul(self.columns);
        let (product, index) = (index / each, index % each);
        let group_tiles = self.columns.saturating_mul(GROUP_M);
        let group = index / group_tiles;
        let first = group * GROUP_M.get();
        let height = NonZeroU32::MIN.saturating_add((self.rows.get() - first).min(GROUP_M.get()) - 1);
        let within = index - group * group_tiles.get();
        Tile { row: first + within % height, column: within / height, product }
    }
}
