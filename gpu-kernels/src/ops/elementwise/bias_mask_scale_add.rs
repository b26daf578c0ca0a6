//! Bias, mask, scale and residual add, fused into one pass.
//!
//! # Math
//! y = (x + bias) · mask · scale + residual; `bias` is one row that every row of `x` gets.
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map). `bias` is a row at stride 0.
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes of each operand a thread, so that eight loads are in flight before the first
//! is used; blocks of [`map::block`] threads, x along the row, y over the rows.
//!
//! # Shared memory
//! None: the row of `bias` stays in L1 and L2, which evict it last.
//!
//! # Numerics
//! f32 arithmetic, rounded once to the storage type. NaN and infinities propagate as in the formula; a mask of zero does not
//! hide them.
//!
//! # Cost
//! Three reads and a write of n elements, 4 FLOPs per element: bound by memory bandwidth. Unfused, the four steps would
//! move 11·n elements.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762): dropout and the residual connection after a projection.

use cuda_std::float::Element;
use cuda_std::kernel;

use crate::map::{self, LIGHT, block};

/// y = (x + bias) · mask · scale + residual, for `rows` rows of `d` elements.
///
/// # Safety
/// `x`, `mask` and `residual` are valid for reads and `y` for writes of those rows at their strides, `bias` for reads of `d`;
/// d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), LIGHT), no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn bias_mask_scale_add<T: Element>(
    x: *const T,
    bias: *const T,
    mask: *const T,
    residual: *const T,
    y: *mut T,
    rows: u64,
    d: u64,
    x_stride: u64,
    mask_stride: u64,
    residual_stride: u64,
    y_stride: u64,
    scale: f32,
) {
    let inputs = [(x, x_stride), (mask, mask_stride), (residual, residual_stride), (bias, 0)];
    map::zip::<T, T, 4, 1, LIGHT>(inputs, (y, y_stride), rows, d, |[x, mask, residual, bias]| {
        (x + bias) * mask * scale + residual
    });
}
