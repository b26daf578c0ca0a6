//! Gradient of the logarithm of the softmax of rows.
//!
//! # Math
//! dx = scale · (dy − e^y · Σ dy), for each row of what log_softmax gave.
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
//! The sum is f32, in a fixed order; e^y is ex2.approx, 2⁻²² relative and 2⁻²³ of |y|. One rounding to the storage type. y = −∞
//! gives scale · dy.
//!
//! # Cost
//! Two reads and one write of rows × d elements, one exponential an element: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! The derivative of the formula.

use cuda_std::float::Element;
use cuda_std::math;

use super::row_kernels;
use crate::rows::{Block, Cluster, Lanes, Stream, Team, Warp};

row_kernels! {
    /// dx from y and dy, a team `P` a row.
    ///
    /// # Safety
    /// `y` and `dy` are valid for reads and `dx` for writes of `rows` rows of `d` elements at their strides; rows is at least 1, and
    /// rows are such as the team holds.
    log_softmax_backward, log_softmax_backward_cluster: 1 partials, 2 inputs;
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
        let sum = team.sum(team.fold(rows, 0.0, |sum, [_, dy]| sum + dy), 0);
        team.store(rows, [(dx, dx_stride)], |[y, dy]| {
            [(dy - math::ex2_approx_ftz(y * core::f32::consts::LOG2_E) * sum) * scale]
        });
    }
}
