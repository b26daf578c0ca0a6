//! The hyperbolic functions, and the error function, which is shaped like one.

use super::double::Double;
use super::power::exp2_of;
use super::{ex2_approx, ex2_approx_ftz, fma, polynomial, rcp_approx_ftz};

/// The hyperbolic tangent. Both of its halves are computed: a branch that parts the lanes of a warp would take longer.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let square = x * x;
    let tail = polynomial(square, [-3.333_33e-1, 1.333_192_4e-1, -5.378_382_3e-2, 2.079_594_3e-2, -5.895_126_6e-3]);
    let near = fma(x * square, tail, x);
    // 1 - 2 / (e^2|x| + 1): infinite powers give 1, and nothing is subnormal that matters.
    let power = ex2_approx_ftz(x.abs() * (2.0 * core::f32::consts::LOG2_E));
    let far = fma(rcp_approx_ftz(power + 1.0), -2.0, 1.0);
    (if x.abs() < 0.6 { near } else { far }).copysign(x)
}

/// e^x / 2 in twice the precision's care: where e^x overflows, this does not yet.
#[inline(always)]
fn half_exp(x: f32) -> f32 {
    let Double { high, low } = Double::product(x, core::f32::consts::LOG2_E);
    let exponent = Double::sum(high, -1.0);
    exp2_of(Double { high: exponent.high, low: exponent.low + fma(x, 1.925_963e-8, low) })
}

/// The hyperbolic sine.
#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let magnitude = x.abs();
    let result = if magnitude < 1.0 {
        let square = x * x;
        let tail = polynomial(square, [1.666_666_7e-1, 8.333_310_5e-3, 1.984_289_6e-4, 2.782_213_2e-6]);
        fma(magnitude * square, tail, magnitude)
    } else {
        let half = half_exp(magnitude);
        half - 0.25 / half
    };
    result.copysign(x)
}

/// The hyperbolic cosine.
#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let half = half_exp(x.abs());
    half + 0.25 / half
}

/// The error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    if magnitude < 1.0 {
        let tail = polynomial(
            x * x,
            [
                1.283_791_7e-1,
                -3.761_262_6e-1,
                1.128_358_5e-1,
                -2.685_381e-2,
                5.188_327_3e-3,
                -8.010_188_5e-4,
                7.853_844e-5,
            ],
        );
        fma(x, tail, x)
    } else {
        // 1 - erfc, whose logarithm is smooth; above 4.1 it rounds to 1. NaN stays NaN.
        let clamped = if magnitude > 4.1 { 4.1 } else { magnitude };
        let logarithm = polynomial(
            clamped,
            [
                2.719_127_2e-4,
                -1.629_64,
                -9.135_380_4e-1,
                -1.564_201_3e-1,
                3.637_09e-2,
                -6.066_968e-3,
                6.369_151_5e-4,
                -3.130_343_6e-5,
            ],
        );
        (1.0 - ex2_approx(logarithm)).copysign(x)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ulp::worst;
    use super::*;

    #[test]
    fn tanh_everywhere() {
        assert!(worst(9_973, 0.0, f32::MAX, tanh, f64::tanh) < 2.0);
        assert_eq!(tanh(f32::NEG_INFINITY), -1.0);
        assert!(tanh(f32::NAN).is_nan());
        assert!(tanh(-0.0).is_sign_negative());
    }

    #[test]
    fn sinh_and_cosh_everywhere() {
        assert!(worst(9_973, 0.0, 90.0, sinh, f64::sinh) < 2.0);
        assert!(worst(9_973, 0.0, 90.0, cosh, f64::cosh) < 2.0);
        assert_eq!((sinh(f32::NEG_INFINITY), cosh(f32::NEG_INFINITY)), (f32::NEG_INFINITY, f32::INFINITY));
        assert_eq!((sinh(-0.0).to_bits(), cosh(-0.0)), ((-0f32).to_bits(), 1.0));
        assert!(sinh(f32::NAN).is_nan() && cosh(f32::NAN).is_nan());
    }

    /// The series without cancellation: e^-x² Σ 2^n x^(2n+1) / (2n+1)!!
    fn exact_erf(x: f64) -> f64 {
        let mut term = x;
        let mut sum = x;
        let mut n = 1.0;
        while term.abs() > sum.abs() * 1e-18 {
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        sum * (-x * x).exp() * core::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn erf_everywhere() {
        assert!((exact_erf(1.0) - 0.842_700_792_949_714_9).abs() < 1e-15);
        assert!(worst(4_999, 1e-30, 6.0, erf, exact_erf) < 2.0);
        assert_eq!(erf(0.0), 0.0);
        assert_eq!(erf(f32::INFINITY), 1.0);
        assert_eq!(erf(f32::NEG_INFINITY), -1.0);
        assert!(erf(f32::NAN).is_nan());
    }
}
