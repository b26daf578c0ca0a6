//! Root-mean-square normalisation of the heads of queries and keys, and their rotary position embedding.
//!
//! # Math
//! For each head x of a token: z = x · r · weight with r = 1 / √(Σ x² / d + eps), and then [`rope`](super::rope)'s turn of z. Queries have
//! one weight and keys another.
//!
//! # Layout
//! `q`, `k` and their results are tokens × heads × d, tokens and heads anywhere apart: q and k may be parts of one projection, and results
//! may take the place of what they are made of. Tables and positions are [`rope`](super::rope)'s, and so are its items: the pairs of two packs of a head, or a
//! pack that stays.
//!
//! # Mapping
//! `width` neighbouring lanes a head, a power of two, an item a lane (`PACKED`). Heads whose packs are not aligned or more than two a
//! lane go element by element through a warp, which reads them again to turn them. A block of 256 threads takes heads that follow each
//! other, those of the queries of a token before those of its keys, so that a row of the tables is in L1.
//!
//! # Shared memory
//! None: a head is reduced by a butterfly.
//!
//! # Numerics
//! f32 from the load to the store, one rounding: z is not rounded between. Squares are summed in an order that depends on d alone.
//! r is rsqrt.approx, 2⁻²² relative. A token whose position lies outside the tables gets zeros.
//!
//! # Cost
//! One read and one write of q and k, 10 FLOPs an element: bound by memory bandwidth, where normalisation and turn in a launch each move
//! them twice. Weights and the tables' rows come from L1 and L2.
//!
//! # Limits
//! 2³² − 1 heads of all tokens together.
//!
//! # Sources
//! Henry et al., "Query-Key Normalization for Transformers" (arXiv:2010.04245); Su et al., "RoFormer: Enhanced Transformer with Rotary
//! Position Embedding" (arXiv:2104.09864); Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467).

use core::array;

use cuda_std::float::Element;
use cuda_std::launch::Fields;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread, warp};

use super::rope::{Tables, angles, places, row_of_tables, turn};
use crate::ops::norm::rms_norm::scale;
use crate::{div_rem, lanes};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// Sizes of the tensors, and how heads are taken.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// How many tokens there are.
    pub tokens: u32,
    /// Heads of the queries of a token, and of its keys.
    pub heads: [u32; 2],
    /// Elements of a head.
    pub d: u32,
    /// Its pairs that turn.
    pub half: u32,
    /// Positions that the tables have.
    pub table_rows: u32,
    /// Lanes that share a head.
    pub width: u32,
    /// Not 0 where neighbours turn together.
    pub interleaved: u32,
}

// SAFETY: 8 u32: no padding.
unsafe impl Fields for Sizes {}

/// How far apart tokens and heads are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Strides {
    /// Of queries.
    pub q: [u64; 2],
    /// Of keys.
    pub k: [u64; 2],
}

// SAFETY: 4 u64: no padding.
unsafe impl Fields for Strides {}

/// Normalises and turns every head of every token.
///
/// # Safety
/// The tensors are valid for reads, and `q_out` and `k_out` for writes, at their `sizes` and strides `x` and `y`, the weights for reads of d;
/// sizes but one number of heads and half are not 0, and heads of all tokens are below 2³²; 2 · half is at most d; width is a power of
/// two up to 32, and 32 unless `PACKED`, which is for packs that are aligned, divide half and d, and are at most an item a lane.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn qk_norm_rope<T: Element, const PACKED: bool>(
    q: *const T,
    k: *const T,
    q_weight: *const T,
    k_weight: *const T,
    cos: *const f32,
    sin: *const f32,
    positions: *const i32,
    q_out: *mut T,
    k_out: *mut T,
    sizes: Sizes,
    x: Strides,
    y: Strides,
    eps: f32,
) {
    let Sizes { tokens, heads: [q_heads, k_heads], half, table_rows, width, .. } = sizes;
    let (team, lane) = div_rem(thread::thread_idx_x(), width);
    let row = u64::from(thread::block_idx_x()) * u64::from(div_rem(BLOCK, width).0) + u64::from(team);
    let rows = u64::from(tokens) * u64::from(q_heads + k_heads);
    // A team without a head beside one with a head reduces along with it.
    let has_row = row < rows;
    let (token, head) = div_rem(row.min(rows - 1) as u32, q_heads + k_heads);
    let (x, y, weight) = if head < q_heads {
        (q.add(place(token, head, x.q)), q_out.add(place(token, head, y.q)), q_weight)
    } else {
        let head = head - q_heads;
        (k.add(place(token, head, x.k)), k_out.add(place(token, head, y.k)), k_weight)
    };
    let tables = row_of_tables((cos, sin), *positions.add(token as usize), table_rows, half);
    let split = Split::of(sizes);
    let lane = if has_row { lane } else { u32::MAX };
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => norm_head::<T, 1>(x, weight, y, lane, &split, tables, eps),
        4 => norm_head::<T, 4>(x, weight, y, lane, &split, tables, eps),
        _ => norm_head::<T, 8>(x, weight, y, lane, &split, tables, eps),
    }
}

