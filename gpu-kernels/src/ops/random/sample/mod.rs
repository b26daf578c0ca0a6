//! Samples one token per row of logits: temperature, top-k and top-p (nucleus).
//!
//! # Math
//! Token i of a row has the weight wᵢ = 2^((xᵢ − max x) · log₂e / temperature), in units of 2⁻³⁰ ([`weight`]), and Z =
//! Σ w. A token is kept if fewer than `k` tokens are better and the better ones together weigh less than `share` · Z; a
//! token is better if its logit is greater, or equal and at an earlier position. y is a kept token, token i with
//! probability wᵢ / Σ w over the kept ones.
//!
//! # Layout
//! `x` is rows of d adjacent logits, `x_stride` elements apart; `y` is an i32 a row. Draw j of row r takes words 0 and 1 of [`quad`](super::quad)
//! r + 2³² · j.
//!
//! # Mapping
//! One block per row, or a cluster: [`mod@cluster`]. A block reads the row for the maximum, and once more for the
//! weights of chunks of 1024 · m tokens. A random number below Z then selects a chunk, and in it a token: 2 KB more.
//! Where only some tokens are kept, the row is read again for the number and the weight of the tokens that are better
//! than the drawn one. If that one is not kept, no worse token is either, and the next number is drawn among the better
//! ones, whose chunks have just been weighed. With k = 1 the row is read again for the first of the greatest. Most
//! draws are kept, and each rejected draw on average leaves half of what it was drawn from: no sort, no search for a
//! threshold. 64 bytes per thread are in flight.
//!
//! # Shared memory
//! The weights of [`CHUNKS`] chunks, and two values per warp: 8448 B.
//!
//! # Numerics
//! Weights are integers, whose sums are exact in any order, so that the token is reproducible to the bit, on any device. [`weight`] is
//! exact within 3·10⁻⁶ relative and 2⁻³⁰ of the greatest. −∞ weighs nothing. Rows with NaN, and rows of −∞ alone, have the token −1.
//!
//! # Cost
//! Two reads of the row where all tokens are kept, and otherwise one more for each draw, usually from L2: the time is
//! between that of L2 and of memory bandwidth. About 16 operations per token for each weighing.
//!
//! # Limits
//! 2³¹ − 1 rows and columns.
//!
//! # Sources
//! Holtzman, Buys, Du, Forbes and Choi, "The Curious Case of Neural Text Degeneration" (arXiv:1904.09751), for the nucleus; Salmon et al.,
//! "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).

pub mod cluster;
mod draw;

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, shared_field, thread, warp};

use draw::{Logits, Rule, Weights, pick, warp_sum};

use crate::ops::reduce::key;
use crate::ops::reduce::top_k::candidate;
use crate::rows::{BlockThreads, MAX_THREADS, Stream, Team, Threads};

/// The most chunks of a row.
pub const CHUNKS: u32 = 1024;
/// The least tokens of a chunk.
pub const CHUNK: u32 = 1024;

/// The greatest weight.
pub const ONE: u32 = 1 << 30;
/// Steps of an octave: the factor that converts a scale in octaves to one in steps.
pub const OCTAVE: f32 = (1 << 24) as f32;

/// The weight of a logit relative to the greatest: [`ONE`] · 2^((x − max) · scale / [`OCTAVE`]). The device and the
/// host compute the same bits.
#[inline(always)]
pub fn weight(x: f32, max: f32, scale: f32) -> u32 {
    // 2^(−f) in [0, 1], 4·10⁻⁷ relative, of the maximum exactly: for f in steps of 2⁻²⁴, and in units of 2⁻³⁰.
    const UNIT: f64 = ONE as f64;
    const STEP: f64 = 1.0 / (1 << 24) as f64;
    const C1: f64 = UNIT * -0.693_146_944_701_874_4 * STEP;
    const C2: f64 = UNIT * 0.240_214_689_980_346_2 * STEP * STEP;
    const C3: f64 = UNIT * -0.055_408_559_538_161_71 * STEP * STEP * STEP;
    const C4: f64 = UNIT * 0.009_344_231_011_699_03 * STEP * STEP * STEP * STEP;
    const C5: f64 = UNIT * -0.001_003_630_514_007_664 * STEP * STEP * STEP * STEP * STEP;
    // ∞ − ∞ and 0 · ∞ are NaN, which becomes 0: that is the case of the maximum itself.
    let below = math::truncate_to_u32((max - x) * scale).min(u32::MAX >> 3);
    let fraction = (below & 0xff_ffff) as f32;
    let power = [C4, C3, C2, C1, UNIT].into_iter().fold(C5 as f32, |sum, c| math::fma(sum, fraction, c as f32));
    math::truncate_to_u32(power) >> (below >> 24)
}

