//! f64 arithmetic with directed rounding: exact integers, rounded once.

use crate::num::Rnd;

const FRACTION: u32 = 52;
/// Exponent of the lowest bit of subnormal numbers.
const LOWEST: i32 = -1074;

/// A finite non-zero number: its sign, and an integer times a power of two.
#[derive(Clone, Copy)]
struct Parts {
    negative: bool,
    digits: u64,
    exponent: i32,
}

fn parts(v: f64) -> Parts {
    let bits = v.to_bits();
    let (biased, fraction) = ((bits >> FRACTION & 0x7ff) as i32, bits & ((1 << FRACTION) - 1));
    let (digits, exponent) = match biased {
        0 => (fraction, LOWEST),
        e => (fraction | 1 << FRACTION, LOWEST + e - 1),
    };
    Parts { negative: v.is_sign_negative(), digits, exponent }
}

/// Rounds `digits` × 2^`exponent`; `more` says that there are non-zero bits beyond the last one.
fn round(negative: bool, digits: u128, exponent: i32, more: bool, rnd: Rnd) -> f64 {
    let sign = if negative { -1.0f64 } else { 1.0 };
    let away = match rnd {
        Rnd::Rp => !negative,
        Rnd::Rm => negative,
        _ => false,
    };
    if digits == 0 {
        return sign * if more && away { f64::from_bits(1) } else { 0.0 };
    }
    let length = 128 - digits.leading_zeros() as i32;
    // Bits that do not fit, because the number has too many bits or because they are below the subnormal range.
    let cut = (length - FRACTION as i32 - 1).max(LOWEST - exponent);
    let (kept, rest) = match cut {
        ..=0 => (digits << -cut, 0),
        1..=127 => (digits >> cut, digits & ((1 << cut) - 1)),
        _ => (0, digits),
    };
    let half = if (1..=127).contains(&cut) { 1u128 << (cut - 1) } else { u128::MAX };
    let up = match rnd {
        Rnd::Rn => rest > half || rest == half && (more || kept & 1 == 1),
        Rnd::Rna => rest >= half,
        _ => away && (rest != 0 || more),
    };
    let (kept, lowest) = (kept as u64 + u64::from(up), exponent + cut);
    // A carry propagates into the exponent.
    let bits = match kept >> FRACTION {
        0 => kept,
        _ => ((lowest - LOWEST) as u64).saturating_mul(1 << FRACTION).saturating_add(kept),
    };
    let infinity = f64::INFINITY.to_bits();
    match bits {
        _ if bits < infinity => sign * f64::from_bits(bits),
        _ if away || matches!(rnd, Rnd::Rn | Rnd::Rna) => sign * f64::INFINITY,
        _ => sign * f64::MAX,
    }
}

/// The result, if the operands alone determine it: one is zero, infinite or NaN.
fn special(v: f64) -> bool {
    v == 0.0 || !v.is_finite()
}

/// The sum of zeros, or of numbers that cancel.
fn zero(x_negative: bool, y_negative: bool, rnd: Rnd) -> f64 {
    if x_negative && y_negative || x_negative != y_negative && rnd == Rnd::Rm { -0.0 } else { 0.0 }
}

pub fn from_int(v: i128, rnd: Rnd) -> f64 {
    if v == 0 { 0.0 } else { round(v < 0, v.unsigned_abs(), 0, false, rnd) }
}

pub fn add(a: f64, b: f64, rnd: Rnd) -> f64 {
    fma(a, 1.0, b, rnd)
}

pub fn mul(a: f64, b: f64, rnd: Rnd) -> f64 {
    if rnd == Rnd::Rn || special(a) || special(b) {
        return a * b;
    }
    let (x, y) = (parts(a), parts(b));
    let product = u128::from(x.digits) * u128::from(y.digits);
    round(x.negative != y.negative, product, x.exponent + y.exponent, false, rnd)
}

pub fn fma(a: f64, b: f64, c: f64, rnd: Rnd) -> f64 {
    if rnd == Rnd::Rn || !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return a.mul_add(b, c);
    }
    let negative = a.is_sign_negative() != b.is_sign_negative();
    match (a == 0.0 || b == 0.0, c == 0.0) {
        (true, true) => return zero(negative, c.is_sign_negative(), rnd),
        (true, false) => return c,
        (false, true) => return mul(a, b, rnd),
        (false, false) => {}
    }
    let (x, y, z) = (parts(a), parts(b), parts(c));
    // Aligned so that both have their highest bit at the same position, with two bits to spare above it.
    let high = |digits: u128, exponent: i32| {
        let by = digits.leading_zeros() as i32 - 2;
        (digits << by, exponent - by)
    };
    let product = high(u128::from(x.digits) * u128::from(y.digits), x.exponent + y.exponent);
    let sum = high(u128::from(z.digits), z.exponent);
    let ((large, at, sign), (small, low)) = if (product.1, product.0) >= (sum.1, sum.0) {
        ((product.0, product.1, negative), sum)
    } else {
        ((sum.0, sum.1, z.negative), product)
    };
    let by = (at - low) as u32;
    let (shifted, more) = match by {
        0 => (small, false),
        1..=127 => (small >> by, small & ((1 << by) - 1) != 0),
        _ => (0, true),
    };
    if negative == z.negative {
        return round(sign, large + shifted, at, more, rnd);
    }
    // What is beyond the last bit is taken away as well.
    let difference = large - shifted - u128::from(more);
    if difference == 0 && !more {
        return zero(negative, z.negative, rnd);
    }
    round(sign, difference, at, more, rnd)
}

