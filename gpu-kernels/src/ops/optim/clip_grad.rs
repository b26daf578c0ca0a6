//! Gradients clipped to a norm, in place.
//!
//! # Math
//! g ← g · min(1, max_norm / (norm + ε)), ε = 10⁻⁶. The norm is a value in device memory, which an earlier kernel has written.
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes in flight per thread, in blocks of [`map::block`] threads. Every
//! thread reads the norm.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! The factor in f32, div.full within 2 ulp; one product, rounded once to the storage type. A norm that is NaN makes everything NaN, an
//! infinite one makes 0 of what is finite.
//!
//! # Cost
//! 2·n elements of traffic: bound by memory bandwidth. Nothing moves where the norm is within its limit.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (arXiv:1211.5063), section 3.2.

use cuda_std::float::Element;
use cuda_std::kernel;

use super::clip_scale;
use crate::map::{self, LIGHT, block};

/// g ← g · min(1, max_norm / (norm + ε)), for `rows` rows of `d` elements.
///
/// # Safety
/// `grads` is valid for reads and writes of those rows at their stride and `norm` for a read; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), LIGHT), min_blocks = 4, no_spills)]
pub unsafe fn clip_grad<T: Element>(
    grads: *mut T,
    norm: *const f32,
    rows: u64,
    d: u64,
    grads_stride: u64,
    max_norm: f32,
) {
    let scale = clip_scale(*norm, max_norm);
    if scale == 1.0 {
        return;
    }
    map::update((grads, grads_stride), rows, d, |g| g * scale);
}
