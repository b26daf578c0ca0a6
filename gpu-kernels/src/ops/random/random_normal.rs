//! Normally distributed random numbers.
//!
//! # Math
//! Two words a and b give two elements, y = mean + std · r · cos θ and mean + std · r · sin θ, with r = √(−2 ln u), u = (a + ½) · 2⁻³² and
//! θ = 2π · b · 2⁻³² − π: the transform of Box and Muller. Words 0 and 1 of a quad are a pair, and words 2 and 3.
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map). Which quad an element has: see [`quad`].
//!
//! # Mapping
//! As every elementwise kernel, without an input: four packs of 16 bytes per thread, 256 threads a block.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! u and b · 2⁻³² are f32, rounded to nearest: u is in [2⁻³³, 1], and r at most 6.77. The logarithm errs by 2 ulp; sin.approx and
//! cos.approx by about 2⁻²⁰ absolute, times r; θ by 2⁻²².
//!
//! # Cost
//! One write of n elements. For four of them 20 wide products and 22 instructions of the special function unit, which has a quarter of a
//! multiprocessor's rate: f32 is close to both bounds, 16-bit types are bound by arithmetic.
//!
//! # Limits
//! d up to (2³¹ − 1) · 16 KiB.
//!
//! # Sources
//! Box and Muller, "A Note on the Generation of Random Normal Deviates" (Annals of Mathematical Statistics 29, 1958); Salmon et al.,
//! "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).

use core::f32::consts::PI;

use cuda_std::float::Element;
use cuda_std::{kernel, math};

use super::{generate, quad};
use crate::map::{BUSY, block};

/// 2⁻³².
const STEP: f32 = 1.0 / (1u64 << 32) as f32;

/// Two numbers of mean 0 and standard deviation 1.
#[inline(always)]
fn pair(a: u32, b: u32) -> [f32; 2] {
    // From 2⁻³³ to 1, so that the square is 0 or at least 2⁻²⁴.
    let r = math::sqrt_approx_ftz(-2.0 * math::log_of_normal(math::fma(a as f32, STEP, STEP / 2.0)));
    let angle = math::fma(b as f32, 2.0 * PI * STEP, -PI);
    [r * math::cos_approx(angle), r * math::sin_approx(angle)]
}

/// y = mean + std · normal, for `rows` rows of `d` elements.
///
/// # Safety
/// `y` is valid for writes of those rows at their stride; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), BUSY), min_blocks = 4, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn random_normal<T: Element>(
    y: *mut T,
    rows: u64,
    d: u64,
    y_stride: u64,
    mean: f32,
    std: f32,
    seed: u64,
    offset: u64,
) {
    generate((y, y_stride), rows, d, |number| {
        let [a, b, c, d] = quad(seed, offset, number);
        let ([w, x], [y, z]) = (pair(a, b), pair(c, d));
        [w, x, y, z].map(|normal| math::fma(normal, std, mean))
    });
}
