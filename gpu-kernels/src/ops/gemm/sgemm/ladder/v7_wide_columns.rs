//! Step 7: 16 bytes at a time along n.
//!
//! A thread's columns are two runs of four, 64 apart, instead of eight single ones: a row of B comes by two reads of 16 bytes, and a row of C leaves by
//! two stores. The 16 neighbours across read 256 adjacent bytes: no conflicts, because neighbours take neighbouring quads.
//!
//! # Shared memory
//! As in step 6.
//!
//! # Cost
//! 10 instructions that read shared memory for 64 multiply-adds instead of 16, in as many wavefronts. C is stored by a quarter of the instructions, 16
//! sectors each. At two blocks ptxas is one register short for sm_90a and spills it: hence no `no_spills`.

use cuda_std::{kernel, shared, shared_field, thread};

use super::{SIDE, Sizes, THREADS, multiply_row, nth_quad, place, read_quads, write_quad};

/// Rows and columns of C a block computes.
pub const TILE: u32 = 128;
const DEPTH: u32 = 8;
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
#[kernel(block = THREADS, min_blocks = 2, shared = Shared)]
pub unsafe fn sgemm_wide_columns(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    let (across, down) = place();
    let tiles = shared::dynamic::<Shared>();
    let (tile_a, tile_b) = (shared_field!(tiles.a), shared_field!(tiles.b));
    let (from_a, from_b) = (tile_a.at(down * DEPTH), tile_b.at(across * 4));
    let mut sums = [[0.0f32; 8]; 8];
    for step in 0..sizes.k.div_ceil(DEPTH) {
        let k0 = step * DEPTH;
        let (row, k) = nth_quad(0, DEPTH);
        write_quad(tile_a.at(row * DEPTH + k), a.quad(row0 + row, k0 + k));
        let (k, column) = nth_quad(0, TILE);
        write_quad(tile_b.at(k * TILE + column), b.quad(k0 + k, column0 + column));
        thread::sync_threads();
        for k in 0..DEPTH {
            let b = read_quads(from_b.add(k * TILE));
            for (i, sums) in sums.iter_mut().enumerate() {
                multiply_row(sums, from_a.add(i as u32 * SIDE * DEPTH + k).read(), b);
            }
        }
        thread::sync_threads();
    }
    for (i, sums) in sums.into_iter().enumerate() {
        sizes.c(c).set_quads(row0 + down + i as u32 * SIDE, column0 + across * 4, sums);
    }
}
