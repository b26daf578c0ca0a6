//! Gradient of the normalisation and rotary position embedding of queries and keys.
//!
//! # Math
//! For each head x of a token, whose result has the gradient dy: dz is dy turned back, g = dz · weight, s = 1 / √(Σ x² / d + eps). Then
//! dx = s · (g − x · s² · Σ g · x / d), and dweight = Σ dz · x · s over the heads of all tokens, of queries and of keys apart.
//!
//! # Layout
//! As in [`qk_norm_rope`](super::qk_norm_rope). `partials` are twice as many rows of d f32 as the grid has blocks: those of queries, and
//! then those of keys.
//!
//! # Mapping
//! A persistent grid of teams of lanes, which visit heads; some blocks visit the queries' heads and the others the
//! keys': see `visits.rs`. A team sums dz · x · s of its heads in registers; at the end the sums are combined over the
//! lanes of a warp that have the same elements, then over the block's warps, and [`columns`](crate::columns) combines
//! the blocks. In the element-wise form a block is one warp, and its sums are in its rows of `partials`.
//!
//! # Shared memory
//! What is under way to a lane: eight packs of each of three heads, 96 KiB. After them, in their place, a sum an element and warp.
//!
//! # Numerics
//! Sums in f32, in an order that depends on the grid and d alone. s is computed from x again rather than saved. One rounding to the
//! storage type. A token whose position lies outside the tables has no gradient.
//!
//! # Cost
//! Two reads and one write of q and k, about 20 FLOPs per element: memory's time is the floor. Two blocks a
//! multiprocessor have 64 KiB of q and k under way.
//!
//! # Limits
//! 2³² − 1 heads of all tokens together.
//!
//! # Sources
//! The derivative of the formula; see [`qk_norm_rope`](super::qk_norm_rope).

use core::array;

use cuda_std::float::Element;
use cuda_std::launch::Fields;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{grid, kernel, thread, warp};

use super::heads::{AllTables, BLOCK, Sizes, Split, Strides};
use super::visits::{Heads, Staged, Team, Visit, Visitor};
use crate::lanes;
use crate::ops::norm::rms_norm_backward::Statistics;

/// Warps of a block.
const WARPS: u32 = BLOCK / 32;
/// The most elements of an item.
const ELEMENTS: usize = 16;
/// The sums of a block's warps: for each element of an item a lane's.
#[repr(C)]
pub struct Sums([[[f32; 32]; ELEMENTS]; WARPS as usize]);
const _: () = assert!(size_of::<Sums>() <= size_of::<Staged>());

/// How far apart tokens and heads are of everything that has any.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllStrides {
    /// Of what was normalised.
    pub x: Strides,
    /// Of the gradients of the results.
    pub dy: Strides,
    /// Of the gradients.
    pub dx: Strides,
}

// SAFETY: 12 u64: no padding.
unsafe impl Fields for AllStrides {}

/// dx of queries and of keys, and shares of their weights' gradients.
///
/// # Safety
/// `q`, `k`, `q_dy` and `k_dy` are valid for reads and `dq` and `dk` for writes at their `sizes` and strides, and the rest as for
/// [`qk_norm_rope`](super::qk_norm_rope::qk_norm_rope()); `partials` is valid for writes of two times blocks × d. A block is a
/// warp unless `PACKED`.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, min_blocks = 2, shared = { if PACKED { size_of::<Staged>() } else { 0 } }, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn qk_norm_rope_backward<T: Element, const PACKED: bool>(
    q: *const T,
    k: *const T,
    q_weight: *const T,
    k_weight: *const T,
    q_dy: *const T,
    k_dy: *const T,
    cos: *const f32,
    sin: *const f32,
    positions: *const i32,
    dq: *mut T,
    dk: *mut T,
    partials: *mut f32,
    sizes: Sizes,
    strides: AllStrides,
    eps: f32,
) {
    grid::launch_dependents();
    let Sizes { tokens, heads: [q_heads, k_heads], half, table_rows, .. } = sizes;
    let team = Team::of(sizes);
    let tables = AllTables { cos, sin, positions, rows: table_rows, half };
    let AllStrides { x, dy, dx } = strides;
    let heads = |inputs, strides, output, output_strides, of_token| Heads {
        inputs,
        strides,
        output,
        output_strides,
        of_token,
        all: tokens * of_token,
        with_both: of_token,
    };
    let partials = |side: u32| {
        let row = side * thread::grid_dim_x() + thread::block_idx_x();
        partials.add(row as usize * team.split.d)
    };
    let of_q = Side { heads: heads([q, q_dy], [x.q, dy.q], dq, dx.q, q_heads), weight: q_weight, eps };
    let of_k = Side { heads: heads([k, k_dy], [x.k, dy.k], dk, dx.k, k_heads), weight: k_weight, eps };
    // The choice is a branch and not a selection of values, because these come from the constant bank.
    let others = if Team::is_of_q(sizes) {
        of_q.sum::<PACKED>(&team, &tables, partials(0));
        1
    } else {
        of_k.sum::<PACKED>(&team, &tables, partials(1));
        0
    };
    // The block has no share of the other weight's gradient.
    for at in (thread::thread_idx_x()..sizes.d).step_by(thread::block_dim_x() as usize) {
        *partials(others).add(at as usize) = 0.0;
    }
}

