//! What fused normalisation shares: a row that a block of threads holds, its root mean square, and what it is normalised to.

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{math, thread};

use super::blocks::{self, load, load_kept};
use crate::rows::{BlockThreads, Threads};

/// The most threads of a block, which share a row.
pub(crate) const BLOCK: u32 = 512;
/// The least, because fewer would leave a multiprocessor without warps: it takes 32 blocks.
const LEAST: usize = 64;
/// Packs of a thread that stay in registers. What a row has beyond is read again each time.
const HELD: usize = 8;

/// Threads for a row of `d` elements of `bytes` each: few with many packs each, so that many blocks are there of which some load while others wait.
pub const fn threads(d: usize, bytes: usize) -> u32 {
    let threads = d.div_ceil(HELD * 16 / bytes).next_multiple_of(32);
    if threads < LEAST {
        LEAST as u32
    } else if threads > BLOCK as usize {
        BLOCK
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

/// A row of `d` elements and its weight. With `PACKED` packs of `N` divide d and lie at multiples of 16 bytes, and threads hold them; otherwise they
/// read the row again.
pub(crate) struct NormRow<T, const N: usize, const PACKED: bool> {
    x: *const T,
    weight: *const T,
    held: [Pack<T, N>; HELD],
    d: u64,
}

impl<T: Element, const N: usize, const PACKED: bool> NormRow<T, N, PACKED> {
    #[inline(always)]
    pub(crate) unsafe fn load(x: *const T, weight: *const T, d: u64) -> Self {
        let row = Self { x, weight, held: [Pack([T::from_f32(0.0); N]); HELD], d };
        let left = row.left(Self::first());
        let held = array::from_fn(|i| if PACKED { row.values(Self::held(i, left)) } else { row.held[i] });
        Self { held, ..row }
    }

    /// Where the packs start that this thread holds. A warp's lie together, so that their addresses differ by constants.
    #[inline(always)]
    fn first() -> u32 {
        let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
        (warp * 32 * HELD as u32 + lane) * N as u32
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
            (true, true) => Pack::load_nc_no_allocate(self.x.add(at as usize)),
            (true, false) => Pack([T::from_f32(0.0); N]),
        }
    }

    /// Those that all rows share leave the cache last. Beyond the end it may be any of them.
    #[inline(always)]
    unsafe fn weights(&self, Place { at, inside }: Place) -> [f32; N] {
        if PACKED {
            return Pack::load_nc_evict_last(self.weight.add(if inside { at as usize } else { 0 })).to_f32();
        }
        load_kept(self.weight, at, self.d, (self.weight as usize).is_multiple_of(16)).to_f32()
    }

    /// Calls `f` with every pack of the row and its place, all lanes of a warp together; beyond the end there are zeros.
    #[inline(always)]
    unsafe fn each(&self, mut f: impl FnMut(Place, [f32; N])) {
        let (thread, turn) =
            (u64::from(thread::thread_idx_x()) * N as u64, u64::from(thread::block_dim_x()) * N as u64);
        let mut start = 0;
        if PACKED {
            let lane = thread::thread_idx_x() % 32 * N as u32;
            let (left, left_of_warp) = (self.left(Self::first()), self.left(Self::first() - lane));
            for i in 0..HELD {
                if Self::held(i, left_of_warp).inside {
                    f(Self::held(i, left), self.held[i].forget().to_f32());
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

    /// 1 / √(mean of squares + eps) and the greatest magnitude of the normalised row, by the one reduction that there is.
    #[inline(always)]
    pub(crate) unsafe fn inverse_rms_and_max(&self, eps: f32) -> [f32; 2] {
        let (mut squares, mut max) = (0.0, 0.0);
        self.each(|place, values| {
            squares = values.iter().fold(squares, |sum, x| sum + x * x);
            let weights = self.weights(place);
            if place.inside {
                max = (0..N).fold(max, |max, e| math::max_magnitude(max, values[e] * weights[e]));
            }
        });
        let [squares, max] =
            BlockThreads::reduce([squares, max], [0.0; 2], 0, |a, b| [a[0] + b[0], math::max_nan(a[1], b[1])]);
        let inverse_rms = self.scale(squares, eps);
        // Of a row of zeros 1 / rms may be infinite, of none it is NaN.
        [inverse_rms, if max == 0.0 { 0.0 } else { max * inverse_rms }]
    }

    /// The first of the two alone, of the row alone.
    #[inline(always)]
    pub(crate) unsafe fn inverse_rms(&self, eps: f32) -> f32 {
        let mut squares = 0.0;
        self.each(|_, values| squares = values.iter().fold(squares, |sum, x| sum + x * x));
        let [squares] = BlockThreads::reduce([squares], [0.0], 0, |[a], [b]| [a + b]);
        self.scale(squares, eps)
    }

    #[inline(always)]
    fn scale(&self, squares: f32, eps: f32) -> f32 {
        math::rsqrt_approx(squares / self.d as f32 + eps)
    }

    /// Calls `f` with every pack of x · weight · factor, all lanes of a warp together. What is beyond the end is anything.
    #[inline(always)]
    pub(crate) unsafe fn each_normalized(&self, factor: f32, mut f: impl FnMut(Place, [f32; N])) {
        self.each(|place, values| {
            let weights = self.weights(place);
            f(place, array::from_fn(|e| values[e] * weights[e] * factor));
        });
    }

    /// Writes a pack of what the row becomes to `q`.
    #[inline(always)]
    pub(crate) unsafe fn store<Q: Copy>(&self, pack: Pack<Q, N>, q: *mut Q, Place { at, inside }: Place) {
        if !PACKED {
            blocks::store(pack, q, at, self.d, (q as usize).is_multiple_of(N));
        } else if inside {
            pack.store_streaming(q.add(at as usize));
        }
    }
}
