//! Powers and roots.

use super::double::Double;
use super::exponential::{scale, special, split};
use super::{ex2_approx, fma, lg2_approx, mul_rn, polynomial, rcp_approx, sqrt, trunc};

const LOG2_E: Double = Double { high: core::f32::consts::LOG2_E, low: 1.925_963e-8 };
const LOG2_10: Double = Double { high: core::f32::consts::LOG2_10, low: 7.059_537e-8 };
const LOG10_2: Double = Double { high: core::f32::consts::LOG10_2, low: -1.432_098_9e-8 };
const TWELFTH: Double = Double { high: 1.0 / 12.0, low: -2.483_527e-9 };

/// 2^x within 0.7 ulp, in whichever half of it a digit stands; infinite parts and `low` of an infinite `high` are taken for what they mean.
#[inline(always)]
pub(super) fn exp2_of(x: Double) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    // Beyond these the result is 0 or infinite anyway, and `low` may be NaN; NaN passes.
    let high = if x.high > 130.0 { 130.0 } else { x.high };
    let high = if high < -152.0 { -152.0 } else { high };
    let low = if high == x.high { x.low } else { 0.0 };
    let rounded = high + ROUND;
    let rest = (high - (rounded - ROUND)) + low;
    let power =
        polynomial(rest, [1.0, 6.931_472e-1, 2.402_265e-1, 5.550_378e-2, 9.618_008e-3, 1.338_565_4e-3, 1.554_350_9e-4]);
    scale(power, rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32)
}

/// The base-2 logarithm of a positive finite x, within 2^-37 of it or so.
#[inline(always)]
fn log2_of(x: f32) -> Double {
    let (n, f) = split(x);
    // ln(1 + f) = u + u³/12 + u⁵/80 + …, of u = 2f / (2 + f).
    let divisor = Double::sum(2.0, f);
    let inverse = rcp_approx(divisor.high);
    let quotient = mul_rn(2.0 * f, inverse);
    let rest = fma(-quotient, divisor.low, fma(-quotient, divisor.high, 2.0 * f));
    let u = Double::sum(quotient, rest * inverse);
    let square = u.times(u);
    let tail = polynomial(square.high, [1.25e-2, 2.232_144_8e-3, 4.336_405_8e-4, 9.415_142e-5]);
    let factor = Double::sum(TWELFTH.high, fma(square.high, tail, TWELFTH.low));
    let logarithm = u.plus(u.times(square).times(factor));
    Double { high: n, low: 0.0 }.plus(logarithm.times(LOG2_E))
}

/// x^y; an `odd` y keeps the sign of x, and a y that is no integer has no power of a negative x. Neither is NaN.
#[inline(always)]
fn power(x: f32, y: Double, integer: bool, odd: bool) -> f32 {
    let magnitude = x.abs();
    let logarithm = if magnitude == 0.0 {
        Double { high: f32::NEG_INFINITY, low: 0.0 }
    } else if magnitude == f32::INFINITY {
        Double { high: f32::INFINITY, low: 0.0 }
    } else {
        log2_of(magnitude)
    };
    let Double { high, low } = Double::product(y.high, logarithm.high);
    let low = fma(y.high, logarithm.low, fma(y.low, logarithm.high, low));
    let result = exp2_of(Double { high, low });
    if x.is_sign_positive() {
        result
    } else if odd {
        -result
    } else if integer || magnitude == 0.0 || magnitude == f32::INFINITY {
        result
    } else {
        f32::NAN
    }
}

/// x^y, as C has it: `pow(x, 0)` and `pow(1, y)` are 1 even of NaN, and a negative x has powers of integers alone.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    if x == 1.0 || y == 0.0 {
        return 1.0;
    }
    if x.is_nan() || y.is_nan() {
        return f32::NAN;
    }
    // No power but of 1 is finite and not 0 there; and an infinite y would make NaN of log(-1) = 0.
    const MOST: f32 = 1.0e12;
    let integer = trunc(y) == y;
    let odd = integer && y.abs() < 16_777_216.0 && y as i32 & 1 == 1;
    power(x, Double { high: y.clamp(-MOST, MOST), low: 0.0 }, integer, odd)
}

/// x^n; 1 for n = 0, even of NaN.
#[inline(always)]
pub fn powi(x: f32, n: i32) -> f32 {
    if n == 0 {
        return 1.0;
    }
    if x.is_nan() {
        return f32::NAN;
    }
    // Both exact.
    let (high, low) = ((n & !0xff) as f32, (n & 0xff) as f32);
    power(x, Double::sum(high, low), true, n & 1 == 1)
}

