//! Quantization to MXFP8 along columns: 8-bit floats with a power of two for each 32 that lie one below the other.
//!
//! # Math
//! For each group of 32 × 1: scale = 2^(⌊log₂ max |x|⌋ − e), at least 2⁻¹²⁷, and q = ⌊x / scale⌉, with e = 8 for E4M3 and 15 for E5M2.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded. `scales` is dense, ⌈rows / 32⌉ rows of d. Rows at multiples of a pack are moved by
//! packs of 8 bytes, others element by element.
//!
//! # Mapping
//! Blocks of 128 threads, along the rows by x, and 32 rows per block by y and z. A thread has 8 bytes of each of 32 rows, all in flight
//! at once, so that it finds the greatest magnitude of its columns by itself: a warp reads 256 adjacent bytes of a row,
//! and no lane waits for another. Elements of 16 bits are compared in pairs, before they are converted.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! As of quantize_mxfp8_1x32.
//!
//! # Cost
//! One read of x, one write of a byte an element and of a byte a group: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 1 KiB, and 65535² · 32 of them.
//!
//! # Sources
//! Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 6.3.

use core::array;
use core::mem::transmute_copy;

use cuda_std::float::Element;
use cuda_std::fp8::{Float8, f8e8m0};
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread};

use super::blocks::{self, Scale};
use crate::lanes;

/// Threads of a block.
pub const BLOCK: u32 = 128;
/// Elements that share a scale.
pub const HEIGHT: usize = 32;

/// Bytes of a row that a thread has.
const BYTES: usize = 8;

/// Columns that a block covers, of elements of that many bytes.
pub const fn per_block(bytes: usize) -> usize {
    BLOCK as usize * (BYTES / bytes)
}

/// q and scales of `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of those rows at their strides, `scales` for writes of one value per
/// group; d and rows are at least 1.
#[kernel(dtypes(T: float, Q: float8), block = BLOCK, min_blocks = 5, no_spills)]
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
        4 => quantize::<T, Q, 2>(x, q, scales, rows, d, x_stride, q_stride),
        _ => quantize::<T, Q, 4>(x, q, scales, rows, d, x_stride, q_stride),
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
    let block = blocks::row_of_grid();
    let first = block * HEIGHT as u64;
    let column = (u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x())) * N as u64;
    if first >= rows || column >= d {
        return;
    }
    let x = x.add((first * x_stride + column) as usize);
    let q = q.add((first * q_stride + column) as usize);
    let scales = scales.add((block * d + column) as usize);
    let packed = blocks::is_packed::<T, N>(x, x_stride, rows) && blocks::is_packed::<Q, N>(q, q_stride, rows);
    if packed && first + HEIGHT as u64 <= rows && column + N as u64 <= d {
        return packs::<T, Q, N>(x, q, scales, x_stride as usize, q_stride as usize);
    }
    let count = (rows - first).min(HEIGHT as u64) as usize;
    for e in 0..(d - column).min(N as u64) as usize {
        let mut max = 0.0;
        for i in 0..count {
            max = math::max_magnitude(max, (*x.add(i * x_stride as usize + e)).to_f32());
        }
        let (scale, inverse) = f8e8m0::of::<Q>(max);
        *scales.add(e) = scale;
        for i in 0..count {
            let value = (*x.add(i * x_stride as usize + e)).to_f32() * inverse;
            [*q.add(i * q_stride as usize + e)] = blocks::narrow([value]).0;
        }
    }
}

/// A pack of each of 32 rows.
#[inline(always)]
unsafe fn packs<T: Element, Q: Float8, const N: usize>(
    x: *const T,
    q: *mut Q,
    scales: *mut f8e8m0,
    x_stride: usize,
    q_stride: usize,
) {
    let loaded: [Pack<T, N>; HEIGHT] = array::from_fn(|i| Pack::load_nc(x.add(i * x_stride)));
    let mut max = [0; BYTES / 4];
    for pack in loaded {
        let registers: [u32; BYTES / 4] = transmute_copy(&pack);
        max = array::from_fn(|i| T::max_magnitude_of_registers(max[i], registers[i]));
    }
    let max: Pack<T, N> = transmute_copy(&max);
    let scaled = max.to_f32().map(f8e8m0::of::<Q>);
    let aligned = (scales as usize).is_multiple_of(N);
    blocks::store(Pack(scaled.map(|(scale, _)| scale)), scales, 0, N as u64, aligned);
    for i in 0..HEIGHT {
        let values = loaded[i].to_f32();
        let narrowed: Pack<Q, N> = blocks::narrow(array::from_fn(|e| values[e] * scaled[e].1));
        narrowed.store_global(q.add(i * q_stride));
    }
}
