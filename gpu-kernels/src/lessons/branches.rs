//! Two ways to go, half of the threads each: what it costs when they are of one warp.
//!
//! A warp has one instruction at a time for its 32 threads. Where some go one way and some the other it goes both, one after the other, each
//! with the others idle. Where all of a warp go the same way it goes that one.
//!
//! Both ways are `rounds` multiply-adds, each of which waits for the one before: v ← 0.5·v + 1 and v ← 1 − 0.5·v.

use cuda_std::{kernel, math, thread};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// Who goes the second way.
pub trait Split {
    /// Neighbours that go together.
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

/// y = what `rounds` steps of one of two recurrences make of x, for `n` elements: the second in every other group of [`Split::TOGETHER`].
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