/// Queries or keys, and what becomes of them.
#[derive(Clone, Copy)]
struct Side<T> {
    /// Whose inputs are x and dy, and whose output dx.
    heads: Heads<T>,
    weight: *const T,
    eps: f32,
}

/// An item's x, dz and weight. What came from memory is converted each time it is used, and takes half of the registers meanwhile.
#[derive(Clone, Copy)]
struct Item<T, const V: usize> {
    x: [Pack<T, V>; 2],
    dz: [[f32; V]; 2],
    weight: [Pack<T, V>; 2],
}

impl<T: Element> Side<T> {
    #[inline(always)]
    unsafe fn store<const V: usize>(split: &Split, dx: *mut T, item: usize, values: [[f32; V]; 2]) {
        split.store(item, values, |at, values| Pack::<T, V>::from_f32(values).store_streaming(dx.add(at)));
    }

    #[inline(always)]
    unsafe fn statistics(&self, split: &Split, sums: [f32; 2]) -> Statistics {
        Statistics::of(split.sums(sums), 1.0 / split.d as f32, self.eps)
    }

    /// The gradients of all heads, and the block's shares of their weight's.
    #[inline(always)]
    unsafe fn sum<const PACKED: bool>(&self, team: &Team, tables: &AllTables, partials: *mut f32) {
        match if PACKED { lanes::<T>() } else { 1 } {
            1 => self.sum_in_memory(team, tables, partials),
            4 => self.sum_in_registers::<4>(team, tables, partials),
            _ => self.sum_in_registers::<8>(team, tables, partials),
        }
    }

    /// An item a lane, whose sums it holds.
    #[inline(always)]
    unsafe fn sum_in_registers<const V: usize>(&self, team: &Team, tables: &AllTables, partials: *mut f32) {
        let split = &team.split;
        let own = split.items::<V>(team.lane).next();
        let weight = split.load(own.unwrap_or(0), |at| Pack::load_nc_evict_last(self.weight.add(at)));
        let mut gradients = Gradients { side: self, split, weight, sums: [[0.0; V]; 2] };
        team.each(self.heads, tables, &mut gradients);
        // The sums overwrite the copied data.
        thread::sync_threads();
        let memory = |warp: u32, element: usize, lane: u32| -> SharedPtr<f32> {
            shared::dynamic::<f32>().add((warp * ELEMENTS as u32 + element as u32) * 32 + lane)
        };
        for (element, sum) in gradients.sums.as_flattened().iter().enumerate() {
            memory(warp::warp_id(), element, warp::lane_id()).write(split.sum_of_heads(*sum));
        }
        thread::sync_threads();
        // The first team of the block sums up what the warps' first teams have.
        if let Some(item) = own.filter(|_| thread::thread_idx_x() == team.lane) {
            let of_warp = |element: usize, warp: u32| memory(warp, element, team.lane).read();
            let total = |element: usize| (0..WARPS).fold(0.0, |sum, warp| sum + of_warp(element, warp));
            let totals = array::from_fn(|p| array::from_fn(|e| total(p * V + e)));
            split.store(item, totals, |at, sums: [f32; V]| Pack(sums).store(partials.add(at)));
        }
    }

