//! Residual add and root-mean-square normalisation of rows, in one pass.
//!
//! # Math
//! r = x + residual and y = r · weight / √(Σ r² / d + eps), for each row.
//!
//! # Layout
//! `x`, `residual`, `r` and `y` are rows of d adjacent elements, each at a stride of its own; `weight` is d elements.
//!
//! # Mapping
//! A [`Team`] a row, which holds r in registers: see [`rows`](crate::rows).
//! A team of a block or more, once it has loaded its row, has the rows of both inputs half a wave of blocks later fetched into L2
//! ([`fetch_ahead`](Team::fetch_ahead)), so that memory stays busy while blocks reduce.
//!
//! # Shared memory
//! One f32 per warp of the team that shares a row.
//!
//! # Numerics
//! r is rounded to the storage type before it is normalised, so that y is what normalising the stored r would give. Squares are
//! summed in f32 in a fixed order; the root is rsqrt.approx, 2⁻²² relative; y is rounded once. NaN in a row makes its y NaN.
//!
//! # Cost
//! Two reads and two writes of rows × d elements, 5 FLOPs per element: bound by memory bandwidth. Unfused, the two
//! steps would move 5 · rows × d elements. Rows that are fetched ahead are read from memory once all the same: their
//! own teams find them in L2.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467).

use cuda_std::float::Element;
use cuda_std::{kernel, math};

use crate::rows::{Block, Lanes, Stream, Team, Warp, half_wave};

/// r and y from x and residual, a team `P` a row.
///
/// # Safety
/// `x` and `residual` are valid for reads, `r` and `y` for writes of `rows` rows of `d` elements at their strides, `weight` for reads
/// of `d`; rows is at least 1, and rows are such as the team holds.
#[kernel(
    dtypes(T: float),
    types(P: Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream),
    block = P::THREADS,
    min_blocks = 1,
    shared = <P as Team>::Partials<1>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn add_rms_norm<T: Element, P: Team>(
    x: *const T,
    residual: *const T,
    weight: *const T,
    r: *mut T,
    y: *mut T,
    rows: u64,
    d: u64,
    x_stride: u64,
    residual_stride: u64,
    r_stride: u64,
    y_stride: u64,
    eps: f32,
) {
    let Some(team) = P::of(rows, d) else { return };
    let rows = [(x, x_stride), (residual, residual_stride)];
    let operands = rows.map(|row| team.load(row));
    rows.into_iter().for_each(|row| team.fetch_ahead(row, half_wave::<P>(2), |_| true));
    let weight = team.load_shared(weight);
    let r = team.store_row(operands, (r, r_stride), |[x, residual]| x + residual);
    let squares = team.fold([r], 0.0, |sum, [r]| sum + r * r);
    let scale = math::rsqrt_approx(team.sum(squares, 0) / d as f32 + eps);
    team.store([r, weight], [(y, y_stride)], |[r, weight]| [r * scale * weight]);
}
