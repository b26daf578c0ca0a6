//! Step 3: more results a thread, a stride apart.
//!
//! The same threads compute 64 × 64 of C: a thread has 4 × 4 results, 16 rows and 16 columns apart. Each of them is a product of a row and a
//! column of the tiles as before. At that stride the 16 neighbours across still read 16 neighbouring columns of B: no bank conflicts.
//!
//! # Shared memory
//! 64 × 16 of A and 16 × 64 of B, 8 KiB.
//!
//! # Cost
//! 1/32 read from global memory per multiply-add, a quarter of step 2, and a sixteenth of its barriers. As written,
//! every multiply-add reads both its factors from shared memory. The compiler finds that four of them read the same
//! value and keeps it in a register: 8 reads for 16 multiply-adds, a quarter as well. Step 6 makes that the principle.
//! Unrolling over the window takes many registers: `min_blocks` limits the kernel to 80, three blocks.

use cuda_std::{kernel, math, shared, shared_field, thread};

use super::{SIDE, Sizes, THREADS, nth, place};

/// Rows and columns of C a block computes.
pub const TILE: u32 = 64;
const DEPTH: u32 = 16;
/// A thread's rows, and its columns.
const EACH: usize = (TILE / SIDE) as usize;
/// Values of each tile that a thread moves.
const MOVED: usize = (TILE * DEPTH / THREADS) as usize;

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
pub unsafe fn sgemm_strided(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    let (across, down) = place();
    let tiles = shared::dynamic::<Shared>();
    let (tile_a, tile_b) = (shared_field!(tiles.a), shared_field!(tiles.b));
    let (from_a, from_b) = (tile_a.at(down * DEPTH), tile_b.at(across));
    let mut sums = [[0.0f32; EACH]; EACH];
    for step in 0..sizes.k.div_ceil(DEPTH) {
        let k0 = step * DEPTH;
        for i in 0..MOVED {
            let (row, k) = nth(i, DEPTH);
            tile_a.at(row * DEPTH + k).write(a.get(row0 + row, k0 + k));
            let (k, column) = nth(i, TILE);
            tile_b.at(k * TILE + column).write(b.get(k0 + k, column0 + column));
        }
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
