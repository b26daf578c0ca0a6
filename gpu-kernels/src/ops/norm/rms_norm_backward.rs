//! Gradient of the root-mean-square normalisation of rows.
//!
//! # Math
//! With s = 1 / √(Σ x² / d + eps) and g = dy · weight: dx = s · (g − x · s² · Σ g · x / d) + residual gradient, for each row, and
//! dweight = Σ dy · x · s over the rows.
//!
//! # Layout
//! `x`, `dy`, `dr` and `dx` are rows of d adjacent elements, each at a stride of its own; `weight` is d elements. `dr` may be null: no
//! residual gradient. `partials` are rows of d f32, one for each warp that has rows of its own, or each block that shares one.
//!
//! # Mapping
//! A persistent grid of [`Team`]s, each of which takes rows a grid's stride apart and holds one at a time in registers: see
//! [`rows`](crate::rows). The next row is loaded before this one is reduced, and the one after that fetched into L2. A team sums dy · x · s of its rows in registers
//! and writes the sums at the end, the teams of a warp as one; [`columns`](crate::columns) sums what they wrote.
//!
//! # Shared memory
//! Four values per warp of the team that shares a row: two sums per row, and rows take turns at their places.
//!
//! # Numerics
//! Sums in f32, in an order that depends on the grid alone. s is recomputed from x rather than saved: x is read anyway,
//! and the sum of its squares joins the other sum in one reduction. One rounding to the storage type.
//!
//! # Cost
//! Two reads (three with `dr`) and one write of rows × d elements, about 12 FLOPs per element: bound by memory
//! bandwidth, 95 µs (126 µs) for 16,384 rows of 4096 bf16 at 4.25 TB/s. Each row of partial results is 8 · d bytes
//! more, which mostly stay in L2.
//!
//! # Limits
//! As many rows as fit in memory.
//!
//! # Sources
//! The derivative of the formula; Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467).

use cuda_std::float::Element;
use cuda_std::{grid, kernel, math};

use crate::rows::{Block, Lanes, Stream, Team};

/// dx, and shares of dweight.
///
/// # Safety
/// `x`, `dy` and, unless it is null, `dr` are valid for reads and `dx` for writes of `rows` rows of `d` elements at their strides,
/// `weight` for reads of `d`, and `partials` for writes of `d` elements for each warp or block of the grid that has rows; rows is at least 1,
/// and rows are such as the team holds.
#[kernel(
    dtypes(T: float),
    types(P: Lanes<2>, Block<2>, Stream),
    block = P::THREADS,
    min_blocks = 512 / P::THREADS,
    shared = <P as Team>::Partials<4>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm_backward<T: Element, P: Team>(
    x: *const T,
    weight: *const T,
    dy: *const T,
    dr: *const T,
    dx: *mut T,
    partials: *mut f32,
    rows: u64,
    d: u64,
    x_stride: u64,
    dy_stride: u64,
    dr_stride: u64,
    dx_stride: u64,
    eps: f32,
) {
    grid::launch_dependents();
    let d = P::whole::<T>(d);
    let Some(first) = P::of(rows, d) else { return };
    let inverse_d = 1.0 / d as f32;
    let weight = first.load_shared(weight);
    let has_dr = !dr.is_null();
    let mut sums = first.zeros(partials);
    let (mut turn, mut team) = (0, first);
    let mut fetched = [team.load_fetched((x, x_stride)), team.load_fetched((dy, dy_stride))];
    while team.has_work() {
        let [x_row, dy_row] = fetched;
        // Without a residual gradient, any row is passed in its place, and is not read.
        let dr_row = if has_dr { team.load_fetched((dr, dr_stride)) } else { x_row };
        turn += 1;
        let next = P::at(turn, rows, d);
        fetched = [next.load_fetched((x, x_stride)), next.load_fetched((dy, dy_stride))];
        let ahead = P::at(turn + 1, rows, d);
        ahead.fetch((x, x_stride));
        ahead.fetch((dy, dy_stride));
        if has_dr {
            ahead.fetch((dr, dr_stride));
        }
        let products = team.fold([x_row, dy_row, weight], [0.0; 2], |[squares, products], [x, dy, weight]| {
            [squares + x * x, products + dy * weight * x]
        });
        let [squares, products] = team.sums(products, 2 * (turn % 2) as u32);
        let row = Statistics::of([squares, products], inverse_d, eps);
        let output = [(dx, dx_stride)];
        if has_dr {
            let all = [x_row, dy_row, weight, dr_row];
            team.store_and_accumulate(all, output, [&mut sums], |[x, dy, weight, dr]| {
                let [dx, dweight] = row.gradients(x, dy, weight);
                ([dx + dr], [dweight])
            });
        } else {
            let all = [x_row, dy_row, weight];
            team.store_and_accumulate(all, output, [&mut sums], |[x, dy, weight]| {
                let [dx, dweight] = row.gradients(x, dy, weight);
                ([dx], [dweight])
            });
        }
        team = next;
    }
    first.store_sums::<T>(sums, partials);
}

/// The values of a whole row that its gradient needs.
#[derive(Clone, Copy)]
pub(crate) struct Statistics {
    /// s.
    pub(crate) scale: f32,
    /// s³ · Σ g · x / d.
    pull: f32,
}

impl Statistics {
    /// Of a row's Σ x² and Σ g · x, and 1 / d.
    #[inline(always)]
    pub(crate) fn of([squares, products]: [f32; 2], inverse_d: f32, eps: f32) -> Self {
        let scale = math::rsqrt_approx(squares * inverse_d + eps);
        Self { scale, pull: products * inverse_d * scale * scale * scale }
    }

    /// The gradients of an element x and of its weight.
    #[inline(always)]
    pub(crate) fn gradients(&self, x: f32, dy: f32, weight: f32) -> [f32; 2] {
        let dy = dy * self.scale;
        [dy * weight - x * self.pull, dy * x]
    }
}
