//! Gradient of the normalisation and rotary position embedding of queries and keys.
//!
//! # Math
//! For each head x of a token, whose result has the gradient dy: dz is dy turned back, g = dz · weight, s = 1 / √(Σ x² / d + eps). Then
//! dx = s · (g − x · s² · Σ g · x / d), and dweight = Σ dz · x · s over the heads of all tokens, of queries and of keys apart.
//!
//! # Layout
//! As in [`qk_norm_rope`](super::qk_norm_rope), of queries or of keys. `partials` are as many rows of d f32 as the grid has blocks.
//!
//! # Mapping
//! A persistent grid: lanes share heads as they do forth, and a team of lanes takes every so many-th head. The
//! next head is fetched before this one is reduced. A team sums dz · x · s of its heads in registers; at the end the lanes of a warp that
//! have the same elements sum theirs up, then the block's warps, and [`columns`](crate::columns) the blocks. Element by element a block
//! is a warp, and its sums are in its row of `partials`.
//!
//! # Shared memory
//! A sum an element and warp.
//!
//! # Numerics
//! Sums in f32, in an order that depends on the grid and d alone. s is computed from x again rather than saved. One rounding to the
//! storage type. A token whose position lies outside the tables has no gradient.
//!
//! # Cost
//! Two reads and one write of q and k, about 22 FLOPs an element: memory's time is the floor. Registers leave room for two blocks a
//! multiprocessor.
//!
//! # Limits
//! 2³² − 1 heads of all tokens together.
//!
//! # Sources
//! The derivative of the formula; see [`qk_norm_rope`](super::qk_norm_rope).

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{grid, kernel, thread, warp};

use super::qk_norm_rope::{BLOCK, Sizes, Split, place};
use super::rope::{Tables, row_of_tables};
use crate::ops::norm::rms_norm_backward::Statistics;
use crate::{div_rem, lanes};

/// Warps of a block.
const WARPS: u32 = BLOCK / 32;
/// The most elements of an item.
const ELEMENTS: usize = 16;

/// The sums of a block's warps: for each element of an item a lane's.
#[repr(C)]
pub struct Sums([[[f32; 32]; ELEMENTS]; WARPS as usize]);

/// dx of queries or of keys, and shares of their weight's gradient.
///
/// # Safety
/// `x` and `dy` are valid for reads and `dx` for writes of tokens × `heads` × d elements at their strides, and the rest as for
/// [`qk_norm_rope`](super::qk_norm_rope::qk_norm_rope()); `partials` is valid for writes of blocks × d. A block is a
/// warp unless `PACKED`.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, min_blocks = 2, shared = { if PACKED { size_of::<Sums>() } else { 0 } }, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn qk_norm_rope_backward<T: Element, const PACKED: bool>(
    x: *const T,
    weight: *const T,
    dy: *const T,
    cos: *const f32,
    sin: *const f32,
    positions: *const i32,
    dx: *mut T,
    partials: *mut f32,
    sizes: Sizes,
    heads: u32,
    x_token: u64,
    x_head: u64,
    dy_token: u64,
    dy_head: u64,
    dx_token: u64,
    dx_head: u64,
    eps: f32,
) {
    grid::launch_dependents();
    let (team, lane) = div_rem(thread::thread_idx_x(), sizes.width);
    let (teams, _) = div_rem(thread::block_dim_x(), sizes.width);
    let first = u64::from(thread::block_idx_x()) * u64::from(teams) + u64::from(team);
    let team = Team {
        split: Split::of(sizes),
        eps,
        lane,
        first,
        first_of_warp: first - u64::from(div_rem(warp::lane_id(), sizes.width).0),
        heads: u64::from(sizes.tokens) * u64::from(heads),
        step: u64::from(thread::grid_dim_x()) * u64::from(teams),
    };
    let position = |number: u32| *positions.add(div_rem(number, heads).0 as usize);
    let head = |number: u32, position: i32| {
        let (token, head) = div_rem(number, heads);
        Head {
            tables: row_of_tables((cos, sin), position, sizes.table_rows, sizes.half),
            x: x.add(place(token, head, [x_token, x_head])),
            dy: dy.add(place(token, head, [dy_token, dy_head])),
            dx: dx.add(place(token, head, [dx_token, dx_head])),
        }
    };
    let partials = partials.add(thread::block_idx_x() as usize * team.split.d);
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => team.sum_in_memory::<T>(|number| head(number, position(number)), weight, partials),
        4 => team.sum_in_registers::<T, 4>(position, head, weight, partials),
        _ => team.sum_in_registers::<T, 8>(position, head, weight, partials),
    }
}

