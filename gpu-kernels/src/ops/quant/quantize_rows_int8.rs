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
//! A block of 256 threads a row, which it reads twice: the second time from L1.
//!
//! # Shared memory
//! The greatest value of each warp, 128 B.
//!
//! # Numerics
//! q in f32: x · (127 / max), rounded to nearest, ties to even. A row of zeros has scale 0. With NaN or an infinity in a row that is its scale,
//! and every q is 0.
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
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread};

use super::{inverse, round};
use crate::lanes;
use crate::rows::{BlockThreads, Threads};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// A block a row.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of a row of `d` elements a block at their strides, `scales` for writes of a value a block; with
/// `PACKED` all rows are at multiples of 16 bytes and 16-byte packs of `x` divide `d`.
#[kernel(dtypes(T: float), values(PACKED: false, true), block = BLOCK, shared = <BlockThreads as Threads>::Partials<1>, no_spills)]
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
    match if PACKED { lanes::<T>() } else { 1 } {
        1 => quantize::<T, 1>(x, q, scale, d as usize),
        4 => quantize::<T, 4>(x, q, scale, d as usize),
        _ => quantize::<T, 8>(x, q, scale, d as usize),
    }
}

#[inline(always)]
unsafe fn quantize<T: Element, const N: usize>(x: *const T, q: *mut i8, scale: *mut f32, d: usize) {
    let first = thread::thread_idx_x() as usize * N;
    let mut max = 0.0;
    let mut at = first;
    while at < d {
        let values = Pack::<T, N>::load_nc(x.add(at)).to_f32();
        max = values.into_iter().fold(max, math::max_magnitude);
        at += BLOCK as usize * N;
    }
    let [max] = BlockThreads::reduce([max], [0.0], 0, |[a], [b]| [math::max_nan(a, b)]);
    let inverse = inverse(max, 127.0);
    if first == 0 {
        *scale = max / 127.0;
    }
    // NaN would be rounded to 0, and infinities times 0 are NaN.
    let mut at = first;
    while at < d {
        round(Pack::<T, N>::load_nc(x.add(at)).to_f32().map(|x| x * inverse), 0).store(q.add(at));
        at += BLOCK as usize * N;
    }
}
