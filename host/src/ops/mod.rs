//! The operators, by family. Each file holds the safe function, its reference, its cases, its tolerance and its cost.
//!
//! Most operators come in two forms: `gelu(&stream, &x)?` returns a new dense tensor, and `gelu_into(&stream, &x, &mut y)?`
//! writes to an existing one, or a view of it. What works in place, such as [`adamw()`] or [`append_kv()`], has one form. A loss
//! returns its numbers in new tensors, and has an `_into` at most for the gradients. All queue their work on the stream and
//! return. The [`model`] module describes operators for checks, benches and lists.

pub mod activation;
pub mod attention;
pub mod elementwise;
pub mod gemm;
pub mod gemv;
mod kv_cache;
pub mod layout;
pub mod loss;
pub mod model;
pub mod norm;
pub mod optim;
pub mod quant;
pub mod random;
pub mod reduce;
pub mod registry;
mod rows;
pub mod softmax;

pub use activation::*;
pub use attention::*;
pub use elementwise::*;
pub use gemm::*;
pub use gemv::*;
pub use layout::*;
pub use loss::*;
pub use norm::*;
pub use optim::*;
pub use quant::*;
pub use random::*;
pub use reduce::*;
pub use softmax::*;
