//! Layer normalisation of rows.
//!
//! # Math
//! y = (x − mean) · s · weight + bias with mean = Σ x / d and s = 1 / √(Σ (x − mean)² / d + eps), for each row.
//!
//! # Layout
//! `x` and `y` are rows of d adjacent elements, `x_stride` and `y_stride` elements apart; `weight` and `bias` are d elements.
//!
//! # Mapping
//! A [`Team`] a row, which holds it in registers so that `x` is read once: see [`rows`](crate::rows).
//! A team of a block or more, once it has loaded its row, has the row half a wave of blocks later fetched into L2
//! ([`fetch_ahead`](Team::fetch_ahead)), so that memory stays busy while blocks reduce.
//!
//! # Shared memory
//! Two values per warp of the team that shares a row.
//!
//! # Numerics
//! Sums in f32, in a fixed order. The variance is summed from differences to the mean, a second pass over registers, so that a large
//! mean costs no accuracy. s is rsqrt.approx, 2⁻²² relative. One rounding to the storage type. NaN in a row makes the whole row NaN.
//!
//! # Cost
//! One read and one write of rows × d elements, 8 FLOPs per element: bound by memory bandwidth. `weight` and `bias`
//! come from L1 and L2 and are fetched before the reductions. The row that is fetched ahead is read from memory once
//! all the same: its own team finds it in L2.
//!
//! # Limits
//! 2³¹ − 1 blocks.
//!
//! # Sources
//! Ba, Kiros and Hinton, "Layer Normalization" (arXiv:1607.06450).

use cuda_std::float::Element;
use cuda_std::{kernel, math};

use crate::rows::{Block, Lanes, Stream, Team, Warp, half_wave};

/// y = layer_norm(x), a team `P` a row.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `rows` rows of `d` elements at their strides, `weight` and `bias` for reads of `d`; rows
/// is at least 1, and rows are such as the team holds.
#[kernel(
    dtypes(T: float),
    types(P: Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream),
    block = P::THREADS,
    min_blocks = 1,
    shared = <P as Team>::Partials<2>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn layer_norm<T: Element, P: Team>(
    x: *const T,
    weight: *const T,
    bias: *const T,
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
    let [weight, bias] = [team.load_shared(weight), team.load_shared(bias)];
    let mean = team.sum(team.fold([x], 0.0, |sum, [x]| sum + x), 0) / d as f32;
    let squares = team.fold([x], 0.0, |sum, [x]| sum + (x - mean) * (x - mean));
    let scale = math::rsqrt_approx(team.sum(squares, 1) / d as f32 + eps);
    team.store([x, weight, bias], [(y, y_stride)], |[x, weight, bias]| [(x - mean) * scale * weight + bias]);
}
