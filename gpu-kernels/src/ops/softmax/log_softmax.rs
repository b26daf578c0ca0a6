//! Logarithm of the softmax of rows.
//!
//! # Math
//! y = scale · (x − max) − ln Σ e^(scale · (x − max)), for each row.
//!
//! # Layout
//! `x` and `y` are rows of d adjacent elements, `x_stride` and `y_stride` elements apart.
//!
//! # Mapping
//! A [`Team`] a row, which holds it in registers so that `x` is read once: see [`rows`](crate::rows).
//! A team of a block or more, once it has loaded its row, has the row half a wave of blocks later fetched into L2
//! ([`fetch_ahead`](Team::fetch_ahead)), so that memory stays busy while blocks reduce.
//!
//! # Shared memory
//! Two values per warp of the team that shares a row; of a cluster, a copy of them in each block.
//!
//! # Numerics
//! As [softmax](super::softmax) up to the sum; its logarithm is good to 2 ulp, and both terms are negative, so that nothing
//! cancels. One rounding to the storage type. −∞ gives −∞, and so does a whole row of it; +∞ or NaN makes the whole row NaN.
//!
//! # Cost
//! One read and one write of rows × d elements, one exponential an element: bound by memory bandwidth.
//! The row that is fetched ahead is read from memory once all the same: its own team finds it in L2.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867).

use cuda_std::float::Element;
use cuda_std::math;

use super::{max_and_sum, row_kernels};
use crate::rows::{Block, Cluster, Lanes, Stream, Team, Warp, half_wave};

row_kernels! {
    /// y = log_softmax(scale · x), a team `P` a row.
    ///
    /// # Safety
    /// `x` is valid for reads and `y` for writes of `rows` rows of `d` elements at their strides; rows is at least 1, and rows are
    /// such as the team holds.
    log_softmax, log_softmax_cluster: 2 partials, 1 inputs;
    |team: P, T| (x: *const T, y: *mut T, x_stride: u64, y_stride: u64, scale: f32) {
        let row = (x, x_stride);
        let x = team.load_or(row, f32::NEG_INFINITY);
        team.fetch_ahead(row, half_wave::<P>(1), |_| true);
        let (max, sum) = max_and_sum(&team, x, scale * core::f32::consts::LOG2_E);
        // In a row of −∞ everything stays −∞.
        let log = if sum == 0.0 { 0.0 } else { math::log(sum) };
        team.store([x], [(y, y_stride)], |[x]| [math::fma(x - max, scale, -log)]);
    }
}