/// Where a head starts.
#[inline(always)]
pub(super) fn place(token: u32, head: u32, [of_token, of_head]: [u64; 2]) -> usize {
    (u64::from(token) * of_token + u64::from(head) * of_head) as usize
}

/// How the items of a head are spread over the lanes that share it.
#[derive(Clone, Copy)]
pub(super) struct Split {
    /// Elements of a head, and pairs that turn.
    pub(super) d: usize,
    half: usize,
    interleaved: bool,
    width: u32,
}

impl Split {
    #[inline(always)]
    pub(super) fn of(sizes: Sizes) -> Self {
        let Sizes { d, half, width, interleaved, .. } = sizes;
        Self { d: d as usize, half: half as usize, interleaved: interleaved != 0, width }
    }

    /// The items of packs of `V` that `lane` has: one at most, except where packs are elements.
    #[inline(always)]
    pub(super) fn items<const V: usize>(&self, lane: u32) -> impl Iterator<Item = usize> + use<V> {
        let (items, lane, width) = ((self.d - self.half) / V, lane as usize, self.width as usize);
        let most = if V == 1 { usize::MAX } else { 1 };
        (0..most).map(move |i| lane + i * width).take_while(move |item| *item < items)
    }

    /// The packs of an item; zeros beside one that stays.
    #[inline(always)]
    pub(super) unsafe fn load<T: Element, const V: usize>(
        &self,
        item: usize,
        load: impl Fn(usize) -> Pack<T, V>,
    ) -> [Pack<T, V>; 2] {
        let (first, second) = places::<V>(item, self.half, self.interleaved);
        [load(first), second.map_or(Pack::from_f32([0.0; V]), load)]
    }

    /// An item turned, or turned back by a `direction` of −1; zeros without tables.
    #[inline(always)]
    pub(super) unsafe fn turn<const V: usize>(
        &self,
        item: usize,
        values: [[f32; V]; 2],
        tables: Option<Tables>,
        direction: f32,
    ) -> [[f32; V]; 2] {
        if item * V < self.half {
            turn(values, angles(tables, item * V, direction), self.interleaved)
        } else if tables.is_some() {
            values
        } else {
            [[0.0; V]; 2]
        }
    }

    /// Passes the place and the values of each pack of an item on.
    #[inline(always)]
    pub(super) unsafe fn store<const V: usize>(
        &self,
        item: usize,
        [a, b]: [[f32; V]; 2],
        store: impl Fn(usize, [f32; V]),
    ) {
        let (first, second) = places::<V>(item, self.half, self.interleaved);
        store(first, a);
        if let Some(second) = second {
            store(second, b);
        }
    }

    /// Sums over the lanes of a head, in each of them.
    #[inline(always)]
    pub(super) unsafe fn sums<const M: usize>(&self, values: [f32; M]) -> [f32; M] {
        let (mut sums, mut mask) = (values, self.width / 2);
        while mask > 0 {
            sums = sums.map(|sum| sum + warp::shuffle_xor(sum, mask));
            mask /= 2;
        }
        sums
    }

    /// Sums over the lanes of a warp that have the same items, in each of them.
    #[inline(always)]
    pub(super) unsafe fn sum_of_heads(&self, value: f32) -> f32 {
        let (mut sum, mut mask) = (value, self.width);
        while mask < 32 {
            sum += warp::shuffle_xor(sum, mask);
            mask *= 2;
        }
        sum
    }
}

/// Normalises the head at `x` and turns it; a lane beyond its items only reduces.
#[inline(always)]
unsafe fn norm_head<T: Element, const V: usize>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    lane: u32,
    split: &Split,
    tables: Option<Tables>,
    eps: f32,
) {
    // Not through the read-only path: y may be x.
    let load = |item| split.load::<T, V>(item, |at| Pack::load_evict_first(x.add(at))).map(Pack::to_f32);
    let load_weight = |item| split.load::<T, V>(item, |at| Pack::load_nc_evict_last(weight.add(at))).map(Pack::to_f32);
    let first = split.items::<V>(lane).next();
    let held = first.map_or([[0.0; V]; 2], &load);
    let weights = first.map_or([[0.0; V]; 2], &load_weight);
    let squares = |item: [[f32; V]; 2]| item.as_flattened().iter().fold(0.0, |sum, x| sum + x * x);
    let mut sum = squares(held);
    for item in split.items::<V>(lane).skip(1) {
        sum += squares(load(item));
    }
    let [sum] = split.sums([sum]);
    let scale = scale(sum, split.d as f32, eps);
    let finish = |item: usize, x: [[f32; V]; 2], weight: [[f32; V]; 2]| {
        let z = array::from_fn(|p| array::from_fn(|e| x[p][e] * scale * weight[p][e]));
        let turned = split.turn(item, z, tables, 1.0);
        split.store(item, turned, |at, values| Pack::<T, V>::from_f32(values).store_streaming(y.add(at)));
    };
    if let Some(item) = first {
        finish(item, held, weights);
    }
    for item in split.items::<V>(lane).skip(1) {
        finish(item, load(item), load_weight(item));
    }
}
