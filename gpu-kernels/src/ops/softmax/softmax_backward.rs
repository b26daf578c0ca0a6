//! Gradient of the softmax of rows.
//!
//! # Math
//! dx = scale · y · (dy − Σ dy · y), for each row of what softmax gave.
//!
//! # Layout
//! `y`, `dy` and `dx` are rows of d adjacent elements, each at a stride of its own.
//!
//! # Mapping
//! A [`Team`] a row, which holds both inputs in registers so that they are read once: see [`rows`](crate::rows).
//!
//! # Shared memory
//! One f32 per warp of the team that shares a row; of a cluster, a copy of them in each block.
//!
//! # Numerics
//! The sum is f32, in a fixed order; one rounding to the storage type. What softmax masked has y = 0, hence dx = 0 for every
//! finite dy.
//!
//! # Cost
//! Two reads and one write of rows × d elements, 5 FLOPs per element: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! The derivative of the formula.

use cuda_std::float::Element;

use super::row_kernels;
use crate::rows::{Block, Cluster, Lanes, Stream, Team, Warp};

row_kernels! {
    /// dx from y and dy, a team `P` a row.
    ///
    /// # Safety
    /// `y` and `dy` are valid for reads and `dx` for writes of `rows` rows of `d` elements at their strides; rows is at least 1, and
    /// rows are such as the team holds.
    softmax_backward, softmax_backward_cluster: 1 partials, 2 inputs;
    |team: P, T| (
        y: *const T,
        dy: *const T,
        dx: *mut T,
        y_stride: u64,
        dy_stride: u64,
        dx_stride: u64,
        scale: f32,
    ) {
        let rows = [team.load((y, y_stride)), team.load((dy, dy_stride))];
        let products = team.fold(rows, 0.0, |sum, [y, dy]| sum + y * dy);
        let mean = team.sum(products, 0);
        team.store(rows, [(dx, dx_stride)], |[y, dy]| [y * (dy - mean) * scale]);
    }
}
