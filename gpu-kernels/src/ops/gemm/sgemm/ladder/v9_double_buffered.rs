//! Step 9: double buffering.
//!
//! Until now a block read its tiles, waited for them, multiplied, and waited again. With two pairs of tiles the next
//! pair's reads are in flight while this pair is multiplied: they are issued into registers before the multiplication,
//! and stored after it into the pair that no thread reads. One barrier per step is enough: it ensures both that the new
//! pair is complete and that the old one is free.
//!
//! # Shared memory
//! Two pairs of step 8's tiles, 16.3 KiB.
//!
//! # Cost
//! Everything as in step 8, and 8 registers for what is under way; the wait for global memory, hundreds of cycles a
//! step, lies behind 512 multiply-adds per thread.
//!
//! # What is left
//! A thread reads 16 values from shared memory for 64 multiply-adds, as many cycles of the one as of the other. [`sgemm`](crate::ops::gemm::sgemm::sgemm)
//! gives it twice the columns, 24 for 128, and half as many threads to a tile; it also decides about alignment on the host. Beyond that lie the
//! tensor cores.

use cuda_std::{kernel, shared, shared_field, thread};

use super::v8_transposed::{A_ROW, DEPTH, multiply_tiles, put};
use super::{Sizes, THREADS, nth_quad, place};

pub use super::v8_transposed::TILE;

/// Two tiles of each operand.
#[repr(C, align(16))]
pub struct Shared {
    a: [[f32; (DEPTH * A_ROW) as usize]; 2],
    b: [[f32; (DEPTH * TILE) as usize]; 2],
}

/// C = A·B.
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes at their leading dimensions.
#[kernel(block = THREADS, min_blocks = 2, shared = Shared, no_spills)]
pub unsafe fn sgemm_double_buffered(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    let (across, down) = place();
    let tiles = shared::dynamic::<Shared>();
    let (tiles_a, tiles_b) = (shared_field!(tiles.a), shared_field!(tiles.b));
    let pair = |step: u32| (tiles_a.at(step % 2).cast(), tiles_b.at(step % 2).cast());
    let fetch = |step: u32| {
        let k0 = step * DEPTH;
        let ((row, k_a), (k_b, column)) = (nth_quad(0, DEPTH), nth_quad(0, TILE));
        (a.quad(row0 + row, k0 + k_a), b.quad(k0 + k_b, column0 + column))
    };
    let store = |step: u32, (a, b): ([f32; 4], [f32; 4])| {
        let (tile_a, tile_b) = pair(step);
        put(tile_a, tile_b, a, b);
    };
    let mut sums = [[0.0f32; 8]; 8];
    store(0, fetch(0));
    thread::sync_threads();
    for step in 0..sizes.k.div_ceil(DEPTH) {
        // Past the last step this loads zeros.
        let next = fetch(step + 1);
        let (tile_a, tile_b) = pair(step);
        multiply_tiles(&mut sums, tile_a, tile_b);
        store(step + 1, next);
        thread::sync_threads();
    }
    sizes.c(c).set_quarters(row0 + down * 4, column0 + across * 4, sums);
}
