//! Formulas of several inputs, as [`zip!`](crate::zip!) fuses them; a user's own ones are made in the same way.
//!
//! # Math
//! y = f(x₀, x₁, …), here x + scale · a · b.
//!
//! # Layout
//! Inputs and output have rows of d elements that may be padded: see [`map`](mod@crate::map). An input at stride 0 is one row that all share.
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes of each input in flight per thread, in blocks of
//! [`map::block`](crate::map::block) threads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32, with multiplications and additions fused where the formula has both, rounded once to the storage type.
//!
//! # Cost
//! One read of each input and one write: bound by memory bandwidth.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB; four inputs. A formula may need up to 128 registers per thread; `warpsmith inspect` shows
//! what it takes.
//!
//! # Sources
//! None.

crate::zip! {
    /// y = x + scale · a · b.
    pub fn add_product([x, a, b]: [f32; 3], scale: f32) -> f32 {
        x + scale * a * b
    }
}
