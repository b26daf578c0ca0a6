//! Appends new keys and values to a cache of 8 bits per element, with a scale for each token and head.
//!
//! # Math
//! With x the vector of a token and a head: 8-bit integers are q = ⌊x / scale⌉ with scale = max |x| / 127, E4M3 likewise with 448. They and the
//! scale go where [`append_kv`](super::append_kv) puts a vector.
//!
//! # Layout
//! Vectors of d adjacent elements, and scales, which may lie anywhere apart along each of the other dimensions. Packs of 16 bytes of what is new
//! where they divide d and all vectors are at multiples of 16 bytes, those of the caches at as many as a pack has elements.
//!
//! # Mapping
//! Eight threads a vector of keys and the same of values. A thread holds two packs of each, which is all of 128 elements of 16 bits: all four are
//! under way before their place is looked up, once for both. What a vector has beyond is read twice, the second time from L1.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! q in f32: x · (127 / max) or x · (448 / max), rounded to nearest, ties to even. A scale is at least the least normal
//! number. If a vector contains NaN or an infinity, its scale is that value, and every integer is 0. Tokens without a
//! valid place are not written.
//!
//! # Cost
//! One read of what is new, and a write of a byte an element: bound by memory bandwidth.
//!
//! # Limits
//! 2³² − 1 vectors; positions below 2³².
//!
//! # Sources
//! Hooper et al., "KVQuant" (arXiv:2401.18079), and Liu et al., "KIVI" (arXiv:2402.02750), on the granularity of
//! scales; both use per-channel scales for keys, which would have to be known before a token is written.

use core::array;

use cuda_std::float::Element;
use cuda_std::launch::Fields;
use cuda_std::vector::Pack;
use cuda_std::{f8e4m3, kernel, math, thread, warp};

use super::append_kv::place_of;
use crate::ops::quant::{Scale, greatest, narrow, round, scale_of};
use crate::{div_rem, lanes};

/// Threads of a block.
pub const BLOCK: u32 = 128;
/// Threads that share a vector.
const TEAM: u32 = 8;
/// Packs of a vector that a thread holds.
const HELD: usize = 2;
/// Vectors of a block.
pub const VECTORS: u32 = BLOCK / TEAM;

/// Sizes and strides; those of what is new are of sequence, token and head, those of caches and scales of page, place and head.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sizes {
    /// Of keys and of values.
    pub new: [[u64; 3]; 2],
    /// Of their caches.
    pub caches: [[u64; 3]; 2],
    /// Of their scales.
    pub scales: [[u64; 3]; 2],
    /// All new vectors of keys.
    pub vectors: u32,
    /// New tokens of a sequence.
    pub tokens: u32,
    /// Heads of a token.
    pub heads: u32,
    /// Elements of a vector.
    pub d: u32,
    /// Positions of a page, pages of the cache, and pages that a sequence has.
    pub pages: [u32; 3],
    /// Whether vectors may be read and written by packs, of which each has one.
    pub packed: u32,
}

// SAFETY: 18 u64 and 8 u32: no padding, alignment 8.
unsafe impl Fields for Sizes {}

/// The quantized element type.
pub trait Quantized: Copy + 'static {
    /// The scale of a vector whose greatest magnitude is `max`, and its inverse.
    fn scale(max: f32) -> (f32, f32);

    /// x times the inverse scale, rounded.
    fn narrow<const N: usize>(x: [f32; N], inverse: f32) -> Pack<Self, N>;
}

impl Quantized for i8 {
    #[inline(always)]
    fn scale(max: f32) -> (f32, f32) {
        scale_of(max, 127.0)
    }

    #[inline(always)]
    fn narrow<const N: usize>(x: [f32; N], inverse: f32) -> Pack<Self, N> {
        round(x.map(|x| x * inverse), 0)
    }
}

impl Quantized for f8e4m3 {
    #[inline(always)]
    fn scale(max: f32) -> (f32, f32) {
        <f32 as Scale>::of::<Self>(max)
    }

    #[inline(always)]
    fn narrow<const N: usize>(x: [f32; N], inverse: f32) -> Pack<Self, N> {
        narrow(x.map(|x| x * inverse))
    }
}

