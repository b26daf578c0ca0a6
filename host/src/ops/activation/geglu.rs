//! GEGLU, a gate of GELU in its tanh form, elementwise.

use gpu_kernels::ops::activation::geglu as gk;

use super::gated::{ACCURACY, gated};
use crate::dispatch;
use crate::ops::elementwise::{Pointwise, PointwiseMany};
use crate::ops::model::{ArgInfo, Gradient, OpInfo};
use crate::runtime::dtype::DType;

gated! {
    /// y = gelu(gate) · up with the tanh form of [`gelu`](fn@crate::ops::gelu), elementwise.
    geglu, geglu_into, geglu_backward, geglu_backward_into;
    kernels: Geglu GEGLU, GegluBackward GEGLU_BACKWARD;
    summary: "GEGLU: up gated by GELU in its tanh form";
    math: "y = gelu(gate) · up", "dgate = dy · up · gelu'(gate), dup = dy · gelu(gate)";
    value: super::gelu::VALUE,
    slope: super::gelu::SLOPE,
    ACCURACY;
}
