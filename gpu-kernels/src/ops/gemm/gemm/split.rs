//! The sum of parts of k, which products with few tiles are split into so that all multiprocessors have some.
//!
//! # Math
//! C = α·Σₛ Pₛ + β·C, the parts in order: the same result every time. With β = 0 C is not read.
//!
//! # Layout
//! The parts are dense m × n in f32, one behind the other; `c` is m × n, its rows any distance apart.
//!
//! # Mapping
//! `V` neighbours a thread, of one row.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32, rounded once.
//!
//! # Cost
//! 4·m·n bytes a part, which the product has just written: up to 17 MB, from L2, for as many 256 × 256 tiles as an H200 multiplies at a time.
//!
//! # Limits
//! (2³¹ − 1) · 1024 elements.
//!
//! # Sources
//! Osama et al., "Stream-K" (arXiv:2301.03598), on splitting k.

use core::array;
use core::num::NonZeroU64;

use cuda_std::float::Element;
use cuda_std::launch::Fields;
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread};

use super::super::epilogue::{Epilogue, Factor};
use super::super::hopper::at_least_one;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Parts whose elements are on the way at a time.
const LOADS: u32 = 4;

/// What there is to sum.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parts {
    /// Elements from a row of C to the next.
    pub ldc: u64,
    /// Rows of C.
    pub m: u32,
    /// Columns of C.
    pub n: u32,
    /// Parts of it.
    pub parts: u32,
    /// Factor of their sum.
    pub alpha: f32,
    /// Factor of what C holds.
    pub beta: f32,
    /// Zero.
    pub padding: u32,
}

// SAFETY: a u64 and 6 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Parts {}

/// C = α·Σ parts + β·C; α times `scale`, unless that is null.
///
/// # Safety
/// `parts` is valid for reads and `c` for reads and writes of these sizes; with `V` = 4 n and the distance of C's rows are multiples of 4, and both
/// start at a multiple of four elements; there is a thread for every `V` elements; `scale` is null or valid for a read.
#[kernel(dtypes(C: float), values(V: 4, 1), block = THREADS, no_spills)]
pub unsafe fn gemm_sum<C: Element, const V: usize>(parts: *const f32, c: *mut C, scale: *const f32, of: Parts) {
    let Parts { ldc, m, n, parts: count, alpha, beta, .. } = of;
    let index = (u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x())) * V as u64;
    let each = u64::from(m) * u64::from(n);
    if index >= each {
        return;
    }
    let part = |i: u32| Pack::<f32, V>::load(parts.add((u64::from(i) * each + index) as usize)).0;
    let mut sums = [0.0; V];
    let mut add = |values: [f32; V]| sums = array::from_fn(|e| sums[e] + values[e]);
    let mut i = 0;
    while i + LOADS <= count {
        let loaded: [_; LOADS as usize] = array::from_fn(|at| part(i + at as u32));
        loaded.into_iter().for_each(&mut add);
        i += LOADS;
    }
    while i < count {
        add(part(i));
        i += 1;
    }
    let n = NonZeroU64::from(at_least_one(n));
    let to = c.add((index / n * ldc + index % n) as usize);
    let factor = Factor::of(alpha, scale).factor();
    let old = if beta == 0.0 { [0.0; V] } else { Pack::<C, V>::load(to).to_f32().map(|old| beta * old) };
    Pack::<C, V>::from_f32(array::from_fn(|e| math::fma(factor, sums[e], old[e]))).store(to);
}
