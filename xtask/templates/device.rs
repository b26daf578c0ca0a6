//! NAME, elementwise.
//!
//! # Math
//! y = x.
//!
//! # Layout
//! `x` and `y` are n contiguous elements each.
//!
//! # Mapping
//! One-dimensional grid of 256 threads a block, an element a thread.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, rounded once to the storage type.
//!
//! # Cost
//! 2·n elements of traffic: bound by memory bandwidth.
//!
//! # Limits
//! n up to (2³¹ − 1) · 256.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::{bf16, f16, kernel, thread};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// y = x for n elements.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `n` elements.
#[kernel(dtypes(T: f32, f16, bf16), block = BLOCK, no_spills)]
pub unsafe fn NAME<T: Element>(x: *const T, y: *mut T, n: u64) {
    let i = thread::index_1d();
    if (i as u64) < n {
        *y.add(i) = T::from_f32((*x.add(i)).to_f32());
    }
}
