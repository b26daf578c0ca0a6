//! Other libraries that compute what operators do: timed by `bench` and judged by `verify` beside them.
//!
//! A peer is no [`Variant`](crate::ops::model::Variant). No operator picks it, no program that uses the library carries it, and it is loaded when it
//! is first asked for. It gets the arguments that an operator gets, on the same stream.

mod column_major;
mod cublas;
mod products;

pub use cublas::Cublas;
pub use products::has_peer;

use crate::runtime::error::Result;

/// The libraries by name.
pub const NAMES: [&str; 1] = [cublas::NAME];

/// What there is of them on this machine: version and place, or why there is none.
pub fn find() -> Result<String> {
    let library = cublas::Library::get()?;
    Ok(format!("{}, {}", library.version(), library.path().display()))
}
