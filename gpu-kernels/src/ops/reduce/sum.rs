//! Sums and means of rows.
//!
//! # Math
//! y = Σ x · factor, for each row: the factor is 1 for a sum and 1/d for a mean.
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
//! f32, in an order that is always the same: each thread in order, then a butterfly over the warp, then over the warps in order.
//!
//! # Cost
//! One read of rows × d elements, one FLOP per element: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! None.

use cuda_std::float::Element;

use super::reduction;
use crate::rows::{Block, Lanes, Stream, Team, Warp};

reduction! {
    sum,
    first: 0.0,
    fold: |sum, x| sum + x,
    combine: |a, b| a + b,
    finish: |sum, factor| sum * factor,
}
