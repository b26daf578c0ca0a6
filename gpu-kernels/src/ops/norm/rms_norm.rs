//! Root-mean-square normalisation of rows.
//!
//! # Math
//! y = x · r · weight with r = 1 / √(Σ x² / d + eps), one r for each row.
//!
//! # Layout
//! `x` and `y` are rows of d adjacent elements, `x_stride` and `y_stride` elements apart; `weight` is d elements. The warp
//! and block kernels need every row, and `weight`, at a multiple of 16 bytes and d a multiple of a 16-byte pack.
//!
//! # Mapping
//! [`rms_norm_warp`]: a warp a row, [`WARP_ROWS`] rows a block. [`rms_norm_block`]: a block a row. In both a thread holds up
//! to `V` packs of its row in registers, so that `x` is read once: see [`rows`](crate::rows). [`rms_norm_any`]: a
//! block a row of any length and alignment, which reads `x` twice (the second time from L2 where the row fits).
//!
//! # Shared memory
//! [`rms_norm_block`] and [`rms_norm_any`]: one f32 for each warp, 128 B. [`rms_norm_warp`]: none.
//!
//! # Numerics
//! Squares are summed in f32: each thread in order, then a butterfly over the warp, then over the warps in order, so
//! results are reproducible. r is rsqrt.approx, 2⁻²² relative. One rounding to the storage type. A row whose squares overflow f32
//! (|x| above about 10¹⁹/√d) gives zeros; NaN in a row makes the whole row NaN.
//!
//! # Cost
//! One read and one write of rows × d elements, 4 FLOPs an element: bound by memory bandwidth. `weight` comes from L1 and
//! L2, which are asked to evict it last, and is fetched before the reduction so that the wait for both overlaps.
//!
//! # Limits
//! [`rms_norm_warp`]: 32·V packs a row. [`rms_norm_block`]: 512·V packs. [`rms_norm_any`]: none. 2³¹ − 1 blocks.
//!
//! # Sources
//! Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467).

use cuda_std::float::Element;
use cuda_std::{kernel, math, thread, warp};

use crate::lanes;
use crate::rows::{Block, MAX_THREADS, Partials, Row, Team, WARP_ROWS, Warp};

/// A warp a row of up to 32·`V` packs.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `rows` rows of `d` elements at their strides, `weight` for reads of `d`; all
/// rows start at multiples of 16 bytes, and d is a multiple of [`lanes`] and at most 32·`V` packs.
#[kernel(dtypes(T: float), values(V: 1, 4), block = WARP_ROWS * 32, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm_warp<T: Element, const V: usize>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    rows: u64,
    d: u64,
    x_stride: u64,
    y_stride: u64,
    eps: f32,
) {
    let row = u64::from(thread::block_idx_x()) * u64::from(WARP_ROWS) + u64::from(warp::warp_id());
    if row >= rows {
        return;
    }
    normalise::<Warp, T, V>(
        x.add((row * x_stride) as usize),
        weight,
        y.add((row * y_stride) as usize),
        d as usize,
        eps,
    );
}

/// A block a row of up to `V` packs a thread.
///
/// # Safety
/// As for [`rms_norm_warp`], with d at most `V` packs a thread of the block, whose size is a multiple of 32.
#[kernel(dtypes(T: float), values(V: 2, 4, 8), block = MAX_THREADS, shared = Partials<1>, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm_block<T: Element, const V: usize>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    _rows: u64,
    d: u64,
    x_stride: u64,
    y_stride: u64,
    eps: f32,
) {
    let row = u64::from(thread::block_idx_x());
    normalise::<Block, T, V>(
        x.add((row * x_stride) as usize),
        weight,
        y.add((row * y_stride) as usize),
        d as usize,
        eps,
    );
}

/// A block a row, of any length and alignment.
///
/// # Safety
/// As for [`rms_norm_warp`], without the conditions on alignment and length.
#[kernel(dtypes(T: float), block = MAX_THREADS, shared = Partials<1>, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn rms_norm_any<T: Element>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    _rows: u64,
    d: u64,
    x_stride: u64,
    y_stride: u64,
    eps: f32,
) {
    let row = u64::from(thread::block_idx_x());
    let (x, y) = (x.add((row * x_stride) as usize), y.add((row * y_stride) as usize));
    let first = thread::thread_idx_x() as usize;
    let mut sum = 0.0;
    let mut i = first;
    while i < d as usize {
        let value = (*x.add(i)).to_f32();
        sum += value * value;
        i += MAX_THREADS as usize;
    }
    let scale = math::rsqrt_approx(Block::sum(sum, 0) / d as f32 + eps);
    let mut i = first;
    while i < d as usize {
        *y.add(i) = T::from_f32((*x.add(i)).to_f32() * scale * (*weight.add(i)).to_f32());
        i += MAX_THREADS as usize;
    }
}

/// Normalises the row at `x` with the threads of team `G`, up to `V` packs each.
#[inline(always)]
unsafe fn normalise<G: Team, T: Element, const V: usize>(x: *const T, weight: *const T, y: *mut T, d: usize, eps: f32) {
    match lanes::<T>() {
        4 => normalise_packs::<G, T, V, 4>(x, weight, y, d, eps),
        _ => normalise_packs::<G, T, V, 8>(x, weight, y, d, eps),
    }
}

#[inline(always)]
unsafe fn normalise_packs<G: Team, T: Element, const V: usize, const N: usize>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    d: usize,
    eps: f32,
) {
    let row = Row::<T, V, N>::load::<G>(x, d);
    let weight = Row::<T, V, N>::load_shared::<G>(weight, d);
    let squares = row.fold(0.0, |sum, x| sum + x * x);
    let scale = math::rsqrt_approx(G::sum(squares, 0) / d as f32 + eps);
    row.store_zip::<G>(weight, y, |x, weight| x * scale * weight);
}
