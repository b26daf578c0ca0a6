//! Products of a matrix with a few vectors, bound by reading the matrix once.

#[allow(clippy::module_inception, reason = "the family has the name of its first operator")]
pub mod gemv;
pub mod gemv_int8;

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{thread, warp};

/// Threads of a block.
pub const BLOCK: u32 = 256;
const WARPS: u32 = BLOCK / 32;
/// Most vectors that share one reading of the matrix.
pub const VECTORS: usize = 8;

/// Rows of elements of `bytes` bytes that a block takes: several where several vectors share them, as many as fit the registers.
pub const fn rows_per_block(vectors: usize, bytes: usize) -> u32 {
    match (vectors, bytes) {
        (1, _) => 1,
        (_, 1) => 2,
        _ => 4,
    }
}

/// Partial sums of a block: of each warp for each row and vector.
#[repr(C)]
pub struct Partials([[f32; 4 * VECTORS]; WARPS as usize]);

/// A row-major matrix, the vectors it is multiplied with, and where the products go; strides are those of rows and of vectors.
pub(crate) struct Rows<A, T> {
    pub(crate) a: *const A,
    pub(crate) x: *const T,
    /// What each row's product is multiplied with; null for nothing.
    pub(crate) scales: *const f32,
    pub(crate) y: *mut T,
    pub(crate) m: u32,
    pub(crate) n: u64,
    pub(crate) batch: u32,
    pub(crate) a_stride: u64,
    pub(crate) x_stride: u64,
    pub(crate) y_stride: u64,
}

impl<A: Copy, T: Element> Rows<A, T> {
    /// This block's rows times up to `B` vectors: `R` rows and `U` packs of `N` elements of each in flight.
    ///
    /// Thread t takes packs t, t + 256 and so on of every row. Sums are reproducible: each thread in order, then a butterfly over the
    /// warp, then over the warps in order.
    #[inline(always)]
    pub(crate) unsafe fn multiply<const N: usize, const B: usize, const R: usize, const U: usize>(
        self,
        widen: impl Fn(A) -> f32,
    ) {
        let tid = thread::thread_idx_x();
        let first_row = thread::block_idx_x() * R as u32;
        let first_vector = thread::block_idx_y() * B as u32;
        let batch = self.batch - first_vector;
        let x = self.x.add((u64::from(first_vector) * self.x_stride) as usize);
        // Rows beyond the last are the last once more, and not stored.
        let rows: [*const A; R] = array::from_fn(|r| {
            let row = (first_row + r as u32).min(self.m - 1);
            self.a.add((u64::from(row) * self.a_stride) as usize)
        });
        let mut sums = [[0.0; B]; R];
        let packs = self.n / N as u64;
        let mut first = u64::from(tid);
        // No load of the main loop has a condition, so that all are under way before the first is waited for.
        while first + (U as u64 - 1) * u64::from(BLOCK) < packs {
            self.step::<N, B, R, U>(rows, x, batch, first, &mut sums, &widen);
            first += U as u64 * u64::from(BLOCK);
        }
        while first < packs {
            self.step::<N, B, R, 1>(rows, x, batch, first, &mut sums, &widen);
            first += u64::from(BLOCK);
        }
        let partials: SharedPtr<f32> = shared::dynamic();
        let slots = (R * B) as u32;
        for r in 0..R {
            for b in 0..B {
                let sum = warp::reduce(sums[r][b], |a, b| a + b);
                if warp::lane_id() == 0 {
                    partials.add(warp::warp_id() * slots + (r * B + b) as u32).write(sum);
                }
            }
        }
        thread::sync_threads();
        let (r, b) = (tid / B as u32, tid % B as u32);
        let row = first_row + r;
        if tid < slots && row < self.m && b < batch {
            let sum = (0..WARPS).fold(0.0, |sum, warp| sum + partials.add(warp * slots + tid).read());
            let scale = if self.scales.is_null() { 1.0 } else { *self.scales.add(row as usize) };
            let to = u64::from(first_vector + b) * self.y_stride + u64::from(row);
            *self.y.add(to as usize) = T::from_f32(sum * scale);
        }
    }

    /// Adds the products of `U` packs of every row, 256 apart, from pack `first` on.
    #[inline(always)]
    unsafe fn step<const N: usize, const B: usize, const R: usize, const U: usize>(
        &self,
        rows: [*const A; R],
        x: *const T,
        batch: u32,
        first: u64,
        sums: &mut [[f32; B]; R],
        widen: &impl Fn(A) -> f32,
    ) {
        let at: [usize; U] = array::from_fn(|u| (first as usize + u * BLOCK as usize) * N);
        let loaded: [[Pack<A, N>; R]; U] = at.map(|at| rows.map(|row| load::<A, N>(row.add(at))));
        for u in 0..U {
            let weights: [[f32; N]; R] = loaded[u].map(|pack| pack.0.map(widen));
            for b in 0..B {
                if (b as u32) < batch {
                    let values = load_kept::<T, N>(x.add(b * self.x_stride as usize + at[u]));
                    for r in 0..R {
                        for e in 0..N {
                            sums[r][b] += weights[r][e] * values[e];
                        }
                    }
                }
            }
        }
    }
}

/// Loads a pack of what is read once.
#[inline(always)]
pub(crate) unsafe fn load<A: Copy, const N: usize>(from: *const A) -> Pack<A, N> {
    if size_of::<A>() * N == 16 { Pack::load_nc_no_allocate(from) } else { Pack::load(from) }
}

/// Loads elements of a vector, which every block reads.
#[inline(always)]
unsafe fn load_kept<T: Element, const N: usize>(from: *const T) -> [f32; N] {
    Pack::<T, N>::load_nc_evict_last(from).to_f32()
}
