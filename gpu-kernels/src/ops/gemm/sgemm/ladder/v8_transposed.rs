//! Step 8: A transposed through registers.
//!
//! A column of A is spread over the rows of its tile, so its 8 values take 8 reads. A thread has its quad of A in
//! registers anyway before storing it: it stores the four values one below the other, so that a column becomes a row,
//! which two reads of 16 bytes load.
//!
//! # Shared memory
//! 8 × 132 of A transposed and 8 × 128 of B, 8.1 KiB. The 4 that pad a row of A put the two quads of neighbouring threads 16 banks apart: the
//! transposing stores have no conflicts, as those of B had in step 5.
//!
//! # Cost
//! 4 instructions that read shared memory for 64 multiply-adds, 12 wavefronts: for the first time arithmetic takes longer.

use cuda_std::shared::SharedPtr;
use cuda_std::{kernel, shared, shared_field, thread};

use super::{Sizes, THREADS, multiply, nth_quad, place, read_quads, write_quad};

/// Rows and columns of C a block computes.
pub const TILE: u32 = 128;
pub(super) const DEPTH: u32 = 8;
/// A row of A's transposed tile, padded.
pub(super) const A_ROW: u32 = TILE + 4;
// A thread moves one quad of each tile.
const _: () = assert!(TILE * DEPTH == 4 * THREADS);

/// A tile of A, transposed, and one of B.
#[repr(C, align(16))]
pub struct Shared {
    a: [f32; (DEPTH * A_ROW) as usize],
    b: [f32; (DEPTH * TILE) as usize],
}

/// Stores the thread's quads of both tiles.
#[inline(always)]
pub(super) unsafe fn put(tile_a: SharedPtr<f32>, tile_b: SharedPtr<f32>, a: [f32; 4], b: [f32; 4]) {
    let (row, k) = nth_quad(0, DEPTH);
    let to = tile_a.add(k * A_ROW + row);
    for (e, value) in a.into_iter().enumerate() {
        to.add(e as u32 * A_ROW).write(value);
    }
    let (k, column) = nth_quad(0, TILE);
    write_quad(tile_b.add(k * TILE + column), b);
}

/// Adds the products of two tiles to the thread's results.
#[inline(always)]
pub(super) unsafe fn multiply_tiles(sums: &mut [[f32; 8]; 8], tile_a: SharedPtr<f32>, tile_b: SharedPtr<f32>) {
    let (across, down) = place();
    let (from_a, from_b) = (tile_a.add(down * 4), tile_b.add(across * 4));
    for k in 0..DEPTH {
        multiply(sums, read_quads(from_a.add(k * A_ROW)), read_quads(from_b.add(k * TILE)));
    }
}

/// C = A·B.
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes at their leading dimensions.
#[kernel(block = THREADS, min_blocks = 2, shared = Shared, no_spills)]
pub unsafe fn sgemm_transposed(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    let (across, down) = place();
    let tiles = shared::dynamic::<Shared>();
    let (tile_a, tile_b) = (shared_field!(tiles.a).cast(), shared_field!(tiles.b).cast());
    let mut sums = [[0.0f32; 8]; 8];
    for step in 0..sizes.k.div_ceil(DEPTH) {
        let k0 = step * DEPTH;
        let ((row, k_a), (k_b, column)) = (nth_quad(0, DEPTH), nth_quad(0, TILE));
        put(tile_a, tile_b, a.quad(row0 + row, k0 + k_a), b.quad(k0 + k_b, column0 + column));
        thread::sync_threads();
        multiply_tiles(&mut sums, tile_a, tile_b);
        thread::sync_threads();
    }
    sizes.c(c).set_quarters(row0 + down * 4, column0 + across * 4, sums);
}
