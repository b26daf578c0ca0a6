//! The remainder of a division.

use core::num::NonZero;

use super::exponential::scale;

/// What is left of x when y is taken from it as often as fits, exactly and with the sign of x: C's `fmod`. NaN for an infinite x and for
/// y = 0. Rust's `%` is an inexact shortcut on the device, wrong where the quotient is large.
#[inline(always)]
pub fn rem(x: f32, y: f32) -> f32 {
    /// The bits of a magnitude as an integer and the exponent of its last place.
    #[inline(always)]
    fn parts(bits: u32) -> (u32, u32) {
        let exponent = bits >> 23;
        if exponent == 0 { (bits, 1) } else { (bits & 0x7f_ffff | 0x80_0000, exponent) }
    }
    let (dividend, divisor) = (x.abs(), y.abs());
    // Also where either is NaN.
    if !(dividend < f32::INFINITY && divisor > 0.0) {
        return f32::NAN;
    }
    if dividend < divisor || divisor == f32::INFINITY {
        return x;
    }
    let ((high, from), (divisor, to)) = (parts(dividend.to_bits()), parts(divisor.to_bits()));
    // Not zero, which this says to the compiler.
    let Some(divisor) = NonZero::new(divisor) else { return f32::NAN };
    // A division of integers, 8 bits of the quotient a turn: the remainder has 24 at most.
    let mut rest = high % divisor;
    let mut places = from - to;
    while places > 0 {
        let shift = places.min(8);
        rest = (rest << shift) % divisor;
        places -= shift;
    }
    scale(rest as f32, to as i32 - 150).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_remainder_is_exact() {
        let values = || (0..0x7f80_0000u32).step_by(12_345_677).chain([1, 2, 0x7f_ffff, 0x80_0000]).map(f32::from_bits);
        let mut checked = 0;
        for x in values() {
            for y in values().filter(|y| *y > 0.0) {
                assert_eq!(rem(x, y), x % y, "{x:e} % {y:e}");
                assert_eq!(rem(-x, y).to_bits(), (-x % y).to_bits(), "-{x:e} % {y:e}");
                assert_eq!(rem(x, -y), x % y, "{x:e} % -{y:e}");
                checked += 1;
            }
        }
        assert!(checked > 30_000);
    }

    #[test]
    fn special_values() {
        for (x, y) in [(f32::INFINITY, 1.0), (1.0, 0.0), (f32::NAN, 1.0), (1.0, f32::NAN), (f32::NAN, f32::INFINITY)] {
            assert!(rem(x, y).is_nan(), "{x} % {y}");
        }
        assert_eq!(rem(3.5, f32::INFINITY), 3.5);
        assert!(rem(-0.0, 1.0).is_sign_negative() && rem(-6.0, 3.0).is_sign_negative());
    }
}
