//! Angles from their sines, cosines and tangents, and what is made of the logarithm for the hyperbolic ones.

use core::f32::consts::{FRAC_PI_2, LN_2, PI};

use super::{fma, log, log1p, polynomial, sqrt};

/// π/2 and π beyond a float.
const FRAC_PI_2_LOW: f32 = -4.371_139e-8;
const PI_LOW: f32 = -8.742_278e-8;

/// The arctangent of x in [0, 1].
#[inline(always)]
fn atan_of_ratio(x: f32) -> f32 {
    let square = x * x;
    let tail = polynomial(
        square,
        [
            -3.333_315_3e-1,
            1.999_376_7e-1,
            -1.421_100_8e-1,
            1.066_582_2e-1,
            -7.551_838_5e-2,
            4.320_759_7e-2,
            -1.636_541e-2,
            2.920_088_1e-3,
        ],
    );
    fma(x * square, tail, x)
}

/// The arcsine of x in [0, 1/2], of which `square` is the square.
#[inline(always)]
fn asin_small(x: f32, square: f32) -> f32 {
    let tail = polynomial(square, [1.666_675_2e-1, 7.495_309_4e-2, 4.546_915e-2, 2.418_477_8e-2, 4.215_830_6e-2]);
    fma(x * square, tail, x)
}

/// The arctangent, in [-π/2, π/2].
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    let magnitude = x.abs();
    let steep = magnitude > 1.0;
    let angle = atan_of_ratio(if steep { 1.0 / magnitude } else { magnitude });
    (if steep { (FRAC_PI_2 - angle) + FRAC_PI_2_LOW } else { angle }).copysign(x)
}

/// The angle of the point (x, y) from the positive x axis, in [-π, π]: the arctangent of y / x in its quadrant. As in C zeros have
/// signs, and infinities are on the diagonals.
#[inline(always)]
pub fn atan2(y: f32, x: f32) -> f32 {
    let (height, width) = (y.abs(), x.abs());
    let steep = height > width;
    let (smaller, greater) = if steep { (width, height) } else { (height, width) };
    let ratio = if smaller == greater {
        // Infinities too. Zero by zero has the angle of its signs.
        if greater == 0.0 { 0.0 } else { 1.0 }
    } else {
        smaller / greater
    };
    let angle = atan_of_ratio(ratio);
    let left = x.is_sign_negative();
    // The axis that the angle is taken from.
    let (axis, low) = match (steep, left) {
        (true, _) => (FRAC_PI_2, FRAC_PI_2_LOW),
        (false, true) => (PI, PI_LOW),
        (false, false) => (0.0, 0.0),
    };
    let angle = axis + (if steep == left { angle } else { -angle }) + low;
    // A comparison with NaN is false, and its sign is not NaN's to have.
    if x.is_nan() || y.is_nan() { f32::NAN } else { angle.copysign(y) }
}

/// The arcsine, in [-π/2, π/2]; NaN beyond [-1, 1].
#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let magnitude = x.abs();
    let angle = if magnitude > 0.5 {
        let square = fma(magnitude, -0.5, 0.5);
        let half = asin_small(sqrt(square), square);
        (FRAC_PI_2 - 2.0 * half) + FRAC_PI_2_LOW
    } else {
        asin_small(magnitude, magnitude * magnitude)
    };
    angle.copysign(x)
}

/// The arccosine, in [0, π]; NaN beyond [-1, 1].
#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let magnitude = x.abs();
    if magnitude > 0.5 {
        let square = fma(magnitude, -0.5, 0.5);
        let angle = 2.0 * asin_small(sqrt(square), square);
        if x > 0.0 { angle } else { (PI - angle) + PI_LOW }
    } else {
        let angle = asin_small(magnitude, magnitude * magnitude).copysign(x);
        (FRAC_PI_2 - angle) + FRAC_PI_2_LOW
    }
}

/// The inverse of sinh.
#[inline(always)]
pub fn asinh(x: f32) -> f32 {
    let magnitude = x.abs();
    let result = if magnitude > 1.0e9 {
        log(magnitude) + LN_2
    } else {
        let square = magnitude * magnitude;
        log1p(magnitude + square / (1.0 + sqrt(1.0 + square)))
    };
    result.copysign(x)
}

/// The inverse of cosh, for x from 1 on; NaN below.
#[inline(always)]
pub fn acosh(x: f32) -> f32 {
    if x > 1.0e9 {
        log(x) + LN_2
    } else {
        // Exact near 1.
        let above = x - 1.0;
        log1p(above + sqrt(fma(above, above, 2.0 * above)))
    }
}