pub fn div(a: f64, b: f64, rnd: Rnd) -> f64 {
    if rnd == Rnd::Rn || special(a) || special(b) {
        return a / b;
    }
    let (x, y) = (parts(a), parts(b));
    let by = x.digits.leading_zeros() as i32 + 63;
    let (n, d) = (u128::from(x.digits) << by, u128::from(y.digits));
    round(x.negative != y.negative, n / d, x.exponent - by - y.exponent, n % d != 0, rnd)
}

pub fn sqrt(a: f64, rnd: Rnd) -> f64 {
    if rnd == Rnd::Rn || special(a) || a < 0.0 {
        return a.sqrt();
    }
    let x = parts(a);
    // An even exponent, and 60 bits of the root.
    let by = x.digits.leading_zeros() as i32 + 56;
    let by = by + (x.exponent - by) % 2;
    let n = u128::from(x.digits) << by;
    let root = n.isqrt();
    round(false, root, (x.exponent - by) / 2, root * root != n, rnd)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With rounding to nearest, everything has to agree with the host's arithmetic.
    #[test]
    fn nearest_is_the_machine_s() {
        let mut s = 1u64;
        let mut next = || {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            // Numbers of all magnitudes, often close to each other.
            let v = if s & 3 == 0 { s & 0x800f_ffff_ffff_ffff | (s >> 55 & 63) + 990 << 52 } else { s };
            f64::from_bits(if s & 28 == 0 { v & 0x801f_ffff_ffff_ffff } else { v })
        };
        let same = |x: f64, y: f64, what: &str| assert!(x.to_bits() == y.to_bits(), "{what}: {x:e} is not {y:e}");
        for _ in 0..200_000 {
            let (a, b, c) = (next(), next(), next());
            let c = if a.to_bits() & 7 == 0 { -(a * b) } else { c };
            if !(a.is_finite() && b.is_finite() && c.is_finite()) || special(a) || special(b) || special(c) {
                continue;
            }
            // If the two directed results are equal, the result is exact; rounding to nearest gives one of them.
            let between = |f: &dyn Fn(Rnd) -> f64, what: &str| {
                let (near, low, high) = (f(Rnd::Rn), f(Rnd::Rm), f(Rnd::Rp));
                let exact = low.to_bits() == high.to_bits() || low == 0.0 && high == 0.0;
                assert!(
                    exact && near == low || high == low.next_up(),
                    "{what} of {a:e}, {b:e}, {c:e}: {low:e} and {high:e}"
                );
                assert!(near == low || near == high, "{what}: {near:e} is not {low:e} or {high:e}");
                same(f(Rnd::Rz), if low > 0.0 || low == 0.0 && high > 0.0 { low } else { high }, what);
            };
            between(&|q| mul(a, b, q), "product");
            between(&|q| add(a, c, q), "sum");
            between(&|q| fma(a, b, c, q), "fma");
            between(&|q| div(a, b, q), "quotient");
            between(&|q| sqrt(a.abs(), q), "root");
            let (x, y) = (parts(a), parts(b));
            let product = u128::from(x.digits) * u128::from(y.digits);
            same(round(x.negative != y.negative, product, x.exponent + y.exponent, false, Rnd::Rn), a * b, "nearest");
        }
    }

    #[test]
    fn ends_of_the_range() {
        let tiny = f64::from_bits(1);
        assert_eq!(mul(1e300, 1e300, Rnd::Rz), f64::MAX);
        assert_eq!(mul(-1e300, 1e300, Rnd::Rp), -f64::MAX);
        assert_eq!(mul(-1e300, 1e300, Rnd::Rm), f64::NEG_INFINITY);
        assert_eq!(div(1.0, tiny, Rnd::Rm), f64::MAX);
        assert_eq!(mul(1e-300, 1e-300, Rnd::Rp), tiny);
        assert_eq!(mul(1e-300, 1e-300, Rnd::Rz), 0.0);
        assert_eq!(fma(1e-300, -1e-300, 1.0, Rnd::Rz), 1.0f64.next_down());
        assert_eq!(fma(1e-300, 1e-300, tiny, Rnd::Rp), tiny.next_up());
        assert_eq!(add(1.0, -1.0, Rnd::Rm).to_bits(), (-0.0f64).to_bits());
        assert_eq!(add(-0.0, 0.0, Rnd::Rp).to_bits(), 0);
        assert_eq!(from_int((1 << 60) + 1, Rnd::Rp), (1u64 << 60) as f64 + 256.0);
        assert_eq!(from_int(-(1 << 60) - 1, Rnd::Rz), -((1u64 << 60) as f64));
    }
}
