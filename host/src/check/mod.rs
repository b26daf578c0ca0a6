//! What walks the operators: comparisons with their references, timing, mutation, and the files and random input these need.

pub mod bench;
pub mod io;
pub mod mutation;
pub mod random;
pub mod registry;
pub mod verify;
