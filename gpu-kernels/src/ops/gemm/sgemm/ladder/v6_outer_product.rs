//! Step 6: outer products, with registers as the second cache.
//!
//! The loops are interchanged. Instead of one result at a time along k, one k at a time for all results: a thread loads
//! 8 values of a column of A and 8 of a row of B into registers, and every pair of them gives a multiply-add. B keeps
//! its layout, and its conflicts are gone.
//!
//! # Shared memory
//! 128 × 8 of A and 8 × 128 of B, 8 KiB.
//!
//! # Cost
//! 16 reads from shared memory for 64 multiply-adds, 16 wavefronts in the time of 16: the first step that shared memory can feed. 1/64 from global
//! memory. 64 sums and 16 values take registers, all 128 of them: two blocks fit a multiprocessor, a quarter of its threads, but each has 64
//! multiply-adds to do that do not wait for each other.

use core::array;

use cuda_std::{kernel, shared, shared_field, thread};

use super::{SIDE, Sizes, THREADS, multiply, nth_quad, place, write_quad};

/// Rows and columns of C a block computes.
pub const TILE: u32 = 128;
const DEPTH: u32 = 8;
/// A thread's rows, and its columns.
const EACH: usize = (TILE / SIDE) as usize;
// A thread moves one quad of each tile.
const _: () = assert!(TILE * DEPTH == 4 * THREADS);

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
#[kernel(block = THREADS, min_blocks = 2, shared = Shared, no_spills)]
pub unsafe fn sgemm_outer_product(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    let (across, down) = place();
    let tiles = shared::dynamic::<Shared>();
    let (tile_a, tile_b) = (shared_field!(tiles.a), shared_field!(tiles.b));
    let (from_a, from_b) = (tile_a.at(down * DEPTH), tile_b.at(across));
    let mut sums = [[0.0f32; EACH]; EACH];
    for step in 0..sizes.k.div_ceil(DEPTH) {
        let k0 = step * DEPTH;
        let (row, k) = nth_quad(0, DEPTH);
        write_quad(tile_a.at(row * DEPTH + k), a.quad(row0 + row, k0 + k));
        let (k, column) = nth_quad(0, TILE);
        write_quad(tile_b.at(k * TILE + column), b.quad(k0 + k, column0 + column));
        thread::sync_threads();
        for k in 0..DEPTH {
            let a = array::from_fn(|i| from_a.add(i as u32 * SIDE * DEPTH + k).read());
            let b = array::from_fn(|j| from_b.add(k * TILE + j as u32 * SIDE).read());
            multiply(&mut sums, a, b);
        }
        thread::sync_threads();
    }
    sizes.c(c).set_strided(row0 + down, column0 + across, sums);
}
