//! GEGLU, a gate of exact GELU, elementwise.

use gpu_kernels::ops::activation::geglu_erf as gk;

use super::gated::{ACCURACY, gated};
use crate::dispatch;
use crate::ops::elementwise::{Pointwise, PointwiseMany};
use crate::ops::model::{ArgInfo, Gradient, OpInfo};
use crate::runtime::dtype::DType;

gated! {
    /// y = gate · Φ(gate) · up with Φ(x) = (1 + erf(x/√2)) / 2, elementwise.
    geglu_erf, geglu_erf_into, geglu_erf_backward, geglu_erf_backward_into;
    kernels: GegluErf GEGLU_ERF, GegluErfBackward GEGLU_ERF_BACKWARD;
    summary: "GEGLU: up gated by exact GELU";
    math: "y = gate · Φ(gate) · up", "dgate = dy · up · (Φ(gate) + gate · φ(gate)), dup = dy · gate · Φ(gate)";
    value: |x| x * below(x),
    slope: |x| below(x) + if x.is_infinite() { 0.0 } else { x * density(x) },
    ACCURACY;
}

/// φ(x), the density of a normal distribution.
fn density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Φ(x), the share of a normal distribution below x: 1/2 + φ(x) · (x + x³/3 + x⁵/(3·5) + …), far below 0, where that cancels,
/// φ(x) / (−x + 1/(−x + 2/(−x + 3/(…)))).
fn below(x: f64) -> f64 {
    if x < -2.0 {
        let fraction = (1..=100).rev().fold(-x, |rest, i| f64::from(i) / rest - x);
        return density(x) / fraction;
    }
    if x > 30.0 {
        return 1.0;
    }
    let (mut term, mut sum, mut odd) = (x, 0.0, 1.0);
    while term.abs() > 1e-18 * f64::abs(sum) {
        sum += term;
        odd += 2.0;
        term *= x * x / odd;
    }
    // A sum too small for f64 is absorbed by the 0.5.
    if x.is_nan() { x } else { 0.5 + density(x) * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_below_is_accurate_where_it_is_small() {
        // erfc(−x/√2) / 2 of C's library.
        for (x, share) in [
            (-1.999, 0.022_804_176_932_658_883),
            (-2.001, 0.022_696_194_945_641_558),
            (-8.5, 9.479_534_822_203_318e-18),
            (-13.0, 6.117_164_399_549_88e-39),
            (-37.0, 5.725_571_222_524_576e-300),
        ] {
            assert!((below(x) / share - 1.0).abs() < 1e-12, "{x}: {}", below(x));
        }
        assert_eq!([f64::NEG_INFINITY, -40.0, 0.0, 40.0, f64::INFINITY].map(below), [0.0, 0.0, 0.5, 1.0, 1.0]);
        assert!(below(f64::NAN).is_nan());
    }
}
