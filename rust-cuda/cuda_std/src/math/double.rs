//! Numbers of about 48 bits, for what a float's 24 are too few within: the sum of two floats, nowhere rounded to one.
//!
//! They rest on what is rounded being rounded by itself: a product that is added is one of [`mul_rn`], not of Rust's operator.

use super::{fma, mul_rn};

/// `high + low`, where `low` is at most about half a spacing of `high`.
#[derive(Clone, Copy)]
pub(super) struct Double {
    pub(super) high: f32,
    pub(super) low: f32,
}

impl Double {
    /// a + b exactly, of |a| at least |b|, or a = 0.
    #[inline(always)]
    pub(super) fn sum(a: f32, b: f32) -> Self {
        let high = a + b;
        Self { high, low: b - (high - a) }
    }

    /// a b exactly, where neither part is subnormal.
    #[inline(always)]
    pub(super) fn product(a: f32, b: f32) -> Self {
        let high = mul_rn(a, b);
        Self { high, low: fma(a, b, -high) }
    }

    /// The product, within 2^-45 or so.
    #[inline(always)]
    pub(super) fn times(self, b: Self) -> Self {
        let Self { high, low } = Self::product(self.high, b.high);
        Self::sum(high, fma(self.high, b.low, fma(self.low, b.high, low)))
    }

    /// The sum, of |a| at least |b|.
    #[inline(always)]
    pub(super) fn plus(self, b: Self) -> Self {
        let Self { high, low } = Self::sum(self.high, b.high);
        Self::sum(high, low + (self.low + b.low))
    }

    /// The nearest float.
    #[inline(always)]
    pub(super) fn rounded(self) -> f32 {
        self.high + self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(x: Double) -> f64 {
        f64::from(x.high) + f64::from(x.low)
    }

    #[test]
    fn both_parts_count() {
        let (third, tenth) = (1.0f32 / 3.0, 0.1f32);
        assert_eq!(exact(Double::product(third, tenth)), f64::from(third) * f64::from(tenth));
        assert_eq!(exact(Double::sum(third, tenth)), f64::from(third) + f64::from(tenth));
        let (a, b) = (Double { high: third, low: 9.934_107e-9 }, Double { high: tenth, low: -1.490_116_1e-9 });
        let error = |x: Double, exact_value: f64| (exact(x) / exact_value - 1.0).abs();
        assert!(error(a.times(b), exact(a) * exact(b)) < 2f64.powi(-44));
        assert!(error(a.plus(b), exact(a) + exact(b)) < 2f64.powi(-44));
        assert_eq!(a.rounded(), third);
    }
}
