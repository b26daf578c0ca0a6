//! The way to [`sgemm`](super::sgemm), one step per file: each file states what the step changes, why, and what that
//! costs.
//!
//! Every step computes the same C = A·B for any m, n and k and any leading dimensions, and can be run, checked, timed and counted by
//! its name: `warpsmith verify sgemm --variant v3`, `warpsmith analyze sgemm --variant v3`, `warpsmith bench sgemm`.
//!
//! | step | tile of C | a thread's part | what is new |
//! |---|---|---|---|
//! | [`v0_naive`] | 16 × 16 | 1 | an element a thread, and a warp the wrong way round |
//! | [`v1_strips`] | 16 × 16 | 1 | coalesced; the block's rows of A and columns of B in shared memory |
//! | [`v2_window`] | 16 × 16 | 1 | only a window of them, which slides along k |
//! | [`v3_strided`] | 64 × 64 | 4 × 4, 16 apart | more results for the same tiles |
//! | [`v4_vectorised`] | 64 × 64 | 4 × 4, 16 apart | global memory 16 bytes at a time |
//! | [`v5_conflicts`] | 64 × 64 | 4 × 4, 16 apart | shared memory 16 bytes at a time along k, which B's layout punishes |
//! | [`v6_outer_product`] | 128 × 128 | 8 × 8, 16 apart | registers as the second cache |
//! | [`v7_wide_columns`] | 128 × 128 | 8 × 8, columns by fours | B and C 16 bytes at a time along n |
//! | [`v8_transposed`] | 128 × 128 | 8 × 8, in quarters | A too: transposed on its way into shared memory |
//! | [`v9_double_buffered`] | 128 × 128 | 8 × 8, in quarters | the next tiles travel while these are multiplied |
//! | [`sgemm`](super::sgemm) | 128 × 128 | 8 × 8, in quarters | a warp's part square, and no test of alignment in the loop |
//!
//! # What to count
//! A multiprocessor does 128 multiply-adds per cycle: 64 of every thread of a warp take 16 cycles. In that time its
//! shared memory serves 16 wavefronts, of a value from each bank, and L2 gives about 256 values, 1/8 for each
//! multiply-add. A step that needs more waits for memory and not for arithmetic.
//!
//! A tile of T × T reads 2·T values of A and B for T² multiply-adds: 2/T from global memory. A thread's t × t results
//! take 2·t values for t²: 2/t from shared memory. The tile's size reduces the former, the thread's part the latter,
//! and registers limit the second.
//!
//! | step | global reads a multiply-add | sectors a request (least) | shared wavefronts for 64 of a warp | of these conflicts | registers | blocks |
//! |---|---|---|---|---|---|---|
//! | v0 | 2 | 8.5 (2.5) | – | – | 32 | 8 |
//! | v1 | 1/8 | 4 (4) | 128 | 0 | 32 | 4 |
//! | v2 | 1/8 | 4 (4) | 128 | 0 | 40 | 6 |
//! | v3 | 1/32 | 4 (4) | 32 | 0 | 80 | 3 |
//! | v4 | 1/32 | 16 (16) | 32 | 0 | 80 | 3 |
//! | v5 | 1/32 | 16 (16) | 72 | 48 | 80 | 3 |
//! | v6 | 1/64 | 16 (16) | 16 | 0 | 128 | 2 |
//! | v7 | 1/64 | 16 (16) | 16 | 0 | 128 | 2 |
//! | v8 | 1/64 | 16 (16) | 12 | 0 | 123 | 2 |
//! | v9 | 1/64 | 16 (16) | 12 | 0 | 128 | 2 |
//! | `sgemm` | 1/64 | 16 (16) | 12 | 0 | 125 | 2 |
//!
//! Requests and wavefronts are those of reads, as `warpsmith analyze sgemm --variant vN --case "m=128 n=128 k=16"`
//! counts them in the simulator; registers are those of sm_90a, and blocks are the number that then fits a Hopper
//! multiprocessor. A request of 16 bytes per thread takes at least 16 sectors, one of 4 bytes at least 4.

