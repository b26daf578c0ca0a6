//! Sums of a product's pieces along k. Where a product has few tiles and a long k, [`hopper`](super::hopper) computes
//! pieces of each tile, one behind the other in memory, and this adds them.
//!
//! # Math
//! cᵢⱼ = α·Σₚ sₚᵢⱼ + β·cᵢⱼ. With β = 0 C is not read.
//!
//! # Layout
//! The pieces are matrices of m rows in f32, whose rows are whole packs of four; C is m × n, its rows contiguous.
//!
//! # Mapping
//! A thread adds four neighbouring columns of a row, four pieces under way at a time.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! Pieces are added in f32, in their order along k: the result is the same every time. α and β are applied in f32, and C
//! is rounded once.
//!
//! # Cost
//! 4·m·n bytes of each piece, which the product has just written, and those of C: 1024² in four pieces are 17 MB, most of
//! them from L2. The launch behind the product takes some 2 µs more.
//!
//! # Limits
//! (2³¹ − 1)·1024 elements of C.
//!
//! # Sources
//! Those of [`gemm`](super); Osama et al., "Stream-K" (arXiv:2301.03598), on splitting k.

use core::array;
use core::num::NonZeroU64;

use cuda_std::float::Element;
use cuda_std::launch::Fields;
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread};

use super::super::epilogue::{Epilogue, Factor, Scales, Sum};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Columns of a thread.
pub const COLUMNS: u32 = 4;
/// Pieces under way at a time.
const AHEAD: u32 = 4;

/// What is added, and to where.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sums {
    /// The row stride of C, in elements.
    pub ldc: u64,
    /// Matrices that are added.
    pub pieces: u32,
    /// Rows of each.
    pub m: u32,
    /// Columns of C.
    pub n: u32,
    /// Packs of a row of a piece.
    pub packs: u32,
}

// SAFETY: a u64 and 4 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Sums {}

/// C = α·(the sum of the pieces) + β·C; α times `scale`, unless that is null.
///
/// # Safety
/// `pieces` is valid for reads of the pieces and `c` for reads and writes of its elements; `scale` is null or valid for a read. There are pieces and packs, and a
/// thread for each pack of a piece.
#[kernel(dtypes(C: float), block = THREADS, no_spills, programmatic)]
pub unsafe fn gemm_sum<C: Element>(
    pieces: *const f32,
    c: *mut C,
    scale: *const f32,
    sums: Sums,
    alpha: f32,
    beta: f32,
) {
    let Some(Four { row, column, sum }) = Four::of(pieces, &sums) else { return };
    let factor = Factor::of(alpha, scale).factor();
    let to = c.wrapping_add((row * sums.ldc) as usize + column as usize);
    let left = sums.n.saturating_sub(column);
    let held = if beta == 0.0 { [0.0; 4] } else { load(to, left) };
    let result = |i: usize| if beta == 0.0 { factor * sum[i] } else { math::fma(beta, held[i], factor * sum[i]) };
    store(to, left, array::from_fn(result));
}

/// The sums of a thread, in neighbouring columns of a row.
pub(in super::super) struct Four<S> {
    pub(in super::super) row: u64,
    /// The first, which may be behind those of C.
    pub(in super::super) column: u32,
    pub(in super::super) sum: [S; COLUMNS as usize],
}

impl<S: Sum> Four<S> {
    /// Adds the thread's part of the pieces, if it has one.
    #[inline(always)]
    pub(in super::super) unsafe fn of(pieces: *const S, sums: &Sums) -> Option<Self> {
        let index = u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x());
        let packs = NonZeroU64::MIN.saturating_add(u64::from(sums.packs) - 1);
        let (row, column) = (index / packs, (index % packs) as u32 * COLUMNS);
        if row >= u64::from(sums.m) {
            return None;
        }
        let apart = (u64::from(sums.m) * packs.get() * u64::from(COLUMNS)) as usize;
        let mut from = pieces.add((index * u64::from(COLUMNS)) as usize);
        let mut sum = [S::ZERO; COLUMNS as usize];
        let mut left = sums.pieces;
        while left > 0 {
            let ahead: [_; AHEAD as usize] = array::from_fn(|i| {
                let is_needed = (i as u32) < left;
                if is_needed { Pack::<S, 4>::load(from.wrapping_add(i * apart)).0 } else { [S::ZERO; 4] }
            });
            for piece in ahead {
                sum = array::from_fn(|i| sum[i].plus(piece[i]));
            }
            from = from.wrapping_add(AHEAD as usize * apart);
            left = left.saturating_sub(AHEAD);
        }
        Some(Self { row, column, sum })
    }
}

/// C = diag(sᵃ)·(the sum of the pieces)·diag(sᵇ), for the kernels of products of 8 bits.
///
/// # Safety
/// As for [`gemm_sum`]; the scales are `steps` apart and valid.
#[inline(always)]
pub(in super::super) unsafe fn scaled<S: Sum, C: Element>(
    pieces: *const S,
    c: *mut C,
    sums: Sums,
    scales: [*const f32; 2],
    steps: [u32; 2],
) {
    let Some(Four { row, column, sum }) = Four::of(pieces, &sums) else { return };
    let values = Scales::new([sums.m, sums.n], scales, steps).times(row as u32, column, sum);
    let to = c.wrapping_add((row * sums.ldc) as usize + column as usize);
    store(to, sums.n.saturating_sub(column), values);
}

/// Whether there are [`COLUMNS`] elements, of `left`, at a multiple of their size.
#[inline(always)]
fn is_whole<T>(at: *const T, left: u32) -> bool {
    left >= COLUMNS && (at as usize).is_multiple_of(size_of::<T>() * COLUMNS as usize)
}

/// Four neighbouring elements, with zeros behind the `left` that there are.
#[inline(always)]
pub(in super::super) unsafe fn load<T: Element>(from: *const T, left: u32) -> [f32; COLUMNS as usize] {
    if is_whole(from, left) {
        return Pack::<T, 4>::load(from).to_f32();
    }
    array::from_fn(|i| if (i as u32) < left { (*from.wrapping_add(i)).to_f32() } else { 0.0 })
}

/// Stores the first `left` of four neighbouring elements.
#[inline(always)]
pub(in super::super) unsafe fn store<T: Element>(to: *mut T, left: u32, values: [f32; COLUMNS as usize]) {
    if is_whole(to, left) {
        return Pack::<T, 4>::from_f32(values).store(to);
    }
    for (i, value) in values.into_iter().enumerate() {
        if (i as u32) < left {
            *to.wrapping_add(i) = T::from_f32(value);
        }
    }
}
