//! Assigns queries to pairs of blocks, and determines which keys they see.

use core::ops::Range;

use cuda_std::{cluster, thread};

use super::{CLUSTER, WG_M};
use crate::ops::attention::{Problem, Span, bounded, nonzero};

/// The number of tiles walked so far, which determines the next stage of a ring and the parity of its barriers' phase.
///
/// It is one counter because that stays in a uniform register, whereas a stage number and a parity toggled by a branch
/// do not.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Cursor<const STAGES: u32>(pub u32);

impl<const STAGES: u32> Cursor<STAGES> {
    #[inline(always)]
    pub(in crate::ops::attention) fn stage(self) -> u32 {
        let Self(tiles) = self;
        tiles % STAGES
    }

    #[inline(always)]
    pub(in crate::ops::attention) fn parity(self) -> u32 {
        let Self(tiles) = self;
        tiles / STAGES % 2
    }

    /// The tile after this one.
    #[inline(always)]
    pub(in crate::ops::attention) fn next(self) -> Self {
        let Self(tiles) = self;
        Self(tiles + 1)
    }

    /// The tile before this one; `None` for the first.
    #[inline(always)]
    pub(in crate::ops::attention) const fn previous(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(tile) => Some(Self(tile)),
            None => None,
        }
    }
}

/// The walk of a pair of blocks, the same in producers and consumers.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Work<'a> {
    pub problem: &'a Problem,
    /// Null if all sequences have all keys.
    pub key_lengths: *const i32,
    /// Null if no head has one.
    pub sinks: *const f32,
    /// Of a block.
    pub consumers: u32,
    /// Whether the blocks of a pair separate for queries that do not fill a pair. With three consumers 2048 queries
    /// leave a third of a pair over; with two consumers hardly any number does, and the extra test in every turn costs
    /// 1%.
    pub parts: bool,
}

/// Queries that a pair of blocks takes at a time, of one head, or each block by itself, of one head each.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Queries {
    pub batch: u32,
    pub head: u32,
    /// The first of the queries that share tiles, and their number. Their end is the head's last query or the first of
    /// the next ones, and the diagonal ends there too; so the first may be below zero where the queries do not fill the
    /// first pair.
    pub shared: (i32, u32),
    pub share: Share,
    /// The first query of this block's first consumer.
    first: i32,
}

/// How the blocks of a pair load tiles: each loads half of every tile for both, or all of its own tiles. Blocks that
/// have separated do not share tiles again: a block alone does not wait until the other is done with a stage.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Share {
    alone: bool,
}

impl Share {
    /// The halves of a tile that this block loads.
    #[inline(always)]
    pub(in crate::ops::attention) fn halves(self) -> Range<u32> {
        let rank = cluster::rank();
        if self.alone { 0..CLUSTER } else { rank..rank + 1 }
    }

    /// The blocks that receive them, as a bit mask.
    #[inline(always)]
    pub(in crate::ops::attention) fn blocks(self) -> u16 {
        if self.alone { 1 << cluster::rank() } else { (1 << CLUSTER) - 1 }
    }

    /// The block to which thread `lane`, one of the first [`CLUSTER`], signals that its consumer is done with a stage:
    /// each of the two blocks that fill it together, or this block as many times, so that its barrier always expects
    /// the same count. Other threads get a number that is no block's.
    #[inline(always)]
    pub(in crate::ops::attention) fn filler(self, lane: u32) -> u32 {
        if self.alone && lane < CLUSTER { cluster::rank() } else { lane }
    }
}

