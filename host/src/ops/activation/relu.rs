//! Rectified linear unit, elementwise.

use gpu_kernels::ops::activation::relu as gk;

use super::prelude::*;

activation! {
    /// y = max(x, 0), elementwise; NaN stays NaN.
    ///
    /// Nair and Hinton, "Rectified linear units improve restricted Boltzmann machines" (ICML 2010).
    relu, relu_into, relu_backward, relu_backward_into;
    kernels: Relu RELU, ReluBackward RELU_BACKWARD;
    bench_name: "ew.relu", "ew.relu_backward";
    summary: "rectified linear unit";
    math: "y = max(x, 0)", "dx = dy where x > 0, else 0";
    value: |x| if x <= 0.0 { 0.0 } else { x }, Accuracy::EXACT;
    gradient: |x, dy| if x <= 0.0 { 0.0 } else if x > 0.0 { dy } else { x }, Accuracy::EXACT;
}
