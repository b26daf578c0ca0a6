//! Where the maxima of rows are.
//!
//! # Math
//! y = the least i with x\[i\] = max x, for each row.
//!
//! # Layout
//! `x` is rows of d adjacent elements, `x_stride` elements apart; `y` is an i32 for each row.
//!
//! # Mapping
//! A [`Team`] a row: see [`rows`](crate::rows).
//!
//! # Shared memory
//! Two values a warp of those that share a row.
//!
//! # Numerics
//! Exact. NaN is greater than everything, so that the first NaN of a row wins; −0 equals +0; equals go to the first.
//!
//! # Cost
//! One read of rows × d elements, about four integer operations an element: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks and columns.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::kernel;

use crate::rows::{Block, Lanes, Stream, Team, Warp};

/// A number that is greater for greater x, and greatest for NaN; at least 1.
#[inline(always)]
pub fn key(x: f32) -> u32 {
    // −0 becomes +0.
    let bits = (x + 0.0).to_bits();
    if x.is_nan() {
        u32::MAX
    } else if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

/// The better of two candidates: key and index.
#[inline(always)]
fn better(a: [u32; 2], b: [u32; 2]) -> [u32; 2] {
    if a[0] > b[0] || (a[0] == b[0] && a[1] < b[1]) { a } else { b }
}

/// y\[r\] of every row, a team `P` a row.
///
/// # Safety
/// `x` is valid for reads of `rows` rows of `d` elements at their stride and `y` for writes of `rows`; rows and d are at least 1, d is
/// below 2³¹, and rows are such as the team holds.
#[kernel(
    dtypes(T: float),
    types(P: Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream),
    block = P::THREADS,
    min_blocks = crate::rows::blocks::<P>(1),
    shared = <P as Team>::Partials<2>,
    no_spills
)]
pub unsafe fn argmax<T: Element, P: Team>(x: *const T, y: *mut i32, rows: u64, d: u64, x_stride: u64) {
    let Some(team) = P::of(rows, d) else { return };
    let nobody = [0, u32::MAX];
    let best = team.fold_packs([team.load((x, x_stride))], nobody, |best, [pack], at| {
        let mut best = best;
        for e in 0..pack.len() {
            // A thread's indices rise, so that an equal is a later one.
            let key = key(pack[e]);
            if key > best[0] {
                best = [key, (at + e) as u32];
            }
        }
        best
    });
    let [_, index] = team.reduce(best, nobody, 0, better);
    if team.leads() {
        *y.add(team.row() as usize) = index as i32;
    }
}
