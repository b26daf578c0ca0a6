//! Reductions over a one-dimensional block, through one slot of shared memory a warp.

use crate::{
    shared::SharedPtr,
    thread,
    warp::{self, Lane},
};

/// Combines the values of all `THREADS` threads; every thread gets the result.
///
/// The order of combination is fixed, so results are reproducible. The block synchronizes twice: `scratch` may be used
/// again right after.
///
/// # Safety
/// All threads of a one-dimensional block of `THREADS` (a multiple of 32) execute this; `scratch` has `THREADS / 32` elements.
#[inline(always)]
pub unsafe fn reduce<const THREADS: u32, T: Lane>(
    value: T,
    scratch: SharedPtr<T>,
    combine: impl Fn(T, T) -> T + Copy,
) -> T {
    const { assert!(THREADS.is_multiple_of(32) && THREADS >= 32 && THREADS <= 1024) };
    let warps = THREADS / warp::SIZE;
    // SAFETY: the caller's promise; each warp has its slot, read after the barrier.
    unsafe {
        let mut value = warp::reduce(value, combine);
        if warps == 1 {
            return value;
        }
        if warp::lane_id() == 0 {
            scratch.add(warp::warp_id()).write(value);
        }
        thread::sync_threads();
        value = scratch.read();
        let mut index = 1;
        while index < warps {
            value = combine(value, scratch.add(index).read());
            index += 1;
        }
        thread::sync_threads();
        value
    }
}

/// The sum over the block, in every thread. See [`reduce`].
///
/// # Safety
/// As for [`reduce`].
#[inline(always)]
pub unsafe fn reduce_sum<const THREADS: u32>(value: f32, scratch: SharedPtr<f32>) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { reduce::<THREADS, f32>(value, scratch, |a, b| a + b) }
}

/// The maximum over the block, in every thread; NaN only if all values are. See [`reduce`].
///
/// # Safety
/// As for [`reduce`].
#[inline(always)]
pub unsafe fn reduce_max<const THREADS: u32>(value: f32, scratch: SharedPtr<f32>) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { reduce::<THREADS, f32>(value, scratch, f32::max) }
}
