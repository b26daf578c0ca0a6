//! Column sums of partial results: the second stage of a gradient that is summed over all rows.
//!
//! The first stage has written one partial sum per warp or block, over the rows that it worked on. Here a block sums 32
//! neighbouring columns: its warps take turns over the rows, and then the first warp adds up the warps' results. The
//! order is fixed, so results are reproducible.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{kernel, thread, warp};

/// Warps of a block.
const WARPS: u32 = 32;
/// Rows in flight per warp.
const LOADS: u64 = 16;
/// Columns of a block.
pub const COLUMNS: u32 = 32;

/// One value per thread.
#[repr(C)]
pub struct Sums([[f32; COLUMNS as usize]; WARPS as usize]);

/// first\[c\] = Σ partials[r, c] over `count` rows of `d` elements, and second\[c\] is the same sum over the next
/// `count` rows. The grid has as many blocks along y as there are results.
///
/// # Safety
/// `partials` is valid for reads of `count` rows for each result. `first` and, if there is a second result, `second`
/// are valid for writes of `d` elements.
#[kernel(dtypes(T: float), block = WARPS * 32, shared = Sums, no_spills, programmatic)]
pub unsafe fn column_sums<T: Element>(partials: *const f32, first: *mut T, second: *mut T, count: u64, d: u64) {
    let which = u64::from(thread::block_idx_y());
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let column = u64::from(thread::block_idx_x() * COLUMNS + lane);
    let mut sum = 0.0;
    if column < d {
        let of_column = partials.add((which * count * d + column) as usize);
        let (mut row, turn) = (u64::from(warp), u64::from(WARPS));
        // All loads of a turn are issued before the first one is used.
        while row < count {
            let loaded: [f32; LOADS as usize] = array::from_fn(|i| {
                let row = row + i as u64 * turn;
                if row < count { *of_column.add((row * d) as usize) } else { 0.0 }
            });
            loaded.iter().for_each(|value| sum += value);
            row += LOADS * turn;
        }
    }
    let sums: SharedPtr<f32> = shared::dynamic();
    sums.add(warp * COLUMNS + lane).write(sum);
    thread::sync_threads();
    if warp == 0 && column < d {
        let mut sum = 0.0;
        for warp in 0..WARPS {
            sum += sums.add(warp * COLUMNS + lane).read();
        }
        let result = if which == 0 { first } else { second };
        *result.add(column as usize) = T::from_f32(sum);
    }
}
