//! Two branches, each taken by half of the threads: the cost if both halves are in one warp.
//!
//! A warp issues one instruction at a time for its 32 threads. If some of its threads take one branch and some the
//! other, the warp executes both, one after the other, and the threads of the other branch idle. If all threads of a
//! warp take the same branch, the warp executes only that one.
//!
//! Both branches are `rounds` multiply-adds, each of which depends on the one before: v ← 0.5·v + 1 and v ← 1 − 0.5·v.

use cuda_std::{kernel, math, thread};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// Which threads take the second branch.
pub trait Split {
    /// The number of neighbouring threads that take the same branch.
    const TOGETHER: u32;
}

/// Every second thread.
pub struct Threads;
/// Every second warp.
pub struct Warps;

impl Split for Threads {
    const TOGETHER: u32 = 1;
}

impl Split for Warps {
    const TOGETHER: u32 = 32;
}

/// y = x after `rounds` steps of one of two recurrences, for `n` elements: every other group of [`Split::TOGETHER`]
/// takes the second one.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `n` elements.
#[kernel(types(S: Threads, Warps), block = BLOCK, no_spills)]
pub unsafe fn branches<S: Split>(x: *const f32, y: *mut f32, n: u64, rounds: u32) {
    let i = u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x());
    if i >= n {
        return;
    }
    let mut v = *x.add(i as usize);
    if (thread::thread_idx_x() / S::TOGETHER).is_multiple_of(2) {
        for _ in 0..rounds {
            v = math::fma(v, 0.5, 1.0);
        }
    } else {
        for _ in 0..rounds {
            v = math::fma(v, -0.5, 1.0);
        }
    }
    *y.add(i as usize) = v;
}
