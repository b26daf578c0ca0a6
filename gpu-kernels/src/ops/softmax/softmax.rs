//! Softmax of rows, numerically stable, with causal and padding masks.
//!
//! # Math
//! y = e^(scale · (x − max)) / Σ e^(scale · (x − max)) over the columns that a row sees, and 0 elsewhere. A row sees the columns
//! 0..n: n is d, at most its query's position + 1 if causal, at most its length if there are lengths.
//!
//! # Layout
//! `x` and `y` are rows of d adjacent elements, `x_stride` and `y_stride` elements apart. Row r is query r mod `q_len`, at position
//! `offset` + r mod `q_len`, and its length is `lengths[r / rows_per_length]`.
//!
//! # Mapping
//! One [`Team`] per row, which holds it in registers so that `x` is read once: see [`rows`](crate::rows). Columns that
//! a row does not see are not read. A team of a block or more, once it has loaded its row, has the row half a wave of
//! blocks later fetched into L2 if that row sees all its columns ([`fetch_ahead`](Team::fetch_ahead)), so that memory
//! stays busy while blocks reduce.
//!
//! # Shared memory
//! Two values per warp of the team that shares a row; of a cluster, a copy of them in each block.
//!
//! # Numerics
//! A thread that holds its part of a row finds its maximum, then its sum; otherwise one pass rescales the sum. There is
//! one reduction; f32, fixed order. The sum's logarithm is added to the exponent, where it costs nothing: lg2.approx,
//! and ex2.approx of 2⁻²² relative, and 2⁻²³ of the exponent's size. One rounding to the storage type. −∞ has
//! probability 0; a row that sees no column, or only −∞, gives zeros; +∞ or NaN in the columns that a row sees makes
//! all of it NaN. Differences beyond f32 count as infinite.
//!
//! # Cost
//! One read and one write of rows × d elements, two exponentials per element: bound by memory bandwidth, with the
//! special-function units at about half of what they deliver for 16-bit types. The row that is fetched ahead is read
//! from memory once all the same: its own team finds it in L2.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867).

use cuda_std::float::Element;
use cuda_std::math;

use super::{max_and_sum, row_kernels, visible};
use crate::rows::{Block, Cluster, Lanes, Stream, Team, Warp, half_wave};

row_kernels! {
    /// y = softmax(scale · x), a team `P` a row. `scale` comes multiplied by log₂ e.
    ///
    /// # Safety
    /// `x` is valid for reads and `y` for writes of `rows` rows of `d` elements at their strides; rows is at least 1, and rows are
    /// such as the team holds. `lengths` is null or valid for reads of rows / `rows_per_length` elements, rounded up, and
    /// |`offset`| is below 2⁶².
    softmax, softmax_cluster: 2 partials, 1 inputs;
    |team: P, T| (
        x: *const T,
        lengths: *const i32,
        y: *mut T,
        x_stride: u64,
        y_stride: u64,
        scale: f32,
        q_len: u64,
        offset: i64,
        rows_per_length: u64,
    ) {
        let visible = visible(&team, q_len, offset, lengths, rows_per_length);
        let team = team.prefix(visible);
        let row = (x, x_stride);
        let x = team.load_or(row, f32::NEG_INFINITY);
        // A row with hidden columns is not fetched ahead, because only a part of it is needed.
        team.fetch_ahead(row, half_wave::<P>(1), |_| visible >= team.columns());
        let (max, sum) = max_and_sum(&team, x, scale);
        // The share of a row that sees nothing is zero.
        let log = if sum == 0.0 { f32::INFINITY } else { math::lg2_approx(sum) };
        team.store([x], [(y, y_stride)], |[x]| [math::ex2_approx_ftz(math::fma(x - max, scale, -log))]);
    }
}
