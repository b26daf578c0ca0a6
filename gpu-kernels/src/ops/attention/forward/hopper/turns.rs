//! The order in which a block's consumers issue their products.

use cuda_std::thread;

use super::WARPGROUP;

/// A consumer's place in the order. Each consumer has one turn per tile, including tiles that it skips.
#[derive(Clone, Copy)]
pub(super) struct Turns<const CONSUMERS: u32>(u32);

impl<const CONSUMERS: u32> Turns<CONSUMERS> {
    /// The place of consumer `index`. The first turn is the last consumer's, which with a diagonal has the most tiles:
    /// a consumer with fewer tiles skips some while the last one is already at work.
    #[inline(always)]
    pub(super) unsafe fn start(index: u32) -> Self {
        let turns = Self(index);
        if index == 0 {
            turns.pass();
        }
        turns
    }

    /// Waits until it is this consumer's turn.
    #[inline(always)]
    pub(super) unsafe fn wait(self) {
        let Self(index) = self;
        thread::named_barrier::sync(1 + CONSUMERS + index, 2 * WARPGROUP);
    }

    /// Makes it the turn of the consumer before.
    #[inline(always)]
    pub(super) unsafe fn pass(self) {
        let Self(index) = self;
        let next = if index == 0 { CONSUMERS - 1 } else { index - 1 };
        thread::named_barrier::arrive(1 + CONSUMERS + next, 2 * WARPGROUP);
    }
}
