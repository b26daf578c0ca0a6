//! Matrix products.
//!
//! `mma` and `hopper` are the two ways of feeding the tensor cores, `weight_only` is a third for weights of few bits,
//! and `epilogue` is the processing of the sums. An operator's kernels name the types and layouts of its operands.

mod epilogue;
#[allow(clippy::module_inception, reason = "the family has the name of its first operator")]
pub mod gemm;
pub mod gemm_fp8;
pub mod gemm_fp8_blocks;
pub mod gemm_grouped;
pub mod gemm_grouped_backward;
pub mod gemm_grouped_masked;
pub mod gemm_int8;
pub mod gemm_mxfp8;
pub mod gemm_tf32;
pub mod gemm_w4a16;
pub mod gemm_w8a16;
mod groups;
mod hopper;
pub mod linear;
pub mod linear_backward;
pub mod linear_glu;
mod mma;
mod operand;
pub mod sgemm;
mod weight_only;

pub(crate) use weight_only::{Int8, Weight};

use core::array;

use cuda_std::launch::Fields;

/// Sizes, strides and factors of a product. Strides are in elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Problem {
    /// Of A: from a product to the next, along m, along k.
    pub a: [u64; 3],
    /// Of B: from a product to the next, along n, along k.
    pub b: [u64; 3],
    /// Of C: from a product to the next, along m.
    pub c: [u64; 2],
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// Products.
    pub batch: u32,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what C holds.
    pub beta: f32,
}

// SAFETY: 8 u64 and 6 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Problem {}

/// Eight of sixteen elements, from `off` on.
#[inline(always)]
fn shifted([low, high]: [[u32; 4]; 2], off: u32) -> [u32; 4] {
    let words = [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
    // Registers cannot be indexed by `off`.
    let by_two = |words: [u32; 8]| array::from_fn(|i| if off & 4 != 0 { words[(i + 2).min(7)] } else { words[i] });
    let by_one = |words: [u32; 8]| array::from_fn(|i| if off & 2 != 0 { words[(i + 1).min(7)] } else { words[i] });
    let words: [u32; 8] = by_one(by_two(words));
    let bits = off % 2 * 16;
    array::from_fn(|i| ((u64::from(words[i + 1]) << 32 | u64::from(words[i])) >> bits) as u32)
}
