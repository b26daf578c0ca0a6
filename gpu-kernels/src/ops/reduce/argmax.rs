//! The positions of the maxima of rows.
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
//! Two values per warp of the team that shares a row.
//!
//! # Numerics
//! Exact. NaN is greater than everything, so that the first NaN of a row wins; −0 equals +0; of equal elements the
//! first wins.
//!
//! # Cost
//! One read of rows × d elements, with 16-bit elements compared two at a time, and a second read where the maximum is:
//! bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks and columns.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::kernel;
use cuda_std::math::max_nan;

use crate::rows::{Block, Lanes, Stream, Team, Warp};

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
    let row = team.load_or((x, x_stride), f32::NEG_INFINITY);
    let own = match team.held_max_nan(row) {
        Some(max) => max,
        None => team.fold([row], f32::NEG_INFINITY, |max, [x]| max_nan(max, x)),
    };
    let [max] = team.reduce([own], [f32::NEG_INFINITY], 0, |[a], [b]| [max_nan(a, b)]);
    let is_max = |x: f32| x == max || (x.is_nan() && max.is_nan());
    // Few threads have the maximum, and only these search for its place.
    let nowhere = u32::MAX;
    let place = if is_max(own) {
        team.fold_packs([row], nowhere, |first, [pack], at| {
            // The search goes from the last element to the first, so that the first one remains. A thread's places are
            // in ascending order.
            let within =
                (0..pack.len()).rev().fold(nowhere, |first, e| if is_max(pack[e]) { (at + e) as u32 } else { first });
            first.min(within)
        })
    } else {
        nowhere
    };
    let [place] = team.reduce([place], [nowhere], 1, |[a], [b]| [a.min(b)]);
    if team.leads() {
        *y.add(team.row() as usize) = place as i32;
    }
}
