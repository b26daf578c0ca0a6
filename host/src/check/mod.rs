//! What walks the operators: comparisons with their references, timing, mutation, and the files and random input these need.

pub mod bench;
mod buffers;
pub mod finite_differences;
pub mod io;
mod job;
pub mod lessons;
pub mod lines;
pub mod mutation;
mod operands;
pub mod peers;
#[cfg(feature = "cli")]
pub(crate) mod pictures;
pub mod profile;
pub mod random;
pub mod registry;
#[cfg(feature = "cli")]
pub(crate) mod report;
pub mod trace;
pub mod tune;
pub mod verify;

pub use job::{Job, Selection};
pub use operands::Operands;
