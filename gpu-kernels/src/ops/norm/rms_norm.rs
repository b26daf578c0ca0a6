//! Root-mean-square normalisation of rows.
//!
//! # Math
//! y = x · r · weight with r = 1 / √(Σ x² / d + eps), one r for each row.
//!
//! # Layout
//! `x` and `y` are rows of d adjacent elements, `x_stride` and `y_stride` elements apart; `weight` is d elements. Attention heads
//! are rows too: tokens × heads of them, with a weight of head_dim elements.
//!
//! # Mapping
//! A [`Team`] a row, which holds it in registers so that `x` is read once: see [`rows`](crate::rows).
//! A team of a block or more, once it has loaded its row, has the row half a wave of blocks later fetched into L2
//! ([`fetch_ahead`](Team::fetch_ahead)), so that memory stays busy while blocks reduce.
//!
//! # Shared memory
//! One f32 per warp of the team that shares a row.
//!
//! # Numerics
//! Squares are summed in f32: each thread in order, then a butterfly over the warp, then over the warps in order, so
//! results are reproducible. r is rsqrt.approx, 2⁻²² relative. One rounding to the storage type. A row whose squares overflow f32
//! (|x| above about 10¹⁹/√d) gives zeros; NaN in a row makes the whole row NaN.
//!
//! # Cost
//! One read and one write of rows × d elements, 4 FLOPs per element: bound by memory bandwidth. `weight` comes from L1
//! and L2, which are asked to evict it last, and is fetched before the reduction so that the wait for both overlaps.
//! The row that is fetched ahead is read from memory once all the same: its own team finds it in L2.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467).

use cuda_std::float::Element;
use cuda_std::{kernel, math};

use crate::rows::{Block, Lanes, Stream, Team, Warp, half_wave};

/// y = rms_norm(x), a team `P` a row.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `rows` rows of `d` elements at their strides, `weight` for reads of `d`; rows is
/// at least 1, and rows are such as the team holds.
#[kernel(
    dtypes(T: float),
    types(P: Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream),
    block = P::THREADS,
    min_blocks = crate::rows::blocks::<P>(if P::PACKS <= 4 { 2 } else { 1 }),
    shared = <P as Team>::Partials<1>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm<T: Element, P: Team>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    rows: u64,
    d: u64,
    x_stride: u64,
    y_stride: u64,
    eps: f32,
) {
    let Some(team) = P::of(rows, d) else { return };
    let row = (x, x_stride);
    let x = team.load(row);
    team.fetch_ahead(row, half_wave::<P>(1), |_| true);
    let weight = team.load_shared(weight);
    let squares = team.fold([x], 0.0, |sum, [x]| sum + x * x);
    let scale = scale(team.sum(squares, 0), d as f32, eps);
    team.store([x, weight], [(y, y_stride)], |[x, weight]| [x * scale * weight]);
}

/// The factor of a row's elements, computed from the sum of their squares.
#[inline(always)]
pub(crate) fn scale(squares: f32, d: f32, eps: f32) -> f32 {
    math::rsqrt_approx(squares / d + eps)
}
