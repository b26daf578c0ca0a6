//! Root-mean-square normalisation of the heads of queries and keys, and their rotary position embedding.
//!
//! # Math
//! For each head x of a token: z = x · r · weight with r = 1 / √(Σ x² / d + eps), and then [`rope`](super::rope)'s turn of z. Queries have
//! one weight and keys another.
//!
//! # Layout
//! `q`, `k` and their results are tokens × heads × d, with any strides of tokens and heads: q and k may be parts of one
//! projection, and results may overwrite their inputs. Tables and positions are as in [`rope`](super::rope), and so are
//! the items: the pairs of two packs of a head, or a pack that is not rotated.
//!
//! # Mapping
//! A persistent grid of teams of lanes, which visit heads two at a time, with one item of each head per lane
//! (`PACKED`); some blocks visit the queries' heads and the others the keys': see `visits.rs`. Heads whose packs are
//! not aligned, or that have more than two per lane, are processed one at a time and element by element by a warp,
//! which reads them again to rotate them.
//!
//! # Shared memory
//! What is under way to a lane: eight packs of each of three visits, 96 KiB. A head is reduced by a butterfly.
//!
//! # Numerics
//! f32 from the load to the store, one rounding: z is not rounded between. Squares are summed in an order that depends on d alone.
//! r is rsqrt.approx, 2⁻²² relative. A token whose position lies outside the tables gets zeros.
//!
//! # Cost
//! One read and one write of q and k, 10 FLOPs per element: bound by memory bandwidth, where normalisation and turn in
//! a launch each move them twice. Weights and the tables' rows come from L1 and L2.
//!
//! # Limits
//! 2³² − 1 heads of all tokens together.
//!
//! # Sources
//! Henry et al., "Query-Key Normalization for Transformers" (arXiv:2010.04245); Su et al., "RoFormer: Enhanced Transformer with Rotary
//! Position Embedding" (arXiv:2104.09864); Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467).

use core::array;

use cuda_std::float::Element;
use cuda_std::kernel;
use cuda_std::vector::Pack;

use super::heads::{AllTables, Split, place};
pub use super::heads::{BLOCK, Sizes, Strides};
use super::visits::{Heads, Staged, Team, Visit, Visitor};
use crate::ops::norm::rms_norm::scale;
use crate::{div_rem, lanes};

/// Normalises and turns every head of every token.
///
/// # Safety
/// The tensors are valid for reads, and `q_out` and `k_out` for writes, at their `sizes` and strides `x` and `y`, the weights for reads of d;
/// sizes but one number of heads and half are not 0, and heads of all tokens are below 2³²; 2 · half is at most d; width is a power of
/// two up to 32, and 32 unless `PACKED`, which is for packs that are aligned, divide half and d, and are at most an item a lane.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, min_blocks = 2, shared = { if PACKED { size_of::<Staged>() } else { 0 } }, no_spills)]
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
    let Sizes { tokens, heads: [q_heads, k_heads], half, table_rows, .. } = sizes;
    let team = Team::of(sizes);
    let tables = AllTables { cos, sin, positions, rows: table_rows, half };
    let of_q = Side { tokens, x: q, y: q_out, x_strides: x.q, y_strides: y.q, weight: q_weight, heads: q_heads, eps };
    let of_k = Side { tokens, x: k, y: k_out, x_strides: x.k, y_strides: y.k, weight: k_weight, heads: k_heads, eps };
    // The choice is a branch and not a selection of values, because these come from the constant bank.
    if Team::is_of_q(sizes) {
        of_q.norm::<PACKED>(&team, &tables);
    } else {
        of_k.norm::<PACKED>(&team, &tables);
    }
}

/// Queries or keys, and what becomes of them.
#[derive(Clone, Copy)]
struct Side<T> {
    tokens: u32,
    x: *const T,
    y: *mut T,
    x_strides: [u64; 2],
    y_strides: [u64; 2],
    weight: *const T,
    /// Of a token.
    heads: u32,
    eps: f32,
}

impl<T: Element> Side<T> {
    #[inline(always)]
    unsafe fn norm<const PACKED: bool>(self, team: &Team, tables: &AllTables) {
        match if PACKED { lanes::<T>() } else { 1 } {
            1 => self.norm_elements(team, tables),
            4 => self.norm_pairs::<4>(team, tables),
            _ => self.norm_pairs::<8>(team, tables),
        }
    }

