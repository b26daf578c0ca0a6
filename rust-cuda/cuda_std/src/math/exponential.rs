//! Exponentials and logarithms.

use super::{ex2_approx, fma, polynomial, rcp_approx};

const LOG2_E: f32 = core::f32::consts::LOG2_E;
/// ln 2 in two parts.
const LN_2_HIGH: f32 = core::f32::consts::LN_2;
const LN_2_LOW: f32 = -1.904_654_2e-9;
/// Adding 1.5 x 2^23 leaves a float's nearest integer in its low bits.
const ROUND: f32 = 12_582_912.0;

/// `x 2^n` for n in [-252, 254], in two steps so that neither factor overflows.
#[inline(always)]
pub(super) fn scale(x: f32, n: i32) -> f32 {
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) << 23) as u32);
    x * power(half) * power(n - half)
}

/// e^x.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these the result is 0 or infinite anyway; NaN passes.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let rounded = fma(x, LOG2_E, ROUND);
    let n = rounded - ROUND;
    let rest = fma(n, -LN_2_LOW, fma(n, -LN_2_HIGH, x));
    scale(ex2_approx(rest * LOG2_E), rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32)
}

/// 2^x.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = if x > 129.0 { 129.0 } else { x };
    let x = if x < -151.0 { -151.0 } else { x };
    let rounded = x + ROUND;
    let n = rounded - ROUND;
    scale(ex2_approx(x - n), rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32)
}

/// e^x - 1, accurate near 0.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    if x.abs() < 0.42 {
        let tail = polynomial(x, [0.5, 1.666_666_6e-1, 4.166_601_2e-2, 8.333_455e-3, 1.396_473_4e-3, 1.984_772e-4]);
        fma(x * x, tail, x)
    } else {
        exp(x) - 1.0
    }
}

/// ln(1 + x) for x in [-1/3, 1/3].
#[inline(always)]
fn log1p_small(x: f32) -> f32 {
    let tail = polynomial(
        x,
        [
            -0.5,
            3.333_321e-1,
            -2.499_971_8e-1,
            2.001_074_9e-1,
            -1.668_229_6e-1,
            1.400_115_5e-1,
            -1.216_728e-1,
            1.400_478e-1,
            -1.294_843_3e-1,
        ],
    );
    fma(x * x, tail, x)
}

/// Splits a positive finite x into 2^n (1 + f), f in [-1/3, 1/3].
#[inline(always)]
pub(super) fn split(x: f32) -> (f32, f32) {
    let subnormal = x < f32::MIN_POSITIVE;
    let (x, bias) = if subnormal { (x * 8_388_608.0, -23) } else { (x, 0) };
    let (n, f) = split_normal(x);
    ((n + bias) as f32, f)
}

/// The same of a normal x.
#[inline(always)]
fn split_normal(x: f32) -> (i32, f32) {
    const TWO_THIRDS: u32 = 0x3f2a_aaab;
    let exponent = x.to_bits().wrapping_sub(TWO_THIRDS) & 0xff80_0000;
    let mantissa = f32::from_bits(x.to_bits().wrapping_sub(exponent));
    (exponent as i32 >> 23, mantissa - 1.0)
}

/// What the logarithms give for 0, negative numbers, infinity and NaN; `None` for a positive finite x.
#[inline(always)]
pub(super) fn special(x: f32) -> Option<f32> {
    // Positive finite floats, and only they, have bits in this range.
    if x.to_bits().wrapping_sub(1) < f32::INFINITY.to_bits() - 1 {
        None
    } else if x == 0.0 {
        Some(f32::NEG_INFINITY)
    } else if x < 0.0 {
        Some(f32::NAN)
    } else {
        Some(x)
    }
}

/// The natural logarithm.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    match special(x) {
        Some(value) => value,
        None => {
            let (n, f) = split(x);
            fma(n, LN_2_HIGH, log1p_small(f))
        }
    }
}

/// [`log`] of what is known to be positive, normal and finite: without its comparisons and its branch.
#[inline(always)]
pub fn log_of_normal(x: f32) -> f32 {
    let (n, f) = split_normal(x);
    fma(n as f32, LN_2_HIGH, log1p_small(f))
}

/// The base-2 logarithm.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    match special(x) {
        Some(value) => value,
        None => {
            let (n, f) = split(x);
            fma(log1p_small(f), LOG2_E, n)
        }
    }
}

/// ln(1 + x), accurate near 0.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    if x.abs() < 0.333 {
        return log1p_small(x);
    }
    let sum = 1.0 + x;
    // What rounding the sum lost; not for infinite x.
    let lost = if sum < f32::MAX { (x - (sum - 1.0)) * rcp_approx(sum) } else { 0.0 };
    if sum > 0.0 { log(sum) + lost } else { log(sum) }
}

/// 1 / (1 + e^-x), the logistic function.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    rcp_approx(1.0 + exp(-x))
}

/// ln(1 + e^x), without overflow.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let tail = log1p(exp(-x.abs()));
    if x > 0.0 { x + tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::super::ulp::{error, worst};
    use super::*;

    const STEP: usize = 9_973;

    #[test]
    fn exponentials() {
        assert!(worst(STEP, 0.0, 120.0, exp, f64::exp) < 2.0);
        assert!(worst(STEP, 0.0, 160.0, exp2, f64::exp2) < 2.0);
        assert!(worst(STEP, 0.0, 120.0, expm1, f64::exp_m1) < 3.0);
    }

    #[test]
    fn logarithms() {
        assert!(worst(STEP, f32::from_bits(1), f32::MAX, log, f64::ln) < 2.0);
        assert!(worst(STEP, f32::from_bits(1), f32::MAX, log2, f64::log2) < 2.0);
        assert!(worst(STEP, f32::from_bits(1), f32::MAX, log1p, f64::ln_1p) < 2.0);
        assert!(worst(101, 0.5, 2.0, log, f64::ln) < 2.0);
    }

    #[test]
    fn activations() {
        let exact = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!(worst(STEP, 0.0, 87.0, sigmoid, exact) < 3.0);
        let exact = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        assert!(worst(STEP, 0.0, 87.0, softplus, exact) < 3.0);
    }

    #[test]
    fn special_values() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp2(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert_eq!(expm1(f32::NEG_INFINITY), -1.0);
        assert_eq!(log(0.0), f32::NEG_INFINITY);
        assert_eq!(log(-0.0), f32::NEG_INFINITY);
        assert_eq!(log(f32::INFINITY), f32::INFINITY);
        assert_eq!(log1p(-1.0), f32::NEG_INFINITY);
        assert_eq!(log1p(f32::INFINITY), f32::INFINITY);
        for f in [exp, exp2, expm1, log, log2, log1p, sigmoid, softplus] {
            assert!(f(f32::NAN).is_nan());
        }
        for f in [log, log2] {
            assert!(f(-1.0).is_nan() && f(f32::NEG_INFINITY).is_nan());
        }
        assert!(log1p(-2.0).is_nan() && log1p(f32::NEG_INFINITY).is_nan());
        assert_eq!(sigmoid(f32::NEG_INFINITY), 0.0);
        assert_eq!(sigmoid(200.0), 1.0);
        assert_eq!(softplus(f32::INFINITY), f32::INFINITY);
        assert_eq!(error(exp(-103.9), (-103.9f32 as f64).exp()).max(1.0), 1.0);
    }
}
