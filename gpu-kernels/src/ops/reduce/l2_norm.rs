//! Euclidean norms of rows.
//!
//! # Math
//! y = √Σ x² for each row. The norm of rows' norms is that of a whole tensor.
//!
//! # Layout
//! `x` is rows of d adjacent elements, `x_stride` elements apart; `y` is an f32 for each row.
//!
//! # Mapping
//! A [`Team`] a row: see [`rows`](crate::rows).
//!
//! # Shared memory
//! One f32 per warp of the team that shares a row.
//!
//! # Numerics
//! f32, in an order that is always the same. The root is sqrt.approx, 2⁻²² relative. Squares beyond f32 give +∞, and
//! squares below its range lose digits: the norm is up to 1.8·10¹⁹, and |x| below 2.6·10⁻²³ counts as 0. Scaling by the
//! maximum would first need a pass to find it.
//!
//! # Cost
//! One read of rows × d elements, two FLOPs per element: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::math;

use super::reduction;
use crate::rows::{Block, Lanes, Stream, Team, Warp};

reduction! {
    l2_norm,
    first: 0.0,
    fold: |sum, x| sum + x * x,
    combine: |a, b| a + b,
    finish: |sum, _| math::sqrt_approx(sum),
}
