//! The checkers' state: which thread accessed what, and which accesses are ordered.

pub mod bar;
pub mod clocks;
mod copies;
pub mod global;
pub mod heard;
pub mod held;
mod launches;
pub mod maps;
pub mod mbar;
pub mod products;
pub mod race;
pub mod view;
mod warp_clock;
mod words;
