//! Losses over rows of logits.

mod batch;
pub mod cross_entropy;
pub mod entropy;
pub mod kl_divergence;
pub mod linear_cross_entropy;
mod logits;

pub use batch::RowLosses;
pub use cross_entropy::{
    CrossEntropy, Losses, cross_entropy, cross_entropy_backward, cross_entropy_backward_into, cross_entropy_in_place,
    cross_entropy_with_gradient, cross_entropy_with_gradient_into,
};
pub use entropy::{entropy, entropy_backward, entropy_backward_into, entropy_into};
pub use kl_divergence::{
    Divergence, KlDivergence, kl_divergence, kl_divergence_backward, kl_divergence_backward_into,
    kl_divergence_with_gradient, kl_divergence_with_gradient_into,
};
pub use linear_cross_entropy::{
    LinearCrossEntropy, LinearGradients, linear_cross_entropy, linear_cross_entropy_backward,
    linear_cross_entropy_backward_into, linear_cross_entropy_with_gradient, linear_cross_entropy_with_gradient_into,
};
