//! Single-precision matrix product on the CUDA cores, C = A·B.
//!
//! # Math
//! cᵢⱼ = Σₖ aᵢₖ·bₖⱼ, all row-major ("NN").
//!
//! # Layout
//! `a` is m × k, `b` is k × n, `c` is m × n, rows `lda`, `ldb` and `ldc` elements apart. `V` is how many elements a thread
//! loads at a time: 4 needs k and n to be multiples of 4 and the rows of `a` and `b` at multiples of 16 bytes, 1 takes anything.
//!
//! # Mapping
//! A block of 128 threads computes a 128 × 128 tile of C in steps of 8 along k. A thread owns 8 × 16 results, as 2 × 4 squares of
//! 4 × 4, 64 rows and 32 columns apart, so that neighbours read adjacent 16 bytes. The next step's tiles travel from global memory to
//! registers while the current one is multiplied, and into the other half of shared memory after it: one barrier a step. Two blocks fit
//! a multiprocessor, and one multiplies while the other waits at its barrier.
//!
//! # Shared memory
//! 2 × 8 × (132 + 128) × 4 B = 16 640 B. A is stored transposed, so that a thread's four rows are one 16-byte load; its
//! rows are padded by 4 to spread the transposing stores over the banks.
//!
//! # Numerics
//! f32 fused multiply-adds in the order of k. No tensor cores, so no tf32 rounding.
//!
//! # Cost
//! 2·m·n·k FLOPs against 4·(m·k + k·n + m·n) bytes: bound by the FMA units. Per k a thread reads 24 values from shared
//! memory, in 6 loads, for 128 multiply-adds; with 8 × 8 results it would read 16 for 64. With 8 × 8 results an H200
//! does 42 and 43 TFLOP/s for 4096³ and 8192³, and with 8 × 16 it does 44 and 47. 78% of a scheduler's cycles issue an
//! instruction, nine in ten of which are multiply-adds; in the other cycles neither of its two warps is ready. Where
//! TMA loads, [`hopper`] is faster: 52 TFLOP/s for 4096³ and 8192³.
//!
//! # Limits
//! m, n, k below 2³¹; 2³¹ − 1 tiles.
//!
//! # Sources
//! Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra" (SC 2008), for register tiling; Boehm, "How to
//! optimize a CUDA matmul kernel" (2022), for the walk from naive to this, which [`ladder`] takes.

pub mod hopper;
pub mod ladder;

use core::array;
use core::num::NonZeroU32;

use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, shared_field, thread};

/// Rows of C a block computes.
pub const BLOCK_M: u32 = 128;
/// Columns of C a block computes.
pub const BLOCK_N: u32 = 128;
/// Depth of a step.
pub const BLOCK_K: u32 = 8;
/// Threads of a block.
pub const THREADS: u32 = 128;

const A_ROW: u32 = BLOCK_M + 4;
/// Values of each operand that a thread stages between global and shared memory.
const STAGED: usize = (BLOCK_M * BLOCK_K / THREADS) as usize;
/// Rows and columns between a thread's squares of 4 × 4.
const DOWN: u32 = 64;
const ACROSS: u32 = 32;

/// Two buffers of both tiles.
#[repr(C, align(16))]
pub struct Shared {
    a: [[f32; (BLOCK_K * A_ROW) as usize]; 2],
    b: [[f32; (BLOCK_K * BLOCK_N) as usize]; 2],
}

/// A row-major matrix.
#[derive(Clone, Copy)]
struct Matrix {
    data: *const f32,
    rows: u32,
    columns: u32,
    ld: u64,
}

impl Matrix {
    /// The `V` values at (`row`, `column`), zero outside; `V` divides `columns`, so they are inside together.
    #[inline(always)]
    unsafe fn load<const V: usize>(self, row: u32, column: u32) -> Pack<f32, V> {
        if row < self.rows && column < self.columns {
            Pack::load_nc(self.data.add((u64::from(row) * self.ld + u64::from(column)) as usize))
        } else {
            Pack::splat(0.0)
        }
    }
}

/// The first row and column of the block's tile of C.
#[inline(always)]
fn place(m: u32) -> [u32; 2] {
    // Consecutive blocks go down m: they share b's columns, and their rows of a stay in L2 for the next column.
    let tiles_m = NonZeroU32::MIN.saturating_add((m - 1) / BLOCK_M);
    [thread::block_idx_x() % tiles_m * BLOCK_M, thread::block_idx_x() / tiles_m * BLOCK_N]
}

