//! Step 4: global memory 16 bytes at a time.
//!
//! A thread moves four neighbours of each tile by one instruction instead of one value by each of four. Rows that do not start at multiples of 16
//! bytes, and the last columns, are still read one by one.
//!
//! # Shared memory
//! As in step 3.
//!
//! # Cost
//! The bytes of step 3 by a quarter of the instructions, their addresses and their tests for the edge.

use cuda_std::{kernel, math, shared, shared_field, thread};

use super::{SIDE, Sizes, THREADS, nth_quad, place, write_quad};

/// Rows and columns of C a block computes.
pub const TILE: u32 = 64;
const DEPTH: u32 = 16;
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
#[kernel(block = THREADS, min_blocks = 3, shared = Shared, no_spills)]
pub unsafe fn sgemm_vectorised(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
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
            for i in 0..EACH {
                for j in 0..EACH {
                    let a = from_a.add(i as u32 * SIDE * DEPTH + k).read();
                    let b = from_b.add(k * TILE + j as u32 * SIDE).read();
                    sums[i][j] = math::fma(a, b, sums[i][j]);
                }
            }
        }
        thread::sync_threads();
    }
    sizes.c(c).set_strided(row0 + down, column0 + across, sums);
}