/// What a block shares.
#[repr(C)]
pub struct Shared {
    partials: <BlockThreads as Threads>::Partials<2>,
    chunks: [u64; CHUNKS as usize],
}

#[inline(always)]
fn chunks() -> SharedPtr<u64> {
    let shared = shared::dynamic::<Shared>();
    shared_field!(shared.chunks).cast()
}

/// A token of a row, a block each; every token is kept where k is d or more and `share`, in units of 2⁻³², 1.
///
/// # Safety
/// `x` is valid for reads of a row of `d` elements per block at its stride, `y` for writes of one element per block; d
/// is from 1 to 2³¹ − 1, k at least 1. Blocks have [`MAX_THREADS`] threads.
#[kernel(dtypes(T: float), block = MAX_THREADS, min_blocks = 1, shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn sample<T: Element>(
    x: *const T,
    y: *mut i32,
    rows: u64,
    d: u32,
    x_stride: u64,
    scale: f32,
    k: u32,
    share: u64,
    seed: u64,
    offset: u64,
) {
    let Some(team) = Stream::of(rows, u64::from(d)) else { return };
    let y = y.add(team.row() as usize);
    // This precedes the reduction's barrier: chunks past the end of the row weigh nothing.
    let mut chunk = thread::thread_idx_x();
    while chunk < CHUNKS {
        chunks().add(chunk).write(0);
        chunk += MAX_THREADS;
    }
    let max = team.fold([team.load((x, x_stride))], f32::NEG_INFINITY, |max, [x]| math::max_nan(max, x));
    let [max] = team.reduce([max], [f32::NEG_INFINITY], 0, |[a], [b]| [math::max_nan(a, b)]);
    if max.is_nan() || max == f32::NEG_INFINITY {
        if team.leads() {
            *y = -1;
        }
        return;
    }
    if k == 1 {
        // No draw is needed: the token is the first of the greatest.
        let first = team.fold_packs([team.load((x, x_stride))], u32::MAX, |first, [pack], at| {
            let place = |e: usize| if pack[e] == max { (at + e) as u32 } else { u32::MAX };
            (0..pack.len()).map(place).fold(first, u32::min)
        });
        let [first] = team.reduce([first], [u32::MAX], 1, |[a], [b]| [a.min(b)]);
        if team.leads() {
            *y = first as i32;
        }
        return;
    }
    let logits = Logits { x: x.add((team.row() * x_stride) as usize), d, max, scale };
    let mut chunks = Chunks { logits, chunk: d.div_ceil(CHUNKS * CHUNK) * CHUNK };
    let token = logits.draw(&mut chunks, Rule { k, share, seed, offset, row: team.row() });
    if team.leads() {
        *y = token as i32;
    }
}

/// A block's row, weighed by chunks.
struct Chunks<T> {
    logits: Logits<T>,
    /// Tokens of a chunk.
    chunk: u32,
}

impl<T: Element> Weights for Chunks<T> {
    #[inline(always)]
    unsafe fn weigh(&mut self, worst: u64) -> (u64, u32) {
        // The last chunks have been read.
        thread::sync_threads();
        if (self.logits.x as usize).is_multiple_of(16) {
            match crate::lanes::<T>() {
                4 => self.weigh_by::<4, 4>(worst),
                _ => self.weigh_by::<8, 4>(worst),
            }
        } else {
            self.weigh_by::<1, 8>(worst)
        }
    }

    /// Every warp finds the result.
    #[inline(always)]
    unsafe fn find(&mut self, left: u64, worst: u64) -> u32 {
        const EACH: u32 = CHUNKS / warp::SIZE;
        let chunks = chunks();
        let lane = warp::lane_id();
        let mut weight = 0;
        for i in 0..EACH {
            weight += chunks.add(slot(lane * EACH + i)).read();
        }
        let (group, left) = pick(weight, left);
        let (chunk, left) = pick(chunks.add(slot(group * EACH + lane)).read(), left);
        let start = (group * EACH + chunk) * self.chunk;
        self.find_in(start, start + self.chunk, left, worst)
    }
}

