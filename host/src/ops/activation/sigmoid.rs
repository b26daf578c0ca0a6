//! Logistic sigmoid, elementwise.

use gpu_kernels::ops::activation::sigmoid as gk;

use super::prelude::*;

activation! {
    /// y = 1 / (1 + e^(−x)), elementwise.
    ///
    /// Rumelhart, Hinton and Williams, "Learning representations by back-propagating errors" (Nature 323, 1986).
    sigmoid, sigmoid_into, sigmoid_backward, sigmoid_backward_into;
    kernels: Sigmoid SIGMOID, SigmoidBackward SIGMOID_BACKWARD;
    bench_name: "ew.sigmoid", "ew.sigmoid_backward";
    summary: "logistic sigmoid";
    math: "y = 1 / (1 + e^(−x))", "dx = dy · y · (1 − y)";
    value: sigmoid_f64, Accuracy { abs: 0.0, rel: 1e-6, why: "storage rounding, plus 2⁻²² each of the approximate exponential and reciprocal" };
    slope: |x| sigmoid_f64(x) * sigmoid_f64(-x), super::SLOPE;
}
