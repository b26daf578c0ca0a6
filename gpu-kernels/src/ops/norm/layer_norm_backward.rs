//! Gradient of the layer normalisation of rows.
//!
//! # Math
//! With z = (x − mean) · s, s = 1 / √(Σ (x − mean)² / d + eps) and g = dy · weight: dx = s · (g − Σ g / d − z · Σ g · z / d), for each
//! row; dweight = Σ dy · z and dbias = Σ dy over the rows.
//!
//! # Layout
//! `x`, `dy` and `dx` are rows of d adjacent elements, each at a stride of its own; `weight` is d elements. `partials` are rows of d
//! f32, one for each warp that has rows of its own, or each block that shares one: `count` for dweight, and as many for dbias.
//!
//! # Mapping
//! A persistent grid of [`Team`]s, each of which takes rows a grid's stride apart and holds one at a time in registers: see
//! [`rows`](crate::rows). The next row is loaded before this one is reduced, and the one after that fetched into L2. A team sums its rows' shares of dweight and
//! dbias in registers and writes them at the end, the teams of a warp as one; [`columns`](crate::columns) sums what they wrote.
//!
//! # Shared memory
//! Four values per warp of the team that shares a row; the barrier of the other reduction separates two uses of a place.
//!
//! # Numerics
//! Sums in f32, in an order that depends on the grid alone. Mean and s are recomputed from x rather than saved, since x
//! is read anyway; the mean is a separate reduction, so that the squares are of differences to the mean. One rounding
//! to the storage type.
//!
//! # Cost
//! Two reads and one write of rows × d elements, about 15 FLOPs per element: bound by memory bandwidth, 95 µs for
//! 16,384 rows of 4096 bf16 at 4.25 TB/s. The partial results are 16 · count × d bytes more, which mostly stay in L2.
//!
//! # Limits
//! As many rows as fit in memory.
//!
//! # Sources
//! The derivative of the formula; Ba, Kiros and Hinton, "Layer Normalization" (arXiv:1607.06450).

use cuda_std::float::Element;
use cuda_std::{grid, kernel, math};

use crate::rows::{Block, Lanes, Stream, Team};

/// dx, and shares of dweight and dbias.
///
/// # Safety
/// `x` and `dy` are valid for reads and `dx` for writes of `rows` rows of `d` elements at their strides, `weight` for reads of `d`, and
/// `partials` for writes of 2 · `count` rows of `d`, of which `count` warps or blocks of the grid have rows; rows is at least 1, and
/// rows are such as the team holds.
#[kernel(
    dtypes(T: float),
    types(P: Lanes<2>, Block<2>, Stream),
    block = P::THREADS,
    min_blocks = 512 / P::THREADS,
    shared = <P as Team>::Partials<4>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn layer_norm_backward<T: Element, P: Team>(
    x: *const T,
    weight: *const T,
    dy: *const T,
    dx: *mut T,
    partials: *mut f32,
    count: u64,
    rows: u64,
    d: u64,
    x_stride: u64,
    dy_stride: u64,
    dx_stride: u64,
    eps: f32,
) {
    grid::launch_dependents();
    let d = P::whole::<T>(d);
    let Some(first) = P::of(rows, d) else { return };
    let inverse_d = 1.0 / d as f32;
    let weight = first.load_shared(weight);
    let of_bias = partials.add((count * d) as usize);
    let (mut dweight, mut dbias) = (first.zeros(partials), first.zeros(of_bias));
    let (mut turn, mut team) = (0, first);
    let mut fetched = [team.load_fetched((x, x_stride)), team.load_fetched((dy, dy_stride))];
    while team.has_work() {
        let [x_row, dy_row] = fetched;
        turn += 1;
        let next = P::at(turn, rows, d);
        fetched = [next.load_fetched((x, x_stride)), next.load_fetched((dy, dy_stride))];
        let ahead = P::at(turn + 1, rows, d);
        ahead.fetch((x, x_stride));
        ahead.fetch((dy, dy_stride));
        let all = [x_row, dy_row, weight];
        let sum = team.fold([x_row], 0.0, |sum, [x]| sum + x);
        let mean = team.sum(sum, 0) * inverse_d;
        let moments = team.fold(all, [0.0; 3], |[squares, products, gradients], [x, dy, weight]| {
            let (x, g) = (x - mean, dy * weight);
            [squares + x * x, products + g * x, gradients + g]
        });
        let [squares, products, gradients] = team.sums(moments, 1).map(|sum| sum * inverse_d);
        let scale = math::rsqrt_approx(squares + eps);
        let (pull, push) = (products * scale * scale * scale, gradients * scale);
        team.store_and_accumulate(all, [(dx, dx_stride)], [&mut dweight, &mut dbias], |[x, dy, weight]| {
            let (x, scaled) = (x - mean, dy * scale);
            ([scaled * weight - push - x * pull], [scaled * x, dy])
        });
        team = next;
    }
    first.store_sums::<T>(dweight, partials);
    first.store_sums::<T>(dbias, of_bias);
}
