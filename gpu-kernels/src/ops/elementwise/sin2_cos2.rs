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
//! [`add`](super::add::add) do it one operation at a time, in five launches, as a program does that calls an operator each. Whether an angle is
//! so large that its quadrant takes f64 is asked of a pack: a branch an element leaves nothing to compute while another waits.
//!
//! Memory brings 16-bit elements twice as fast, and leaves no time for two polynomials each: in one pass their sine and cosine are those
//! of the special-function unit, 12 instructions for 36.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32 arithmetic, sine and cosine within 2 ulp for |x| up to 2⁵⁰, those of 16 bits in one pass within 2⁻²⁰, which is far from what 1 is
//! rounded by; in one pass rounded once to the storage type, in five each time. Infinities and NaN give NaN.
//!
//! # Cost
//! 2·n elements of traffic in one pass. In five 2 + 2 + 2 + 2 + 3 = 11·n: 5.5 times as long.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! None.

use cuda_std::float::Element;
use cuda_std::math;
use cuda_std::vector::Pack;

use crate::lanes;
use crate::map::{self, HEAVY, In, LIGHT, Out, block};
use crate::ops::quant::greatest;

/// f of sine and cosine. `near_of_16_bits` are those of an angle below [`math::NEAR_ANGLE`] that has 16 bits.
#[inline(always)]
unsafe fn of_angles<T: Element, const SHORT: usize>(
    x: In<T>,
    y: Out<T>,
    rows: u64,
    d: u64,
    near_of_16_bits: impl Fn(f32) -> (f32, f32),
    f: impl Fn((f32, f32)) -> f32,
) {
    match lanes::<T>() {
        4 => of_packs::<T, 4, SHORT>(x, y, rows, d, math::sin_cos_near, f),
        _ => of_packs::<T, 8, SHORT>(x, y, rows, d, near_of_16_bits, f),
    }
}

#[inline(always)]
unsafe fn of_packs<T: Element, const N: usize, const SHORT: usize>(
    x: In<T>,
    y: Out<T>,
    rows: u64,
    d: u64,
    near: impl Fn(f32) -> (f32, f32),
    f: impl Fn((f32, f32)) -> f32,
) {
    let pack = |[pack]: [Pack<T, N>; 1]| {
        let x = pack.to_f32();
        let all_near = greatest(pack) < math::NEAR_ANGLE;
        let y = if all_near { x.map(|x| f(near(x))) } else { x.map(|x| f(math::sin_cos(x))) };
        [Pack::from_f32(y)]
    };
    map::move_packs::<T, T, 1, 0, 1, N, SHORT>([x], [y], rows, d, pack, |[x]| {
        [T::from_f32(f(math::sin_cos(x.to_f32())))]
    });
}

/// f of what is no angle.
#[inline(always)]
unsafe fn of_numbers<T: Element, const SHORT: usize>(x: In<T>, y: Out<T>, rows: u64, d: u64, f: impl Fn(f32) -> f32) {
    map::zip::<T, T, 1, 0, SHORT>([x], y, rows, d, |[x]| f(x));
}

/// A kernel of one input and one result.
macro_rules! unary {
    ($(#[$doc:meta])* $kernel:ident: $short:ident, $map:ident($($f:expr),*)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// `x` is valid for reads and `y` for writes of those rows at their strides; d and rows are at least 1.
        #[cuda_std::kernel(
            dtypes(T: float),
            block = block(size_of::<T>(), $short),
            min_blocks = map::min_blocks(size_of::<T>(), $short, 2),
            no_spills
        )]
        pub unsafe fn $kernel<T: Element>(x: *const T, y: *mut T, rows: u64, d: u64, x_stride: u64, y_stride: u64) {
            $map::<T, { $short }>((x, x_stride), (y, y_stride), rows, d, $($f),*);
        }
    };
}

unary! {
    /// y = sin²(x) + cos²(x), for `rows` rows of `d` elements.
    sin2_cos2: LIGHT, of_angles(math::sin_cos_approx_near, |(sine, cosine)| sine * sine + cosine * cosine)
}

unary! {
    /// y = sin(x), for `rows` rows of `d` elements.
    sin: HEAVY, of_angles(math::sin_cos_near, |(sine, _)| sine)
}

unary! {
    /// y = cos(x), for `rows` rows of `d` elements.
    cos: HEAVY, of_angles(math::sin_cos_near, |(_, cosine)| cosine)
}

unary! {
    /// y = x², for `rows` rows of `d` elements.
    square: LIGHT, of_numbers(|x| x * x)
}
