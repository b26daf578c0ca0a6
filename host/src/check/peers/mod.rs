//! Other libraries that compute the same as operators: `bench` times them and `verify` judges them beside the operators.
//!
//! A peer is not a [`Variant`](crate::ops::model::Variant). No operator selects it, no program that uses the library contains
//! it, and it is loaded at its first use. It gets the arguments of an operator, on the same stream.

mod column_major;
mod cublas;
mod products;

pub use cublas::Cublas;
pub use products::has_peer;

use crate::runtime::error::Result;

/// The libraries by name.
pub const NAMES: [&str; 1] = [cublas::NAME];

/// The library on this machine: version and path, or why it is missing.
pub fn find() -> Result<String> {
    let library = cublas::Library::get()?;
    Ok(format!("{}, {}", library.version(), library.path().display()))
}
