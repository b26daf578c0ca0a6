//! sin² + cos², elementwise: what fusion is worth.
//!
//! # Math
//! y = sin²(x) + cos²(x), which is 1: there is nothing to it but traffic.
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As every elementwise kernel. [`sin2_cos2`] does it in one pass; [`sin`], [`cos`], [`square`] and
//! [`add`](super::add::add) do it one operation at a time, in five launches, as a program does that calls an operator each.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, sine and cosine within 2 ulp for |x| up to 2⁵⁰; in one pass rounded once to the storage type, in five each time.
//! Infinities and NaN give NaN.
//!
//! # Cost
//! 2·n elements of traffic in one pass. In five 2 + 2 + 2 + 2 + 3 = 11·n: 5.5 times as long.
//!
//! # Limits
//! d up to (2³¹ − 1) · 16 KiB.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::math;

use crate::map::BLOCK;

/// The kernel of a function of one f32.
macro_rules! unary {
    ($(#[$doc:meta])* $kernel:ident, $f:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// `x` is valid for reads and `y` for writes of those rows at their strides; d and rows are at least 1.
        #[cuda_std::kernel(dtypes(T: float), block = BLOCK, min_blocks = 2, no_spills)]
        pub unsafe fn $kernel<T: Element>(x: *const T, y: *mut T, rows: u64, d: u64, x_stride: u64, y_stride: u64) {
            let f: fn(f32) -> f32 = $f;
            crate::map::zip::<T, T, 1, 0>([(x, x_stride)], (y, y_stride), rows, d, |[x]| f(x));
        }
    };
}

unary! {
    /// y = sin²(x) + cos²(x), for `rows` rows of `d` elements.
    sin2_cos2, |x| {
        let (sine, cosine) = math::sin_cos(x);
        sine * sine + cosine * cosine
    }
}

unary! {
    /// y = sin(x), for `rows` rows of `d` elements.
    sin, math::sin
}

unary! {
    /// y = cos(x), for `rows` rows of `d` elements.
    cos, math::cos
}

unary! {
    /// y = x², for `rows` rows of `d` elements.
    square, |x| x * x
}
