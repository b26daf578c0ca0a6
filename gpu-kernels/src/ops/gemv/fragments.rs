//! Products of a row-major matrix with several vectors on tensor cores: fragments of 16 rows and eight vectors.
//!
//! The assignment of a row's elements to a fragment, and their order, is free as long as it is the same for matrix and
//! vectors. So a lane loads 16 bytes of its rows at once, and as many elements of its vector, and uses them in the
//! order that the fragments expect.
//!
//! An f32 is the sum of three bf16: its first eight bits, the next eight and the last. So vectors of f32 are three
//! fragments for each fragment of a matrix whose elements are exact in bf16. Since more is read and split for the
//! vectors than for a row, twice as many rows share them. Within a stretch, the sums of the first parts and of the
//! other parts are kept apart and then added in f32: the tensor core truncates addends that are small beside its sum.

use core::array;

use cuda_std::float::{Element, Half};
use cuda_std::math::permute_bytes;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{mma, thread, warp};

use super::{Rows, VECTORS, WARPS};

/// Rows of a fragment.
const ROWS: u32 = 16;
/// Lanes that share a row.
const LANES: usize = 4;

/// Rows of a block, of vectors of elements of so many bytes: a fragment, or two.
pub(super) const fn rows(x_bytes: usize) -> u32 {
    ROWS * x_bytes as u32 / 2
}

/// Shared bytes: the sums of each warp.
pub(super) const fn shared_bytes(x_bytes: usize) -> usize {
    (WARPS * rows(x_bytes)) as usize * VECTORS * size_of::<f32>()
}

impl<A: Copy, T: Element> Rows<A, T> {
    /// This block's [`rows`], in `F` fragments, times up to eight vectors: [`Rows::multiply`] otherwise. Vectors are of `H`, or of f32 where that
    /// is bf16. A lane has `STEPS` packs of each of its rows in flight; `widen` makes a pack of `N` elements of A to the pairs of `H` that stand
    /// for the eight from 8 times a number on.
    ///
    /// A warp has every eighth stretch of the rows; sums are those of the tensor cores over a stretch, then of stretches and of the warps in order.
    #[inline(always)]
    pub(crate) unsafe fn multiply_by_fragments<H: Half, const N: usize, const F: usize, const STEPS: usize>(
        self,
        widen: impl Fn(Pack<u32, 4>, usize) -> [u32; 4],
    ) {
        let (of_block, of_stretch) = const { (ROWS * F as u32, STEPS * LANES) };
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        let (group, along) = (lane / LANES as u32, (lane % LANES as u32) as usize);
        let first_row = thread::block_idx_x() * of_block;
        let first_vector = thread::block_idx_y() * VECTORS as u32;
        // Rows and vectors past the last are replaced by the last one, and not stored.
        let rows: [[*const A; 2]; F] = array::from_fn(|f| {
            array::from_fn(|i| {
                let row = (first_row + f as u32 * ROWS + group + 8 * i as u32).min(self.m - 1);
                self.a.add((u64::from(row) * self.a_stride) as usize)
            })
        });
        let vector = (first_vector + group).min(self.batch - 1);
        let x = self.x.add((u64::from(vector) * self.x_stride) as usize);
        let packs = self.n as usize / N;
        let mut sums = [[0.0; 4]; F];
        let mut first = warp as usize * of_stretch;
        // No load of the main loop is conditional, so that all are in flight before the first is waited for.
        while first + of_stretch <= packs {
            stretch::<A, T, H, N, F, STEPS, true>(rows, x, [first + along, packs], &mut sums, &widen);
            first += WARPS as usize * of_stretch;
        }
        if first < packs {
            stretch::<A, T, H, N, F, STEPS, false>(rows, x, [first + along, packs], &mut sums, &widen);
        }
        let partials: SharedPtr<f32> = shared::dynamic();
        let of_warp = of_block * VECTORS as u32;
        for (e, sum) in sums.as_flattened().iter().enumerate() {
            partials.add(warp * of_warp + e as u32 * 32 + lane).write(*sum);
        }
        thread::sync_threads();
        let (r, b) = (thread::thread_idx_x() % of_block, thread::thread_idx_x() / of_block);
        let (row, vector) = (first_row + r, first_vector + b);
        if b < VECTORS as u32 && row < self.m && vector < self.batch {
            // Where its fragment has row r and vector b.
            let place = (r / 8 * 2 + b % 2) * 32 + r % 8 * 4 + b / 2;
            let sum = (0..WARPS).fold(0.0, |sum, warp| sum + partials.add(warp * of_warp + place).read());
            let scale = if self.scales.is_null() { 1.0 } else { *self.scales.add(row as usize) };
            *self.y.add((u64::from(vector) * self.y_stride + u64::from(row)) as usize) = T::from_f32(sum * scale);
        }
    }
}

