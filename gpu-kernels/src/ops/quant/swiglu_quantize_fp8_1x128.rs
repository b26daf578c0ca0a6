//! SwiGLU, and its quantization to 8-bit floats with a scale for each 128 neighbours of a row, in one pass.
//!
//! # Math
//! y = gate · σ(gate) · up; for each group of 1 × 128 of y: scale = max |y| / MAX, at least 2⁻¹²⁶, and q = ⌊y / scale⌉, with MAX = 448 for E4M3 and 57344 for E5M2.
//!
//! # Layout
//! `gate`, `up` and `q` are rows of d adjacent elements that may be padded, so that gate and up may be the halves of one tensor's rows. `scales` is
//! dense, ⌈d / 128⌉ a row. Rows at multiples of a pack are moved by packs, others element by element.
//!
//! # Mapping
//! As of quantize_fp8_1x128, with two packs of 16 bytes of each input a thread.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! y in f32 as of swiglu: one rounding, to q. Scales as of quantize_fp8_1x128.
//!
//! # Cost
//! One read of gate and up, one write of a byte an element and of 4 bytes per group: bound by memory bandwidth. Apart,
//! y would be written and read as well.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Shazeer, "GLU Variants Improve Transformer" (arXiv:2002.05202); DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437).

use cuda_std::float::Element;
use cuda_std::fp8::Float8;
use cuda_std::kernel;

use super::blocks;
use crate::ops::activation::silu;

/// Threads of a block.
pub const BLOCK: u32 = blocks::BLOCK;
/// Elements that share a scale.
pub const WIDTH: usize = 128;

/// Elements of a row that a block covers, of that many bytes each.
pub const fn per_block(bytes: usize) -> usize {
    blocks::read_by_block(bytes)
}

/// q and scales of `rows` rows of `d` elements.
///
/// # Safety
/// `gate` and `up` are valid for reads and `q` for writes of those rows at their strides, `scales` for writes of one
/// value per group; d and rows are at least 1.
#[kernel(dtypes(T: float, Q: float8), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn swiglu_quantize_fp8_1x128<T: Element, Q: Float8>(
    gate: *const T,
    up: *const T,
    q: *mut Q,
    scales: *mut f32,
    rows: u64,
    d: u64,
    gate_stride: u64,
    up_stride: u64,
    q_stride: u64,
) {
    let inputs = [(gate, gate_stride), (up, up_stride)];
    let value = |[gate, up]: [f32; 2]| silu::value(gate) * up;
    blocks::quantize_rows::<T, Q, f32, 2, WIDTH>(inputs, (q, q_stride), scales, rows, d, value);
}
