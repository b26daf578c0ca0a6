//! Products of a matrix with a few vectors, bound by reading the matrix once.

mod column_fragments;
mod fragments;
#[allow(clippy::module_inception, reason = "the family has the name of its first operator")]
pub mod gemv;
pub mod gemv_int8;
mod staged;

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

/// Rows of elements of `bytes` bytes that a team of threads takes, of vectors of `x_bytes`: several where several vectors share them, or where
/// they share a vector of which more is read than of them.
pub const fn rows_per_team(vectors: usize, bytes: usize, x_bytes: usize) -> u32 {
    match (vectors, bytes, x_bytes) {
        (1, 1, _) => x_bytes as u32,
        (1, ..) => 1,
        (_, 4, 4) => staged::ROWS,
        _ => fragments::rows(x_bytes),
    }
}

/// Shared bytes of a kernel over rows of elements of `bytes` bytes, of vectors of `x_bytes`: partial sums, or stretches of several vectors.
pub const fn rows_shared_bytes(vectors: usize, bytes: usize, x_bytes: usize) -> usize {
    match (vectors, bytes, x_bytes) {
        (1, ..) => size_of::<Partials>(),
        (_, 4, 4) => staged::SHARED_BYTES,
        _ => fragments::shared_bytes(x_bytes),
    }
}

/// Threads that share a row, of few packs if the team is `small`: each has several in flight.
pub const fn team(small: bool) -> u32 {
    if small { 64 } else { BLOCK }
}

/// The most packs of a row that a small team shares.
pub const SMALL_ROW: usize = 512;

/// Partial sums of a block: of each warp for each of up to four rows.
#[repr(C)]
struct Partials([[f32; 4]; WARPS as usize]);

/// A row-major matrix, the vectors it is multiplied with, and where the products go; strides are those of rows and of vectors.
pub(crate) struct Rows<A, T> {
    pub(crate) a: *const A,
    pub(crate) x: *const T,
    /// The factors of the rows' products; null for none.
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
    /// The product of the rows of this block's teams and a vector: `R` rows per team and `U` packs of `N` elements of
    /// each in flight.
    ///
    /// Thread t of a team takes packs t, t + team and so on of every row. Sums are reproducible: each thread in order, then a butterfly over the
    /// warp, then over the warps in order.
    #[inline(always)]
    pub(crate) unsafe fn multiply<const N: usize, const R: usize, const U: usize, const SMALL: bool>(
        self,
        widen: impl Fn(Pack<A, N>) -> [f32; N],
    ) {
        let tid = thread::thread_idx_x();
        let (teams, of_team) = (BLOCK / team(SMALL), team(SMALL) / 32);
        let (number, rank) = (tid / team(SMALL), tid % team(SMALL));
        let first_row_of = |team: u32| (thread::block_idx_x() * teams + team) * R as u32;
        let first_row = first_row_of(number);
        let vector = u64::from(thread::block_idx_y());
        let x = self.x.add((vector * self.x_stride) as usize);
        // Rows past the last are replaced by the last one, and not stored.
        let rows: [*const A; R] = array::from_fn(|r| {
            let row = (first_row + r as u32).min(self.m - 1);
            self.a.add((u64::from(row) * self.a_stride) as usize)
        });
        let mut sums = [0.0; R];
        let packs = self.n / N as u64;
        let mut first = u64::from(rank);
        // No load of the main loop is conditional, so that all are in flight before the first is waited for.
        while first + (U as u64 - 1) * u64::from(team(SMALL)) < packs {
            step::<A, T, N, R, U, SMALL, true>(rows, x, [first, packs], &mut sums, &widen);
            first += U as u64 * u64::from(team(SMALL));
        }
        // Of few packs those that are left are under way at once as well.
        if SMALL && first < packs {
            step::<A, T, N, R, U, SMALL, false>(rows, x, [first, packs], &mut sums, &widen);
        }
        while !SMALL && first < packs {
            step::<A, T, N, R, 1, SMALL, true>(rows, x, [first, packs], &mut sums, &widen);
            first += u64::from(team(SMALL));
        }
        let partials: SharedPtr<f32> = shared::dynamic();
        for r in 0..R {
            let sum = warp::reduce(sums[r], |a, b| a + b);
            if warp::lane_id() == 0 {
                partials.add(warp::warp_id() * R as u32 + r as u32).write(sum);
            }
        }
        thread::sync_threads();
        let (team, r) = (tid / R as u32, tid % R as u32);
        let row = first_row_of(team) + r;
        if team < teams && row < self.m {
            let of_warp = |warp: u32| partials.add((team * of_team + warp) * R as u32 + r);
            let sum = (0..of_team).fold(0.0, |sum, warp| sum + of_warp(warp).read());
            let scale = if self.scales.is_null() { 1.0 } else { *self.scales.add(row as usize) };
            *self.y.add((vector * self.y_stride + u64::from(row)) as usize) = T::from_f32(sum * scale);
        }
    }
}