/// 10^x.
#[inline(always)]
pub fn exp10(x: f32) -> f32 {
    let Double { high, low } = Double::product(x, LOG2_10.high);
    exp2_of(Double { high, low: fma(x, LOG2_10.low, low) })
}

/// The base-10 logarithm, exact for powers of ten.
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    match special(x) {
        Some(value) => value,
        None => log2_of(x).times(LOG10_2).rounded(),
    }
}

/// The cube root, also of negative x.
#[inline(always)]
pub fn cbrt(x: f32) -> f32 {
    let magnitude = x.abs();
    if magnitude == 0.0 || magnitude.is_nan() || magnitude == f32::INFINITY {
        return x;
    }
    let (scaled, back) =
        if magnitude < f32::MIN_POSITIVE { (magnitude * 16_777_216.0, 1.0 / 256.0) } else { (magnitude, 1.0) };
    let root = ex2_approx(lg2_approx(scaled) * (1.0 / 3.0));
    // A step of Newton's, with an error of the root's cube that is not lost in its rounding.
    let square = Double::product(root, root);
    let error = fma(square.low, root, fma(square.high, root, -scaled));
    let root = fma(error, -rcp_approx(3.0 * square.high), root);
    (root * back).copysign(x)
}

/// √(x² + y²), without overflow or underflow between; infinite if either is, even beside NaN.
#[inline(always)]
pub fn hypot(x: f32, y: f32) -> f32 {
    let (x, y) = (x.abs(), y.abs());
    if x == f32::INFINITY || y == f32::INFINITY {
        return f32::INFINITY;
    }
    let (greater, smaller) = if x > y { (x, y) } else { (y, x) };
    // A power of two brings the greater near 1; at the ends of the range only as near as the power and its inverse are normal.
    let exponent = (greater.to_bits() >> 23).clamp(24, 230);
    let (down, up) = (f32::from_bits((254 - exponent) << 23), f32::from_bits(exponent << 23));
    let (greater, smaller) = (greater * down, smaller * down);
    let square = Double::product(greater, greater);
    sqrt(square.high + fma(smaller, smaller, square.low)) * up
}

#[cfg(test)]
mod tests {
    use super::super::ulp::{error, worst};
    use super::*;

    const STEP: usize = 9_973;

    /// The greatest error of `pow` at every x with exponents whose results spread over `2^-155` to `2^135`.
    fn worst_power(from: f32, to: f32, step: usize) -> f64 {
        let mut greatest = 0f64;
        for bits in (from.to_bits()..=to.to_bits()).step_by(step) {
            let x = f32::from_bits(bits);
            let logarithm = f64::from(x).log2();
            for target in (-155..=135).step_by(7) {
                let y = ((f64::from(target) + f64::from(bits % 97) / 97.0) / logarithm) as f32;
                greatest = greatest.max(error(pow(x, y), f64::from(x).powf(f64::from(y))));
            }
        }
        greatest
    }

    #[test]
    fn powers() {
        assert!(worst_power(f32::from_bits(1), f32::MAX, 1_999_993) < 1.0);
        assert!(worst_power(0.6, 1.7, 9_973) < 1.0, "near 1, where the exponent is large");
        for n in [-150, -37, -3, -1, 1, 2, 3, 7, 64, 149, i32::MIN, i32::MAX, 16_777_217, -33_554_431] {
            assert!(worst(STEP, f32::from_bits(1), f32::MAX, |x| powi(x, n), |x| x.powi(n)) < 1.0, "{n}");
            assert!(worst(1, 1.0, 1.000_02, |x| powi(x, n), |x| x.powf(n.into())) < 1.0, "{n} near 1");
        }
        for y in -20..20 {
            assert_eq!(pow(2.0, y as f32), f32::from_bits(((y + 127) << 23) as u32));
        }
        assert!(worst(STEP, 0.0, 60.0, exp10, |x| 10f64.powf(x)) < 1.0);
    }

