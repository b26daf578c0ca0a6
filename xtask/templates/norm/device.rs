//! NAME of rows.
//!
//! # Math
//! y = x − Σ x / d, for each row.
//!
//! # Layout
//! `x` and `y` are rows of d adjacent elements, `x_stride` and `y_stride` elements apart.
//!
//! # Mapping
//! A [`Team`] a row, which holds it in registers so that `x` is read once: see [`rows`](crate::rows).
//!
//! # Shared memory
//! One f32 per warp of the team that shares a row.
//!
//! # Numerics
//! Sums in f32, in an order that is always the same. One rounding to the storage type.
//!
//! # Cost
//! One read and one write of rows × d elements, 2 FLOPs an element: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::kernel;

use crate::rows::{Block, Lanes, Stream, Team, Warp};

/// y = NAME(x), a team `P` a row.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `rows` rows of `d` elements at their strides; rows is at least 1, and rows are such as
/// the team holds.
#[kernel(
    dtypes(T: float),
    types(P: Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream),
    block = P::THREADS,
    min_blocks = 1,
    shared = <P as Team>::Partials<1>,
    no_spills
)]
pub unsafe fn NAME<T: Element, P: Team>(x: *const T, y: *mut T, rows: u64, d: u64, x_stride: u64, y_stride: u64) {
    let Some(team) = P::of(rows, d) else { return };
    let x = team.load((x, x_stride));
    let mean = team.sum(team.fold([x], 0.0, |sum, [x]| sum + x), 0) / d as f32;
    team.store([x], [(y, y_stride)], |[x]| [x - mean]);
}
