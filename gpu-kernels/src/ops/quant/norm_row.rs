//! Code that fused normalisation kernels share: a row's root mean square, and its normalised values.

use core::array;

use cuda_std::float::Element;
use cuda_std::math;
use cuda_std::vector::Pack;

use super::blocks::load_kept;
use super::row::{Place, Row};
use crate::rows::{BlockThreads, Threads};

/// A row and its weight, whose packs with `PACKED` lie at multiples of 16 bytes as well.
pub(crate) struct NormRow<T, const N: usize, const HELD: usize, const PACKED: bool> {
    row: Row<T, N, HELD, PACKED>,
    weight: *const T,
}

impl<T: Element, const N: usize, const HELD: usize, const PACKED: bool> NormRow<T, N, HELD, PACKED> {
    #[inline(always)]
    pub(crate) unsafe fn load(x: *const T, weight: *const T, d: u64) -> Self {
        Self { row: Row::load(x, d), weight }
    }

    /// Those that all rows share leave the cache last. Beyond the end it may be any of them.
    #[inline(always)]
    unsafe fn weights(&self, Place { at, inside }: Place) -> [f32; N] {
        if PACKED {
            return Pack::load_nc_evict_last(self.weight.add(if inside { at as usize } else { 0 })).to_f32();
        }
        load_kept(self.weight, at, self.row.d, (self.weight as usize).is_multiple_of(16)).to_f32()
    }

    /// 1 / √(mean of squares + eps) and the greatest magnitude of x · weight, by the one reduction that there is.
    #[inline(always)]
    pub(crate) unsafe fn inverse_rms_and_max(&self, eps: f32) -> [f32; 2] {
        let (mut squares, mut max) = (0.0, 0.0);
        self.row.each(|place, values| {
            squares = values.iter().fold(squares, |sum, x| sum + x * x);
            let weights = self.weights(place);
            if place.inside {
                max = (0..N).fold(max, |max, e| math::max_magnitude(max, values[e] * weights[e]));
            }
        });
        let [squares, max] =
            BlockThreads::reduce([squares, max], [0.0; 2], 0, |a, b| [a[0] + b[0], math::max_nan(a[1], b[1])]);
        [self.scale(squares, eps), max]
    }

    /// The first of the two alone, of the row alone.
    #[inline(always)]
    pub(crate) unsafe fn inverse_rms(&self, eps: f32) -> f32 {
        let mut squares = 0.0;
        self.row.each(|_, values| squares = values.iter().fold(squares, |sum, x| sum + x * x));
        let [squares] = BlockThreads::reduce([squares], [0.0], 0, |[a], [b]| [a + b]);
        self.scale(squares, eps)
    }

    #[inline(always)]
    fn scale(&self, squares: f32, eps: f32) -> f32 {
        math::rsqrt_approx(squares / self.row.d as f32 + eps)
    }

    /// Calls `f` with every pack of x · weight · factor, all lanes of a warp together. What is beyond the end is anything.
    #[inline(always)]
    pub(crate) unsafe fn each_normalized(&self, factor: f32, mut f: impl FnMut(Place, [f32; N])) {
        self.row.each(|place, values| {
            let weights = self.weights(place);
            f(place, array::from_fn(|e| values[e] * weights[e] * factor));
        });
    }

    /// [`Row::store`].
    #[inline(always)]
    pub(crate) unsafe fn store<Q: Copy>(&self, pack: Pack<Q, N>, q: *mut Q, place: Place) {
        self.row.store(pack, q, place);
    }
}
