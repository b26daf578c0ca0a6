//! The online softmax of a consumer's 64 queries, in the layout of wgmma's accumulators: of two rows, 8 apart, a thread has two neighbouring
//! columns in each group of 8.

use cuda_std::float::Half;
use cuda_std::math::{self, ex2_approx_ftz, fma};
use cuda_std::vector::Pack;
use cuda_std::warp;
use cuda_std::wgmma::Registers;

use crate::ops::attention::{LOG2_E, Span, limits};

/// A thread's softmax state of its two rows. Each sum is kept in two parts, of even and of odd columns: dependency
/// chains of half the length.
///
/// Weights and their sums are scaled by 2^`SHIFT`, for types that have too few exponents below 1, such as E4M3.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Online<const SHIFT: u32 = 0> {
    /// The greatest score so far, times the scale and rounded. Stored in this form, a maximum that does not change
    /// gives a factor of exactly 2⁰, rather than one that misses 1 by a rounding error in every tile.
    greatest: [f32; 2],
    /// Of this thread's columns.
    pub(in crate::ops::attention) sum: [f32; 4],
}

impl<const SHIFT: u32> Online<SHIFT> {
    /// The state after a sink, as `start` gives it.
    #[inline(always)]
    pub(in crate::ops::attention) fn of((max, sum): (f32, f32), lane: u32) -> Self {
        // Only one of the threads that share a query counts the sink.
        let sum = if lane.is_multiple_of(4) { sum * (1 << SHIFT) as f32 } else { 0.0 };
        Self { greatest: [max * LOG2_E; 2], sum: [sum, 0.0, sum, 0.0] }
    }

    /// The value that is subtracted for a maximum: if the maximum is −∞, nothing has been seen yet, and the reference
    /// point is 0.
    #[inline(always)]
    fn references(&self) -> [f32; 2] {
        self.greatest.map(|greatest| if greatest == f32::NEG_INFINITY { 0.0 } else { greatest })
    }

    /// Takes the maxima of a tile's scores into account. Returns the factors by which the earlier sums have to be
    /// multiplied.
    #[inline(always)]
    pub(in crate::ops::attention) unsafe fn renew<const S: usize>(&mut self, s: &[f32; S], scale: f32) -> [f32; 2] {
        let mut greatest = [s[0], s[1], s[2], s[3]];
        for i in 4..S {
            greatest[i % 4] = greatest[i % 4].max(s[i]);
        }
        let before = self.greatest;
        for r in 0..2 {
            let mut max = greatest[2 * r].max(greatest[2 * r + 1]);
            max = max.max(warp::shuffle_xor(max, 1));
            max = max.max(warp::shuffle_xor(max, 2));
            self.greatest[r] = self.greatest[r].max(max * scale);
        }
        let references = self.references();
        let factors = [0, 1].map(|r| ex2_approx_ftz(before[r] - references[r]));
        for i in 0..4 {
            self.sum[i] *= factors[i / 2];
        }
        factors
    }

    /// Turns scores into weights 2^((s − max)·scale + SHIFT), and sums them.
    #[inline(always)]
    pub(in crate::ops::attention) fn weigh<const S: usize>(&mut self, s: &mut [f32; S], scale: f32) {
        let references = self.references().map(|reference| reference - SHIFT as f32);
        for i in 0..S {
            s[i] = ex2_approx_ftz(fma(s[i], scale, -references[i / 2 % 2]));
            self.sum[i % 4] += s[i];
        }
    }

    /// The inverse sums, or 0 for queries that saw nothing, and the logsumexps, of all threads' columns; NaN from `limit` on.
    #[inline(always)]
    pub(in crate::ops::attention) unsafe fn finish(&self, limit: f32) -> ([f32; 2], [f32; 2]) {
        let (mut inverse, mut lse) = ([0.0; 2], [f32::NEG_INFINITY; 2]);
        for r in 0..2 {
            let sum = self.sum[2 * r] + self.sum[2 * r + 1];
            let sum = sum + warp::shuffle_xor(sum, 1);
            let sum = limits::checked(sum + warp::shuffle_xor(sum, 2), self.greatest[r], limit);
            if sum != 0.0 {
                inverse[r] = math::rcp_approx(sum);
                lse[r] = (self.greatest[r] + (math::log2(sum) - SHIFT as f32)) * core::f32::consts::LN_2;
            }
        }
        (inverse, lse)
    }
}

/// Recomputes the same number, so that what derives from it is not kept in registers, which are scarce, from one use to
/// the next.
#[inline(always)]
pub(in crate::ops::attention) fn forget(lane: u32) -> u32 {
    let Pack([lane, ..]) = Pack([lane; 4]).forget();
    lane
}

/// The keys that each of a thread's two rows sees: the first one, and how many from there on.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Visible {
    first: [i32; 2],
    count: [u32; 2],
    /// Its first column in a tile.
    column: i32,
}

impl Visible {
    /// Of thread `lane` of a consumer whose queries are from `row` on.
    #[inline(always)]
    pub(in crate::ops::attention) fn of(span: Span, row: i32, lane: u32) -> Self {
        let row = row + (lane / 32 * 16 + lane % 32 / 4) as i32;
        let first = [0, 8].map(|below| (row + below + span.low).max(0));
        let end = [0, 8].map(|below| (row + below + span.high + 1).min(span.keys));
        let count = [0, 1].map(|r| (end[r] - first[r]).max(0) as u32);
        Self { first, count, column: (lane % 4 * 2) as i32 }
    }

    /// Hides the scores of all other keys of a tile, whose first key is `key`.
    #[inline(always)]
    pub(in crate::ops::attention) fn mask<const S: usize>(&self, s: &mut [f32; S], key: i32) {
        let place = self.first.map(|first| (key + self.column).wrapping_sub(first) as u32);
        for i in 0..S {
            let (r, column) = (i / 2 % 2, (i / 4 * 8 + i % 2) as u32);
            if place[r].wrapping_add(column) >= self.count[r] {
                s[i] = f32::NEG_INFINITY;
            }
        }
    }
}

/// Weights as operand A of the second product: an accumulator's layout is the operand's.
#[inline(always)]
pub(in crate::ops::attention) fn pack<T: Half, const S: usize, const STEPS: usize>(
    s: &[f32; S],
    p: &mut [[u32; 4]; STEPS],
) {
    const { assert!(S == 8 * STEPS) };
    for step in 0..STEPS {
        p[step] = [0, 2, 4, 6].map(|i| T::pack(s[8 * step + i], s[8 * step + i + 1]));
    }
}

/// Multiplies the two rows by their factors.
#[inline(always)]
pub(in crate::ops::attention) fn rescale<const O: usize>(o: &mut [f32; O], factors: [f32; 2]) {
    for i in 0..O {
        o[i] *= factors[i / 2 % 2];
    }
}

/// Keeps the weights alive in their registers up to this point, while products read them.
#[inline(always)]
pub(in crate::ops::attention) fn pin<const STEPS: usize>(p: &mut [[u32; 4]; STEPS]) {
    for step in p {
        step.pin();
    }
}