pub mod v0_naive;
pub mod v1_strips;
pub mod v2_window;
pub mod v3_strided;
pub mod v4_vectorised;
pub mod v5_conflicts;
pub mod v6_outer_product;
pub mod v7_wide_columns;
pub mod v8_transposed;
pub mod v9_double_buffered;

use core::array;
use core::num::NonZeroU32;

use cuda_std::launch::Fields;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{math, thread};

/// Threads of a block: a square of [`SIDE`].
pub const THREADS: u32 = SIDE * SIDE;
/// Threads along a side of the block.
pub const SIDE: u32 = 16;

/// What a step computes: row-major `a` (m × k), `b` (k × n) and `c` (m × n), rows that many elements apart.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sizes {
    /// Elements from a row of A to the next.
    pub lda: u64,
    /// The same of B.
    pub ldb: u64,
    /// The same of C.
    pub ldc: u64,
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// Zero.
    pub padding: u32,
}

// SAFETY: 3 u64 and 4 u32: no padding, alignment 8.
unsafe impl Fields for Sizes {}

/// Where the thread is in the block's square: 16 neighbours across, then down. A warp has two rows of it.
#[inline(always)]
fn place() -> (u32, u32) {
    (thread::thread_idx_x() % SIDE, thread::thread_idx_x() / SIDE)
}

/// Row and column of the element that is the thread's `i`-th when the block moves a tile of that many columns: neighbours move
/// neighbouring elements.
#[inline(always)]
fn nth(i: usize, columns: u32) -> (u32, u32) {
    let at = thread::thread_idx_x() + i as u32 * THREADS;
    (at / columns, at % columns)
}

/// [`nth`] by fours: the first of four neighbouring columns.
#[inline(always)]
fn nth_quad(i: usize, columns: u32) -> (u32, u32) {
    let (row, quad) = nth(i, columns / 4);
    (row, quad * 4)
}

impl Sizes {
    /// First row and first column of the block's tile. Consecutive blocks go down m: they share columns of B.
    #[inline(always)]
    fn tile(&self, side: u32) -> (u32, u32) {
        let down = NonZeroU32::MIN.saturating_add((self.m - 1) / side);
        (thread::block_idx_x() % down * side, thread::block_idx_x() / down * side)
    }

    #[inline(always)]
    fn a(&self, data: *const f32) -> Matrix {
        Matrix::new(data, self.m, self.k, self.lda)
    }

    #[inline(always)]
    fn b(&self, data: *const f32) -> Matrix {
        Matrix::new(data, self.k, self.n, self.ldb)
    }

    #[inline(always)]
    fn c(&self, data: *mut f32) -> Output {
        Output(Matrix::new(data, self.m, self.n, self.ldc))
    }
}

/// A row-major matrix in global memory.
#[derive(Clone, Copy)]
struct Matrix {
    data: *const f32,
    rows: u32,
    columns: u32,
    ld: u64,
    /// Whether every row starts at a multiple of 16 bytes.
    wide: bool,
}

impl Matrix {
    #[inline(always)]
    fn new(data: *const f32, rows: u32, columns: u32, ld: u64) -> Self {
        Self { data, rows, columns, ld, wide: ld.is_multiple_of(4) && (data as usize).is_multiple_of(16) }
    }

    #[inline(always)]
    fn at(self, row: u32, column: u32) -> *const f32 {
        self.data.wrapping_add((u64::from(row) * self.ld + u64::from(column)) as usize)
    }

    /// The number of elements of a row from `column` on.
    #[inline(always)]
    fn inside(self, row: u32, column: u32) -> u32 {
        if row < self.rows { self.columns.saturating_sub(column) } else { 0 }
    }

    /// The value at (`row`, `column`), zero outside.
    #[inline(always)]
    unsafe fn get(self, row: u32, column: u32) -> f32 {
        let [value] = if self.inside(row, column) > 0 { Pack::load_nc(self.at(row, column)).0 } else { [0.0] };
        value
    }

