//! Bias, mask, scale and residual add, fused into one pass.
//!
//! # Math
//! y = (x + bias) · mask · scale + residual; `bias` is one row that every row of `x` gets.
//!
//! # Layout
//! `x`, `mask`, `residual` and `y` are n = rows × d contiguous f16, `bias` is d. If all start at a multiple of 16 bytes and d
//! is a multiple of 8, they are moved 16 bytes at a time, and otherwise element by element.
//!
//! # Mapping
//! One-dimensional grid over the n elements, rows one after the other: 256 threads a block, two packs of 8 a thread, so that
//! six loads are in flight before the first is used. A pack never crosses a row, as d is a multiple of 8.
//!
//! # Shared memory
//! None: the row of `bias` stays in L1 and L2, which evict it last.
//!
//! # Numerics
//! f32 arithmetic, rounded once to f16. NaN and infinities propagate as in the formula; a mask of zero does not hide them.
//!
//! # Cost
//! Three reads and a write of n elements, 4 FLOPs an element: bound by memory bandwidth. Unfused, the four steps would
//! move 11·n elements.
//!
//! # Limits
//! n up to (2³¹ − 1) · 4096.
//!
//! # Sources
//! Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762): dropout and the residual connection after a projection.

use core::array;
use core::num::NonZeroU64;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{f16, kernel, thread};

use crate::{aligned_16, lanes};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Elements a block moves.
pub const PER_BLOCK: usize = BLOCK as usize * PACKS * LANES;

const LANES: usize = lanes::<f16>();
/// Packs of each operand in flight a thread.
const PACKS: usize = 2;

/// y = (x + bias) · mask · scale + residual for n elements in rows of d.
///
/// # Safety
/// `x`, `mask` and `residual` are valid for reads and `y` for writes of `n` elements, `bias` for reads of `d`.
#[kernel(block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn bias_mask_scale_add(
    x: *const f16,
    bias: *const f16,
    mask: *const f16,
    residual: *const f16,
    y: *mut f16,
    n: u64,
    d: u64,
    scale: f32,
) {
    let Some(d) = NonZeroU64::new(d) else { return };
    let start = u64::from(thread::block_idx_x()) * PER_BLOCK as u64;
    let tid = u64::from(thread::thread_idx_x());
    let combine = |x: f32, bias: f32, mask: f32, residual: f32| (x + bias) * mask * scale + residual;
    let aligned = aligned_16([x as usize, bias as usize, mask as usize, residual as usize, y as usize]);
    if n - start >= PER_BLOCK as u64 && aligned && d.get() % LANES as u64 == 0 {
        type P = Pack<f16, LANES>;
        let at: [u64; PACKS] = array::from_fn(|i| start + (tid + i as u64 * u64::from(BLOCK)) * LANES as u64);
        let xs = at.map(|at| P::load_nc_no_allocate(x.add(at as usize)));
        let masks = at.map(|at| P::load_nc_no_allocate(mask.add(at as usize)));
        let residuals = at.map(|at| P::load_nc_no_allocate(residual.add(at as usize)));
        let biases = at.map(|at| P::load_nc_evict_last(bias.add((at % d) as usize)));
        for i in 0..PACKS {
            let (x, bias) = (xs[i].to_f32(), biases[i].to_f32());
            let (mask, residual) = (masks[i].to_f32(), residuals[i].to_f32());
            let result = array::from_fn(|e| combine(x[e], bias[e], mask[e], residual[e]));
            P::from_f32(result).store_streaming(y.add(at[i] as usize));
        }
    } else {
        let end = n.min(start + PER_BLOCK as u64);
        let mut at = start + tid;
        while at < end {
            let i = at as usize;
            let [x, bias, mask, residual] =
                [*x.add(i), *bias.add((at % d) as usize), *mask.add(i), *residual.add(i)].map(Element::to_f32);
            *y.add(i) = Element::from_f32(combine(x, bias, mask, residual));
            at += u64::from(BLOCK);
        }
    }
}