/// C = A·B for row-major `a` (m × k), `b` (k × n) and `c` (m × n).
///
/// # Safety
/// `a`, `b` and `c` are valid for those sizes at their leading dimensions; `V` divides k and n, and with `V` = 4
/// the rows of `a` and `b` start at multiples of 16 bytes.
#[kernel(values(V: 4, 1), block = THREADS, min_blocks = if V == 4 { 2 } else { 1 }, shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn sgemm<const V: usize>(
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    m: u32,
    n: u32,
    k: u32,
    lda: u64,
    ldb: u64,
    ldc: u64,
) {
    let [row0, column0] = place(m);
    let a = Matrix { data: a, rows: m, columns: k, ld: lda };
    let b = Matrix { data: b, rows: k, columns: n, ld: ldb };
    let tiles = shared::dynamic::<Shared>();
    let (tiles_a, tiles_b) = (shared_field!(tiles.a), shared_field!(tiles.b));

    let tid = thread::thread_idx_x();
    let v = V as u32;
    // Chunk i of a thread: where it is in the tile of A (8 wide) and of B (128 wide).
    let place_a = |i: usize| {
        let chunk = tid + i as u32 * THREADS;
        (chunk / (BLOCK_K / v), chunk % (BLOCK_K / v) * v)
    };
    let place_b = |i: usize| {
        let chunk = tid + i as u32 * THREADS;
        (chunk / (BLOCK_N / v), chunk % (BLOCK_N / v) * v)
    };
    type Staged<const V: usize> = [Pack<f32, V>; STAGED];
    let fetch = |step: u32| -> (Staged<V>, Staged<V>) {
        let k0 = step * BLOCK_K;
        let chunk = |i: usize| i < STAGED / V;
        (
            array::from_fn(|i| {
                let (row, column) = place_a(i);
                if chunk(i) { a.load(row0 + row, k0 + column) } else { Pack::splat(0.0) }
            }),
            array::from_fn(|i| {
                let (row, column) = place_b(i);
                if chunk(i) { b.load(k0 + row, column0 + column) } else { Pack::splat(0.0) }
            }),
        )
    };
    let put = |buffer: u32, (staged_a, staged_b): (Staged<V>, Staged<V>)| {
        let (to_a, to_b) = (tiles_a.at(buffer), tiles_b.at(buffer));
        for i in 0..STAGED / V {
            let (row, column) = place_a(i);
            for (e, value) in staged_a[i].0.into_iter().enumerate() {
                to_a.at((column + e as u32) * A_ROW + row).write(value);
            }
            let (row, column) = place_b(i);
            staged_b[i].store(to_b.at(row * BLOCK_N + column).as_ptr());
        }
    };

    // Four threads across and eight down a warp; two warps across and two down the block.
    let (lane, warp) = (tid % 32, tid / 32);
    let across = (warp % 2 * 4 + lane % 4) * 4;
    let down = (warp / 2 * 8 + lane / 4) * 4;
    let quad = |from: SharedPtr<f32>| Pack::<f32, 4>::load(from.as_ptr()).0;

    let mut acc = [[[[0.0f32; 4]; 4]; 4]; 2];
    let steps = k.div_ceil(BLOCK_K);
    put(0, fetch(0));
    thread::sync_threads();
    for step in 0..steps {
        // Past the last step this loads zeros.
        let staged = fetch(step + 1);
        let (from_a, from_b) = (tiles_a.at(step % 2), tiles_b.at(step % 2));
        for kk in 0..BLOCK_K {
            let rows: [[f32; 4]; 2] = array::from_fn(|i| quad(from_a.at(kk * A_ROW + down + i as u32 * DOWN)));
            let columns: [[f32; 4]; 4] = array::from_fn(|j| quad(from_b.at(kk * BLOCK_N + across + j as u32 * ACROSS)));
            for i in 0..8 {
                for j in 0..16 {
                    let sum = &mut acc[i / 4][i % 4][j / 4][j % 4];
                    *sum = math::fma(rows[i / 4][i % 4], columns[j / 4][j % 4], *sum);
                }
            }
        }
        put((step + 1) % 2, staged);
        thread::sync_threads();
    }

    let wide = ldc.is_multiple_of(4) && (c as usize).is_multiple_of(16);
    for j in 0..4 {
        let column = column0 + across + j as u32 * ACROSS;
        let whole = wide && column + 4 <= n;
        for i in 0..8 {
            let row = row0 + down + i as u32 / 4 * DOWN + i as u32 % 4;
            let results = acc[i / 4][i % 4][j];
            if row < m && column < n {
                let to = c.add((u64::from(row) * ldc + u64::from(column)) as usize);
                if whole {
                    Pack(results).store(to);
                } else {
                    for (e, result) in results.into_iter().enumerate() {
                        if column + (e as u32) < n {
                            *to.add(e) = result;
                        }
                    }
                }
            }
        }
    }
}
