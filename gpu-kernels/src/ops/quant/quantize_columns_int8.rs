//! Quantization of columns to 8-bit integers, each with a scale of its own, symmetric.
//!
//! # Math
//! scale\[c\] = max |x[:, c]| / 127 and q[r, c] = ⌊x[r, c] / scale\[c\]⌉.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded. Rows at multiples of a pack are moved by packs, others element by element.
//!
//! # Mapping
//! Two launches, of blocks of eight warps with 32 packs of 16 bytes of a row each, along the rows by x. [`column_max`]: warps walk down the rows, four
//! in flight; a block combines what they have found, and adds it to one maximum a column in memory. [`quantize_columns_int8`]: 32 rows a block by y
//! and z, four a warp; every thread derives its columns' scales from the maxima.
//!
//! # Shared memory
//! The greatest values of each warp's columns, 8 KiB.
//!
//! # Numerics
//! As of quantize_rows_int8. Maxima by atomics, which give the same in any order.
//!
//! # Cost
//! Two reads of x and one write of an integer an element: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 512 bytes, and 65535² · 32 of them.
//!
//! # Sources
//! Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference" (arXiv:1806.08342), for scales of channels.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{atomic, kernel, math, thread, warp};

use super::{blocks, round, scale_of};
use crate::lanes;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Rows that a block of [`quantize_columns_int8`] covers.
pub const ROWS: usize = WARPS * PACKS;
/// Rows of a warp in flight.
const PACKS: usize = 4;
const WARPS: usize = BLOCK as usize / 32;

/// Columns that a block covers, of elements of that many bytes.
pub const fn per_block(bytes: usize) -> usize {
    32 * (16 / bytes)
}

/// Values of each warp's columns, of which there are at most so many.
#[repr(C)]
pub struct Maxima([[f32; per_block(2)]; WARPS]);

/// The column of this lane's pack, and the block's first.
#[inline(always)]
fn columns<T>() -> (u64, u64) {
    let start = u64::from(thread::block_idx_x()) * per_block(size_of::<T>()) as u64;
    (start + u64::from(warp::lane_id()) * lanes::<T>() as u64, start)
}

/// Extends `maxima`, the bits of floats that start at 0, by the columns of `rows` rows of `d` elements, which are by turns those of y of the grid.
///
/// # Safety
/// `x` is valid for reads of those rows at their stride, `maxima` for atomic access to d values; d and rows are at least 1.
#[kernel(dtypes(T: float), block = BLOCK, shared = Maxima, no_spills)]
pub unsafe fn column_max<T: Element>(x: *const T, maxima: *mut u32, rows: u64, d: u64, x_stride: u64) {
    match lanes::<T>() {
        4 => extend::<T, 4>(x, maxima, rows, d, x_stride),
        _ => extend::<T, 8>(x, maxima, rows, d, x_stride),
    }
}

#[inline(always)]
unsafe fn extend<T: Element, const N: usize>(x: *const T, maxima: *mut u32, rows: u64, d: u64, x_stride: u64) {
    let (column, start) = columns::<T>();
    let (warp, lane) = (warp::warp_id(), warp::lane_id());
    let packed = blocks::is_packed::<T, N>(x, x_stride, rows);
    let full = packed && start + per_block(size_of::<T>()) as u64 <= d;
    let turn = u64::from(thread::grid_dim_y()) * ROWS as u64;
    let mut max = [0.0; N];
    let mut first = u64::from(thread::block_idx_y()) * ROWS as u64;
    while first < rows {
        let row = |i: usize| first + u64::from(warp) + (i * WARPS) as u64;
        let of = |i: usize| (x.wrapping_add((row(i) * x_stride) as usize), if row(i) < rows { d } else { 0 });
        let whole = full && first + ROWS as u64 <= rows;
        let loaded: [Pack<T, N>; PACKS] = blocks::load_column(of, column, packed, whole);
        for i in 0..PACKS {
            let values = loaded[i].to_f32();
            max = array::from_fn(|e| math::max_magnitude(max[e], values[e]));
        }
        first += turn;
    }
    let of_block: SharedPtr<f32> = shared::dynamic();
    for e in 0..N {
        of_block.add((warp * 32 + lane) * N as u32 + e as u32).write(max[e]);
    }
    thread::sync_threads();
    let tid = thread::thread_idx_x();
    if tid < 32 * N as u32 && start + u64::from(tid) < d {
        let mut max = 0.0;
        for warp in 0..WARPS as u32 {
            max = math::max_magnitude(max, of_block.add(warp * 32 * N as u32 + tid).read());
        }
        // The bits of floats without a sign bit have the order of the floats, and NaN is above all.
        atomic::red_max_u32(maxima.add((start + u64::from(tid)) as usize), max.to_bits());
    }
}

/// Computes q from the maxima that [`column_max`] has found; the blocks of the first rows also write `scales`.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of those rows at their strides, `maxima` for reads and `scales` for writes of d values; d and rows are
/// at least 1.
#[kernel(dtypes(T: float), block = BLOCK, no_spills, programmatic)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn quantize_columns_int8<T: Element>(
    x: *const T,
    maxima: *const f32,
    q: *mut i8,
    scales: *mut f32,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    match lanes::<T>() {
        4 => quantize::<T, 4>(x, maxima, q, scales, rows, d, x_stride, q_stride),
        _ => quantize::<T, 8>(x, maxima, q, scales, rows, d, x_stride, q_stride),
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // The kernel's.
unsafe fn quantize<T: Element, const N: usize>(
    x: *const T,
    maxima: *const f32,
    q: *mut i8,
    scales: *mut f32,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    let first = blocks::row_of_grid() * ROWS as u64;
    if first >= rows {
        return;
    }
    let (column, start) = columns::<T>();
    let row = |i: usize| first + u64::from(warp::warp_id()) + (i * WARPS) as u64;
    let end = |i: usize| if row(i) < rows { d } else { 0 };
    let packed = blocks::is_packed::<T, N>(x, x_stride, rows) && blocks::is_packed::<i8, N>(q, q_stride, rows);
    let whole = packed && first + ROWS as u64 <= rows && start + per_block(size_of::<T>()) as u64 <= d;
    let of = |i: usize| (x.wrapping_add((row(i) * x_stride) as usize), end(i));
    let loaded: [Pack<T, N>; PACKS] = blocks::load_column(of, column, packed, whole);
    let of_columns: [(f32, f32); N] = array::from_fn(|e| {
        let column = column + e as u64;
        scale_of(if column < d { *maxima.add(column as usize) } else { 0.0 }, 127.0)
    });
    if first == 0 && warp::warp_id() == 0 {
        blocks::store(Pack(of_columns.map(|(scale, _)| scale)), scales, column, d, false);
    }
    for i in 0..PACKS {
        let values = loaded[i].to_f32();
        let integers: Pack<i8, N> = round(array::from_fn(|e| values[e] * of_columns[e].1), 0);
        blocks::store(integers, q.wrapping_add((row(i) * q_stride) as usize), column, end(i), packed);
    }
}
