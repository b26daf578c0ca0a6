//! Quantization of rows to 8-bit integers, each with a scale of its own, symmetric.
//!
//! # Math
//! scale\[r\] = max |x[r, :]| / 127 and q[r, c] = ⌊x[r, c] / scale\[r\]⌉.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded. Packs of 16 bytes of `x` (`PACKED`) where they divide d and all rows of both
//! lie at such multiples.
//!
//! # Mapping
//! A block of 64 to 1024 threads a row. Each holds four packs of 16 bytes of it: rows of up to 64 KiB are read once, the rest of longer ones, and
//! rows without packs, again.
//!
//! # Shared memory
//! The greatest value of each warp, 128 B.
//!
//! # Numerics
//! q in f32: x · (127 / max), rounded to nearest, ties to even. A scale is at least the least normal number, so that neither it nor its inverse
//! loses bits; it is that of a row of zeros. With NaN or an infinity in a row that is its scale, and every q is 0.
//!
//! # Cost
//! One read of x and one write of an integer an element: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 rows.
//!
//! # Sources
//! Dettmers, Lewis, Belkada and Zettlemoyer, "LLM.int8()" (arXiv:2208.07339), for scales of rows.

use cuda_std::float::Element;
use cuda_std::{kernel, math, thread};

use super::row::{self, Partials, Row};
use super::{round, scale_of};
use crate::lanes;
use crate::rows::{BlockThreads, Threads};

/// Packs of a thread that stay in registers.
const HELD: usize = 4;

/// Threads for a row of `d` elements of `bytes` each.
pub const fn threads(d: usize, bytes: usize) -> u32 {
    row::threads(d, bytes, HELD)
}

/// One block per row, of [`threads`].
///
/// # Safety
/// `x` is valid for reads and `q` for writes of a row of `d` elements per block at their strides, `scales` for writes
/// of one value per block; with `PACKED` all rows are at multiples of 16 bytes, or of q of as many elements, and
/// 16-byte packs of `x` divide `d`.
#[kernel(
    dtypes(T: float),
    values(PACKED: false, true),
    block = row::block(HELD),
    min_blocks = 1,
    shared = Partials<1>,
    no_spills
)]
pub unsafe fn quantize_rows_int8<T: Element, const PACKED: bool>(
    x: *const T,
    q: *mut i8,
    scales: *mut f32,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    let row = u64::from(thread::block_idx_x());
    let (x, q) = (x.add((row * x_stride) as usize), q.add((row * q_stride) as usize));
    let scale = scales.add(row as usize);
    match lanes::<T>() {
        4 => quantize::<T, 4, PACKED>(x, q, scale, d),
        _ => quantize::<T, 8, PACKED>(x, q, scale, d),
    }
}

#[inline(always)]
unsafe fn quantize<T: Element, const N: usize, const PACKED: bool>(x: *const T, q: *mut i8, scale: *mut f32, d: u64) {
    let row = Row::<T, N, HELD, PACKED>::load(x, d);
    let mut max = 0.0;
    row.each(|_, values| max = values.into_iter().fold(max, math::max_magnitude));
    let [max] = BlockThreads::reduce([max], [0.0], 0, |[a], [b]| [math::max_nan(a, b)]);
    // NaN would be rounded to 0, and infinities times 0 are NaN.
    let (of_row, inverse) = scale_of(max, 127.0);
    if thread::thread_idx_x() == 0 {
        *scale = of_row;
    }
    row.each(|place, values| row.store(round(values.map(|x| x * inverse), 0), q, place));
}
