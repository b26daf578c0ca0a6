//! Sums of columns of 16-bit floats, kept in f32 or in 16 bits: what mixed precision is for.
//!
//! # Math
//! `s ← round(s + x[i])`, one element after the other. With p significand bits, a sum of equal addends stops growing at
//! 2^p times the addend: there the addend is half the distance to the next representable number, and the tie rounds
//! back to the old sum. f16 has p = 11, bf16 p = 8, f32 p = 24.
//!
//! # Mapping
//! One thread per column, so that a warp's loads are adjacent. [`AHEAD`] loads are in flight before the first is added.
//!
//! # Numerics
//! A 16-bit sum is computed in f32 and then rounded: f32 has more than twice the bits plus two, so the double rounding
//! gives the same result as a single one.

use core::array;

use cuda_std::float::{Half, from_f32, to_f32};
use cuda_std::{kernel, thread};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Elements that a thread loads ahead at a time.
pub const AHEAD: usize = 8;

/// The type a sum is kept in.
pub trait Sum {
    /// A sum in its storage type.
    fn kept<T: Half>(sum: f32) -> f32;
}

/// 32 bits.
pub struct Wide;
/// The element type's own width.
pub struct Narrow;

impl Sum for Wide {
    #[inline(always)]
    fn kept<T: Half>(sum: f32) -> f32 {
        sum
    }
}

impl Sum for Narrow {
    #[inline(always)]
    fn kept<T: Half>(sum: f32) -> f32 {
        to_f32(from_f32::<T>(sum))
    }
}

/// `y[j]` = Σ `x[i, j]` over `n` rows of `columns` adjacent elements.
///
/// # Safety
/// `x` is valid for reads of `n` · `columns` elements and `y` for writes of `columns`.
#[kernel(dtypes(T: half), types(S: Wide, Narrow), block = BLOCK, no_spills)]
pub unsafe fn narrow_sums<T: Half, S: Sum>(x: *const T, y: *mut f32, n: u64, columns: u64) {
    let column = u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x());
    if column >= columns {
        return;
    }
    let at = |row: u64| (row * columns + column) as usize;
    let (mut sum, mut row) = (0.0, 0);
    while row + AHEAD as u64 <= n {
        let loaded: [T; AHEAD] = array::from_fn(|i| *x.add(at(row + i as u64)));
        for value in loaded {
            sum = S::kept::<T>(sum + to_f32(value));
        }
        row += AHEAD as u64;
    }
    while row < n {
        sum = S::kept::<T>(sum + to_f32(*x.add(at(row))));
        row += 1;
    }
    *y.add(column as usize) = sum;
}