    /// Four values of a row from `column` on, zero outside: by one access if they are aligned, otherwise one by one.
    #[inline(always)]
    unsafe fn quad(self, row: u32, column: u32) -> [f32; 4] {
        let (from, inside) = (self.at(row, column), self.inside(row, column));
        if self.wide && inside >= 4 {
            return Pack::load_nc(from).0;
        }
        array::from_fn(|e| {
            let [value] = if (e as u32) < inside { Pack::load_nc(from.wrapping_add(e)).0 } else { [0.0] };
            value
        })
    }
}

/// C.
#[derive(Clone, Copy)]
struct Output(Matrix);

impl Output {
    /// Stores a value, if it is inside.
    #[inline(always)]
    unsafe fn set(self, row: u32, column: u32, value: f32) {
        let Self(c) = self;
        if c.inside(row, column) > 0 {
            c.at(row, column).cast_mut().write(value);
        }
    }

    /// Stores four values of a row from `column` on, those that are inside.
    #[inline(always)]
    unsafe fn set_quad(self, row: u32, column: u32, values: [f32; 4]) {
        let Self(c) = self;
        let (to, inside) = (c.at(row, column).cast_mut(), c.inside(row, column));
        if c.wide && inside >= 4 {
            Pack(values).store(to);
        } else {
            for (e, value) in values.into_iter().enumerate() {
                if (e as u32) < inside {
                    to.wrapping_add(e).write(value);
                }
            }
        }
    }

    /// Stores a thread's results that lie [`SIDE`] apart, from (`row`, `column`) on.
    #[inline(always)]
    unsafe fn set_strided<const N: usize>(self, row: u32, column: u32, results: [[f32; N]; N]) {
        for (i, results) in results.into_iter().enumerate() {
            for (j, result) in results.into_iter().enumerate() {
                self.set(row + i as u32 * SIDE, column + j as u32 * SIDE, result);
            }
        }
    }

    /// Stores eight values of a row as two quads, the second 64 further.
    #[inline(always)]
    unsafe fn set_quads(self, row: u32, column: u32, [a, b, c, d, e, f, g, h]: [f32; 8]) {
        self.set_quad(row, column, [a, b, c, d]);
        self.set_quad(row, column + 64, [e, f, g, h]);
    }

    /// Stores a thread's four quarters of 4 × 4, 64 apart, from (`row`, `column`) on.
    #[inline(always)]
    unsafe fn set_quarters(self, row: u32, column: u32, results: [[f32; 8]; 8]) {
        for (i, results) in results.into_iter().enumerate() {
            self.set_quads(row + i as u32 / 4 * 64 + i as u32 % 4, column, results);
        }
    }
}

/// Four neighbours in shared memory, by one access of 16 bytes.
#[inline(always)]
unsafe fn read_quad(from: SharedPtr<f32>) -> [f32; 4] {
    Pack::load(from.as_ptr()).0
}

#[inline(always)]
unsafe fn write_quad(to: SharedPtr<f32>, values: [f32; 4]) {
    Pack(values).store(to.as_ptr());
}

/// Eight values as two quads, the second 64 further.
#[inline(always)]
unsafe fn read_quads(from: SharedPtr<f32>) -> [f32; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (read_quad(from), read_quad(from.add(64)));
    [a, b, c, d, e, f, g, h]
}

/// results[j] += a·b[j].
#[inline(always)]
fn multiply_row<const N: usize>(results: &mut [f32; N], a: f32, b: [f32; N]) {
    for j in 0..N {
        results[j] = math::fma(a, b[j], results[j]);
    }
}

/// results[i][j] += a[i]·b[j].
#[inline(always)]
fn multiply<const N: usize>(results: &mut [[f32; N]; N], a: [f32; N], b: [f32; N]) {
    for i in 0..N {
        multiply_row(&mut results[i], a[i], b);
    }
}
