//! A row that a block of threads holds, so that memory is read once.

use core::array;

use cuda_std::float::Element;
use cuda_std::thread;
use cuda_std::vector::Pack;

use super::blocks::{self, load};
use crate::rows::{BlockThreads, Threads};

/// The most threads of a block, which share a row and hold `held` packs of it each.
pub(crate) const fn block(held: usize) -> u32 {
    (4096 / held) as u32
}
/// The least block size: smaller blocks would leave a multiprocessor short of warps, because it takes at most 32
/// blocks.
const LEAST: usize = 64;

/// Threads for a row of `d` elements of `bytes` each: as many packs each as fill half of a multiprocessor's threads
/// with one block, so that some of the resident blocks load while others wait.
pub(super) const fn threads(d: usize, bytes: usize, held: usize) -> u32 {
    let threads = d.div_ceil(held * 16 / bytes).next_multiple_of(32);
    if threads < LEAST {
        LEAST as u32
    } else if threads > block(held) as usize {
        block(held)
    } else {
        threads as u32
    }
}

/// Shared memory of `R` reductions.
pub(crate) type Partials<const R: usize> = <BlockThreads as Threads>::Partials<R>;

/// Where a pack starts, and whether that is inside the row.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) inside: bool,
}

/// A row of `d` elements. With `PACKED` packs of `N` divide d and lie at multiples of 16 bytes, and threads hold `HELD` of them each, and read again what
/// the row has beyond; otherwise they read all of it again.
pub(crate) struct Row<T, const N: usize, const HELD: usize, const PACKED: bool> {
    x: *const T,
    held: [Pack<T, N>; HELD],
    /// Whether all packs of this warp are inside the row, so that no pack needs a check.
    whole: bool,
    pub(crate) d: u64,
}

impl<T: Element, const N: usize, const HELD: usize, const PACKED: bool> Row<T, N, HELD, PACKED> {
    #[inline(always)]
    pub(crate) unsafe fn load(x: *const T, d: u64) -> Self {
        let row = Self { x, held: [Pack([T::from_f32(0.0); N]); HELD], whole: false, d };
        if !PACKED {
            return row;
        }
        let whole = row.left(Self::first_of_warp()) >= (HELD * 32 * N) as u32;
        let held = if whole {
            array::from_fn(|i| Pack::load_nc(x.add(Self::first() as usize + i * 32 * N)))
        } else {
            let left = row.left(Self::first());
            array::from_fn(|i| row.values(Self::held(i, left)))
        };
        Self { held, whole, ..row }
    }

    /// Where the packs start that this thread holds. A warp's lie together, so that their addresses differ by constants.
    #[inline(always)]
    fn first() -> u32 {
        let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
        (warp * 32 * HELD as u32 + lane) * N as u32
    }

    /// The first of them.
    #[inline(always)]
    fn first_of_warp() -> u32 {
        thread::thread_idx_x() / 32 * (32 * HELD * N) as u32
    }

    /// How many elements there are from `at` on, or more than any thread holds.
    #[inline(always)]
    fn left(&self, at: u32) -> u32 {
        (self.d.min(1 << 31) as u32).saturating_sub(at)
    }

    /// The place of pack `i` of those that this thread holds, of which there are `left` elements.
    #[inline(always)]
    fn held(i: usize, left: u32) -> Place {
        let along = (i * 32 * N) as u32;
        Place { at: u64::from(Self::first() + along), inside: along < left }
    }

    #[inline(always)]
    unsafe fn values(&self, Place { at, inside }: Place) -> Pack<T, N> {
        match (PACKED, inside) {
            (false, _) => load(self.x, at, self.d, (self.x as usize).is_multiple_of(16)),
            (true, true) => Pack::load_nc(self.x.add(at as usize)),
            (true, false) => Pack([T::from_f32(0.0); N]),
        }
    }

    /// Calls `f` with every pack of the row and its place, all lanes of a warp together; beyond the end there are zeros.
    #[inline(always)]
    pub(crate) unsafe fn each(&self, mut f: impl FnMut(Place, [f32; N])) {
        let (thread, turn) =
            (u64::from(thread::thread_idx_x()) * N as u64, u64::from(thread::block_dim_x()) * N as u64);
        let mut start = 0;
        if PACKED {
            if self.whole {
                for i in 0..HELD {
                    let at = u64::from(Self::first() + (i * 32 * N) as u32);
                    f(Place { at, inside: true }, self.held[i].forget().to_f32());
                }
            } else {
                let (left, left_of_warp) = (self.left(Self::first()), self.left(Self::first_of_warp()));
                for i in 0..HELD {
                    if Self::held(i, left_of_warp).inside {
                        f(Self::held(i, left), self.held[i].forget().to_f32());
                    }
                }
            }
            start = HELD as u64 * turn;
        }
        while start < self.d {
            let place = Place { at: start + thread, inside: start + thread < self.d };
            f(place, self.values(place).to_f32());
            start += turn;
        }
    }

    /// Writes a pack of what the row becomes to `q`.
    #[inline(always)]
    pub(crate) unsafe fn store<Q: Copy>(&self, pack: Pack<Q, N>, q: *mut Q, Place { at, inside }: Place) {
        if !PACKED {
            blocks::store(pack, q, at, self.d, (q as usize).is_multiple_of(N));
        } else if inside {
            pack.store_global(q.add(at as usize));
        }
    }
}
