//! NAME of rows.
//!
//! # Math
//! y = x − Σ x / d, for each row.
//!
//! # Layout
//! `x` and `y` are rows of d adjacent elements, `x_stride` and `y_stride` elements apart. The warp and block kernels need every
//! row at a multiple of 16 bytes and d a multiple of a 16-byte pack.
//!
//! # Mapping
//! [`NAME_warp`]: a warp a row. [`NAME_block`]: a block a row. In both a thread holds up to `V` packs of its row in
//! registers, so that `x` is read once: see [`rows`](crate::rows). [`NAME_any`]: a block a row of any length and alignment, which
//! reads `x` twice.
//!
//! # Shared memory
//! [`NAME_block`] and [`NAME_any`]: one f32 for each warp, 128 B. [`NAME_warp`]: none.
//!
//! # Numerics
//! Sums in f32, in an order that is always the same. One rounding to the storage type.
//!
//! # Cost
//! One read and one write of rows × d elements, 2 FLOPs an element: bound by memory bandwidth.
//!
//! # Limits
//! [`NAME_warp`]: 32·V packs a row. [`NAME_block`]: 512·V packs. [`NAME_any`]: none. 2³¹ − 1 blocks.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::{kernel, thread, warp};

use crate::lanes;
use crate::rows::{Block, MAX_THREADS, Partials, Row, Team, WARP_ROWS, Warp};

/// A warp a row of up to 32·`V` packs.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `rows` rows of `d` elements at their strides; all rows start at multiples of 16
/// bytes, and d is a multiple of [`lanes`], at least 1 and at most 32·`V` packs.
#[kernel(dtypes(T: float), values(V: 1, 4), block = WARP_ROWS * 32, no_spills)]
pub unsafe fn NAME_warp<T: Element, const V: usize>(
    x: *const T,
    y: *mut T,
    rows: u64,
    d: u64,
    x_stride: u64,
    y_stride: u64,
) {
    let row = u64::from(thread::block_idx_x()) * u64::from(WARP_ROWS) + u64::from(warp::warp_id());
    if row >= rows {
        return;
    }
    held::<Warp, T, V>(x.add((row * x_stride) as usize), y.add((row * y_stride) as usize), d as usize);
}

/// A block a row of up to `V` packs a thread.
///
/// # Safety
/// As for [`NAME_warp`], with d at most `V` packs a thread of the block, whose size is a multiple of 32.
#[kernel(dtypes(T: float), values(V: 2, 4, 8), block = MAX_THREADS, shared = Partials<1>, no_spills)]
pub unsafe fn NAME_block<T: Element, const V: usize>(
    x: *const T,
    y: *mut T,
    _rows: u64,
    d: u64,
    x_stride: u64,
    y_stride: u64,
) {
    let row = u64::from(thread::block_idx_x());
    held::<Block, T, V>(x.add((row * x_stride) as usize), y.add((row * y_stride) as usize), d as usize);
}

/// A block a row, of any length and alignment.
///
/// # Safety
/// As for [`NAME_warp`], without the conditions on alignment and length.
#[kernel(dtypes(T: float), block = MAX_THREADS, shared = Partials<1>, no_spills)]
pub unsafe fn NAME_any<T: Element>(x: *const T, y: *mut T, _rows: u64, d: u64, x_stride: u64, y_stride: u64) {
    let row = u64::from(thread::block_idx_x());
    let (x, y) = (x.add((row * x_stride) as usize), y.add((row * y_stride) as usize));
    let first = thread::thread_idx_x() as usize;
    let mut sum = 0.0;
    let mut i = first;
    while i < d as usize {
        sum += (*x.add(i)).to_f32();
        i += MAX_THREADS as usize;
    }
    let mean = Block::sum(sum, 0) / d as f32;
    let mut i = first;
    while i < d as usize {
        *y.add(i) = T::from_f32((*x.add(i)).to_f32() - mean);
        i += MAX_THREADS as usize;
    }
}

/// The row at `x` with the threads of team `G`, up to `V` packs each.
#[inline(always)]
unsafe fn held<G: Team, T: Element, const V: usize>(x: *const T, y: *mut T, d: usize) {
    match lanes::<T>() {
        4 => packs::<G, T, V, 4>(x, y, d),
        _ => packs::<G, T, V, 8>(x, y, d),
    }
}

#[inline(always)]
unsafe fn packs<G: Team, T: Element, const V: usize, const N: usize>(x: *const T, y: *mut T, d: usize) {
    let row = Row::<T, V, N>::load::<G>(x, d);
    let mean = G::sum(row.fold(0.0, |sum, x| sum + x), 0) / d as f32;
    row.store_map::<G>(y, |x| x - mean);
}
