//! GELU in its tanh form, elementwise.

use std::f64::consts::PI;

use gpu_kernels::ops::activation::gelu as gk;

use super::prelude::*;

const CUBIC: f64 = 0.044715;

/// The argument of the tanh.
fn inner(x: f64) -> f64 {
    (2.0 / PI).sqrt() * (x + CUBIC * x * x * x)
}

activation! {
    /// y = gelu(x) = x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))), elementwise.
    ///
    /// The tanh form is the one of Hendrycks and Gimpel, "Gaussian Error Linear Units" (arXiv:1606.08415), and of GPT-2.
    gelu, gelu_into, gelu_backward, gelu_backward_into;
    kernels: Gelu GELU, GeluBackward GELU_BACKWARD;
    bench_name: "ew.gelu_tanh", "ew.gelu_tanh_backward";
    summary: "GELU activation, tanh form";
    math: "y = x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))", "dx = dy · gelu′(x)";
    value: |x| 0.5 * x * (1.0 + inner(x).tanh()), Accuracy {
        abs: 0.0,
        rel: 1e-6,
        why: "storage rounding, plus 2⁻²² of the approximate exponential and reciprocal, which the exponent's size multiplies where \
              the result is tiny",
    };
    slope: |x| {
        let sigmoid = sigmoid_f64(2.0 * inner(x));
        let inner_slope = (2.0 / PI).sqrt() * (1.0 + 3.0 * CUBIC * x * x);
        // At ±∞ the product tends to 0.
        let product = x * 2.0 * inner_slope * sigmoid * sigmoid_f64(-2.0 * inner(x));
        sigmoid + if product.is_nan() && !x.is_nan() { 0.0 } else { product }
    }, super::SLOPE;
}
