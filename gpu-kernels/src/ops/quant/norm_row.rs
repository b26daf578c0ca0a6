//! What fused normalisation shares: a row that a block of threads holds, and its root mean square.

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{math, thread};

use super::blocks::{load, load_kept};
use crate::rows::{BlockThreads, Threads};

/// Threads of a block, which share a row.
pub(crate) const BLOCK: u32 = 256;
/// Packs of a thread that stay in registers. What a row has beyond is read again each time.
const HELD: usize = 4;

/// Shared memory of `R` reductions.
pub(crate) type Partials<const R: usize> = <BlockThreads as Threads>::Partials<R>;

/// A row of `d` elements and its weight, of packs of `N`.
pub(crate) struct NormRow<T, const N: usize> {
    x: *const T,
    weight: *const T,
    held: [Pack<T, N>; HELD],
    d: u64,
    /// Whether packs of the row, and of the weight, may be read at once.
    packed: [bool; 2],
}

impl<T: Element, const N: usize> NormRow<T, N> {
    #[inline(always)]
    pub(crate) unsafe fn load(x: *const T, weight: *const T, d: u64) -> Self {
        let packed = [x, weight].map(|start| (start as usize).is_multiple_of(16));
        let held = array::from_fn(|i| load(x, Self::at(i as u64), d, packed[0]));
        Self { x, weight, held, d, packed }
    }

    /// Where pack `i` of this thread starts.
    #[inline(always)]
    fn at(i: u64) -> u64 {
        (u64::from(thread::thread_idx_x()) + i * u64::from(BLOCK)) * N as u64
    }

    /// Calls `f` with every pack and where it starts, all threads together; beyond the end there are zeros.
    #[inline(always)]
    unsafe fn each(&self, mut f: impl FnMut(u64, [f32; N])) {
        let turn = u64::from(BLOCK) * N as u64;
        for i in 0..HELD {
            if i as u64 * turn < self.d {
                f(Self::at(i as u64), self.held[i].forget().to_f32());
            }
        }
        let mut i = HELD as u64;
        while i * turn < self.d {
            f(Self::at(i), load(self.x, Self::at(i), self.d, self.packed[0]).to_f32());
            i += 1;
        }
    }

    /// 1 / √(mean of squares + eps), which takes the reduction's slot 0.
    #[inline(always)]
    pub(crate) unsafe fn inverse_rms(&self, eps: f32) -> f32 {
        let mut squares = 0.0;
        self.each(|_, values| squares = values.iter().fold(squares, |sum, x| sum + x * x));
        let [squares] = BlockThreads::reduce([squares], [0.0], 0, |[a], [b]| [a + b]);
        math::rsqrt_approx(squares / self.d as f32 + eps)
    }

    /// [`each`](Self::each) of the normalised row.
    #[inline(always)]
    pub(crate) unsafe fn each_normalized(&self, inverse_rms: f32, mut f: impl FnMut(u64, [f32; N])) {
        self.each(|at, values| {
            let weights: [f32; N] = load_kept(self.weight, at, self.d, self.packed[1]).to_f32();
            f(at, array::from_fn(|e| values[e] * inverse_rms * weights[e]));
        });
    }
}
