//! Step 1: coalesced, and the block's rows of A and columns of B in shared memory.
//!
//! Neighbouring threads of a warp now go along a row of C, so that their reads of B and stores to C are adjacent. A
//! block needs 16 rows of A and 16 columns of B, and each of their values 16 times: it reads them once into shared
//! memory and multiplies from there. Two barriers separate the reading from the multiplying.
//!
//! # Shared memory
//! Two strips of 16 × 368, 46 KiB; a longer k takes several pairs of strips. 368 is an odd multiple of 16, which puts the two rows of A that a
//! warp reads 16 banks apart.
//!
//! # Cost
//! 1/8 read from global memory a multiply-add, in 4 sectors a request, none of them wasted. 2 from shared memory: 128 wavefronts for what should take
//! 16. The strips fill shared memory: four blocks, half of the threads that a multiprocessor could have, and while a block reads its strips it multiplies
//! nothing.

use cuda_std::{kernel, math, shared, shared_field, thread};

use super::{SIDE, Sizes, THREADS, place};

/// Rows and columns of C a block computes.
pub const TILE: u32 = SIDE;
/// How much of k a strip holds.
const DEPTH: u32 = 368;

/// A strip of each operand.
#[repr(C, align(16))]
pub struct Shared {
    a: [f32; (TILE * DEPTH) as usize],
    b: [f32; (DEPTH * TILE) as usize],
}

/// C = A·B.
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes at their leading dimensions.
#[kernel(block = THREADS, shared = Shared, no_spills)]
pub unsafe fn sgemm_strips(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    let (across, down) = place();
    let (row, column) = (row0 + down, column0 + across);
    let strips = shared::dynamic::<Shared>();
    let (strip_a, strip_b) = (shared_field!(strips.a), shared_field!(strips.b));
    let mut sum = 0.0;
    let mut k0 = 0;
    while k0 < sizes.k {
        let depth = (sizes.k - k0).min(DEPTH);
        let mut at = 0;
        while at < depth {
            strip_a.at(down * DEPTH + at + across).write(a.get(row, k0 + at + across));
            strip_b.at((at + down) * TILE + across).write(b.get(k0 + at + down, column));
            at += SIDE;
        }
        thread::sync_threads();
        for k in 0..depth {
            sum = math::fma(strip_a.at(down * DEPTH + k).read(), strip_b.at(k * TILE + across).read(), sum);
        }
        thread::sync_threads();
        k0 += DEPTH;
    }
    sizes.c(c).set(row, column, sum);
}
