//! Sigmoid linear unit (SiLU, Swish), elementwise.

use gpu_kernels::ops::activation::silu as gk;

use super::prelude::*;

activation! {
    /// y = x / (1 + e^(−x)), elementwise.
    ///
    /// Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units" (arXiv:1702.03118).
    silu, silu_into, silu_backward, silu_backward_into;
    kernels: Silu SILU, SiluBackward SILU_BACKWARD;
    bench_name: "ew.silu", "ew.silu_backward";
    summary: "sigmoid linear unit (Swish)";
    math: "y = x / (1 + e^(−x))", "dx = dy · σ(x) · (1 + x · (1 − σ(x)))";
    value: |x| x * sigmoid_f64(x), Accuracy { abs: 0.0, rel: 2e-6, why: "storage rounding, plus 2⁻²² each of the approximate exponential and reciprocal and two roundings" };
    slope: |x| {
        let sigmoid = sigmoid_f64(x);
        // At ±∞ the product tends to 0.
        sigmoid + if x.is_infinite() { 0.0 } else { x * sigmoid * sigmoid_f64(-x) }
    }, super::SLOPE;
}
