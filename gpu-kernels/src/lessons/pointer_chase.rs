//! A ring of places, each of which says where the next one is, followed by one thread: how far away each level of the memory is.
//!
//! A load's address is what the load before it brought, so nothing overlaps, and time over steps is the latency of a load and of making an
//! address of it. A place is a line of 128 bytes, and the next one is `hop` places on, so that no prefetch helps. Which level answers is
//! decided by how many places there are: as many as fit the first-level cache, the second, or neither.
//!
//! # Shared memory
//! The ring of [`chase_shared`]: a word a place.

use cuda_std::shared::{self, SharedPtr};
use cuda_std::{kernel, math, thread};

/// Threads of the one block: all of them lay the ring, the first one follows it.
pub const BLOCK: u32 = 256;
/// Words of a place in global memory.
pub const LINE: u32 = 32;
/// Places in shared memory.
pub const MOST_SHARED: u32 = 4096;

/// `y[0] = x[p]` with p where `steps` hops around a ring of `n` places in `ring` end, from place 0.
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

/// The same, with the ring in shared memory.
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

/// `y[0]` = what `steps` multiply-adds v ← `factor`·v + `term`, each of which waits for the one before, make of `x[0]`: registers alone.
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
