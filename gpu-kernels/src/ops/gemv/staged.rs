//! Products of a row-major matrix with several vectors of f32, which are staged in shared memory.
//!
//! Eight vectors are eight times what a row of f32 is, 32 times one of 8 bits. So a block takes many rows, its warps four each, and copies a stretch
//! of the vectors once for all of them: what is read of L2 for the vectors is a quarter of the matrix' bytes, or as many as these. A lane has the
//! packs of the next stretch on their way while it multiplies those of this one.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{cp_async, thread, warp};

use super::{Rows, VECTORS, WARPS};

/// Rows of a warp.
const ROWS_PER_WARP: usize = 4;
/// Rows of a block.
pub(super) const ROWS: u32 = WARPS * ROWS_PER_WARP as u32;
/// Stretches of the vectors that are in shared memory or on their way there.
const STAGES: u32 = 2;
/// Quads of vectors' elements between those of a pack: a lane's lie side by side with its neighbours', and copies to them meet different banks.
const QUADS: u32 = 34;

/// Elements of a quad.
const QUAD: usize = 4;

/// Shared bytes of stretches of `u` packs of `n` elements a lane.
pub(super) const fn shared_bytes(n: usize, u: usize) -> usize {
    STAGES as usize * VECTORS * (n / QUAD * u) * QUADS as usize * 16
}

impl<A: Copy, T: Element> Rows<A, T> {
    /// This block's [`ROWS`] rows times up to eight vectors, which are of f32 (`T` is that where this runs): [`Rows::multiply`] otherwise. A lane takes every 32nd pack of `N`
    /// elements, of four rows and `U` of each at a time; sums are those of lanes in order, then of pairs of lanes, of pairs of these and so on.
    #[inline(always)]
    pub(crate) unsafe fn multiply_staged<const N: usize, const U: usize>(self, widen: impl Fn(Pack<A, N>) -> [f32; N]) {
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        let first_row = thread::block_idx_x() * ROWS + warp * ROWS_PER_WARP as u32;
        let first_vector = thread::block_idx_y() * VECTORS as u32;
        // Rows beyond the last are the last once more, and not stored.
        let rows: [*const A; ROWS_PER_WARP] = array::from_fn(|r| {
            let row = (first_row + r as u32).min(self.m - 1);
            self.a.add((u64::from(row) * self.a_stride) as usize)
        });
        let packs = (self.n / N as u64) as u32;
        let of_stretch = 32 * U as u32;
        let stretches = packs.div_ceil(of_stretch);
        // A warp copies a vector; those beyond the last are zeros.
        let vector = first_vector + warp;
        let from = self.x.cast::<f32>().add((u64::from(vector.min(self.batch - 1)) * self.x_stride) as usize);
        let quads = if vector < self.batch { (self.n / QUAD as u64) as u32 } else { 0 };
        let stage = |stretch: u32| {
            let of_vector = (N / QUAD * U) as u32 * QUADS;
            shared::dynamic::<[f32; QUAD]>().add(stretch % STAGES * VECTORS as u32 * of_vector)
        };
        let vector_of = |stretch: u32, b: u32| stage(stretch).add(b * (N / QUAD * U) as u32 * QUADS);
        let copy = |stretch: u32| {
            if stretch < stretches {
                for i in 0..(N / QUAD * U) as u32 {
                    let quad = i * 32 + lane;
                    let (pack, part) = (quad / (N / QUAD) as u32, quad % (N / QUAD) as u32);
                    let place = (pack / 32 * (N / QUAD) as u32 + part) * QUADS + pack % 32;
                    let number = stretch * of_stretch * (N / QUAD) as u32 + quad;
                    let bytes = if number < quads { 16 } else { 0 };
                    let source = from.add(if number < quads { number as usize * QUAD } else { 0 });
                    cp_async::copy_16_zero_fill(vector_of(stretch, warp).add(place), source, bytes);
                }
            }
            cp_async::commit();
        };
        // Packs beyond the last are the last once more, which nobody multiplies.
        let load = |pack: u32| -> [Pack<A, N>; ROWS_PER_WARP] {
            let at = pack.min(packs - 1) as usize * N;
            rows.map(|row| Pack::load_nc_no_allocate_ahead(row.add(at)))
        };
        let mut sums = [0.0; ROWS_PER_WARP * VECTORS];
        if stretches > 0 {
            for stretch in 0..STAGES - 1 {
                copy(stretch);
            }
            let mut loaded: [_; U] = array::from_fn(|u| load(u as u32 * 32 + lane));
            for stretch in 0..stretches {
                cp_async::wait_group::<{ STAGES - 2 }>();
                // This stretch is there for all, and all are done with the one whose place is filled next.
                thread::sync_threads();
                copy(stretch + STAGES - 1);
                let first = stretch * of_stretch + lane;
                for u in 0..U {
                    let pack = first + u as u32 * 32;
                    let x = stage(stretch).add((u * N / QUAD) as u32 * QUADS + lane);
                    let of_vector = (N / QUAD * U) as u32 * QUADS;
                    if pack < packs {
                        add(loaded[u].map(&widen), x, of_vector, &mut sums);
                    }
                    loaded[u] = load(pack + of_stretch);
                }
            }
        }
        let sum = sum_of_lane(sums);
        let (row, vector) = (first_row + lane / VECTORS as u32, first_vector + lane % VECTORS as u32);
        if row < self.m && vector < self.batch {
            let scale = if self.scales.is_null() { 1.0 } else { *self.scales.add(row as usize) };
            *self.y.add((u64::from(vector) * self.y_stride + u64::from(row)) as usize) = T::from_f32(sum * scale);
        }
    }
}

/// Adds the products of a pack of each row and those of the vectors, which are `of_vector` quads apart.
#[inline(always)]
unsafe fn add<const N: usize>(
    weights: [[f32; N]; ROWS_PER_WARP],
    x: SharedPtr<[f32; QUAD]>,
    of_vector: u32,
    sums: &mut [f32; ROWS_PER_WARP * VECTORS],
) {
    for part in 0..N / QUAD {
        for b in 0..VECTORS {
            let values = x.add(b as u32 * of_vector + part as u32 * QUADS).cast::<f32>().load_x4();
            for r in 0..ROWS_PER_WARP {
                for e in 0..QUAD {
                    sums[r * VECTORS + b] += weights[r][part * QUAD + e] * values[e];
                }
            }
        }
    }
}

/// Of 32 values of every lane the sum over the lanes of the one that has this lane's number.
#[inline(always)]
fn sum_of_lane(mut values: [f32; 32]) -> f32 {
    let lane = warp::lane_id();
    for width in [16, 8, 4, 2, 1] {
        let upper = lane & width != 0;
        for i in 0..width as usize {
            let [low, high] = [values[i], values[i + width as usize]];
            let (kept, given) = if upper { (high, low) } else { (low, high) };
            // SAFETY: all lanes are here.
            values[i] = kept + unsafe { warp::shuffle_xor(given, width) };
        }
    }
    values[0]
}