/// Lanes that share a head, and take turns at heads.
#[derive(Clone, Copy)]
struct Team {
    split: Split,
    eps: f32,
    lane: u32,
    /// Its first head, and that of the first team of its warp.
    first: u64,
    first_of_warp: u64,
    /// Heads of all tokens, and of a turn of the grid.
    heads: u64,
    step: u64,
}

/// Where a head is, and what turns it.
#[derive(Clone, Copy)]
struct Head<T> {
    tables: Option<Tables>,
    x: *const T,
    dy: *const T,
    dx: *mut T,
}

/// An item of a head as it lies in memory: x and dy.
type Packs<T, const V: usize> = [[Pack<T, V>; 2]; 2];
/// An item's x, dz and weight. What came from memory is converted each time it is used, and takes half of the registers meanwhile.
#[derive(Clone, Copy)]
struct Item<T, const V: usize> {
    x: [Pack<T, V>; 2],
    dz: [[f32; V]; 2],
    weight: [Pack<T, V>; 2],
}

impl Team {
    /// The number of the team's head in a turn, and whether it has one: without, the number is another's. `None` where no team of the
    /// warp has a head.
    #[inline(always)]
    fn head(&self, turn: u64) -> Option<(u32, bool)> {
        let number = self.first + turn * self.step;
        (self.first_of_warp + turn * self.step < self.heads)
            .then_some((number.min(self.heads - 1) as u32, number < self.heads))
    }

    #[inline(always)]
    unsafe fn load<T: Element, const V: usize>(&self, head: Head<T>, item: usize) -> Packs<T, V> {
        [head.x, head.dy].map(|from| self.split.load(item, |at| Pack::load_nc_no_allocate(from.add(at))))
    }

    #[inline(always)]
    unsafe fn item<T: Element, const V: usize>(
        &self,
        tables: Option<Tables>,
        item: usize,
        [x, dy]: Packs<T, V>,
        weight: *const T,
    ) -> Item<T, V> {
        let dz = self.split.turn(item, dy.map(Pack::to_f32), tables, -1.0);
        Item { x, dz, weight: self.split.load(item, |at| Pack::load_nc_evict_last(weight.add(at))) }
    }

    #[inline(always)]
    unsafe fn store<T: Element, const V: usize>(
        &self,
        dx: *mut T,
        item: usize,
        of: Item<T, V>,
        statistics: Statistics,
    ) {
        let values = of.map(|[x, dz, weight]| statistics.gradients(x, dz, weight)[0]);
        self.split.store(item, values, |at, values| Pack::<T, V>::from_f32(values).store_streaming(dx.add(at)));
    }

    #[inline(always)]
    unsafe fn statistics(&self, sums: [f32; 2]) -> Statistics {
        Statistics::of(self.split.sums(sums), 1.0 / self.split.d as f32, self.eps)
    }

