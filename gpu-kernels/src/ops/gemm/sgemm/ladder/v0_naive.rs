//! Step 0: one thread per element, and a warp down a column.
//!
//! Each thread walks along its row of A and its column of B. A warp's 32 threads have 16 rows and 2 columns: for every k they read A at 16
//! places a row apart, each from a sector of 32 bytes of which 4 are wanted, and they store C likewise. Of B a warp wants two neighbours, one sector.
//!
//! # Cost
//! Two reads from global memory a multiply-add, sixteen times what the caches can feed: 16 sectors for a value of A, 1 for one of B, and a store of
//! 16 sectors where 4 would do.

use cuda_std::{kernel, math};

use super::{SIDE, Sizes, THREADS, place};

/// Rows and columns of C a block computes.
pub const TILE: u32 = SIDE;

/// C = A·B.
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes at their leading dimensions.
#[kernel(block = THREADS, no_spills)]
pub unsafe fn sgemm_naive(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    // The other way round than in all later steps.
    let (down, across) = place();
    let (row, column) = (row0 + down, column0 + across);
    let mut sum = 0.0;
    for k in 0..sizes.k {
        sum = math::fma(a.get(row, k), b.get(k, column), sum);
    }
    sizes.c(c).set(row, column, sum);
}
