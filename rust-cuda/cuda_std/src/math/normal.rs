//! The complement of the error function, and the normal distribution.

use super::double::Double;
use super::power::exp2_of;
use super::{fma, polynomial, rcp_approx};

/// 1 / ln 2 in two parts.
const LOG2_E: Double = Double { high: core::f32::consts::LOG2_E, low: 1.925_963e-8 };

/// e^x² erfc(x) times `power`, of x in [0.47, 10.1].
#[inline(always)]
fn scaled_erfc(x: f32, power: f32) -> f32 {
    // Times 1 + 2x it is smooth in t, which goes from -1 at x = 0 to 1 at infinity.
    let t = (x - 4.0) / (x + 4.0);
    let tail = polynomial(
        t,
        [
            -1.396_210_6e-1,
            1.537_980_7e-2,
            6.809_436_5e-2,
            -1.010_443_8e-1,
            9.376_94e-2,
            -6.626_058e-2,
            3.698_883_2e-2,
            -1.658_075_1e-2,
            5.270_630_6e-3,
        ],
    );
    let smooth = Double::sum(1.232_995_2, fma(t, tail, -3.479_227e-8));
    let divisor = Double::sum(2.0 * x, 1.0);
    let inverse = rcp_approx(divisor.high);
    let quotient = smooth.high * inverse;
    let rest = fma(-quotient, divisor.low, fma(-quotient, divisor.high, smooth.high) + smooth.low);
    fma(quotient, power, rest * inverse * power)
}

/// erfc of a small x, where 1 - erf(x) loses nothing.
#[inline(always)]
fn near(x: f32) -> f32 {
    let slope = polynomial(
        x * x,
        [core::f32::consts::FRAC_2_SQRT_PI, -3.761_286_7e-1, 1.128_635_7e-1, -2.694_933_1e-2, 5.079_676e-3],
    );
    fma(-x, slope, 1.0)
}

/// Up to where [`near`] is used: erfc is 1/2 there, below which spacings are finer.
const NEAR: f32 = 0.47;

/// The tail of the error function, 1 - erf(x), as accurate where it is small.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    let magnitude = x.abs();
    if magnitude < NEAR {
        return near(x);
    }
    // Below 2^-150 from there on; NaN stays NaN.
    let clamped = if magnitude > 10.1 { 10.1 } else { magnitude };
    let square = Double::product(clamped, clamped);
    let power = exp2_of(Double { high: -square.high, low: -square.low }.times(LOG2_E));
    let tail = scaled_erfc(clamped, power);
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// The probability that a standard normal variable is below x, Φ(x) = erfc(-x/√2) / 2, as accurate where it is small.
#[inline(always)]
pub fn normal_cdf(x: f32) -> f32 {
    let argument = x * core::f32::consts::FRAC_1_SQRT_2;
    if argument.abs() < NEAR {
        return 0.5 * near(-argument);
    }
    // Below 2^-150 from there on; NaN stays NaN.
    let clamped = if x.abs() > 14.2 { 14.2 } else { x.abs() };
    // x²/2 from x itself: what rounding x/√2 loses would show in the power.
    let square = Double::product(clamped, clamped);
    let half = Double { high: -0.5 * square.high, low: -0.5 * square.low };
    let power = 0.5 * exp2_of(half.times(LOG2_E));
    let tail = scaled_erfc(clamped * core::f32::consts::FRAC_1_SQRT_2, power);
    if x > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::super::ulp::worst;
    use super::*;

    /// By the series of erf where it cancels little, by the continued fraction elsewhere.
    fn exact_erfc(x: f64) -> f64 {
        if x < 0.0 {
            return 2.0 - exact_erfc(-x);
        }
        if x < 1.5 {
            let (mut term, mut sum, mut n) = (x, x, 1.0);
            while term > sum * 1e-18 {
                term *= 2.0 * x * x / (2.0 * n + 1.0);
                sum += term;
                n += 1.0;
            }
            return 1.0 - sum * (-x * x).exp() * core::f64::consts::FRAC_2_SQRT_PI;
        }
        let fraction = (1..400).rev().fold(x, |below, k| x + f64::from(k) / 2.0 / below);
        0.5 * core::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() / fraction
    }

    #[test]
    fn the_tail_is_accurate() {
        assert!((exact_erfc(1.0) / 0.157_299_207_050_285_13 - 1.0).abs() < 1e-14);
        assert!((exact_erfc(2.0) / 0.004_677_734_981_047_266 - 1.0).abs() < 1e-13);
        assert!(worst(4_999, 0.0, 11.0, erfc, exact_erfc) < 2.0);
        let exact = |x: f64| 0.5 * exact_erfc(-x * core::f64::consts::FRAC_1_SQRT_2);
        assert!(worst(4_999, 0.0, 15.0, normal_cdf, exact) < 2.0);
    }

    #[test]
    fn special_values() {
        let inf = f32::INFINITY;
        assert_eq!((erfc(0.0), erfc(-0.0), erfc(inf), erfc(-inf), erfc(20.0)), (1.0, 1.0, 0.0, 2.0, 0.0));
        assert_eq!((normal_cdf(0.0), normal_cdf(inf), normal_cdf(-inf), normal_cdf(-15.0)), (0.5, 1.0, 0.0, 0.0));
        assert!(erfc(f32::NAN).is_nan() && normal_cdf(f32::NAN).is_nan());
    }
}
