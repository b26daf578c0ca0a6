//! A copy of every `stride`-th element: what the places that a warp reads from cost.
//!
//! A thread an element. A warp's 32 loads of 4 bytes lie `stride` · 4 bytes apart: in 4 sectors of 32 bytes next to each other, in 8 two
//! apart, and from a stride of 8 on each in a sector of its own. The stores are always next to each other.

use cuda_std::{kernel, thread};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// `y[i] = x[i · stride]` for `n` elements.
///
/// # Safety
/// `x` is valid for reads of `n` elements that far apart, and `y` for writes of `n`.
#[kernel(block = BLOCK, no_spills)]
pub unsafe fn strided_copy(x: *const f32, y: *mut f32, n: u64, stride: u64) {
    let i = u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x());
    if i < n {
        *y.add(i as usize) = *x.add((i * stride) as usize);
    }
}
