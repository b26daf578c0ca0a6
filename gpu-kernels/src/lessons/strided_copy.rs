//! A copy of every `stride`-th element: the cost of a warp's access pattern.
//!
//! One thread per element. A warp's 32 loads of 4 bytes are `stride` · 4 bytes apart: with stride 1 they touch 4
//! adjacent sectors of 32 bytes, with stride 2 they touch 8, and from stride 8 on each load has a sector of its own.
//! The stores are always adjacent.

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
