//! A formula of one input, as [`map!`](crate::map!) fuses it; a user's own ones are made in the same way.
//!
//! # Math
//! y = f(x), here max(x, 0)², the squared rectifier.
//!
//! # Layout
//! `x` and `y` have rows of d elements that may be padded: see [`map`](mod@crate::map).
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes in flight per thread, in blocks of
//! [`map::block`](crate::map::block) threads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! One f32 product, rounded once to the storage type. NaN becomes 0, as `f32::max` has it.
//!
//! # Cost
//! 2·n elements of traffic for n: bound by memory bandwidth. A chain of kernels moves as much for each of its steps.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB. A formula may need up to 128 registers per thread; `warpsmith inspect` shows what it
//! takes.
//!
//! # Sources
//! So, Mańke, Liu, Dai, Shazeer and Le, "Primer: Searching for Efficient Transformers for Language Modeling" (arXiv:2109.08668), for the squared
//! rectifier.

crate::map! {
    /// y = max(x, 0)².
    pub fn relu_squared(x: f32) -> f32 {
        let r = x.max(0.0);
        r * r
    }
}