impl<T: Element> Chunks<T> {
    /// Among the tokens from `start` to `end` that are better than `worst`, the one at which the cumulative weight, in
    /// the order of positions, passes `left`.
    #[inline(always)]
    unsafe fn find_in(&self, start: u32, end: u32, left: u64, worst: u64) -> u32 {
        /// Tokens a lane at once.
        const TOKENS: u32 = 8;
        let Logits { x, d, .. } = self.logits;
        let (mut start, mut left) = (start, left);
        while start < end {
            let first = start + warp::lane_id() * TOKENS;
            let weights: [u32; TOKENS as usize] = array::from_fn(|e| {
                let place = first + e as u32;
                if place < d && self.logits.candidate(place) > worst {
                    self.logits.weight((*x.add(place as usize)).to_f32())
                } else {
                    0
                }
            });
            let (found, rest) = pick(weights.into_iter().map(u64::from).sum(), left);
            if found < warp::SIZE {
                // How many of that lane's tokens are used up before.
                let (mut sum, mut before) = (0, 0);
                for weight in weights {
                    sum += u64::from(weight);
                    before += u32::from(sum <= rest);
                }
                return start + found * TOKENS + warp::shuffle_idx(before, found);
            }
            left = rest;
            start += warp::SIZE * TOKENS;
        }
        d - 1
    }

    /// Chunk by chunk into shared memory.
    #[inline(always)]
    unsafe fn weigh_by<const N: usize, const P: usize>(&self, worst: u64) -> (u64, u32) {
        let Logits { x, d, .. } = self.logits;
        let chunks = chunks();
        let whole = d / N as u32 * N as u32;
        let lane = warp::lane_id();
        let mut number = 0;
        let of =
            |x: f32, place: u32| if candidate(key(x), place) > worst { (self.logits.weight(x), 1) } else { (0, 0) };
        let mut chunk = warp::warp_id();
        while chunk * self.chunk < d {
            let mut sum = 0u64;
            let mut start = chunk * self.chunk;
            let end = start + self.chunk;
            while start < end {
                let at = |pack: usize| start + (pack as u32 * warp::SIZE + lane) * N as u32;
                let none = Pack::<T, N>::splat(T::from_f32(0.0));
                let packs: [_; P] =
                    array::from_fn(|i| if at(i) < whole { Pack::load_nc(x.add(at(i) as usize)) } else { none });
                for i in 0..P {
                    let elements = packs[i].to_f32();
                    for e in 0..N {
                        let (weight, one) = of(elements[e], at(i) + e as u32);
                        if at(i) < whole {
                            sum += u64::from(weight);
                            number += one;
                        }
                    }
                }
                start += warp::SIZE * (N * P) as u32;
            }
            // The elements after the last pack.
            let rest = whole + lane;
            if end >= d && rest < d {
                let (weight, one) = of((*x.add(rest as usize)).to_f32(), rest);
                sum += u64::from(weight);
                number += one;
            }
            let sum = warp_sum(sum);
            if lane == 0 {
                chunks.add(slot(chunk)).write(sum);
            }
            chunk += MAX_THREADS / warp::SIZE;
        }
        let [number] = BlockThreads::reduce([number], [0], 1, |[a]: [u32; 1], [b]| [a + b]);
        let mut weight = 0;
        for i in 0..CHUNKS / warp::SIZE {
            weight += chunks.add(slot(lane * (CHUNKS / warp::SIZE) + i)).read();
        }
        let mut mask = warp::SIZE / 2;
        while mask > 0 {
            weight += warp::shuffle_xor_u64(weight, mask);
            mask /= 2;
        }
        (weight, number)
    }
}

/// The position of a chunk's weight: the weights that one lane adds are spread, so that lanes read neighbouring ones at
/// the same time.
#[inline(always)]
const fn slot(chunk: u32) -> u32 {
    const EACH: u32 = CHUNKS / warp::SIZE;
    chunk % EACH * warp::SIZE + chunk / EACH
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;

    #[test]
    fn weights_are_powers() {
        let scale = core::f32::consts::LOG2_E * OCTAVE;
        for i in 0..40_000 {
            let x = -(i as f32) / 2000.0;
            let exact = f64::from(x).exp() * f64::from(ONE);
            let found = f64::from(weight(x, 0.0, scale));
            assert!((found - exact).abs() <= 1.0 + 3e-6 * exact, "{x}: {found}, not {exact}");
        }
    }

    #[test]
    fn the_edges_of_weights() {
        let of = |x: f32, max: f32, scale: f32| weight(x, max, scale);
        let infinite = f32::INFINITY;
        for scale in [f32::MIN_POSITIVE, 1.0, OCTAVE, infinite] {
            assert_eq!(of(3.0, 3.0, scale), ONE);
            assert_eq!(of(infinite, infinite, scale), ONE);
            assert_eq!(of(-infinite, 3.0, scale), 0);
            assert_eq!(of(3.0, infinite, scale), 0);
        }
        assert_eq!(of(1.0, 2.0, infinite), 0);
    }

    #[test]
    fn chunks_have_slots_of_their_own() {
        let mut slots = std::vec::Vec::from_iter((0..CHUNKS).map(slot));
        slots.sort_unstable();
        assert!(slots.into_iter().eq(0..CHUNKS));
    }
}