/// Writes every vector that has a place, and its scale; without `pages` a sequence's page is its number.
///
/// # Safety
/// The tensors are valid at their strides for these sizes, none of which but d is 0: `k` and `v` for reads, caches and scales for writes, `lengths_before` for
/// reads of a value a sequence, `pages`, if not null, of `max_pages`; packs, where they are allowed, are aligned and divide d.
#[kernel(dtypes(T: float, Q: i8, f8e4m3), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn append_kv_quantized<T: Element, Q: Quantized>(
    k: *const T,
    v: *const T,
    k_cache: *mut Q,
    v_cache: *mut Q,
    k_scales: *mut f32,
    v_scales: *mut f32,
    lengths_before: *const i32,
    pages: *const i32,
    sizes: Sizes,
) {
    let vector = thread::block_idx_x() * VECTORS + thread::thread_idx_x() / TEAM;
    // All lanes stay for the reduction.
    let inside = vector < sizes.vectors;
    let (rest, head) = div_rem(if inside { vector } else { 0 }, sizes.heads);
    let (sequence, token) = div_rem(rest, sizes.tokens);
    let at = |[a, b, c]: [u32; 3], [along_a, along_b, along_c]: [u64; 3]| {
        (u64::from(a) * along_a + u64::from(b) * along_b + u64::from(c) * along_c) as usize
    };
    let from = [k.add(at([sequence, token, head], sizes.new[0])), v.add(at([sequence, token, head], sizes.new[1]))];
    // Called once the loads of the new data are in flight.
    let places = || {
        let place = place_of(sequence, token, lengths_before, pages, sizes.pages).filter(|_| inside);
        place.map(|[page, place]| {
            let index = [page, place, head];
            let caches = [k_cache.add(at(index, sizes.caches[0])), v_cache.add(at(index, sizes.caches[1]))];
            (caches, [k_scales.add(at(index, sizes.scales[0])), v_scales.add(at(index, sizes.scales[1]))])
        })
    };
    match if sizes.packed != 0 { lanes::<T>() } else { 1 } {
        1 => quantize::<T, Q, 1>(from, places, sizes.d as usize),
        4 => quantize::<T, Q, 4>(from, places, sizes.d as usize),
        _ => quantize::<T, Q, 8>(from, places, sizes.d as usize),
    }
}

/// Where two vectors and their scales go.
type Places<Q> = ([*mut Q; 2], [*mut f32; 2]);

#[inline(always)]
unsafe fn quantize<T: Element, Q: Quantized, const N: usize>(
    from: [*const T; 2],
    places: impl Fn() -> Option<Places<Q>>,
    d: usize,
) {
    let first = (thread::thread_idx_x() % TEAM) as usize * N;
    let step = TEAM as usize * N;
    // Past the end the first elements are loaded again: they do not change the maximum.
    let place = |i: usize| if first + i * step < d { first + i * step } else { 0 };
    let held: [[Pack<T, N>; HELD]; 2] = if N > 1 || d > 0 {
        from.map(|x| array::from_fn(|i| Pack::load_nc(x.add(place(i)))))
    } else {
        [[Pack([T::from_f32(0.0); N]); HELD]; 2]
    };
    let places = places();
    for side in 0..2 {
        let x = from[side];
        let mut max = held[side].into_iter().map(greatest).fold(0.0, math::max_nan);
        let mut at = first + HELD * step;
        while at < d {
            max = math::max_nan(max, greatest(Pack::<T, N>::load_nc(x.add(at))));
            at += step;
        }
        let max = warp::reduce_width::<TEAM, f32>(max, math::max_nan);
        let (scale, inverse) = Q::scale(max);
        let Some((caches, scales)) = places else { continue };
        if first == 0 {
            *scales[side] = scale;
        }
        let store = |pack: Pack<T, N>, at: usize| Q::narrow(pack.to_f32(), inverse).store(caches[side].add(at));
        for i in 0..HELD {
            if first + i * step < d {
                store(held[side][i], first + i * step);
            }
        }
        let mut at = first + HELD * step;
        while at < d {
            store(Pack::load_nc(x.add(at)), at);
            at += step;
        }
    }
}
