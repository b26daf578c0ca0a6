//! Hyperbolic tangent, elementwise.

use gpu_kernels::ops::activation::tanh as gk;

use super::prelude::*;

activation! {
    /// y = tanh(x), elementwise.
    ///
    /// LeCun, Bottou, Orr and Müller, "Efficient BackProp" (1998).
    tanh, tanh_into, tanh_backward, tanh_backward_into;
    kernels: Tanh TANH, TanhBackward TANH_BACKWARD;
    bench_name: "ew.tanh", "ew.tanh_backward";
    summary: "hyperbolic tangent";
    math: "y = tanh(x)", "dx = dy · (1 − y²)";
    value: f64::tanh, Accuracy { abs: 0.0, rel: 5e-7, why: "storage rounding, plus two ulp of f32" };
    slope: |x| 4.0 * sigmoid_f64(2.0 * x) * sigmoid_f64(-2.0 * x), super::SLOPE;
}
