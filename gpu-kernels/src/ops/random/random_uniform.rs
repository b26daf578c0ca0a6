//! Random numbers, evenly over a range.
//!
//! # Math
//! y = low + (high − low) · u, u = ⌊w / 2⁸⌋ · 2⁻²⁴ of the element's random word w: in [0, 1).
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map). Which word an element has: see [`quad`].
//!
//! # Mapping
//! As every elementwise kernel, without an input: four packs of 16 bytes per thread, 256 threads a block.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! u is exact; one fused multiply-add in f32, rounded once to the storage type, which may give `high`.
//!
//! # Cost
//! One write of n elements, and 20 wide products for four: f32 is bound by memory bandwidth, 16-bit types write twice as many numbers a
//! second and come close to the bound of arithmetic.
//!
//! # Limits
//! d up to (2³¹ − 1) · 16 KiB.
//!
//! # Sources
//! Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).

use cuda_std::float::Element;
use cuda_std::{kernel, math};

use super::{generate, quad};
use crate::map::{BUSY, block};

/// y = low + range · u, for `rows` rows of `d` elements.
///
/// # Safety
/// `y` is valid for writes of those rows at their stride; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), BUSY), min_blocks = 4, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn random_uniform<T: Element>(
    y: *mut T,
    rows: u64,
    d: u64,
    y_stride: u64,
    low: f32,
    range: f32,
    seed: u64,
    offset: u64,
) {
    const STEP: f32 = 1.0 / (1 << 24) as f32;
    generate((y, y_stride), rows, d, |number| {
        quad(seed, offset, number).map(|word| math::fma((word >> 8) as f32 * STEP, range, low))
    });
}