    /// What C's annex F lists for `pow`.
    #[test]
    fn special_powers() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for y in [0.0, -0.0] {
            for x in [0.0, 1.0, -3.0, inf, -inf, nan] {
                assert_eq!(pow(x, y), 1.0);
            }
        }
        for y in [1.0, -2.5, inf, -inf, nan] {
            assert_eq!(pow(1.0, y), 1.0);
        }
        let bits = |x: f32| if x.is_nan() { nan.to_bits() } else { x.to_bits() };
        for (x, y, expected) in [
            (0.0, -3.0, inf),
            (-0.0, -3.0, -inf),
            (0.0, -2.0, inf),
            (-0.0, -2.0, inf),
            (-0.0, -2.5, inf),
            (0.0, -inf, inf),
            (-0.0, -inf, inf),
            (-0.0, 3.0, -0.0),
            (0.0, 3.0, 0.0),
            (-0.0, 2.0, 0.0),
            (-0.0, 0.5, 0.0),
            (-1.0, inf, 1.0),
            (-1.0, -inf, 1.0),
            (0.5, -inf, inf),
            (-0.5, -inf, inf),
            (-1.5, -inf, 0.0),
            (0.999_999_94, inf, 0.0),
            (1.000_000_1, inf, inf),
            (-inf, -3.0, -0.0),
            (-inf, -2.0, 0.0),
            (-inf, 3.0, -inf),
            (-inf, 2.0, inf),
            (-inf, 2.5, inf),
            (inf, -0.1, 0.0),
            (inf, 0.1, inf),
            (-8.0, 1.0 / 3.0, nan),
            (-2.0, 3.0, -8.0),
            (-2.0, -3.0, -0.125),
            (-2.0, 16_777_216.0, inf),
            (-1.0, 8_388_607.0, -1.0),
            (nan, 1.0, nan),
            (2.0, nan, nan),
            (0.0, nan, nan),
            (f32::MAX, f32::MAX, inf),
            (f32::MAX, f32::MIN, 0.0),
        ] {
            assert_eq!(bits(pow(x, y)), bits(expected), "pow({x}, {y})");
        }
        assert_eq!((powi(nan, 0), powi(0.0, 0), powi(-inf, 0)), (1.0, 1.0, 1.0));
        assert!(powi(nan, 2).is_nan());
        assert_eq!(powi(-0.0, -1), -inf);
        assert_eq!(powi(-1.0, i32::MAX), -1.0);
        assert_eq!(powi(-2.0, -2), 0.25);
    }

    #[test]
    fn logarithms_and_roots() {
        assert!(worst(STEP, f32::from_bits(1), f32::MAX, log10, f64::log10) < 1.0);
        assert!(worst(101, 0.5, 2.0, log10, f64::log10) < 1.0);
        for n in 0..11 {
            assert_eq!(log10(10f32.powi(n)), n as f32);
            assert_eq!(exp10(n as f32), 10f32.powi(n));
        }
        assert!(worst(STEP, f32::from_bits(1), f32::MAX, cbrt, f64::cbrt) < 1.0);
        assert_eq!(cbrt(-27.0), -3.0);
        let mut greatest = 0f64;
        for a in (1..0x7f80_0000u32).step_by(3_456_789) {
            for b in (1..0x7f80_0000u32).step_by(3_234_567).chain([a, a + 1, a ^ 0x80_0000, a ^ 0x100_0000]) {
                let (x, y) = (f32::from_bits(a), f32::from_bits(b.min(0x7f7f_ffff)));
                greatest = greatest.max(error(hypot(x, y), f64::from(x).hypot(f64::from(y))));
            }
        }
        assert!(greatest < 1.0, "{greatest}");
    }

    #[test]
    fn special_values() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!((exp10(inf), exp10(-inf), exp10(39.0), exp10(-46.0)), (inf, 0.0, inf, 0.0));
        assert_eq!((log10(0.0), log10(-0.0), log10(inf)), (-inf, -inf, inf));
        assert!(log10(-1.0).is_nan() && log10(nan).is_nan() && exp10(nan).is_nan());
        assert_eq!((cbrt(inf), cbrt(-inf), cbrt(-0.0).to_bits()), (inf, -inf, (-0f32).to_bits()));
        assert!(cbrt(nan).is_nan());
        assert_eq!((hypot(-inf, nan), hypot(nan, inf), hypot(0.0, -0.0)), (inf, inf, 0.0));
        assert_eq!((hypot(f32::MAX, f32::MAX), hypot(-3e38, 0.0)), (inf, 3e38));
        assert!(hypot(nan, 1.0).is_nan() && hypot(1.0, nan).is_nan());
    }
}
