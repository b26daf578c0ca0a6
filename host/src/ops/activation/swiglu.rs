//! SwiGLU, a gate of SiLU, elementwise.

use gpu_kernels::ops::activation::swiglu as gk;

use super::gated::{ACCURACY, gated};
use crate::dispatch;
use crate::ops::elementwise::{Pointwise, PointwiseMany};
use crate::ops::model::{ArgInfo, Gradient, OpInfo};
use crate::runtime::dtype::DType;

gated! {
    /// y = gate / (1 + e^(−gate)) · up, elementwise.
    swiglu, swiglu_into, swiglu_backward, swiglu_backward_into;
    kernels: Swiglu SWIGLU, SwigluBackward SWIGLU_BACKWARD;
    summary: "SwiGLU: up gated by SiLU";
    math: "y = silu(gate) · up", "dgate = dy · up · silu'(gate), dup = dy · silu(gate)";
    value: super::silu::VALUE,
    slope: super::silu::SLOPE,
    ACCURACY;
}
