//! Maxima of rows.
//!
//! # Math
//! y = max x, for each row; −∞ of none.
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
//! Exact. NaN in a row gives NaN.
//!
//! # Cost
//! One read of rows × d elements, one comparison an element: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::math::max_nan;

use super::reduction;
use crate::rows::{Block, Lanes, Stream, Team, Warp};

reduction! {
    max,
    first: f32::NEG_INFINITY,
    fold: max_nan,
    combine: max_nan,
    finish: |max, _| max,
}
