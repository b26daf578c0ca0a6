//! The factors of a group's sums: the scale of the weight's rows times that of each column. Three warps beside the producer's own have
//! nothing else to do than to read the scales, a few groups ahead, and to leave the factors where consumers find them.

use core::array;

use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{shared_field, thread};

use super::super::Problem;
use super::super::hopper::{CONSUMERS, Cursor, IDLE_WARPS, WARPGROUP, Walk};
use super::GROUP;

/// Columns of a tile at most.
const COLUMNS: u32 = 128;
/// Groups that the factors may be ahead of the products: a line of 32 groups' scales comes from L2 meanwhile.
const SLOTS: usize = 3;
/// Threads that make factors.
const MAKERS: u32 = IDLE_WARPS * 32;
const COLUMNS_EACH: usize = COLUMNS.div_ceil(MAKERS) as usize;

/// The factors of a few groups, and who waits for whom.
#[repr(C, align(16))]
pub(super) struct Slots {
    factors: [[f32; COLUMNS as usize]; SLOTS],
    ready: [Barrier; SLOTS],
    read: [Barrier; SLOTS],
}

/// They, in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Ring(pub(super) SharedPtr<Slots>);

/// The factors of a lane's columns: of two neighbouring ones, in each of two blocks of 8.
pub(super) type Columns = [Pack<f32, 4>; COLUMNS as usize / 16];

/// The scales of both operands.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    /// Of the tiles' columns, which are rows of A.
    pub(super) columns: *const f32,
    /// Of their rows, which are B's.
    pub(super) rows: *const f32,
}

/// Where the factor of a column is: a lane's four of two neighbouring blocks of eight columns follow each other.
#[inline(always)]
pub(in super::super) const fn place_of_factor(column: u32) -> u32 {
    column / 16 * 16 + column % 8 / 2 * 4 + column / 8 % 2 * 2 + column % 2
}

impl Ring {
    /// Run by one thread.
    #[inline(always)]
    pub(super) unsafe fn initialise(self) {
        for slot in 0..SLOTS as u32 {
            self.ready(slot).init(MAKERS);
            self.read(slot).init(CONSUMERS * WARPGROUP);
        }
    }

    /// Those of the next group: of a lane's columns in `count` times 16, when they are there. Run by all threads of the consumers.
    #[inline(always)]
    pub(super) unsafe fn take(self, at: &mut Cursor, lane: u32, count: usize) -> Columns {
        self.ready(at.stage).wait_parity(at.parity);
        let from = self.of(at.stage).at(lane % 4 * 4).as_ptr();
        let columns = array::from_fn(|i| if i < count { Pack::load(from.add(i * 16)) } else { Pack([0.0; 4]) });
        self.read(at.stage).arrive();
        at.advance(SLOTS);
        columns
    }

    /// Makes those of every group of every tile of `columns` columns. Run by the idle warps.
    #[inline(always)]
    pub(super) unsafe fn make<W: Walk>(self, scales: Scales, columns: u32, problem: &Problem, mut tiles: W) {
        let maker = thread::thread_idx_x() - 32;
        let mut at = Cursor::default();
        while tiles.find() {
            let tile = tiles.tile();
            let [start, end] = tile.k.unwrap_or([0, problem.k]);
            let (first, end) = (start / GROUP, end.div_ceil(GROUP));
            let groups = problem.k.div_ceil(GROUP);
            let line = |scales: *const f32, line: u32| scales.add((u64::from(line) * u64::from(groups)) as usize);
            // Blocks past the last row have no scale of their own, nor have columns past the last.
            let row = line(scales.rows, tile.row.min(problem.m - 1) / GROUP);
            let own: [_; COLUMNS_EACH] = array::from_fn(|i| {
                let column = tile.column + maker + i as u32 * MAKERS;
                line(scales.columns, column.min(problem.n - 1))
            });
            let of_group = |group: u32| own.map(|column| *column.add(group as usize) * *row.add(group as usize));
            let mut next = of_group(first);
            for group in first..end {
                let factors = next;
                next = of_group((group + 1).min(end - 1));
                // A fresh barrier counts as having completed the phase before its first.
                self.read(at.stage).wait_parity(at.parity ^ 1);
                for (i, factor) in factors.into_iter().enumerate() {
                    let column = maker + i as u32 * MAKERS;
                    if column < columns {
                        self.of(at.stage).at(place_of_factor(column)).write(factor);
                    }
                }
                self.ready(at.stage).arrive();
                at.advance(SLOTS);
            }
            tiles.advance();
        }
    }

    #[inline(always)]
    fn of(self, slot: u32) -> SharedPtr<[f32; COLUMNS as usize]> {
        let Self(slots) = self;
        shared_field!(slots.factors).at(slot)
    }

    #[inline(always)]
    fn ready(self, slot: u32) -> SharedPtr<Barrier> {
        let Self(slots) = self;
        shared_field!(slots.ready).at(slot)
    }

    #[inline(always)]
    fn read(self, slot: u32) -> SharedPtr<Barrier> {
        let Self(slots) = self;
        shared_field!(slots.read).at(slot)
    }
}
