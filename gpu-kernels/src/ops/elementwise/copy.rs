//! Copy of rows: what makes a padded tensor dense, or the other way round.
//!
//! # Math
//! y = x.
//!
//! # Layout
//! Rows of d words that may be padded: see [`map`](mod@crate::map). Elements are words of their size, so that a word's type is that
//! of every element type as large.
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes per thread, in blocks of [`map::block`] threads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! Bit by bit.
//!
//! # Cost
//! 2·n elements of traffic: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! None.

use cuda_std::kernel;

use crate::map::{self, LIGHT, block};

/// y = x, for `rows` rows of `d` words.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(dtypes(W: u8, u16, u32, u64), block = block(size_of::<W>(), LIGHT), min_blocks = 4, no_spills)]
pub unsafe fn copy_rows<W: Copy>(x: *const W, y: *mut W, rows: u64, d: u64, x_stride: u64, y_stride: u64) {
    let (x, y) = ([(x, x_stride)], [(y, y_stride)]);
    match size_of::<W>() {
        1 => map::move_packs::<W, W, 1, 0, 1, 16, LIGHT>(x, y, rows, d, |x| x, |x| x),
        2 => map::move_packs::<W, W, 1, 0, 1, 8, LIGHT>(x, y, rows, d, |x| x, |x| x),
        4 => map::move_packs::<W, W, 1, 0, 1, 4, LIGHT>(x, y, rows, d, |x| x, |x| x),
        _ => map::move_packs::<W, W, 1, 0, 1, 2, LIGHT>(x, y, rows, d, |x| x, |x| x),
    }
}
