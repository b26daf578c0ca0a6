//! The f32 sums of dQ, which only a few heads have at a time.
//!
//! If all heads had sums, these would pass through DRAM as zeros, as sums and to be rounded, by kernels of their own
//! before and after. Instead a head's sums have a place that a later head takes over. Blocks work on heads in turns;
//! during a turn, warps that have nothing to load and nothing to multiply round the sums of the turn before the last,
//! and zero them for the next.
//!
//! Blocks wait only for blocks of earlier turns. Those have lower numbers and started before.

use core::array;

use cuda_std::float::Half;
use cuda_std::vector::Pack;
use cuda_std::{atomic, fence, thread, time, warp};

use super::{CONSUMERS, PANEL, PART, PIECE_QUERIES, WARPS, queries};
use crate::ops::attention::{Gradients, Problem, nonzero};

/// Turns whose heads have places: the one at work, the one before, and the one before that, which is rounded.
pub const TURNS: u32 = 3;

/// Numbers that are counted for a head.
pub const COUNTS: u32 = 3;
/// Blocks that have added all they have to its sums.
const ADDED: u32 = 0;
/// Parts of its sums that a warp has begun to round.
const BEGUN: u32 = 1;
/// Parts that are rounded, and zero again.
const ROUNDED: u32 = 2;

/// The places. Heads are heads of K here, counted over all batches, with sums for the heads of Q that share them.
#[derive(Clone, Copy)]
pub(super) struct Ring<const D: u32> {
    pub sums: *mut f32,
    /// [`COUNTS`] of each head.
    pub counts: *mut u32,
    /// The number of places. A head takes over the place of the head that is this number before it.
    pub places: u32,
    /// A head's blocks round the sums of the head that is this number before it.
    pub behind: u32,
}

impl<const D: u32> Ring<D> {
    /// The place of a head.
    #[inline(always)]
    pub(super) fn place(self, head: u32) -> u32 {
        head % nonzero(self.places)
    }

    /// Where a number is counted for a head.
    #[inline(always)]
    unsafe fn count(self, head: u32, number: u32) -> *mut u32 {
        self.counts.add((head * COUNTS + number) as usize)
    }

    /// Warps' parts of pieces of a head.
    #[inline(always)]
    fn parts(problem: &Problem) -> u32 {
        problem.group * problem.q_len.div_ceil(queries(D)) * (CONSUMERS * WARPS)
    }

    /// Waits until the sums of `head` are zero. Run by a warp.
    #[inline(always)]
    pub(super) unsafe fn wait_for_zeros(self, head: u32, problem: &Problem) {
        if head >= self.places {
            wait(self.count(head - self.places, ROUNDED), Self::parts(problem));
        }
    }

    /// Counts a block, whose additions to the sums of `head` this thread knows to be complete.
    #[inline(always)]
    pub(super) unsafe fn has_added(self, head: u32) {
        fence::acq_rel();
        atomic::red_add_u32(self.count(head, ADDED), 1);
    }

    /// Rounds sums of the head [`behind`](Self::behind) `head`, to which `blocks` blocks add, and zeroes them: parts that no other
    /// warp has begun, until there are none left or this warp `may_stop`. One warp of the blocks of `head` must not stop. Run by a
    /// warp.
    #[inline(always)]
    pub(super) unsafe fn round<T: Half>(
        self,
        head: u32,
        blocks: u32,
        dq: *mut T,
        problem: &Problem,
        gradients: &Gradients,
        may_stop: impl Fn() -> bool,
    ) {
        if head < self.behind {
            return;
        }
        let head = head - self.behind;
        wait(self.count(head, ADDED), blocks);
        let first = thread::thread_idx_x().is_multiple_of(32);
        let mut rounded = 0;
        loop {
            let mut part = u32::MAX;
            if first && !may_stop() {
                part = atomic::add_u32(self.count(head, BEGUN), 1);
            }
            part = warp::shuffle_idx(part, 0);
            if part >= Self::parts(problem) {
                break;
            }
            self.round_part::<T, true>(head, part, dq, problem, gradients);
            rounded += 1;
        }
        warp::sync(u32::MAX);
        if first && rounded > 0 {
            fence::acq_rel();
            atomic::red_add_u32(self.count(head, ROUNDED), rounded);
        }
    }

    /// Scales and rounds one warp's part of a piece, 16 queries and [`PANEL`] columns, and writes it to dQ: the part of
    /// this number among those of `head`. Leaves zeros if there is a `LATER` head for them. Run by a warp.
    #[inline(always)]
    pub(super) unsafe fn round_part<T: Half, const LATER: bool>(
        self,
        head: u32,
        part: u32,
        dq: *mut T,
        problem: &Problem,
        gradients: &Gradients,
    ) {
        let parts = Self::parts(problem);
        let place = u64::from(self.place(head)) * u64::from(parts);
        let lane = thread::thread_idx_x() % 32;
        let mut sums = self.sums.add(((place + u64::from(part)) * u64::from(PART) + u64::from(lane * 4)) as usize);
        // The part's head of Q, and its first query and column.
        let heads = nonzero(problem.heads / nonzero(problem.group));
        let of_q = nonzero(parts / nonzero(problem.group));
        let (piece, halves) = (part % of_q / WARPS, D / PANEL);
        let query = piece / halves * PIECE_QUERIES + part % WARPS * 16 + lane / 4;
        let column = piece % halves * PANEL + lane % 4 * 8;
        let [.., stride] = gradients.dq;
        let at = Problem::at(gradients.dq, head / heads, head % heads * problem.group + part / of_q, query);
        let mut to = dq.wrapping_add(at + column as usize);
        let mut half = 0;
        while half < 2 {
            let values: [[f32; 4]; 4] = array::from_fn(|i| Pack::<f32, 4>::load(sums.add(i * 32 * 4)).0);
            // A lane has two columns of each eight, of two rows. It gets all eight of a row, from its neighbours.
            for row in 0..2 {
                let pairs = values.map(|x| T::pack(x[2 * row] * problem.scale, x[2 * row + 1] * problem.scale));
                let eight = turn(pairs, lane);
                if query + row as u32 * 8 < problem.q_len {
                    Pack(eight).store_streaming(to.wrapping_add(row * 8 * stride as usize).cast());
                }
            }
            if LATER {
                // Behind stores that need what was loaded: zeros on their way to lines that are being loaded cost a
                // fifth of the whole time.
                for i in 0..4 {
                    Pack([0.0f32; 4]).store(sums.add(i * 32 * 4));
                }
            }
            sums = sums.add(4 * 32 * 4);
            to = to.wrapping_add(32);
            half += 1;
        }
    }
}

/// Transposes four values of each of four neighbouring lanes.
#[inline(always)]
unsafe fn turn(mut x: [u32; 4], lane: u32) -> [u32; 4] {
    for (bit, [a, b]) in [(1, [0, 2]), (2, [0, 1])] {
        for low in [a, b] {
            let high = low + bit as usize;
            let upper = lane & bit != 0;
            let others = warp::shuffle_xor(if upper { x[low] } else { x[high] }, bit);
            if upper {
                x[low] = others;
            } else {
                x[high] = others;
            }
        }
    }
    x
}

/// Waits until a count has reached a value. Run by a warp, for which what was counted is visible then.
#[inline(always)]
unsafe fn wait(count: *const u32, value: u32) {
    while warp::shuffle_idx(atomic::load_acquire_u32(count), 0) < value {
        time::nanosleep(1000);
    }
}
