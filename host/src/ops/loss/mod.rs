//! Losses over rows of logits.

pub mod cross_entropy;

pub use cross_entropy::{
    CrossEntropy, Losses, cross_entropy, cross_entropy_backward, cross_entropy_backward_into, cross_entropy_in_place,
    cross_entropy_with_gradient, cross_entropy_with_gradient_into,
};
