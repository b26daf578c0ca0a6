//! Optimizer steps, in place.
//!
//! The norm of gradients is [`l2_norm`](crate::ops::l2_norm()); that of several tensors is the norm of their norms, which
//! [`l2_norm_into`](crate::ops::l2_norm_into) writes side by side. It stays on the device: [`clip_grad`](clip_grad()) and
//! [`Clip`] read it there.

pub mod adamw;
pub mod clip_grad;

pub use adamw::{AdamW, GradientOf, adamw, adamw_master};
pub use clip_grad::{Clip, clip_grad};

/// The factor of gradients with that norm, in f64.
fn clip_scale(norm: f64, max_norm: f64) -> f64 {
    let scale = max_norm / (norm + f64::from(gpu_kernels::ops::optim::CLIP_EPS));
    if scale > 1.0 { 1.0 } else { scale }
}