/// The inverse of tanh; infinite at 1 and -1, NaN beyond.
#[inline(always)]
pub fn atanh(x: f32) -> f32 {
    let magnitude = x.abs();
    (0.5 * log1p(2.0 * magnitude / (1.0 - magnitude))).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::super::ulp::{error, worst};
    use super::*;

    const STEP: usize = 9_973;

    #[test]
    fn angles() {
        assert!(worst(STEP, 0.0, f32::MAX, atan, f64::atan) < 2.0);
        assert!(worst(STEP, 0.0, 1.0, asin, f64::asin) < 2.0);
        assert!(worst(STEP, 0.0, 1.0, acos, f64::acos) < 2.0);
        assert!(worst(1, 0.999, 1.0, acos, f64::acos) < 2.0);
        let mut greatest = 0f64;
        for a in (0..0x7f80_0000u32).step_by(3_456_789) {
            for b in (0..0x7f80_0000u32).step_by(3_234_567).chain([a, a + 1, a ^ 0x80_0000, a ^ 0x100_0000]) {
                let (y, x) = (f32::from_bits(a), f32::from_bits(b.min(0x7f7f_ffff)));
                for (y, x) in [(y, x), (y, -x), (-y, x), (-y, -x)] {
                    greatest = greatest.max(error(atan2(y, x), f64::from(y).atan2(f64::from(x))));
                }
            }
        }
        assert!(greatest < 2.0, "{greatest}");
    }

    #[test]
    fn inverses_of_hyperbolic_functions() {
        assert!(worst(STEP, 0.0, f32::MAX, asinh, exact_asinh) < 3.0);
        assert!(worst(STEP, 1.0, f32::MAX, |x| acosh(x.abs()), |x| x.abs().acosh()) < 3.0);
        let exact = |x: f64| 0.5 * (2.0 * x / (1.0 - x)).ln_1p();
        assert!(worst(STEP, 0.0, 0.999_999_94, atanh, |x| exact(x.abs()).copysign(x)) < 3.0);
    }

    /// `f64::asinh` loses digits of what is small.
    fn exact_asinh(x: f64) -> f64 {
        let a = x.abs();
        (a + a * a / (1.0 + (1.0 + a * a).sqrt())).ln_1p().copysign(x)
    }

    #[test]
    fn special_values() {
        use core::f32::consts::{FRAC_PI_4, PI};
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let exact: [(f32, f32, f32); 14] = [
            (0.0, 0.0, 0.0),
            (-0.0, 0.0, -0.0),
            (0.0, -0.0, PI),
            (-0.0, -0.0, -PI),
            (-0.0, 1.0, -0.0),
            (0.0, -1.0, PI),
            (1.0, 0.0, FRAC_PI_2),
            (-1.0, -0.0, -FRAC_PI_2),
            (inf, inf, FRAC_PI_4),
            (-inf, -inf, -3.0 * FRAC_PI_4),
            (inf, -7.0, FRAC_PI_2),
            (7.0, -inf, PI),
            (-7.0, inf, -0.0),
            (1e-40, inf, 0.0),
        ];
        for (y, x, angle) in exact {
            assert_eq!(atan2(y, x).to_bits(), angle.to_bits(), "atan2({y}, {x})");
        }
        assert!(atan2(nan, 1.0).is_nan() && atan2(1.0, nan).is_nan() && atan2(inf, nan).is_nan());
        assert_eq!((atan(inf), atan(-inf), atan(-0.0).to_bits()), (FRAC_PI_2, -FRAC_PI_2, (-0f32).to_bits()));
        assert_eq!((asin(1.0), asin(-1.0), acos(1.0), acos(-1.0)), (FRAC_PI_2, -FRAC_PI_2, 0.0, PI));
        assert_eq!((acos(0.0), asin(-0.0).to_bits()), (FRAC_PI_2, (-0f32).to_bits()));
        for x in [1.000_000_1, -1.5, inf, -inf, nan] {
            assert!(asin(x).is_nan() && acos(x).is_nan(), "{x}");
        }
        assert_eq!((asinh(inf), asinh(-inf), asinh(-0.0).to_bits()), (inf, -inf, (-0f32).to_bits()));
        assert_eq!((acosh(inf), acosh(1.0)), (inf, 0.0));
        assert_eq!((atanh(1.0), atanh(-1.0), atanh(-0.0).to_bits()), (inf, -inf, (-0f32).to_bits()));
        assert!(acosh(0.999).is_nan() && acosh(-inf).is_nan() && atanh(1.5).is_nan() && atanh(-inf).is_nan());
        assert!([atan, asinh, acosh, atanh].iter().all(|f| f(nan).is_nan()));
    }
}