impl Work<'_> {
    /// What this block does in its turn number `wave`.
    ///
    /// Every other wave is reversed, so that no pair gets the longest item of each. With a diagonal the longest queries
    /// of all heads come first, which leaves the short ones for the end; without one all are equally long, and pairs
    /// that run at the same time share the keys of few heads. Only queries that do not fill a pair are left for the
    /// end: mixed with the others, they would go to the same blocks in every wave where a wave is a multiple of a
    /// head's items. If a block's consumers have room for them, the two blocks of a pair take those of two different
    /// heads instead of half of one head's each: a consumer whose products and weights nothing overlaps takes as long
    /// for a tile as two or three consumers.
    #[inline(always)]
    pub(in crate::ops::attention) fn queries(self, wave: u32) -> Option<Queries> {
        let Self { problem, .. } = self;
        let heads = nonzero(problem.heads);
        let all_heads = heads.saturating_mul(nonzero(problem.batch));
        let tiles = nonzero(problem.q_len.div_ceil(self.pair()));
        let (pairs, pair) = (thread::grid_dim_x() / CLUSTER, thread::block_idx_x() / CLUSTER);
        let index = wave * pairs + if wave % 2 == 1 { pairs - 1 - pair } else { pair };
        if index >= tiles.get() * all_heads.get() {
            return None;
        }
        let diagonal = problem.right < problem.k_len as i32;
        let (filled, left_over) = (problem.q_len / self.pair(), problem.q_len % self.pair());
        let unfilled = index.checked_sub(filled * all_heads.get()).filter(|_| !diagonal);
        let alone =
            self.parts && unfilled.is_some() && left_over <= self.block() && tiles.get() * all_heads.get() > pairs;
        let (tile, place) = match unfilled {
            Some(index) if alone => (filled, index * CLUSTER + cluster::rank()),
            Some(index) => (filled, index),
            None if diagonal => (index / all_heads, index % all_heads),
            None => (index % nonzero(filled), index / nonzero(filled)),
        };
        if place >= all_heads.get() {
            return None;
        }
        let (batch, head) = (place / heads, place % heads);
        let (rows, rank) = if alone { (self.block(), 0) } else { (self.pair(), cluster::rank()) };
        let end = problem.q_len - tile * self.pair();
        let shared = (end as i32 - rows as i32, rows);
        Some(Queries { batch, head, shared, share: Share { alone }, first: shared.0 + (rank * WG_M) as i32 })
    }

    /// Queries of a block.
    #[inline(always)]
    const fn block(self) -> u32 {
        self.consumers * WG_M
    }

    /// Queries of a pair of blocks.
    #[inline(always)]
    const fn pair(self) -> u32 {
        CLUSTER * self.block()
    }

    /// The first query of a consumer. The blocks take consumers in turn: with a diagonal both then have the same number
    /// of tiles.
    #[inline(always)]
    pub(in crate::ops::attention) const fn first_of(self, queries: Queries, consumer: u32) -> i32 {
        let blocks = if queries.share.alone { 1 } else { CLUSTER };
        queries.first + (consumer * blocks * WG_M) as i32
    }

    /// Keys of a sequence.
    #[inline(always)]
    pub(in crate::ops::attention) unsafe fn keys(self, batch: u32) -> u32 {
        let Self { problem, key_lengths, .. } = self;
        if key_lengths.is_null() { problem.k_len } else { bounded(key_lengths, batch, 0, problem.k_len) }
    }

    /// Which of a sequence's keys its queries see.
    #[inline(always)]
    pub(in crate::ops::attention) fn span(self, keys: u32) -> Span {
        let Problem { q_len, k_len, left, right, .. } = *self.problem;
        // Padding does not shift queries.
        let shift = k_len as i32 - q_len as i32;
        Span { low: shift - left, high: shift + right, keys: keys as i32, queries: q_len as i32 }
    }
}

/// The tiles of `N` keys, first and end, counted backwards from a sequence's last key: tile 0 ends with that key, and
/// the last tile may begin before key 0. So no tile reaches past the keys, where memory may hold anything, and without
/// padding tiles meet the diagonal at their corners.
pub(in crate::ops::attention) type Tiles = (u32, u32);

/// The first key of a tile, which may be below zero.
#[inline(always)]
pub(in crate::ops::attention) fn first_key<const N: u32>(span: Span, tile: u32) -> i32 {
    span.keys - ((tile + 1) * N) as i32
}

/// The tiles that queries `first .. first + rows` see anything of.
#[inline(always)]
pub(in crate::ops::attention) fn seen<const N: u32>(span: Span, first: i32, rows: u32) -> Tiles {
    let last = first + rows as i32 - 1;
    let begin = (first.max(0) + span.low).max(0);
    let end = (last + span.high + 1).min(span.keys);
    if last < 0 || begin >= end {
        return (0, 0);
    }
    ((span.keys - end) as u32 / N, ((span.keys - begin) as u32).div_ceil(N))
}

/// The tiles that those queries all see all of, where there are such.
#[inline(always)]
pub(in crate::ops::attention) fn seen_whole<const N: u32>(span: Span, first: i32, rows: u32) -> Tiles {
    let begin = (first + rows as i32 - 1 + span.low).max(0);
    let end = (first.max(0) + span.high + 1).min(span.keys);
    (((span.keys - end) as u32).div_ceil(N), (span.keys - begin).max(0) as u32 / N)
}
