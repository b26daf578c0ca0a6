//! Product of a matrix of 8-bit integers, with a scale for each row, with a vector or a few of them.
//!
//! # Math
//! y[b, i] = scales\[i\] · Σⱼ A[i, j] · x[b, j].
//!
//! # Layout
//! As for [`gemv`](super::gemv), row-major ([`gemv_int8`]) or column-major ([`gemv_int8_columns`]); `scales` holds m values. Packs are 16
//! integers, and as many elements of `x` where that is read by packs; 8 of columns that several vectors of f32 share.
//!
//! # Mapping
//! As for [`gemv`](super::gemv): one vector and two rows a block or a team of it, four if it is of f32, which share what is read of the vector, twice
//! as many bytes as of a row or more; or up to eight vectors and 16 rows by tensor cores, in which integers of 8 bits are exact, 32 rows and
//! f32 in three parts; strips of columns and parts of the rows, likewise by tensor cores where several vectors of 16 bits
//! share them, which [`gemv_sum`](super::gemv::gemv_sum) adds and scales.
//!
//! # Shared memory
//! [`gemv_int8`]: the sums of each warp, of several vectors 4 KiB, of f32 8. [`gemv_int8_columns`]: the strip of each warp, 16 KiB.
//!
//! # Numerics
//! Integers are exact in f32 and in 16 bits, and so is an f32 as a sum of three bf16; products, sums and the scale in f32 in a fixed order, one rounding to the storage type.
//!
//! # Cost
//! The bytes of A once, a quarter of those of f32: bound by memory bandwidth. Parts of columns as for [`gemv`](super::gemv).
//!
//! # Limits
//! m below 2³², 2³¹ − 1 blocks, 65535 times eight vectors.
//!
//! # Sources
//! Dettmers, Lewis, Belkada and Zettlemoyer, "LLM.int8()" (arXiv:2208.07339), for scales of rows.

use core::array;

use cuda_std::float::{Element, Half};
use cuda_std::math::permute_bytes;
use cuda_std::vector::Pack;
use cuda_std::{bf16, f16, kernel};

pub use super::column_pack;
use super::{BLOCK, Columns, Rows, Strips, rows_shared_bytes};
use crate::ops::gemm::{Int8, Weight};

/// A times up to `B` vectors a block, and a row by a small team or a block.
///
/// # Safety
/// As for [`gemv`](super::gemv::gemv), and `scales` is valid for reads of `m` values.
#[kernel(
    dtypes(T: float),
    values(B: 1, 8, SMALL: false, true, PACKED: false, true),
    where((PACKED || B == 1) && (!SMALL || PACKED && B == 1)),
    block = BLOCK,
    min_blocks = if B == 1 { 4 } else { 2 },
    shared = { rows_shared_bytes(B, 1, size_of::<T>()) },
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemv_int8<T: Element, const B: usize, const SMALL: bool, const PACKED: bool>(
    a: *const i8,
    scales: *const f32,
    x: *const T,
    y: *mut T,
    m: u32,
    n: u64,
    batch: u32,
    a_stride: u64,
    x_stride: u64,
    y_stride: u64,
) {
    let rows = Rows { a, x, scales, y, m, n, batch, a_stride, x_stride, y_stride };
    match (B, PACKED, T::INDEX) {
        (1, false, 0) => rows.multiply::<1, 4, 4, SMALL>(convert),
        (1, false, _) => rows.multiply::<1, 2, 4, SMALL>(convert),
        (1, true, 0) => rows.multiply::<16, 4, 1, SMALL>(widen),
        (1, true, _) => rows.multiply::<16, 2, 2, SMALL>(widen),
        (_, _, 0) => {
            rows.multiply_by_fragments::<bf16, 16, 2, 2>(|Pack(words), part| Int8::widen::<bf16>(words, part, 0))
        }
        (_, _, 1) => {
            rows.multiply_by_fragments::<f16, 16, 1, 4>(|Pack(words), part| Int8::widen::<f16>(words, part, 0))
        }
        _ => rows.multiply_by_fragments::<bf16, 16, 1, 4>(|Pack(words), part| Int8::widen::<bf16>(words, part, 0)),
    }
}

/// Column-major A times up to `B` vectors a block, into `parts`, without the scales: as [`gemv_columns`](super::gemv::gemv_columns).
///
/// # Safety
/// As for [`gemv_columns`](super::gemv::gemv_columns); with `PACKED` all columns are at multiples of a [pack](column_pack), which divides `m`.
#[kernel(
    dtypes(T: float),
    values(B: 1, 8, PACKED: false, true),
    where(PACKED || B == 1),
    block = BLOCK,
    min_blocks = super::column_blocks(B, size_of::<T>()),
    shared = Strips<16>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemv_int8_columns<T: Element, const B: usize, const PACKED: bool>(
    a: *const i8,
    x: *const T,
    parts: *mut f32,
    m: u64,
    n: u32,
    batch: u32,
    part: u32,
    a_stride: u64,
    x_stride: u64,
) {
    let columns = Columns { a, x, parts, m, n, batch, part, a_stride, x_stride };
    match (B, PACKED) {
        (1, false) => columns.multiply::<1, 1>(convert),
        (1, true) => columns.multiply::<{ column_pack(1, 1, 4) }, 1>(convert_both_ways),
        _ => match T::INDEX {
            0 => columns.multiply::<{ column_pack(8, 1, 4) }, 8>(widen),
            1 => columns.multiply_by_fragments::<f16, 16>(pairs::<f16>),
            _ => columns.multiply_by_fragments::<bf16, 16>(pairs::<bf16>),
        },
    }
}

/// Of two columns' integers those of rows 2i and 2i + 1.
#[inline(always)]
fn pairs<H: Half>([left, right]: [Pack<u32, 4>; 2], i: usize) -> [u32; 2] {
    let bytes = permute_bytes(left.0[i / 2], right.0[i / 2], [0x5140, 0x7362][i % 2]);
    let [upper, lower, ..] = Int8::widen::<H>([bytes, 0, 0, 0], 0, 0);
    [upper, lower]
}

/// Integers of a pack, in f32.
#[inline(always)]
fn convert<const N: usize>(pack: Pack<i8, N>) -> [f32; N] {
    pack.0.map(f32::from)
}

/// Converts half of the integers by [`convert`] and half by [`widen`]: they use two different units of a
/// multiprocessor, and keep both busy.
#[inline(always)]
fn convert_both_ways<const N: usize>(pack: Pack<i8, N>) -> [f32; N] {
    let widened = widen(pack);
    array::from_fn(|i| if i < N / 2 { f32::from(pack.0[i]) } else { widened[i] })
}

/// [`convert`] by fours, which become the last bits of numbers from 2²³ on, for which a conversion takes four times as long.
#[inline(always)]
fn widen<const N: usize>(pack: Pack<i8, N>) -> [f32; N] {
    const { assert!(N.is_multiple_of(4)) };
    array::from_fn(|i| {
        let bytes: [i8; 4] = array::from_fn(|byte| pack.0[i / 4 * 4 + byte]);
        // 128 is added, so that none is negative.
        let word = u32::from_le_bytes(bytes.map(|byte| byte as u8)) ^ 0x8080_8080;
        f32::from_bits(permute_bytes(word, 0x4b00_0000, 0x7440 + (i % 4) as u32)) - 8_388_736.0
    })
}
