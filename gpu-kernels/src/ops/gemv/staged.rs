//! Products of a row-major matrix of f32 with several vectors, which are staged in shared memory.
//!
//! Eight vectors have eight times the bytes of a row. So a block takes many rows, four per warp, and copies a stretch
//! of the vectors once for all of them: the vectors' reads from L2 are a quarter of the matrix' bytes. A lane has the
//! packs of the next stretch in flight while it multiplies those of this one.

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
/// Quads between two of a lane, which lie side by side with its neighbours'.
const QUADS: u32 = 34;

/// Elements of a quad.
const QUAD: usize = 4;
/// Quads of a row that a lane has in flight.
const STEPS: u32 = 4;
/// Quads of a stretch of a vector in shared memory.
const OF_VECTOR: u32 = STEPS * QUADS;

/// Stretches of all vectors.
pub(super) const SHARED_BYTES: usize = (STAGES * OF_VECTOR) as usize * VECTORS * size_of::<[f32; QUAD]>();

impl<A: Copy, T: Element> Rows<A, T> {
    /// This block's [`ROWS`] rows times up to eight vectors, all of f32 (`A` and `T` are that where this runs): [`Rows::multiply`] otherwise. A lane
    /// takes every 32nd quad, of four rows; sums are those of lanes in order, then of pairs of lanes, of pairs of these and so on.
    #[inline(always)]
    pub(crate) unsafe fn multiply_staged(self) {
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        let first_row = thread::block_idx_x() * ROWS + warp * ROWS_PER_WARP as u32;
        let first_vector = thread::block_idx_y() * VECTORS as u32;
        // Rows past the last are replaced by the last one, and not stored.
        let rows: [*const f32; ROWS_PER_WARP] = array::from_fn(|r| {
            let row = (first_row + r as u32).min(self.m - 1);
            self.a.cast::<f32>().add((u64::from(row) * self.a_stride) as usize)
        });
        let all = (self.n / QUAD as u64) as u32;
        let of_stretch = 32 * STEPS;
        let stretches = all.div_ceil(of_stretch);
        // Each warp copies one vector; vectors past the last are zeros.
        let vector = first_vector + warp;
        let from = self.x.cast::<f32>().add((u64::from(vector.min(self.batch - 1)) * self.x_stride) as usize);
        let quads = if vector < self.batch { all } else { 0 };
        let stage = |stretch: u32| shared::dynamic::<[f32; QUAD]>().add(stretch % STAGES * VECTORS as u32 * OF_VECTOR);
        let copy = |stretch: u32| {
            if stretch < stretches {
                for step in 0..STEPS {
                    let number = stretch * of_stretch + step * 32 + lane;
                    let bytes = if number < quads { 16 } else { 0 };
                    let source = from.add(if number < quads { number as usize * QUAD } else { 0 });
                    cp_async::copy_16_zero_fill(
                        stage(stretch).add(warp * OF_VECTOR + step * QUADS + lane),
                        source,
                        bytes,
                    );
                }
            }
            cp_async::commit();
        };
        // Quads past the last are replaced by the last one, and not multiplied.
        let load = |quad: u32| -> [[f32; QUAD]; ROWS_PER_WARP] {
            let at = quad.min(all - 1) as usize * QUAD;
            rows.map(|row| Pack::<f32, QUAD>::load_nc_no_allocate_ahead(row.add(at)).0)
        };
        let mut sums = [0.0; ROWS_PER_WARP * VECTORS];
        if stretches > 0 {
            for stretch in 0..STAGES - 1 {
                copy(stretch);
            }
            let mut loaded: [_; STEPS as usize] = array::from_fn(|step| load(step as u32 * 32 + lane));
            for stretch in 0..stretches {
                cp_async::wait_group::<{ STAGES - 2 }>();
                // This stretch has arrived for all warps, and all are done with the one that is overwritten next.
                thread::sync_threads();
                copy(stretch + STAGES - 1);
                for step in 0..STEPS {
                    let quad = stretch * of_stretch + step * 32 + lane;
                    if quad < all {
                        add(loaded[step as usize], stage(stretch).add(step * QUADS + lane), &mut sums);
                    }
                    loaded[step as usize] = load(quad + of_stretch);
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

/// Adds the products of a quad of each row and those of the vectors.
#[inline(always)]
unsafe fn add(
    weights: [[f32; QUAD]; ROWS_PER_WARP],
    x: SharedPtr<[f32; QUAD]>,
    sums: &mut [f32; ROWS_PER_WARP * VECTORS],
) {
    for b in 0..VECTORS {
        let values = x.add(b as u32 * OF_VECTOR).cast::<f32>().load_x4();
        for r in 0..ROWS_PER_WARP {
            for e in 0..QUAD {
                sums[r * VECTORS + b] += weights[r][e] * values[e];
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
            // SAFETY: all lanes execute this.
            values[i] = kept + unsafe { warp::shuffle_xor(given, width) };
        }
    }
    values[0]
}
