//! Scalar math on `f32`, and what of `f64` is an instruction; the crate `libm` has the other functions of `f64`, and compiles for the device as
//! it is.
//!
//! Functions named `…_approx` are one hardware instruction with the error its documentation gives. The others round
//! correctly where they say so; otherwise their own error is within 2 ulp (3 for those that combine others), sampled over
//! their whole domain, to which the instructions inside add theirs. Infinities and NaN give the usual results. On the host an instruction is
//! rounded correctly, so that results differ by its error.

mod approx;
mod double;
mod exponential;
mod hyperbolic;
mod integer;
mod inverse;
mod normal;
mod power;
mod remainder;
mod rounding;
mod trigonometric;

pub use approx::*;
pub use exponential::*;
pub use hyperbolic::*;
pub use integer::*;
pub use inverse::*;
pub use normal::*;
pub use power::*;
pub use remainder::*;
pub use rounding::*;
pub use trigonometric::*;

/// `coefficients[0] + coefficients[1] x + …`, by Horner's rule.
#[inline(always)]
pub fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = 0.0;
    let mut first = true;
    for coefficient in coefficients.into_iter().rev() {
        sum = if first { coefficient } else { fma(sum, x, coefficient) };
        first = false;
    }
    sum
}

/// Distances in units of the last place, for the tests of this module.
#[cfg(test)]
mod ulp {
    /// The distance of `value` from `exact` in spacings of `f32` around `exact`.
    pub(super) fn error(value: f32, exact: f64) -> f64 {
        if exact.is_nan() {
            return if value.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if exact.abs() > f64::from(f32::MAX) * (1.0 + 2f64.powi(-25)) {
            return if value.is_infinite() && f64::from(value).signum() == exact.signum() {
                0.0
            } else {
                f64::INFINITY
            };
        }
        let exponent = if exact == 0.0 { -126.0 } else { exact.abs().log2().floor().max(-126.0) };
        (f64::from(value) - exact).abs() / (exponent - 23.0).exp2()
    }

    /// The greatest error over every `step`-th float of a range of magnitudes, both signs.
    pub(super) fn worst(step: usize, from: f32, to: f32, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> f64 {
        let mut worst = 0f64;
        for bits in (from.to_bits()..=to.to_bits()).step_by(step) {
            for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                worst = worst.max(error(f(x), exact(f64::from(x))));
            }
        }
        worst
    }
}
