//! Step 2: a window that slides along k.
//!
//! Whole strips are not needed at any one time: 16 columns of A and 16 rows of B are multiplied, then the next 16 of
//! each replace them. A thread moves one value of each.
//!
//! # Shared memory
//! Two tiles of 16 × 16, 2 KiB.
//!
//! # Cost
//! Reads as in step 1, 1/8 from global and 2 from shared memory a multiply-add, but 23 times less shared memory. Registers are the limit now: six
//! blocks, three quarters of the threads that a multiprocessor can have, of which some multiply while others read. Two barriers every 16 multiply-adds
//! are the price.

use cuda_std::{kernel, math, shared, shared_field, thread};

use super::{SIDE, Sizes, THREADS, place};

/// Rows and columns of C a block computes.
pub const TILE: u32 = SIDE;
/// Depth of the window.
const DEPTH: u32 = SIDE;

/// A tile of each operand.
#[repr(C, align(16))]
pub struct Shared {
    a: [f32; (TILE * DEPTH) as usize],
    b: [f32; (DEPTH * TILE) as usize],
}

/// C = A·B.
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes at their leading dimensions.
#[kernel(block = THREADS, min_blocks = 6, shared = Shared, no_spills)]
pub unsafe fn sgemm_window(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    let (across, down) = place();
    let (row, column) = (row0 + down, column0 + across);
    let tiles = shared::dynamic::<Shared>();
    let (tile_a, tile_b) = (shared_field!(tiles.a), shared_field!(tiles.b));
    let mut sum = 0.0;
    for step in 0..sizes.k.div_ceil(DEPTH) {
        let k0 = step * DEPTH;
        tile_a.at(down * DEPTH + across).write(a.get(row, k0 + across));
        tile_b.at(down * TILE + across).write(b.get(k0 + down, column));
        thread::sync_threads();
        for k in 0..DEPTH {
            sum = math::fma(tile_a.at(down * DEPTH + k).read(), tile_b.at(k * TILE + across).read(), sum);
        }
        thread::sync_threads();
    }
    sizes.c(c).set(row, column, sum);
}
