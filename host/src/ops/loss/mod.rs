//! Losses over rows of logits.

pub mod cross_entropy;
pub mod linear_cross_entropy;

pub use cross_entropy::{
    CrossEntropy, Losses, cross_entropy, cross_entropy_backward, cross_entropy_backward_into, cross_entropy_in_place,
    cross_entropy_with_gradient, cross_entropy_with_gradient_into,
};
pub use linear_cross_entropy::{
    LinearCrossEntropy, LinearGradients, linear_cross_entropy, linear_cross_entropy_backward,
    linear_cross_entropy_backward_into, linear_cross_entropy_with_gradient, linear_cross_entropy_with_gradient_into,
};
