//! One thread follows a ring of places, each of which stores the index of the next: the latency of each level of the
//! memory hierarchy.
//!
//! A load's address is the result of the load before it, so nothing overlaps: time divided by steps is the latency of
//! one load and of its address computation. A place is a line of 128 bytes, and the next one is `hop` places on, so
//! that no prefetch helps. The number of places decides which level answers: they fit the first-level cache, the
//! second, or neither.
//!
//! # Shared memory
//! The ring of [`chase_shared`]: one word per place.

use cuda_std::shared::{self, SharedPtr};
use cuda_std::{kernel, math, thread};

/// Threads of the one block: all of them build the ring, the first one follows it.
pub const BLOCK: u32 = 256;
/// Words of a place in global memory.
pub const LINE: u32 = 32;
/// Places in shared memory.
pub const MOST_SHARED: u32 = 4096;

/// `y[0] = x[p]`, where p is the place that `steps` hops from place 0 reach in a ring of `n` places in `ring`.
///
/// # Safety
/// `x` is valid for reads of `n` elements, `ring` for reads and writes of `n` times [`LINE`], and `y` for a write of one; 0 < `n` < 2²⁶ and
/// `hop` < `n`. One block.
#[kernel(block = BLOCK, no_spills)]
pub unsafe fn chase_global(x: *const f32, ring: *mut u32, y: *mut f32, n: u32, hop: u32, steps: u32) {
    let mut i = thread::thread_idx_x();
    while i < n {
        *ring.add((i * LINE) as usize) = (i + hop) % n * LINE;
        i += BLOCK;
    }
    thread::sync_threads();
    if thread::thread_idx_x() > 0 {
        return;
    }
    let mut at = 0;
    for _ in 0..steps {
        at = *ring.add(at as usize);
    }
    *y = *x.add((at / LINE) as usize);
}

/// The same as [`chase_global`], with the ring in shared memory.
///
/// # Safety
/// `x` is valid for reads of `n` elements and `y` for a write of one; 0 < `n` ≤ [`MOST_SHARED`] and `hop` < `n`. One block.
#[kernel(block = BLOCK, shared = { MOST_SHARED as usize * 4 }, no_spills)]
pub unsafe fn chase_shared(x: *const f32, y: *mut f32, n: u32, hop: u32, steps: u32) {
    let ring: SharedPtr<u32> = shared::dynamic();
    let mut i = thread::thread_idx_x();
    while i < n {
        *ring.add(i).as_ptr() = (i + hop) % n;
        i += BLOCK;
    }
    thread::sync_threads();
    if thread::thread_idx_x() > 0 {
        return;
    }
    let mut at = 0;
    for _ in 0..steps {
        at = *ring.add(at).as_ptr();
    }
    *y = *x.add(at as usize);
}

/// `y[0]` = `x[0]` after `steps` multiply-adds v ← `factor`·v + `term`, each of which depends on the one before: the
/// latency of registers alone.
///
/// # Safety
/// `x` is valid for a read of one element and `y` for a write of one. One block.
#[kernel(block = BLOCK, no_spills)]
pub unsafe fn chase_registers(x: *const f32, y: *mut f32, factor: f32, term: f32, steps: u32) {
    if thread::thread_idx_x() > 0 {
        return;
    }
    let mut v = *x;
    for _ in 0..steps {
        v = math::fma(v, factor, term);
    }
    *y = v;
}
