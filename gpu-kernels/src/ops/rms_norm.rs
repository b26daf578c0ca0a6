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
//! to `V` packs of its row in registers, pack t + i·threads in register i, so that `x` is read once. [`rms_norm_any`]: a
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

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{bf16, f16, kernel, math, thread, warp};

use crate::lanes;

/// Rows a block of [`rms_norm_warp`] normalises.
pub const WARP_ROWS: u32 = 8;
/// Threads of a block of [`rms_norm_any`].
pub const ANY_THREADS: u32 = 512;
/// The most threads of a block of [`rms_norm_block`].
pub const MAX_THREADS: u32 = 512;

/// A sum for each warp of the block.
#[repr(C)]
pub struct Partials([f32; 32]);

/// A warp a row of up to 32·`V` packs.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `rows` rows of `d` elements at their strides, `weight` for reads of `d`; all
/// rows start at multiples of 16 bytes, and d is a multiple of [`lanes`] and at most 32·`V` packs.
#[kernel(dtypes(T: f32, f16, bf16), values(V: 1, 4), block = WARP_ROWS * 32, no_spills)]
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
    let (x, y) = (x.add((row * x_stride) as usize), y.add((row * y_stride) as usize));
    let lane = warp::lane_id() as usize;
    match lanes::<T>() {
        4 => normalise::<T, V, 4>(x, weight, y, d, lane, 32, eps, |sum| warp::reduce_sum(sum)),
        _ => normalise::<T, V, 8>(x, weight, y, d, lane, 32, eps, |sum| warp::reduce_sum(sum)),
    }
}

/// A block a row of up to `V` packs a thread.
///
/// # Safety
/// As for [`rms_norm_warp`], with d at most `V` packs a thread of the block, whose size is a multiple of 32.
#[kernel(dtypes(T: f32, f16, bf16), values(V: 2, 4, 8), block = MAX_THREADS, shared = Partials, no_spills)]
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
    let (x, y) = (x.add((row * x_stride) as usize), y.add((row * y_stride) as usize));
    let (tid, threads) = (thread::thread_idx_x() as usize, thread::block_dim_x() as usize);
    match lanes::<T>() {
        4 => normalise::<T, V, 4>(x, weight, y, d, tid, threads, eps, |sum| block_sum(sum)),
        _ => normalise::<T, V, 8>(x, weight, y, d, tid, threads, eps, |sum| block_sum(sum)),
    }
}

/// A block a row, of any length and alignment.
///
/// # Safety
/// As for [`rms_norm_warp`], without the conditions on alignment and length.
#[kernel(dtypes(T: f32, f16, bf16), block = ANY_THREADS, shared = Partials, no_spills)]
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
        i += ANY_THREADS as usize;
    }
    let scale = math::rsqrt_approx(block_sum(sum) / d as f32 + eps);
    let mut i = first;
    while i < d as usize {
        *y.add(i) = T::from_f32((*x.add(i)).to_f32() * scale * (*weight.add(i)).to_f32());
        i += ANY_THREADS as usize;
    }
}

/// Normalises the row at `x` with `threads` threads, of which this is number `thread`; `reduce` sums over them.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // The kernel's parameters and its place in the row.
unsafe fn normalise<T: Element, const V: usize, const N: usize>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    d: u64,
    thread: usize,
    threads: usize,
    eps: f32,
    reduce: impl Fn(f32) -> f32,
) {
    let zero = Pack::<T, N>::from_f32([0.0; N]);
    let at = |i: usize| (thread + i * threads) * N;
    let inside = |i: usize| at(i) < d as usize;
    let packs: [Pack<T, N>; V] =
        array::from_fn(|i| if inside(i) { Pack::load_nc_no_allocate(x.add(at(i))) } else { zero });
    let weights: [Pack<T, N>; V] =
        array::from_fn(|i| if inside(i) { Pack::load_nc_evict_last(weight.add(at(i))) } else { zero });
    let mut sum = 0.0;
    for pack in packs {
        for value in pack.to_f32() {
            sum += value * value;
        }
    }
    let scale = math::rsqrt_approx(reduce(sum) / d as f32 + eps);
    for i in 0..V {
        if inside(i) {
            let (x, weight) = (packs[i].forget().to_f32(), weights[i].to_f32());
            Pack::<T, N>::from_f32(array::from_fn(|e| x[e] * scale * weight[e])).store_streaming(y.add(at(i)));
        }
    }
}

/// The sum over the block, whose size is a multiple of 32, in every thread. May be called once: the partial sums stay.
#[inline(always)]
unsafe fn block_sum(value: f32) -> f32 {
    let partials: SharedPtr<f32> = shared::dynamic::<Partials>().cast();
    let sum = warp::reduce_sum(value);
    if warp::lane_id() == 0 {
        partials.add(warp::warp_id()).write(sum);
    }
    thread::sync_threads();
    // Every warp sums the partial sums of all, so no second barrier is needed.
    let lane = warp::lane_id();
    warp::reduce_sum(if lane < thread::block_dim_x() / 32 { partials.add(lane).read() } else { 0.0 })
}
