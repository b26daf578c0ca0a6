//! Sine and cosine.

use super::{cos_approx, fma, polynomial, sin_approx};

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

/// The same for every finite |x| of at least [`NEAR_ANGLE`]: x · 2/π in fixed point, of which the bits that are multiples of 4 are never
/// computed (Payne and Hanek, "Radian Reduction for Trigonometric Functions", SIGNUM 1983).
#[inline(always)]
fn reduce_far(x: f32) -> (f32, u32) {
    /// The first 256 bits of 2/π.
    const WORDS: [u64; 4] =
        [0xA2F9_836E_4E44_1529, 0xFC27_57D1_F534_DDC0, 0xDB62_9599_3C43_9041, 0xFE51_63AB_DEBB_C561];
    // |x| is significand · 2^(exponent - 25), and a bit i of 2/π, from 0, makes at least 4 of it if i < exponent - 27.
    let significand = u128::from(x.to_bits() & 0x7f_ffff | 0x80_0000);
    let exponent = (x.to_bits() >> 23 & 0xff) - 125;
    let skipped = exponent.saturating_sub(27);
    let [a, b, c] = if skipped < 64 { [WORDS[0], WORDS[1], WORDS[2]] } else { [WORDS[1], WORDS[2], WORDS[3]] };
    // 96 bits of 2/π from there on.
    let shift = skipped & 63;
    let window = |high: u64, low: u64| if shift == 0 { high } else { high << shift | low >> (64 - shift) };
    let bits = u128::from(window(a, b)) << 32 | u128::from(window(b, c) >> 32);
    // Two bits of whole quadrants and 62 of a fraction.
    let turn = ((significand * bits) >> (59 + skipped - exponent)) as u64;
    let quadrant = (turn >> 61).wrapping_add(1) >> 1;
    let rest = (turn.wrapping_sub(quadrant << 62) as i64) as f64 * (core::f64::consts::FRAC_PI_2 / (1u64 << 62) as f64);
    if x < 0.0 { (-rest as f32, (quadrant as u32).wrapping_neg() & 3) } else { (rest as f32, quadrant as u32 & 3) }
}

/// The same for every x; NaN for what is infinite.
#[inline(always)]
fn reduce(x: f32) -> (f32, u32) {
    if x.abs() < NEAR_ANGLE {
        reduce_near(x)
    } else if x.abs() < f32::INFINITY {
        reduce_far(x)
    } else {
        (f32::NAN, 0)
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

/// The sine and the cosine of `x` radians; NaN of an infinity.
#[inline(always)]
pub fn sin_cos(x: f32) -> (f32, f32) {
    turned(reduce(x))
}

/// The same for |x| up to [`NEAR_ANGLE`], without a branch: for who has compared many angles at once.
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

/// The sine of `x` radians; NaN of an infinity.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    sin_cos(x).0
}

/// The cosine of `x` radians; NaN of an infinity.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    sin_cos(x).1
}

#[cfg(test)]
mod tests {
    use super::super::ulp::worst;
    use super::*;

    #[test]
    fn small_and_large_angles() {
        for (from, to) in [(0.0, 6.3), (6.3, 65_536.0), (65_536.0, 1.0e15), (1.0e15, 3.4e38)] {
            assert!(worst(4_999, from, to, sin, f64::sin) < 2.0, "sin from {from}");
            assert!(worst(4_999, from, to, cos, f64::cos) < 2.0, "cos from {from}");
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
        assert!(sin(f32::INFINITY).is_nan() && cos(f32::NAN).is_nan());
        assert_eq!(cos(0.0), 1.0);
        assert_eq!(sin(0.0), 0.0);
    }
}