    /// An item a lane, whose sums it holds. Where a head is follows from its number and its token's position, which take fewer registers.
    #[inline(always)]
    unsafe fn sum_in_registers<T: Element, const V: usize>(
        &self,
        position: impl Fn(u32) -> i32,
        head: impl Fn(u32, i32) -> Head<T>,
        weight: *const T,
        partials: *mut f32,
    ) {
        let item = self.split.items::<V>(self.lane).next();
        let fetch = |turn| {
            let (number, is_there) = self.head(turn)?;
            let position = position(number);
            let packs = [[Pack::from_f32([0.0; V]); 2]; 2];
            let item = item.filter(|_| is_there);
            let packs = item.map_or(packs, |item| self.load::<T, V>(head(number, position), item));
            Some((number, position, item, packs))
        };
        let mut sums = [[0.0; V]; 2];
        let (mut turn, mut fetched) = (0, fetch(0));
        while let Some((number, position, item, packs)) = fetched {
            turn += 1;
            // Before this one is reduced.
            fetched = fetch(turn);
            let head = head(number, position);
            let nothing = Item { x: packs[0], dz: [[0.0; V]; 2], weight: packs[0] };
            let of = item.map_or(nothing, |item| self.item(head.tables, item, packs, weight));
            let statistics = self.statistics(of.products());
            if let Some(item) = item {
                self.store(head.dx, item, of, statistics);
            }
            let shares = of.map(|[x, dz, _]| dz * x * statistics.scale);
            sums = array::from_fn(|p| array::from_fn(|e| sums[p][e] + shares[p][e]));
        }
        let memory = |warp: u32, element: usize, lane: u32| -> SharedPtr<f32> {
            shared::dynamic::<f32>().add((warp * ELEMENTS as u32 + element as u32) * 32 + lane)
        };
        for (element, sum) in sums.as_flattened().iter().enumerate() {
            memory(warp::warp_id(), element, warp::lane_id()).write(self.split.sum_of_heads(*sum));
        }
        thread::sync_threads();
        // The first team of the block sums up what the warps' first teams have.
        let Some(item) = item.filter(|_| thread::thread_idx_x() == self.lane) else { return };
        let total = |element: usize| (0..WARPS).fold(0.0, |sum, warp| sum + memory(warp, element, self.lane).read());
        let totals = array::from_fn(|p| array::from_fn(|e| total(p * V + e)));
        self.split.store(item, totals, |at, sums: [f32; V]| Pack(sums).store(partials.add(at)));
    }

    /// Elements one by one, whose sums are this warp's row of `partials`.
    #[inline(always)]
    unsafe fn sum_in_memory<T: Element>(&self, head: impl Fn(u32) -> Head<T>, weight: *const T, partials: *mut f32) {
        let items = || self.split.items::<1>(self.lane);
        let add = |item: usize, shares: [[f32; 1]; 2], is_first: bool| {
            self.split.store(item, shares, |at, [share]| {
                let sum = partials.add(at);
                *sum = if is_first { share } else { *sum + share };
            });
        };
        items().for_each(|item| add(item, [[0.0]; 2], true));
        let mut turn = 0;
        while let Some((number, _)) = self.head(turn) {
            turn += 1;
            let head = head(number);
            let load = |item| self.item::<T, 1>(head.tables, item, self.load(head, item), weight);
            let mut sums = [0.0; 2];
            for item in items() {
                let [squares, gradients] = load(item).products();
                sums = [sums[0] + squares, sums[1] + gradients];
            }
            let statistics = self.statistics(sums);
            for item in items() {
                let of = load(item);
                self.store(head.dx, item, of, statistics);
                add(item, of.map(|[x, dz, _]| dz * x * statistics.scale), false);
            }
        }
    }
}

impl<T: Element, const V: usize> Item<T, V> {
    /// f of x, dz and weight at each place.
    #[inline(always)]
    fn map(self, f: impl Fn([f32; 3]) -> f32) -> [[f32; V]; 2] {
        let [x, weight] = [self.x, self.weight].map(|packs| packs.map(|pack| pack.forget().to_f32()));
        array::from_fn(|p| array::from_fn(|e| f([x[p][e], self.dz[p][e], weight[p][e]])))
    }

    /// Σ x² and Σ dz · weight · x.
    #[inline(always)]
    fn products(self) -> [f32; 2] {
        let sum = |values: [[f32; V]; 2]| values.as_flattened().iter().sum();
        [sum(self.map(|[x, ..]| x * x)), sum(self.map(|[x, dz, weight]| dz * weight * x))]
    }
}