/// Adds the products of `U` packs of every row, a team apart, from pack `first` on; unless `WHOLE`, of those of them that are below the end.
#[inline(always)]
unsafe fn step<
    A: Copy,
    T: Element,
    const N: usize,
    const R: usize,
    const U: usize,
    const SMALL: bool,
    const WHOLE: bool,
>(
    rows: [*const A; R],
    x: *const T,
    [first, end]: [u64; 2],
    sums: &mut [f32; R],
    widen: &impl Fn(Pack<A, N>) -> [f32; N],
) {
    let pack: [u64; U] = array::from_fn(|u| first + u as u64 * u64::from(team(SMALL)));
    // Past the end the first pack is loaded again; it is not multiplied.
    let inside: [bool; U] = pack.map(|pack| WHOLE || pack < end);
    let at: [usize; U] = array::from_fn(|u| if inside[u] { pack[u] } else { first } as usize * N);
    let loaded: [[Pack<A, N>; R]; U] = at.map(|at| rows.map(|row| load::<A, N>(row.add(at))));
    for u in 0..U {
        if !inside[u] {
            continue;
        }
        let weights: [[f32; N]; R] = loaded[u].map(widen);
        let values = load_kept::<T, N>(x.add(at[u]));
        for r in 0..R {
            for e in 0..N {
                sums[r] += weights[r][e] * values[e];
            }
        }
    }
}

/// Packs of a strip, one a lane.
pub const STRIP: u32 = 32;

/// Sums of a block's warps: of each for a strip of packs of `N` elements.
#[repr(C)]
pub struct Strips<const N: usize>([[[f32; STRIP as usize]; N]; WARPS as usize]);

/// Elements of `bytes` bytes of a pack of a column, of vectors of `x_bytes`: 16 bytes, or fewer where the sums of several vectors take the registers.
pub const fn column_pack(vectors: usize, bytes: usize, x_bytes: usize) -> usize {
    if vectors > 1 && bytes == 1 && x_bytes == 4 { 8 } else { 16 / bytes }
}

/// Rows of a block over columns of whole packs.
pub const fn column_rows(vectors: usize, bytes: usize, x_bytes: usize) -> usize {
    if vectors > 1 && x_bytes == 2 {
        column_fragments::ROWS
    } else {
        STRIP as usize * column_pack(vectors, bytes, x_bytes)
    }
}

/// Blocks of a kernel over columns on a multiprocessor.
pub const fn column_blocks(vectors: usize, x_bytes: usize) -> u32 {
    match (vectors, x_bytes) {
        (1, _) => 4,
        (_, 2) => 2,
        _ => 1,
    }
}

/// Columns whose packs a thread has in flight.
const COLUMNS: usize = 8;

/// A column-major matrix of `n` columns of `m` elements, the vectors it is multiplied with, and where the sums of parts of `part` columns
/// go: for each part, each vector and each row. Strides are those of columns and of vectors.
pub(crate) struct Columns<A, T> {
    pub(crate) a: *const A,
    pub(crate) x: *const T,
    pub(crate) parts: *mut f32,
    pub(crate) m: u64,
    pub(crate) n: u32,
    pub(crate) batch: u32,
    pub(crate) part: u32,
    pub(crate) a_stride: u64,
    pub(crate) x_stride: u64,
}