/// Adds the products of `STEPS` packs of a lane's rows and vector, from pack `first` on; unless `WHOLE`, of those of them that are below the end.
#[inline(always)]
unsafe fn stretch<A, T: Element, H: Half, const N: usize, const F: usize, const STEPS: usize, const WHOLE: bool>(
    rows: [[*const A; 2]; F],
    x: *const T,
    [first, end]: [usize; 2],
    sums: &mut [[f32; 4]; F],
    widen: &impl Fn(Pack<u32, 4>, usize) -> [u32; 4],
) {
    let inside: [bool; STEPS] = array::from_fn(|step| WHOLE || first + step * LANES < end);
    // Past the end both sides are zero; the address is that of any existing pack.
    let at: [usize; STEPS] = array::from_fn(|step| if inside[step] { (first + step * LANES) * N } else { 0 });
    let some = |step: usize, pack: Pack<u32, 4>| if inside[step] { pack } else { Pack([0; 4]) };
    let loaded =
        at.map(|at| rows.map(|rows| rows.map(|row| Pack::<u32, 4>::load_nc_no_allocate_ahead(row.add(at).cast()))));
    // Packs of a vector beside one of A.
    let of_vector = const { N * size_of::<T>() / 16 };
    let vectors: [[Pack<u32, 4>; 4]; STEPS] = at.map(|at| {
        let from = x.add(at).cast::<Pack<u32, 4>>();
        array::from_fn(|i| if i < of_vector { Pack::load_nc_evict_last(from.add(i).cast()) } else { Pack([0; 4]) })
    });
    // Of the first terms, and of the small ones.
    let mut products = [[[0.0; 4]; 2]; F];
    for step in 0..STEPS {
        for part in 0..N / 8 {
            let terms = if size_of::<T>() == 2 {
                [some(step, vectors[step][part % 4]).0, [0; 4], [0; 4]]
            } else {
                let of = |i: usize| some(step, vectors[step][(2 * part + i) % 4]).0.map(f32::from_bits);
                thirds([of(0), of(1)])
            };
            for f in 0..F {
                let [upper, lower] = loaded[step][f].map(|pack| widen(some(step, pack), part));
                for term in 0..const { if size_of::<T>() == 2 { 1 } else { 3 } } {
                    let (x, sums) = (terms[term], &mut products[f][term.min(1)]);
                    mma::m16n8k16::<H>(sums, [upper[0], lower[0], upper[1], lower[1]], [x[0], x[1]]);
                    mma::m16n8k16::<H>(sums, [upper[2], lower[2], upper[3], lower[3]], [x[2], x[3]]);
                }
            }
        }
    }
    for f in 0..F {
        for e in 0..4 {
            sums[f][e] += products[f][0][e] + products[f][1][e];
        }
    }
}

/// The three pairs of bf16 whose sums are pairs of eight f32: exactly, but for what is below bf16's least number. An infinity is the first of
/// its three.
#[inline(always)]
fn thirds(values: [[f32; 4]; 2]) -> [[u32; 4]; 3] {
    let mut rest: [f32; 8] = array::from_fn(|i| values[i / 4][i % 4]);
    array::from_fn(|_| {
        let pairs = array::from_fn(|i| permute_bytes(rest[2 * i].to_bits(), rest[2 * i + 1].to_bits(), 0x7632));
        rest = rest.map(|value| {
            let upper = f32::from_bits(value.to_bits() & 0xffff_0000);
            if value == upper { 0.0 } else { value - upper }
        });
        pairs
    })
}