    /// Elements one by one, whose sums are this warp's row of `partials`.
    #[inline(always)]
    unsafe fn sum_in_memory(&self, team: &Team, tables: &AllTables, partials: *mut f32) {
        let (split, heads) = (&team.split, self.heads);
        let items = || split.items::<1>(team.lane);
        let add = |item: usize, shares: [[f32; 1]; 2], is_first: bool| {
            split.store(item, shares, |at, [share]| {
                let sum = partials.add(at);
                *sum = if is_first { share } else { *sum + share };
            });
        };
        items().for_each(|item| add(item, [[0.0]; 2], true));
        for turn in 0..team.turns(team.first, heads.all) {
            let at = heads.place(team.first + turn * team.step);
            let [x, dy] = array::from_fn(|input| heads.inputs[input].add(at.inputs[input]));
            let (dx, row) = (heads.output.add(at.output), tables.row(tables.position(at.token)));
            if row.is_none() {
                items().for_each(|item| Self::store(split, dx, item, [[0.0]; 2]));
                continue;
            }
            let load = |item| {
                let of = |from: *const T| split.load(item, |at| Pack::<T, 1>::load_nc_no_allocate(from.add(at)));
                let [dz] = split.turn(item, [of(dy).map(Pack::to_f32)], split.angles(item, row, -1.0));
                let weight = split.load(item, |at| Pack::load_nc_evict_last(self.weight.add(at)));
                Item { x: of(x), dz, weight }
            };
            let mut sums = [0.0; 2];
            for item in items() {
                let [squares, gradients] = load(item).products();
                sums = [sums[0] + squares, sums[1] + gradients];
            }
            let statistics = self.statistics(split, sums);
            for item in items() {
                let of = load(item);
                Self::store(split, dx, item, of.gradients(statistics));
                add(item, of.map(|[x, dz, _]| dz * x * statistics.scale), false);
            }
        }
    }
}

/// Heads that are visited, and the sums of the lane's shares of their weight's gradient.
struct Gradients<'a, T, const V: usize> {
    side: &'a Side<T>,
    split: &'a Split,
    weight: [Pack<T, V>; 2],
    sums: [[f32; V]; 2],
}

impl<T: Element, const V: usize> Visitor<T, V> for Gradients<'_, T, V> {
    #[inline(always)]
    unsafe fn visit(&mut self, visit: Visit<'_, T, V>) {
        let [dz] = visit.turn([visit.packs(1).map(Pack::to_f32)], -1.0);
        let of = Item { x: visit.packs(0), dz, weight: self.weight };
        let statistics = self.side.statistics(self.split, of.products());
        if visit.is_there {
            let dx = if visit.has_tables { of.gradients(statistics) } else { [[0.0; V]; 2] };
            Side::store(self.split, visit.output, visit.item, dx);
        }
        // A token without tables has no share, even if what it would be times 0 is NaN.
        if !visit.has_tables {
            return;
        }
        let shares = of.map(|[x, dz, _]| dz * x * statistics.scale);
        self.sums = array::from_fn(|p| array::from_fn(|e| self.sums[p][e] + shares[p][e]));
    }
}

impl<T: Element, const V: usize> Item<T, V> {
    /// f of x, dz and weight at each place.
    #[inline(always)]
    fn map(self, f: impl Fn([f32; 3]) -> f32) -> [[f32; V]; 2] {
        let [x, weight] = [self.x, self.weight].map(|packs| packs.map(|pack| pack.forget().to_f32()));
        array::from_fn(|p| array::from_fn(|e| f([x[p][e], self.dz[p][e], weight[p][e]])))
    }

    /// dx.
    #[inline(always)]
    fn gradients(self, statistics: Statistics) -> [[f32; V]; 2] {
        self.map(|[x, dz, weight]| statistics.gradients(x, dz, weight)[0])
    }

    /// Σ x² and Σ dz · weight · x.
    #[inline(always)]
    fn products(self) -> [f32; 2] {
        let sum = |values: [[f32; V]; 2]| values.as_flattened().iter().sum();
        [sum(self.map(|[x, ..]| x * x)), sum(self.map(|[x, dz, weight]| dz * weight * x))]
    }
}
