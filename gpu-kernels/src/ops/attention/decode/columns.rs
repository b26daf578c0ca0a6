//! Scores and weights of a tile of 16 keys: keys are rows of the accumulators, queries are columns.
//!
//! In a lane, elements 0 and 1 belong to key lane / 4, elements 2 and 3 to key lane / 4 + 8; elements 0 and 2 belong to
//! query 2 · (lane % 4), 1 and 3 to the next. Usually only a few queries share a key: with queries as columns, in
//! groups of eight, at most seven columns of products and exponentials are wasted.

use cuda_std::float::Half;
use cuda_std::shared::SharedPtr;
use cuda_std::{math, matrix, warp};

use crate::ops::attention::online::{finished, raise};

/// The key of a lane's element.
#[inline(always)]
pub(super) fn key(lane: u32, element: usize) -> u32 {
    lane / 4 + element as u32 / 2 * 8
}

/// The query of a lane's first or second column.
#[inline(always)]
pub(super) fn query(n: usize, lane: u32, column: usize) -> u32 {
    n as u32 * 8 + lane % 4 * 2 + column as u32
}

/// Multiplies the scores or weights of each key by the key's scale.
#[inline(always)]
pub(super) unsafe fn apply<const NT: usize>(scores: &mut [[f32; 4]; NT], scales: SharedPtr<f32>, lane: u32) {
    let scales = [0, 2].map(|element| scales.add(key(lane, element)).read());
    for n in 0..NT {
        for e in 0..4 {
            scores[n][e] *= scales[e / 2];
        }
    }
}

/// Weights as operand B of the next product, whose inner dimension is the keys.
#[inline(always)]
pub(super) unsafe fn operand<T: Half>([a, b, c, d]: [f32; 4]) -> [u32; 2] {
    [matrix::transpose(T::pack(a, b)), matrix::transpose(T::pack(c, d))]
}

/// The online softmax of `NT` times 8 queries, of which a thread has part of two each.
#[derive(Clone, Copy)]
pub(super) struct Online<const NT: usize> {
    /// The greatest score so far, times the scale.
    greatest: [[f32; 2]; NT],
    /// Of this thread's keys.
    sum: [[f32; 2]; NT],
}

impl<const NT: usize> Online<NT> {
    pub(super) const START: Self = Self { greatest: [[f32::NEG_INFINITY; 2]; NT], sum: [[0.0; 2]; NT] };

    /// Turns scores into weights 2^((s − max)·scale), and returns the factors of what was summed before.
    #[inline(always)]
    pub(super) unsafe fn update(&mut self, scores: &mut [[f32; 4]; NT], scale: f32) -> [[f32; 2]; NT] {
        let mut factors = [[1.0; 2]; NT];
        for n in 0..NT {
            for c in 0..2 {
                let max = all(scores[n][c].max(scores[n][c + 2]), f32::max);
                let (reference, factor) = raise(&mut self.greatest[n][c], max * scale);
                factors[n][c] = factor;
                for e in [c, c + 2] {
                    scores[n][e] = math::ex2_approx_ftz(math::fma(scores[n][e], scale, -reference));
                }
                self.sum[n][c] = math::fma(self.sum[n][c], factor, scores[n][c] + scores[n][c + 2]);
            }
        }
        factors
    }

    /// The result of [`finished`] over all threads' keys, for weights of type `T`.
    #[inline(always)]
    pub(super) unsafe fn finish<T: Half>(self, n: usize, column: usize) -> (f32, f32) {
        finished::<T>(self.greatest[n][column], all(self.sum[n][column], |a, b| a + b))
    }
}

/// Combines the values of lanes that have other keys of the same queries.
#[inline(always)]
unsafe fn all(value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let value = combine(value, warp::shuffle_xor(value, 4));
    let value = combine(value, warp::shuffle_xor(value, 8));
    combine(value, warp::shuffle_xor(value, 16))
}
