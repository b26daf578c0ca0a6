//! The path for every GPU from Ampere on: cp.async fills a ring of shared-memory stages, ldmatrix and mma.sync drain it.
//!
//! Eight warps share a 128 × 128 tile of C, two down and four across, 64 × 32 each: four by four products of
//! m16n8k16 a k-step. The ring is [`STAGES`] deep, so three copies are in flight behind the stage being read.
//!
//! `V` is how many elements a thread copies at a time: 8 (16 bytes by cp.async) needs rows of a and b at multiples of 16
//! bytes, 1 (through a register) takes anything.

use core::num::NonZeroU32;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{bf16, cp_async, kernel, matrix, mma, shared_field, thread};

/// Rows of C a block computes.
pub const BLOCK_M: u32 = 128;
/// Columns of C a block computes.
pub const BLOCK_N: u32 = 128;
/// Depth of a stage.
pub const BLOCK_K: u32 = 32;
/// Stages of the ring.
pub const STAGES: u32 = 4;
/// Threads of a block.
pub const THREADS: u32 = 256;

const WARP_M: u32 = 64;
const WARP_N: u32 = 32;
const WARPS_N: u32 = BLOCK_N / WARP_N;
/// Products of 16 rows and of 8 columns in a warp's part of the tile.
const MMA_M: usize = (WARP_M / 16) as usize;
const MMA_N: usize = (WARP_N / 8) as usize;

/// The ring.
#[repr(C, align(128))]
pub struct Shared {
    a: [[bf16; (BLOCK_M * BLOCK_K) as usize]; STAGES as usize],
    b: [[bf16; (BLOCK_N * BLOCK_K) as usize]; STAGES as usize],
}

/// Where 16-byte chunk `chunk` (0..4) of row `row` is in a tile of 64-byte rows, in elements.
///
/// Two rows fill the 32 banks; the exclusive or spreads the eight rows of an ldmatrix over them without conflict.
#[inline(always)]
fn swizzle(row: u32, chunk: u32) -> u32 {
    row * BLOCK_K + (chunk ^ (row / 2 % 4)) * 8
}

/// A thread's part in copying one operand, a row-major matrix: the chunk of `V` elements at (row, column) of every tile, and
/// those [`ROWS`](Self::ROWS) rows further down.
#[derive(Clone, Copy)]
struct Copier<const V: usize> {
    /// The thread's first element of the first tile.
    from: *const bf16,
    ld: u64,
    /// Rows from the thread's first to the end of the matrix, and elements of k from its first.
    rows_left: u32,
    k_left: u32,
    /// Where the first chunk goes in a tile.
    to: u32,
}

impl<const V: usize> Copier<V> {
    /// Rows that the block copies at a time. A multiple of 8, so that all of a thread's rows are swizzled alike.
    const ROWS: u32 = THREADS / (BLOCK_K / V as u32);

    #[inline(always)]
    unsafe fn new(data: *const bf16, rows: u32, k: u32, ld: u64, row0: u32) -> Self {
        let per_row = BLOCK_K / V as u32;
        let (row, column) = (thread::thread_idx_x() / per_row, thread::thread_idx_x() % per_row * V as u32);
        Self {
            from: data.wrapping_add((u64::from(row0 + row) * ld + u64::from(column)) as usize),
            ld,
            rows_left: rows.saturating_sub(row0 + row),
            k_left: k.saturating_sub(column),
            to: swizzle(row, column / 8) + column % 8,
        }
    }

    /// Starts copying the tile at `k0` to `tile`; what lies outside the matrix becomes zero.
    #[inline(always)]
    unsafe fn copy(self, tile: SharedPtr<bf16>, k0: u32) {
        let mut row = 0;
        while row < BLOCK_M {
            let inside = k0 < self.k_left && row < self.rows_left;
            let from = self.from.wrapping_add(k0 as usize + (u64::from(row) * self.ld) as usize);
            let to = tile.add(self.to + row * BLOCK_K);
            if V == 8 {
                // The last chunk of a row may reach past k: only what is inside is read.
                let bytes = if inside { (self.k_left - k0).min(8) * 2 } else { 0 };
                cp_async::copy_16_zero_fill(to, from, bytes);
            } else {
                to.write(if inside { *from } else { bf16::ZERO });
            }
            row += Self::ROWS;
        }
    }
}

