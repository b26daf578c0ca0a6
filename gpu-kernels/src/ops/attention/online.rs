//! The online softmax on accumulators of mma.sync: of lane l, elements 0 and 1 are of row l / 4, elements 2 and 3 of row l / 4 + 8.

use cuda_std::float::Half;
use cuda_std::{math, warp};

use super::{LOG2_E, limits};

/// Takes `max` into account. Returns the reference point of the weights, and the factor of the earlier sums.
#[inline(always)]
pub(super) fn raise(greatest: &mut f32, max: f32) -> (f32, f32) {
    let before = *greatest;
    *greatest = before.max(max);
    // Only −∞ has been seen so far: the reference point is 0.
    let reference = if *greatest == f32::NEG_INFINITY { 0.0 } else { *greatest };
    (reference, math::ex2_approx_ftz(before - reference))
}

/// The inverse of a query's sum, or 0 if it saw nothing, and its logsumexp; NaN beyond the limit of weights of type `T`.
#[inline(always)]
pub(super) fn finished<T: Half>(greatest: f32, sum: f32) -> (f32, f32) {
    let sum = limits::checked(sum, greatest, limits::of::<T>());
    if sum == 0.0 {
        return (0.0, f32::NEG_INFINITY);
    }
    (1.0 / sum, (greatest + math::log2(sum)) * core::f32::consts::LN_2)
}

/// The online softmax of 16 queries, of which a thread has part of two.
#[derive(Clone, Copy)]
pub(super) struct Online {
    /// The greatest score so far, times the scale and rounded. Stored in this form, a maximum that does not change
    /// gives a factor of exactly 2⁰, rather than one that misses 1 by a rounding error in every tile.
    greatest: [f32; 2],
    /// Of this thread's columns.
    sum: [f32; 2],
}

impl Online {
    /// The state after a sink, as `start` gives it.
    #[inline(always)]
    pub(super) fn of((max, sum): (f32, f32), lane: u32) -> Self {
        // Only one of the threads that share a query counts the sink.
        let sum = if lane.is_multiple_of(4) { sum } else { 0.0 };
        Self { greatest: [max * LOG2_E; 2], sum: [sum; 2] }
    }

    /// Turns the scores of `NT` times 8 keys into weights 2^((s − max)·scale), and returns the factors of what was summed before.
    #[inline(always)]
    pub(super) unsafe fn update<const NT: usize>(&mut self, scores: &mut [[f32; 4]; NT], scale: f32) -> [f32; 2] {
        let mut factors = [1.0; 2];
        for r in 0..2 {
            let mut max = f32::NEG_INFINITY;
            for j in 0..NT {
                max = max.max(scores[j][2 * r]).max(scores[j][2 * r + 1]);
            }
            max = max.max(warp::shuffle_xor(max, 1));
            max = max.max(warp::shuffle_xor(max, 2));
            let (reference, factor) = raise(&mut self.greatest[r], max * scale);
            factors[r] = factor;
            let mut sum = self.sum[r] * factors[r];
            for j in 0..NT {
                for e in 2 * r..2 * r + 2 {
                    scores[j][e] = math::ex2_approx_ftz(math::fma(scores[j][e], scale, -reference));
                    sum += scores[j][e];
                }
            }
            self.sum[r] = sum;
        }
        factors
    }

    /// The result of [`finished`] over all threads' columns.
    #[inline(always)]
    pub(super) unsafe fn finish<T: Half>(self) -> ([f32; 2], [f32; 2]) {
        let (mut inverse, mut lse) = ([0.0; 2], [0.0; 2]);
        for r in 0..2 {
            let sum = self.sum[r] + warp::shuffle_xor(self.sum[r], 1);
            let sum = sum + warp::shuffle_xor(sum, 2);
            (inverse[r], lse[r]) = finished::<T>(self.greatest[r], sum);
        }
        (inverse, lse)
    }
}
