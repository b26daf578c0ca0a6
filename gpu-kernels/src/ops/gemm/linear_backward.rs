//! Gradient of a linear layer y = x·Wᵀ + bias: two products of [`gemm`](super::gemm) and the column sums of dy, whose
//! first stage is in this file.
//!
//! # Math
//! dx = dy·W, dW = dyᵀ·x and dbias\[c\] = Σᵣ dy\[r, c\]; dW and dbias may be added to what is there.
//!
//! # Layout
//! `dy` is rows of d adjacent elements, `stride` apart. `partials` are rows of d f32, one for each block along y of the
//! grid. The products read dy and x in their given layouts: dW is a product of two MN-major operands.
//!
//! # Mapping
//! A block of eight warps sums a strip of columns over its part of the rows: a lane has one 16-byte pack of them, or
//! one column, and warps take rows in turn. Then the first warp adds the other warps' sums and writes the result.
//! [`columns`](crate::columns) sums the blocks' results.
//!
//! # Shared memory
//! One value per column and warp: 8 KiB.
//!
//! # Numerics
//! Sums in f32, in an order that depends on the grid alone: the same every time. The previous value of dbias is the
//! first addend.
//!
//! # Cost
//! Two reads of dy, one of them here, beside 4·rows·in·out FLOPs: the sums are bound by memory bandwidth, 32 µs for 16,384 rows of 4096 in 16 bits at
//! 4.25 TB/s, where the products of as wide a layer take 1.4 ms.
//!
//! # Limits
//! As many rows as fit in memory.
//!
//! # Sources
//! The derivative of the formula.

use core::array;

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread, warp};

/// Warps of a block.
const WARPS: u32 = 8;
/// Rows in flight per warp.
const LOADS: u64 = 4;
/// The most columns of a block: packs of eight for each lane.
const COLUMNS: usize = 256;

/// Columns that a block sums in packs of `v`.
pub const fn columns(v: u32) -> u32 {
    32 * v
}

/// A value a column and warp.
#[repr(C, align(16))]
pub struct Sums([[f32; COLUMNS]; WARPS as usize]);

/// Row y of `partials` = Σ dy\[r\] over block y's `rows_each` of `rows` rows; row 0 also adds `before`, unless that is null.
///
/// # Safety
/// `dy` is valid for reads of `rows` rows of `d` elements at their stride, with `V` = 8 in packs of 16 bytes; `before` is null or valid for reads of `d`,
/// and `partials` for writes of as many rows of `d` as the grid has blocks along y.
#[kernel(dtypes(T: half), values(V: 8, 1), block = WARPS * 32, shared = Sums, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn linear_backward_bias<T: Half, const V: usize>(
    dy: *const T,
    before: *const f32,
    partials: *mut f32,
    rows: u64,
    d: u64,
    stride: u64,
    rows_each: u64,
) {
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let part = u64::from(thread::block_idx_y());
    let column = u64::from(thread::block_idx_x() * columns(V as u32) + lane * V as u32);
    let end = (part * rows_each).saturating_add(rows_each).min(rows);
    let mut sums = [0.0; V];
    if column < d {
        let of_row = |row: u64| Pack::<T, V>::load(dy.add((row * stride + column) as usize));
        let mut add = |pack: Pack<T, V>| {
            let values = pack.to_f32();
            sums = array::from_fn(|i| sums[i] + values[i]);
        };
        let (mut row, turn) = (part * rows_each + u64::from(warp), u64::from(WARPS));
        // Several loads before the first is used.
        while row + (LOADS - 1) * turn < end {
            let loaded: [_; LOADS as usize] = array::from_fn(|i| of_row(row + i as u64 * turn));
            loaded.into_iter().for_each(&mut add);
            row += LOADS * turn;
        }
        while row < end {
            add(of_row(row));
            row += turn;
        }
    }
    let all: SharedPtr<f32> = shared::dynamic();
    // Neighbouring lanes' values are adjacent, whichever columns a lane has.
    let place = |warp: u32, i: usize| all.add(warp * COLUMNS as u32 + i as u32 * 32 + lane);
    for i in 0..V {
        place(warp, i).write(sums[i]);
    }
    thread::sync_threads();
    if warp == 0 && column < d {
        let mut sums: [f32; V] = [0.0; V];
        if part == 0 && !before.is_null() {
            sums = array::from_fn(|i| *before.add(column as usize + i));
        }
        for warp in 0..WARPS {
            sums = array::from_fn(|i| sums[i] + place(warp, i).read());
        }
        let to = partials.add((part * d + column) as usize);
        for i in 0..V {
            *to.add(i) = sums[i];
        }
    }
}
