//! Reductions over a batch's targets before its rows are processed, and over its losses afterwards.
//!
//! # Math
//! A row counts unless its target is the ignored index or not a class. The sum of losses is divided by the total weight
//! of the rows that count: by their number, or by the sum of the weights of their targets' classes.
//!
//! # Layout
//! `targets` is an i32 a row, `weights` an f32 a class or null, `losses` an f32 a row.
//!
//! # Mapping
//! One block, whose threads take rows in turn: even a million targets are only 4 MB. A thread issues several loads
//! before it uses the first: one after the other they would take longer than the rows of a small batch.
//!
//! # Shared memory
//! Two values per warp.
//!
//! # Numerics
//! f32, in an order that is always the same. A batch in which no row counts has the share 0, so that its loss and gradients are 0.
//!
//! # Cost
//! One read of the targets, or of the losses: some microseconds.
//!
//! # Limits
//! 2³² − 1 rows.
//!
//! # Sources
//! None.

use core::array;

use cuda_std::{kernel, thread};

use crate::rows::{BlockThreads, Threads};

/// Threads of the block.
pub const BLOCK: u32 = 512;

/// Rows that a thread loads at once.
const AT_ONCE: usize = 8;

/// Those values of `from` that a thread loads at once, `row` the first of its rows; `nothing` where there is no row.
#[inline(always)]
unsafe fn load<T: Copy>(from: *const T, row: u32, rows: u32, nothing: T) -> [T; AT_ONCE] {
    array::from_fn(|i| {
        let row = row + i as u32 * BLOCK;
        if row < rows { *from.add(row as usize) } else { nothing }
    })
}

/// The value of `bad` if all targets are valid.
pub const FINE: u32 = u32::MAX;

/// `share` = 1 / the total weight of the rows that count, and `bad` = the first row whose target is neither a class nor
/// `ignored`, and that target, or [`FINE`].
///
/// # Safety
/// `targets` is valid for reads of `rows`, `weights` null or valid for reads of `classes`, `share` is valid for a write and `bad` for
/// two.
#[kernel(block = BLOCK, shared = <BlockThreads as Threads>::Partials<2>, no_spills)]
pub unsafe fn weigh_targets(
    targets: *const i32,
    weights: *const f32,
    share: *mut f32,
    bad: *mut u32,
    rows: u32,
    classes: u32,
    ignored: i32,
) {
    let mut weight = 0.0;
    let mut first = FINE;
    let mut row = thread::thread_idx_x();
    while row < rows {
        let loaded = load(targets, row, rows, ignored);
        for i in 0..AT_ONCE {
            let target = loaded[i];
            if target != ignored {
                if (target as u32) < classes && target >= 0 {
                    weight += if weights.is_null() { 1.0 } else { *weights.add(target as usize) };
                } else {
                    first = first.min(row + i as u32 * BLOCK);
                }
            }
        }
        row += AT_ONCE as u32 * BLOCK;
    }
    let [weight] = BlockThreads::reduce([weight], [0.0], 0, |[a], [b]| [a + b]);
    let [first] = BlockThreads::reduce([first], [FINE], 1, |[a], [b]| [a.min(b)]);
    if thread::thread_idx_x() == 0 {
        *share = if weight == 0.0 { 0.0 } else { 1.0 / weight };
        *bad = first;
        *bad.add(1) = if first == FINE { 0 } else { *targets.add(first as usize) as u32 };
    }
}

/// `total` = Σ losses · `share`, which is 1 where it is null.
///
/// # Safety
/// `losses` is valid for reads of `rows`, `share` null or valid for a read, and `total` for a write.
#[kernel(block = BLOCK, shared = <BlockThreads as Threads>::Partials<1>, no_spills, programmatic)]
pub unsafe fn total_loss(losses: *const f32, share: *const f32, total: *mut f32, rows: u32) {
    let mut sum = 0.0;
    let mut row = thread::thread_idx_x();
    while row < rows {
        sum = load(losses, row, rows, 0.0).iter().fold(sum, |sum, loss| sum + loss);
        row += AT_ONCE as u32 * BLOCK;
    }
    let [sum] = BlockThreads::reduce([sum], [0.0], 0, |[a], [b]| [a + b]);
    if thread::thread_idx_x() == 0 {
        *total = if share.is_null() { sum } else { sum * *share };
    }
}