/// C = A·Bᵀ for row-major bf16 `a` (m × k), `b` (n × k) and `c` (m × n), rows `lda`, `ldb` and `ldc` elements apart.
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes; with `V` = 8 the rows of `a` and `b` start at multiples of 16 bytes.
#[kernel(values(V: 8, 1), block = THREADS, shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_bf16_mma<const V: usize>(
    a: *const bf16,
    b: *const bf16,
    c: *mut bf16,
    m: u32,
    n: u32,
    k: u32,
    lda: u64,
    ldb: u64,
    ldc: u64,
) {
    let ring = shared::dynamic::<Shared>();
    let (ring_a, ring_b) = (shared_field!(ring.a), shared_field!(ring.b));
    let stage_a = |step: u32| ring_a.at(step % STAGES).cast::<bf16>();
    let stage_b = |step: u32| ring_b.at(step % STAGES).cast::<bf16>();
    // Consecutive blocks go down m: they share b, and their rows of a stay in L2 for the next column.
    let tiles_m = NonZeroU32::MIN.saturating_add((m - 1) / BLOCK_M);
    let row0 = thread::block_idx_x() % tiles_m * BLOCK_M;
    let column0 = thread::block_idx_x() / tiles_m * BLOCK_N;
    let a = Copier::<V>::new(a, m, k, lda, row0);
    let b = Copier::<V>::new(b, n, k, ldb, column0);
    let lane = thread::thread_idx_x() % 32;
    let warp = thread::thread_idx_x() / 32;
    let (warp_m, warp_n) = (warp / WARPS_N * WARP_M, warp % WARPS_N * WARP_N);

    let steps = k.div_ceil(BLOCK_K);
    let fetch = |step: u32| {
        if step < steps {
            a.copy(stage_a(step), step * BLOCK_K);
            b.copy(stage_b(step), step * BLOCK_K);
        }
        if V == 8 {
            // An empty group keeps the count of groups in flight the same at the end.
            cp_async::commit();
        }
    };
    for step in 0..STAGES - 1 {
        fetch(step);
    }

    let mut acc = [[[0.0f32; 4]; MMA_N]; MMA_M];
    for step in 0..steps {
        // The group of this step has landed, and everybody is done with the stage that the next copy overwrites.
        if V == 8 {
            cp_async::wait_group::<{ STAGES - 2 }>();
        }
        thread::sync_threads();
        fetch(step + STAGES - 1);
        for half in 0..BLOCK_K / 16 {
            let mut fragments_a = [[0u32; 4]; MMA_M];
            for (i, fragment) in fragments_a.iter_mut().enumerate() {
                let row = warp_m + i as u32 * 16 + lane % 16;
                *fragment = matrix::load_x4(stage_a(step).add(swizzle(row, half * 2 + lane / 16)));
            }
            let mut fragments_b = [[0u32; 4]; MMA_N / 2];
            for (j, fragment) in fragments_b.iter_mut().enumerate() {
                // Two blocks of eight columns: lanes 0-15 point at the first, 16-31 at the second.
                let row = warp_n + j as u32 * 16 + lane / 16 * 8 + lane % 8;
                *fragment = matrix::load_x4(stage_b(step).add(swizzle(row, half * 2 + lane / 8 % 2)));
            }
            for i in 0..MMA_M {
                for j in 0..MMA_N {
                    let [b0, b1, b2, b3] = fragments_b[j / 2];
                    let b = if j % 2 == 0 { [b0, b1] } else { [b2, b3] };
                    mma::m16n8k16_bf16(&mut acc[i][j], fragments_a[i], b);
                }
            }
        }
    }

    for i in 0..MMA_M {
        for j in 0..MMA_N {
            let row = row0 + warp_m + i as u32 * 16 + lane / 4;
            let column = column0 + warp_n + j as u32 * 8 + lane % 4 * 2;
            for half in 0..2 {
                let row = row + half as u32 * 8;
                if row >= m {
                    continue;
                }
                let at = c.add((u64::from(row) * ldc + u64::from(column)) as usize);
                for (x, value) in [acc[i][j][half * 2], acc[i][j][half * 2 + 1]].into_iter().enumerate() {
                    if column + (x as u32) < n {
                        *at.add(x) = Element::from_f32(value);
                    }
                }
            }
        }
    }
}
