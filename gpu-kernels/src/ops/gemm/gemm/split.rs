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

use super::super::epilogue::{Epilogue, Factor};

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
    /// Factor of the sum.
    pub alpha: f32,
    /// Factor of what C holds.
    pub beta: f32,
}

// SAFETY: a u64 and 6 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Sums {}

/// C = α·(the sum of the pieces) + β·C; α times `scale`, unless that is null.
///
/// # Safety
/// `pieces` is valid for reads of the pieces and `c` for reads and writes of its elements; `scale` is null or valid for a read. There are pieces and packs, and a
/// thread for each pack of a piece.
#[kernel(dtypes(C: float), block = THREADS, no_spills, programmatic)]
pub unsafe fn gemm_sum<C: Element>(pieces: *const f32, c: *mut C, scale: *const f32, sums: Sums) {
    let Sums { ldc, m, n, packs, alpha, beta, .. } = sums;
    let index = u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x());
    let packs = NonZeroU64::MIN.saturating_add(u64::from(packs) - 1);
    let (row, column) = (index / packs, (index % packs) as u32 * COLUMNS);
    if row >= u64::from(m) {
        return;
    }
    let apart = (u64::from(m) * packs.get() * u64::from(COLUMNS)) as usize;
    let mut from = pieces.add((index * u64::from(COLUMNS)) as usize);
    let mut sum = [0.0f32; COLUMNS as usize];
    let mut left = sums.pieces;
    while left > 0 {
        let ahead: [_; AHEAD as usize] = array::from_fn(|i| {
            let is_needed = (i as u32) < left;
            if is_needed { Pack::<f32, 4>::load(from.wrapping_add(i * apart)).0 } else { [0.0; 4] }
        });
        for piece in ahead {
            sum = array::from_fn(|i| sum[i] + piece[i]);
        }
        from = from.wrapping_add(AHEAD as usize * apart);
        left = left.saturating_sub(AHEAD);
    }
    let factor = Factor::of(alpha, scale).factor();
    let to = c.wrapping_add((row * ldc) as usize + column as usize);
    let is_whole = column + COLUMNS <= n && (to as usize).is_multiple_of(size_of::<C>() * COLUMNS as usize);
    let result =
        |i: usize, held: f32| if beta == 0.0 { factor * sum[i] } else { math::fma(beta, held, factor * sum[i]) };
    if is_whole {
        let held = if beta == 0.0 { [0.0; 4] } else { Pack::<C, 4>::load(to).to_f32() };
        Pack::<C, 4>::from_f32(array::from_fn(|i| result(i, held[i]))).store(to);
    } else {
        for i in 0..COLUMNS as usize {
            if column + (i as u32) < n {
                let to = to.wrapping_add(i);
                *to = C::from_f32(result(i, if beta == 0.0 { 0.0 } else { (*to).to_f32() }));
            }
        }
    }
}