    /// Two heads of a token at a time: they have one weight and one row of the tables.
    #[inline(always)]
    unsafe fn norm_pairs<const V: usize>(self, team: &Team, tables: &AllTables) {
        let Self { tokens, x, y, x_strides: [x_token, x_head], y_strides: [y_token, y_head], heads, eps, .. } = self;
        let pairs = Heads {
            inputs: [x, x.wrapping_add(x_head as usize)],
            strides: [[x_token, 2 * x_head]; 2],
            output: y,
            output_strides: [y_token, 2 * y_head],
            of_token: heads.div_ceil(2),
            all: tokens * heads.div_ceil(2),
            with_both: heads / 2,
        };
        let item = team.split.items::<V>(team.lane).next().unwrap_or(0);
        let weights = team.split.load(item, |at| Pack::<T, V>::load_nc_evict_last(self.weight.add(at)));
        team.each(pairs, tables, &mut Pairs::<T, V> { split: &team.split, weights, y_head, eps });
    }

    /// Element by element, of one head after the other, which are read again to turn them.
    #[inline(always)]
    unsafe fn norm_elements(self, team: &Team, tables: &AllTables) {
        let Self { tokens, x, y, x_strides, y_strides, weight, heads, eps } = self;
        let split = &team.split;
        for turn in 0..team.turns(team.first, tokens * heads) {
            let (token, head) = div_rem(team.first + turn * team.step, heads);
            let (x, y) = (x.add(place(token, head, x_strides)), y.add(place(token, head, y_strides)));
            let row = tables.row(tables.position(token));
            // This does not use the read-only path, because y may be x.
            let load = |item| split.load(item, |at| Pack::<T, 1>::load_evict_first(x.add(at))).map(Pack::to_f32);
            let mut sum = 0.0;
            for item in split.items::<1>(team.lane) {
                sum += load(item).as_flattened().iter().fold(0.0, |sum, x| sum + x * x);
            }
            let [sum] = split.sums([sum]);
            let scale = scale(sum, split.d as f32, eps);
            for item in split.items::<1>(team.lane) {
                let weights = split.load(item, |at| Pack::<T, 1>::load_nc_evict_last(weight.add(at)));
                let (x, weights) = (load(item), weights.map(Pack::to_f32));
                let z = array::from_fn(|p| [x[p][0] * scale * weights[p][0]]);
                let [turned] = split.turn(item, [z], split.angles(item, row, 1.0));
                split.store(item, turned, |at, values| Pack::<T, 1>::from_f32(values).store_streaming(y.add(at)));
            }
        }
    }
}

/// Pairs of heads that are visited.
struct Pairs<'a, T, const V: usize> {
    split: &'a Split,
    weights: [Pack<T, V>; 2],
    /// From one head of a result to the next.
    y_head: u64,
    eps: f32,
}

impl<T: Element, const V: usize> Visitor<T, V> for Pairs<'_, T, V> {
    #[inline(always)]
    unsafe fn visit(&mut self, visit: Visit<'_, T, V>) {
        let split = self.split;
        let packs = [visit.packs(0), visit.packs(1)];
        let values = packs.map(|item| item.map(Pack::to_f32));
        let squares = values.map(|item| item.as_flattened().iter().fold(0.0, |sum, x| sum + x * x));
        let scales = split.sums(squares).map(|sum| scale(sum, split.d as f32, self.eps));
        let weights = self.weights.map(|pack| pack.forget().to_f32());
        let z = array::from_fn(|h| {
            // Converted again later, so that it takes half of the registers in the meantime.
            let x = packs[h].map(|pack| pack.forget().to_f32());
            array::from_fn(|p| array::from_fn(|e| x[p][e] * scales[h] * weights[p][e]))
        });
        for (h, turned) in visit.turn::<2>(z, 1.0).into_iter().enumerate() {
            if if h == 0 { visit.is_there } else { visit.has_both } {
                let y = visit.output.add(h * self.y_head as usize);
                split.store(visit.item, turned, |at, values| {
                    Pack::<T, V>::from_f32(values).store_streaming(y.add(at));
                });
            }
        }
    }
}
