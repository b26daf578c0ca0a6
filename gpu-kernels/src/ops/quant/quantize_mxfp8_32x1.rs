//! Quantization to MXFP8 along columns: 8-bit floats with a power of two for each 32 that lie one below the other.
//!
//! # Math
//! For each block of 32 × 1: scale = 2^(⌊log₂ max |x|⌋ − e), at least 2⁻¹²⁷, and q = ⌊x / scale⌉, with e = 8 for E4M3 and 15 for E5M2.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded. `scales` is dense, ⌈rows / 32⌉ rows of d. Rows at multiples of a pack are moved by
//! packs, others element by element.
//!
//! # Mapping
//! Blocks of eight warps, along the rows by x, and 32 rows a block by y and z. A warp has 32 rows of four packs of 16 bytes: lane l pack l mod 4 of
//! rows ⌊l / 4⌋, + 8, + 16 and + 24, all in flight at once. Lanes of one column find its greatest by shuffles.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! As of quantize_mxfp8_1x32.
//!
//! # Cost
//! One read of x, one write of a byte an element and of a byte a block: bound by memory bandwidth.
//!
//! # Limits
//! d up to (2³¹ − 1) · 512 bytes, rows up to 65535² · 32.
//!
//! # Sources
//! Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 6.3.

use core::array;

use cuda_std::float::Element;
use cuda_std::fp8::{Float8, f8e8m0};
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread, warp};

use super::blocks::{self, Scale};
use crate::lanes;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Elements that share a scale.
pub const HEIGHT: usize = 32;

/// Packs of a row that a warp has.
const ACROSS: u32 = 4;
/// Rows of a thread, and how far they are apart.
const ROWS: usize = 4;
const APART: u64 = 8;

/// Columns that a block covers, of elements of that many bytes.
pub const fn per_block(bytes: usize) -> usize {
    (BLOCK / 32 * ACROSS) as usize * (16 / bytes)
}

/// q and scales of `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of those rows at their strides, `scales` for writes of a value a block; d and rows are at least 1.
#[kernel(dtypes(T: float, Q: float8), block = BLOCK, no_spills)]
pub unsafe fn quantize_mxfp8_32x1<T: Element, Q: Float8>(
    x: *const T,
    q: *mut Q,
    scales: *mut f8e8m0,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    match lanes::<T>() {
        4 => quantize::<T, Q, 4>(x, q, scales, rows, d, x_stride, q_stride),
        _ => quantize::<T, Q, 8>(x, q, scales, rows, d, x_stride, q_stride),
    }
}

#[inline(always)]
unsafe fn quantize<T: Element, Q: Float8, const N: usize>(
    x: *const T,
    q: *mut Q,
    scales: *mut f8e8m0,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    let (block, lane) = (blocks::row_of_grid(), warp::lane_id());
    let first = block * HEIGHT as u64 + u64::from(lane / ACROSS);
    if block * HEIGHT as u64 >= rows {
        return;
    }
    let start = u64::from(thread::block_idx_x()) * per_block(size_of::<T>()) as u64;
    let column = start + u64::from((warp::warp_id() * ACROSS + lane % ACROSS) * N as u32);
    let row = |i: usize| first + i as u64 * APART;
    // A row that is not there has no elements.
    let end = |i: usize| if row(i) < rows { d } else { 0 };
    let packed = blocks::is_packed::<T, N>(x, x_stride, rows) && blocks::is_packed::<Q, N>(q, q_stride, rows);
    let whole = packed && (block + 1) * HEIGHT as u64 <= rows && start + per_block(size_of::<T>()) as u64 <= d;
    let loaded: [Pack<T, N>; ROWS] =
        blocks::load_column(|i| (x.wrapping_add((row(i) * x_stride) as usize), end(i)), column, packed, whole);
    let mut max = [0.0; N];
    for i in 0..ROWS {
        let values = loaded[i].to_f32();
        max = array::from_fn(|e| math::max_magnitude(max[e], values[e]));
    }
    let mut apart = ACROSS;
    while apart < 32 {
        max = max.map(|max| math::max_nan(max, warp::shuffle_xor(max, apart)));
        apart *= 2;
    }
    let scaled = max.map(<f8e8m0 as Scale>::of::<Q>);
    if lane < ACROSS {
        let scales = scales.add((block * d) as usize);
        let aligned = (scales as usize + column as usize).is_multiple_of(N);
        blocks::store(Pack(scaled.map(|(scale, _)| scale)), scales, column, d, aligned);
    }
    for i in 0..ROWS {
        let values = loaded[i].to_f32();
        let narrowed: Pack<Q, N> = blocks::narrow(array::from_fn(|e| values[e] * scaled[e].1));
        blocks::store(narrowed, q.wrapping_add((row(i) * q_stride) as usize), column, end(i), packed);
    }
}
