//! Products of a row-major matrix with several vectors by tensor cores: a fragment of 16 rows and eight vectors.
//!
//! Which elements of a row a fragment has, and in which order, is the same for matrix and vectors and for nothing else of importance. So a lane
//! loads 16 bytes at once of its rows, and as many elements of its vector, and takes them as what the fragments ask for.

use core::array;

use cuda_std::float::{Element, Half};
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{mma, thread, warp};

use super::{Rows, VECTORS, WARPS};

/// Rows of a block.
pub(super) const ROWS: u32 = 16;
/// Lanes that share a row.
const LANES: usize = 4;
/// Packs of a row that a lane has in flight.
const STEPS: usize = 4;
/// Packs of a row that a warp has in flight.
const STRETCH: usize = STEPS * LANES;

impl<A: Copy, T: Element> Rows<A, T> {
    /// This block's [`ROWS`] rows times up to eight vectors, which are of `H`: [`Rows::multiply`] otherwise. `widen` makes a pack of `N` elements
    /// of A to the pairs of `H` that stand for the eight from 8 times a number on.
    ///
    /// A warp has every eighth stretch of the rows; sums are those of the tensor cores, and then of the warps in order.
    #[inline(always)]
    pub(crate) unsafe fn multiply_by_fragments<H: Half, const N: usize>(
        self,
        widen: impl Fn(Pack<u32, 4>, usize) -> [u32; 4],
    ) {
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        let (group, along) = (lane / LANES as u32, (lane % LANES as u32) as usize);
        let first_row = thread::block_idx_x() * ROWS;
        let first_vector = thread::block_idx_y() * VECTORS as u32;
        // Rows and vectors beyond the last are the last once more, and not stored.
        let rows: [*const A; 2] = array::from_fn(|i| {
            let row = (first_row + group + 8 * i as u32).min(self.m - 1);
            self.a.add((u64::from(row) * self.a_stride) as usize)
        });
        let vector = (first_vector + group).min(self.batch - 1);
        let x = self.x.add((u64::from(vector) * self.x_stride) as usize);
        let packs = self.n as usize / N;
        let mut sums = [0.0; 4];
        let mut first = warp as usize * STRETCH;
        // No load of the main loop has a condition, so that all are under way before the first is waited for.
        while first + STRETCH <= packs {
            stretch::<A, T, H, N, true>(rows, x, [first + along, packs], &mut sums, &widen);
            first += WARPS as usize * STRETCH;
        }
        if first < packs {
            stretch::<A, T, H, N, false>(rows, x, [first + along, packs], &mut sums, &widen);
        }
        let partials: SharedPtr<f32> = shared::dynamic();
        let of_warp = ROWS * VECTORS as u32;
        for e in 0..4 {
            partials.add(warp * of_warp + e as u32 * 32 + lane).write(sums[e]);
        }
        thread::sync_threads();
        let (r, b) = (thread::thread_idx_x() % ROWS, thread::thread_idx_x() / ROWS);
        let (row, vector) = (first_row + r, first_vector + b);
        if b < VECTORS as u32 && row < self.m && vector < self.batch {
            // Where a fragment has row r and vector b.
            let place = (r / 8 * 2 + b % 2) * 32 + r % 8 * 4 + b / 2;
            let sum = (0..WARPS).fold(0.0, |sum, warp| sum + partials.add(warp * of_warp + place).read());
            let scale = if self.scales.is_null() { 1.0 } else { *self.scales.add(row as usize) };
            *self.y.add((u64::from(vector) * self.y_stride + u64::from(row)) as usize) = T::from_f32(sum * scale);
        }
    }
}

/// Adds the products of [`STEPS`] packs of a lane's rows and vector, from pack `first` on; unless `WHOLE`, of those of them that are below the end.
#[inline(always)]
unsafe fn stretch<A, T: Element, H: Half, const N: usize, const WHOLE: bool>(
    rows: [*const A; 2],
    x: *const T,
    [first, end]: [usize; 2],
    sums: &mut [f32; 4],
    widen: &impl Fn(Pack<u32, 4>, usize) -> [u32; 4],
) {
    let inside: [bool; STEPS] = array::from_fn(|step| WHOLE || first + step * LANES < end);
    // Beyond the end there are zeros on both sides, of any pack that is there.
    let at: [usize; STEPS] = array::from_fn(|step| if inside[step] { (first + step * LANES) * N } else { 0 });
    let some = |step: usize, pack: Pack<u32, 4>| if inside[step] { pack } else { Pack([0; 4]) };
    let loaded = at.map(|at| rows.map(|row| Pack::<u32, 4>::load_nc_no_allocate_ahead(row.add(at).cast())));
    let vectors: [[Pack<u32, 4>; 2]; STEPS] =
        at.map(|at| {
            array::from_fn(|part| {
                if part < N / 8 { Pack::load_nc_evict_last(x.add(at + part * 8).cast()) } else { Pack([0; 4]) }
            })
        });
    for step in 0..STEPS {
        for part in 0..N / 8 {
            let [upper, lower] = loaded[step].map(|pack| widen(some(step, pack), part));
            let Pack(x) = some(step, vectors[step][part]);
            mma::m16n8k16::<H>(sums, [upper[0], lower[0], upper[1], lower[1]], [x[0], x[1]]);
            mma::m16n8k16::<H>(sums, [upper[2], lower[2], upper[3], lower[3]], [x[2], x[3]]);
        }
    }
}
