//! Rotary position embedding: pairs of a head's elements are rotated by an angle that grows with the token's position.
//!
//! # Math
//! (a, b) becomes (a·cos θ − b·sin θ, b·cos θ + a·sin θ) with θ = position · frequencyⱼ for pair j; the inverse, which is the backward,
//! turns by −θ. Pair j is (xⱼ, xⱼ₊ₕ) of the first 2h elements where halves are paired (GPT-NeoX, Llama), (x₂ⱼ, x₂ⱼ₊₁) where neighbours
//! are (GPT-J). Elements from 2h on stay as they are.
//!
//! # Layout
//! `x` and `y` are tokens × heads × d, tokens and heads anywhere apart, and may be the same; cosines and sines are tables of
//! `table_rows` × h, of which `positions` picks a row for each token. A thread turns the pairs of a 16-byte pack where that divides h and
//! what remains of d and all rows are at multiples of 16 bytes (`PACKED`), else a single pair.
//!
//! # Mapping
//! An item is the pairs of two packs of `x`, or a pack that stays. A block of 256 threads covers the items of a token, or of several
//! tokens where they are few.
//!
//! # Shared memory
//! None: the heads of a token find its row of the tables in L1.
//!
//! # Numerics
//! f32, two roundings of products' sums and one to the storage type. A token whose position lies outside the tables gets zeros.
//!
//! # Cost
//! One read and one write of x, 6 FLOPs per pair: bound by memory bandwidth. The tables' rows are read once a token.
//!
//! # Limits
//! 2³² − 1 tokens, 2³² − 1 items a token.
//!
//! # Sources
//! Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (arXiv:2104.09864).

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

use crate::{div_rem, lanes};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// Turns every head of every token; `direction` is 1, or −1 for the inverse.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `tokens` × `heads` × `d` elements at their strides, `cos` and `sin` for reads of
/// `table_rows` × `half`, `positions` for reads of `tokens`; `heads`, `d` and `width` are not 0; 2·`half` is at most `d`; `PACKED` is for packs that are aligned and
/// divide `half` and `d`.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rope<T: Element, const PACKED: bool>(
    x: *const T,
    cos: *const f32,
    sin: *const f32,
    positions: *const i32,
    y: *mut T,
    tokens: u32,
    heads: u32,
    d: u32,
    half: u32,
    table_rows: u32,
    width: u32,
    interleaved: u32,
    direction: f32,
    x_token: u64,
    x_head: u64,
    y_token: u64,
    y_head: u64,
) {
    let lanes = if PACKED { lanes::<T>() as u32 } else { 1 };
    // `width` threads a token; the block's other threads take the tokens after it.
    let (along, item) = div_rem(thread::thread_idx_x(), width);
    let (per_block, _) = div_rem(BLOCK, width);
    let token = u64::from(thread::block_idx_x()) * u64::from(per_block) + u64::from(along);
    let (head, item) = div_rem(thread::block_idx_y() * width + item, (d - half) / lanes);
    if along >= per_block || token >= u64::from(tokens) || head >= heads {
        return;
    }
    let x = x.add((token * x_token + u64::from(head) * x_head) as usize);
    let y = y.add((token * y_token + u64::from(head) * y_head) as usize);
    let tables = row_of_tables((cos, sin), *positions.add(token as usize), table_rows, half);
    let (half, item, interleaved) = (half as usize, item as usize, interleaved != 0);
    match lanes {
        1 => turn_item::<T, 1>(x, y, tables, half, item, interleaved, direction),
        4 => turn_item::<T, 4>(x, y, tables, half, item, interleaved, direction),
        _ => turn_item::<T, 8>(x, y, tables, half, item, interleaved, direction),
    }
}

/// Turns the pairs of item `item` of the head at `x`, or passes the elements on that stay; zeros without tables.
#[inline(always)]
unsafe fn turn_item<T: Element, const V: usize>(
    x: *const T,
    y: *mut T,
    tables: Option<Tables>,
    half: usize,
    item: usize,
    interleaved: bool,
    direction: f32,
) {
    // Without tables even what times 0 is NaN becomes 0. This does not use the read-only path, because y may be x.
    let load = |at: usize| match tables {
        Some(_) => Pack::<T, V>::load_evict_first(x.add(at)),
        None => Pack::from_f32([0.0; V]),
    };
    if item * V >= half {
        let at = half + item * V;
        return load(at).store_streaming(y.add(at));
    }
    let (first, second) = pair::<V>(item, half, interleaved);
    let packs = [load(first).to_f32(), load(second).to_f32()];
    let [a, b] = turn(packs, angles(tables, item * V, direction), interleaved);
    Pack::<T, V>::from_f32(a).store_streaming(y.add(first));
    Pack::<T, V>::from_f32(b).store_streaming(y.add(second));
}

/// Cosines and sines of a position.
pub(super) type Tables = (*const f32, *const f32);

/// Their row for `position`, if they have one.
#[inline(always)]
pub(super) unsafe fn row_of_tables((cos, sin): Tables, position: i32, table_rows: u32, half: u32) -> Option<Tables> {
    // As an unsigned number, a negative position is past every table too.
    let row = ((position as u32) < table_rows).then_some(position as usize * half as usize)?;
    Some((cos.add(row), sin.add(row)))
}

/// Where the packs of item `item` of a head start: the two whose elements turn together, or the one that stays.
#[inline(always)]
pub(super) fn places<const V: usize>(item: usize, half: usize, interleaved: bool) -> (usize, Option<usize>) {
    if item * V >= half {
        return (half + item * V, None);
    }
    let (first, second) = pair::<V>(item, half, interleaved);
    (first, Some(second))
}

/// Where the packs start whose elements turn together.
#[inline(always)]
fn pair<const V: usize>(item: usize, half: usize, interleaved: bool) -> (usize, usize) {
    let at = item * V;
    if interleaved { (2 * at, 2 * at + V) } else { (at, at + half) }
}

/// Cosines and sines of the pairs from `pair` on, in either direction; zeros without tables.
#[inline(always)]
pub(super) unsafe fn angles<const V: usize>(tables: Option<Tables>, pair: usize, direction: f32) -> [[f32; V]; 2] {
    // Only loads depend on whether there are tables, so that they need no branch.
    let (cos, sin) = match tables {
        Some((cos, sin)) => (Pack::load_nc_evict_last(cos.add(pair)).0, Pack::load_nc_evict_last(sin.add(pair)).0),
        None => ([0.0; V], [0.0; V]),
    };
    [cos, sin.map(|sin| sin * direction)]
}

/// Two packs that turn together, turned.
#[inline(always)]
pub(super) fn turn<const V: usize>(
    [a, b]: [[f32; V]; 2],
    [cos, sin]: [[f32; V]; 2],
    interleaved: bool,
) -> [[f32; V]; 2] {
    let turn = |i: usize, a: f32, b: f32| (a * cos[i] - b * sin[i], b * cos[i] + a * sin[i]);
    if !interleaved {
        return [array::from_fn(|i| turn(i, a[i], b[i]).0), array::from_fn(|i| turn(i, a[i], b[i]).1)];
    }
    let element = |i: usize| if i < V { a[i % V] } else { b[i % V] };
    let turned = |i: usize| {
        let (even, odd) = turn(i / 2, element(i / 2 * 2), element(i / 2 * 2 + 1));
        if i.is_multiple_of(2) { even } else { odd }
    };
    [array::from_fn(turned), array::from_fn(|i| turned(V + i))]
}
