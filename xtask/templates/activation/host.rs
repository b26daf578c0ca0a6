//! NAME, elementwise.

use gpu_kernels::ops::activation::NAME as gk;

use super::prelude::*;

activation! {
    /// y = x, elementwise.
    NAME, NAME_into, NAME_backward, NAME_backward_into;
    kernels: TYPE CONST, TYPEBackward CONST_BACKWARD;
    bench_name: "ew.NAME", "ew.NAME_backward";
    summary: "NAME, elementwise";
    math: "y = x", "dx = dy";
    value: |x| x, Accuracy::EXACT;
    slope: |_| 1.0, Accuracy::EXACT;
}
