//! Sine and cosine.

use super::{cos_approx, fma, fma_f64, polynomial, sin_approx};

/// Below which angles need no `f64`.
pub const NEAR_ANGLE: f32 = 65_536.0;

/// x - n π/2 in [-π/4, π/4], and n modulo 4; for |x| up to [`NEAR_ANGLE`].
#[inline(always)]
fn reduce_near(x: f32) -> (f32, u32) {
    const ROUND: f32 = 12_582_912.0;
    let rounded = fma(x, core::f32::consts::FRAC_2_PI, ROUND);
    let n = rounded - ROUND;
    // π/2 in three parts.
    let rest = fma(n, -1.570_796_4, x);
    let rest = fma(n, 4.371_139e-8, rest);
    let rest = fma(n, 1.715_124_5e-15, rest);
    (rest, rounded.to_bits() & 3)
}

/// The same for |x| up to 2^50.
#[inline(always)]
fn reduce(x: f32) -> (f32, u32) {
    if x.abs() < NEAR_ANGLE {
        reduce_near(x)
    } else {
        // Adding 1.5 x 2^52 leaves the nearest integer in the low bits.
        const ROUND: f64 = 6_755_399_441_055_744.0;
        let x = f64::from(x);
        let rounded = fma_f64(x, core::f64::consts::FRAC_2_PI, ROUND);
        let n = rounded - ROUND;
        let rest = fma_f64(n, -core::f64::consts::FRAC_PI_2, x);
        let rest = fma_f64(n, -6.123_233_995_736_766e-17, rest);
        (rest as f32, rounded.to_bits() as u32 & 3)
    }
}

/// The sine and the cosine of a reduced angle.
#[inline(always)]
fn kernel(x: f32) -> (f32, f32) {
    let square = x * x;
    let tail = polynomial(square, [-1.666_666_7e-1, 8.333_329e-3, -1.983_931_1e-4, 2.718_112_2e-6]);
    let sine = fma(x * square, tail, x);
    let tail = polynomial(square, [4.166_666_8e-2, -1.388_888_3e-3, 2.479_946e-5, -2.720_566_4e-7]);
    let cosine = fma(square * square, tail, fma(square, -0.5, 1.0));
    (sine, cosine)
}

/// The sine and the cosine of `x` radians; |x| up to 2^50. The sine of -0 is 0 here; [`sin`] keeps the sign.
#[inline(always)]
pub fn sin_cos(x: f32) -> (f32, f32) {
    turned(reduce(x))
}

/// The same for |x| up to [`NEAR_ANGLE`], without a branch: for a caller that has compared many angles with it at once.
#[inline(always)]
pub fn sin_cos_near(x: f32) -> (f32, f32) {
    turned(reduce_near(x))
}

/// The same by the special-function unit, within 2^-20 of what they are: for what small sines need not tell apart.
#[inline(always)]
pub fn sin_cos_approx_near(x: f32) -> (f32, f32) {
    const ROUND: f32 = 12_582_912.0;
    let n = fma(x, 0.5 * core::f32::consts::FRAC_1_PI, ROUND) - ROUND;
    // 2π in two parts.
    let rest = fma(n, 1.748_455_5e-7, fma(n, -core::f32::consts::TAU, x));
    (sin_approx(rest), cos_approx(rest))
}

/// The sine and the cosine of a reduced angle in its quadrant.
#[inline(always)]
fn turned((rest, quadrant): (f32, u32)) -> (f32, f32) {
    let (sine, cosine) = kernel(rest);
    let (sine, cosine) = if quadrant & 1 == 0 { (sine, cosine) } else { (cosine, -sine) };
    if quadrant & 2 == 0 { (sine, cosine) } else { (-sine, -cosine) }
}

/// The sine of `x` radians; |x| up to 2^50.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    // The reduction would lose the sign of -0.
    if x == 0.0 { x } else { sin_cos(x).0 }
}

/// The cosine of `x` radians; |x| up to 2^50.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    sin_cos(x).1
}

/// The tangent of `x` radians; |x| up to 2^50.
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    let (rest, quadrant) = reduce(x);
    let square = rest * rest;
    // To beyond π/4, because the quadrant of a great angle is not told so sharply.
    let tail = polynomial(
        square,
        [
            3.333_349_8e-1,
            1.332_821_8e-1,
            5.449_808_8e-2,
            1.931_020_8e-2,
            1.530_315_6e-2,
            -4.876_760_3e-3,
            6.532_942_4e-3,
        ],
    );
    let tangent = fma(rest * square, tail, rest);
    if x == 0.0 {
        x
    } else if quadrant & 1 == 0 {
        tangent
    } else {
        -1.0 / tangent
    }
}

#[cfg(test)]
mod tests {
    use super::super::ulp::worst;
    use super::*;

    #[test]
    fn small_and_large_angles() {
        for (from, to) in [(0.0, 6.3), (6.3, 65_536.0), (65_536.0, 1.0e15)] {
            assert!(worst(4_999, from, to, sin, f64::sin) < 2.0, "sin from {from}");
            assert!(worst(4_999, from, to, cos, f64::cos) < 2.0, "cos from {from}");
            assert!(worst(4_999, from, to, tan, f64::tan) < 3.0, "tan from {from}");
        }
    }

    #[test]
    fn approximations_are_near() {
        for i in 0..10_000 {
            let x = (i - 5_000) as f32 * 13.1;
            let ((sine, cosine), exact) = (sin_cos_approx_near(x), f64::from(x));
            assert!(
                (f64::from(sine) - exact.sin()).abs() < 1e-6 && (f64::from(cosine) - exact.cos()).abs() < 1e-6,
                "{x}"
            );
        }
    }

    #[test]
    fn special_values() {
        assert!(sin(f32::INFINITY).is_nan() && cos(f32::NAN).is_nan() && tan(f32::INFINITY).is_nan());
        assert_eq!(cos(0.0), 1.0);
        assert_eq!(sin(0.0), 0.0);
        assert!(sin(-0.0).is_sign_negative() && tan(-0.0).is_sign_negative());
    }
}