impl<A: Copy, T: Element> Columns<A, T> {
    /// This block's strip of packs of `N` elements and its part of the columns times up to `B` vectors. A warp takes every eighth
    /// column, eight of them in flight.
    #[inline(always)]
    pub(crate) unsafe fn multiply<const N: usize, const B: usize>(self, widen: impl Fn(Pack<A, N>) -> [f32; N]) {
        let (tid, lane, warp) = (thread::thread_idx_x(), warp::lane_id(), warp::warp_id());
        let strip = u64::from(thread::block_idx_x()) * u64::from(STRIP) * N as u64;
        let row = strip + u64::from(lane) * N as u64;
        let first_vector = thread::block_idx_z() * B as u32;
        let vectors = self.batch - first_vector;
        let x = self.x.add((u64::from(first_vector) * self.x_stride) as usize);
        let start = thread::block_idx_y() * self.part;
        let end = (start + self.part).min(self.n);
        // Lanes past the last row read existing elements, and store nothing.
        let a = self.a.add(row.min(self.m - N as u64) as usize);
        let mut sums = [[0.0; N]; B];
        let mut first = start + warp;
        // No load of the main loop is conditional, so that all are in flight before the first is waited for.
        while first + (COLUMNS as u32 - 1) * WARPS < end {
            self.step::<N, B, COLUMNS>(a, x, vectors, first, &mut sums, &widen);
            first += COLUMNS as u32 * WARPS;
        }
        while first < end {
            self.step::<N, B, 1>(a, x, vectors, first, &mut sums, &widen);
            first += WARPS;
        }
        let strips: SharedPtr<f32> = shared::dynamic();
        let width = STRIP * N as u32;
        // This is not a loop, because the indices of the sums have to be known at compile time.
        array::from_fn::<(), B, _>(|b| {
            if b as u32 >= vectors {
                return;
            }
            if b > 0 {
                // The strips of the previous vector are about to be overwritten.
                thread::sync_threads();
            }
            for e in 0..N {
                // A lane's elements are 32 apart, so that lanes access different banks.
                strips.add(warp * width + e as u32 * STRIP + lane).write(sums[b][e]);
            }
            thread::sync_threads();
            for element in (0..width).step_by(BLOCK as usize).map(|first| first + tid) {
                let row = strip + u64::from(element);
                if element < width && row < self.m {
                    let place = element % N as u32 * STRIP + element / N as u32;
                    let sum = (0..WARPS).fold(0.0, |sum, warp| sum + strips.add(warp * width + place).read());
                    let vector = u64::from(first_vector) + b as u64;
                    let part = u64::from(thread::block_idx_y()) * u64::from(self.batch) + vector;
                    *self.parts.add((part * self.m + row) as usize) = sum;
                }
            }
        });
    }

    /// Adds the products of a pack of each of `U` columns, eight apart, from column `first` on.
    #[inline(always)]
    unsafe fn step<const N: usize, const B: usize, const U: usize>(
        &self,
        a: *const A,
        x: *const T,
        vectors: u32,
        first: u32,
        sums: &mut [[f32; N]; B],
        widen: &impl Fn(Pack<A, N>) -> [f32; N],
    ) {
        let at: [usize; U] = array::from_fn(|u| first as usize + u * WARPS as usize);
        let loaded = at.map(|at| load::<A, N>(a.add(at * self.a_stride as usize)));
        for u in 0..U {
            let weights: [f32; N] = widen(loaded[u]);
            for b in 0..B {
                if B == 1 || (b as u32) < vectors {
                    let value = (*x.add(b * self.x_stride as usize + at[u])).to_f32();
                    for e in 0..N {
                        sums[b][e] += weights[e] * value;
                    }
                }
            }
        }
    }
}

/// Loads a pack of data that is read once.
#[inline(always)]
pub(crate) unsafe fn load<A: Copy, const N: usize>(from: *const A) -> Pack<A, N> {
    if size_of::<A>() * N == 16 { Pack::load_nc_no_allocate(from) } else { Pack::load(from) }
}

/// Loads elements of a vector, which every block reads.
#[inline(always)]
unsafe fn load_kept<T: Element, const N: usize>(from: *const T) -> [f32; N] {
    Pack::<T, N>::load_nc_evict_last(from).to_f32()
}
