//! Step 5: shared memory 16 bytes at a time, the wrong way.
//!
//! If wide accesses help global memory, why not shared memory: four values of k of a row of A, and four of a column of B. The row lies that way;
//! the column has to be stored that way, so B is transposed on its way in. That is where it goes wrong. Shared memory has 32 banks of 4 bytes, and gives
//! a value of each at a time. Columns of B are now 16 words apart, so those of 16 neighbours start in two banks.
//!
//! # Shared memory
//! 64 × 16 of A and 64 × 16 of B transposed, 8 KiB.
//!
//! # Cost
//! Global memory as in step 4 and a quarter of its instructions for shared memory, but 72 wavefronts where step 4 has 32, of which 48 are
//! conflicts: a warp's 16 different quads of B come two at a time, where eight would be possible. Storing the transposed tile, 16 lanes write to one
//! bank: 15 of 16 wavefronts of those stores are conflicts.

use cuda_std::{kernel, math, shared, shared_field, thread};

use super::{SIDE, Sizes, THREADS, nth_quad, place, read_quad, write_quad};

/// Rows and columns of C a block computes.
pub const TILE: u32 = 64;
const DEPTH: u32 = 16;
/// A thread's rows, and its columns.
const EACH: usize = (TILE / SIDE) as usize;
// A thread moves one quad of each tile.
const _: () = assert!(TILE * DEPTH == 4 * THREADS);

/// A tile of A, and one of B transposed.
#[repr(C, align(16))]
pub struct Shared {
    a: [f32; (TILE * DEPTH) as usize],
    b: [f32; (TILE * DEPTH) as usize],
}

/// C = A·B.
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes at their leading dimensions.
#[kernel(block = THREADS, min_blocks = 3, shared = Shared, no_spills)]
pub unsafe fn sgemm_conflicts(a: *const f32, b: *const f32, c: *mut f32, sizes: Sizes) {
    let (a, b) = (sizes.a(a), sizes.b(b));
    let (row0, column0) = sizes.tile(TILE);
    let (across, down) = place();
    let tiles = shared::dynamic::<Shared>();
    let (tile_a, tile_b) = (shared_field!(tiles.a), shared_field!(tiles.b));
    let (from_a, from_b) = (tile_a.at(down * DEPTH), tile_b.at(across * DEPTH));
    let mut sums = [[0.0f32; EACH]; EACH];
    for step in 0..sizes.k.div_ceil(DEPTH) {
        let k0 = step * DEPTH;
        let (row, k) = nth_quad(0, DEPTH);
        write_quad(tile_a.at(row * DEPTH + k), a.quad(row0 + row, k0 + k));
        let (k, column) = nth_quad(0, TILE);
        let to = tile_b.at(column * DEPTH + k);
        for (e, value) in b.quad(k0 + k, column0 + column).into_iter().enumerate() {
            to.add(e as u32 * DEPTH).write(value);
        }
        thread::sync_threads();
        for k in (0..DEPTH).step_by(4) {
            for i in 0..EACH {
                for j in 0..EACH {
                    let a = read_quad(from_a.add(i as u32 * SIDE * DEPTH + k));
                    let b = read_quad(from_b.add(j as u32 * SIDE * DEPTH + k));
                    for e in 0..4 {
                        sums[i][j] = math::fma(a[e], b[e], sums[i][j]);
                    }
                }
            }
        }
        thread::sync_threads();
    }
    sizes.c(c).set_strided(row0 + down, column0 + across, sums);
}
