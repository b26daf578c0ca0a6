//! Steps of optimizers, in place. What they share is the factor by which gradients are clipped.

pub mod adamw;
pub mod clip_grad;

use cuda_std::math;

/// What is added to a norm that gradients are divided by.
pub const CLIP_EPS: f32 = 1e-6;

/// min(1, `max_norm` / (norm + ε)), by which gradients of that norm are multiplied; NaN of a norm that is NaN.
#[inline(always)]
fn clip_scale(norm: f32, max_norm: f32) -> f32 {
    math::min_nan(1.0, math::div_full(max_norm, norm + CLIP_EPS))
}
