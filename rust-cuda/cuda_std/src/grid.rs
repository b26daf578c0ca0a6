//! A grid as a whole: a barrier of all its blocks, and programmatic dependent launch.
//!
//! # All blocks of a grid
//!
//! A kernel that declares itself `#[kernel(cooperative)]` may call [`sync`]: no thread goes on before all threads of all blocks are
//! there. So a sum of partial sums, or the next step of an iteration over the whole grid, needs no second launch. The host launches such a kernel
//! so that all its blocks are on the device at once, and refuses a grid of more: `Device::blocks_at_once` says how many there may be, and a
//! loop over the elements lets each block take several turns.
//!
//! # A grid and those before and behind it in its stream
//!
//! A kernel that declares itself `#[kernel(programmatic)]` begins with [`wait_for_launch_ahead`], and may then be launched before the launch
//! ahead of it has ended: its blocks find their places while that one's last blocks still run, which hides the microseconds between
//! two launches. The host sees to that by itself. The launch ahead may be any kernel; one that calls [`launch_dependents`] early
//! lets the next in as soon as there is room.
//!
//! Before sm_90 there are no such launches, and both functions do nothing.

use crate::{arch, atomic, thread, trap};

/// Waits until the launches ahead in the stream have ended and what they wrote can be read. `#[kernel(programmatic)]` puts it first.
///
/// What reads global memory without saying so, such as [`Pack::load_nc`](crate::vector::Pack::load_nc), may be moved ahead of it: kernels
/// that wait read what another launch wrote by ordinary loads.
///
/// PTX `griddepcontrol.wait`, sm_90.
#[inline(always)]
pub fn wait_for_launch_ahead() {
    if arch::number() >= 90 {
        // SAFETY: waits, and touches no memory of its own.
        unsafe {
            ptx!("griddepcontrol.wait;", options(nostack));
        }
    }
}

/// Allows the next launch in the stream to begin before this grid has ended, if that launch waits for this grid by itself. It takes effect
/// once every block has called it or has ended. It is a hint: the next launch still sees everything that this grid writes.
///
/// PTX `griddepcontrol.launch_dependents`, sm_90.
#[inline(always)]
pub fn launch_dependents() {
    if arch::number() >= 90 {
        // SAFETY: touches no memory.
        unsafe {
            ptx!("griddepcontrol.launch_dependents;", options(nostack));
        }
    }
}

/// The barrier of a cooperative launch, in what the driver keeps for it; null in any other launch. PTX `%envreg1`, `%envreg2`.
#[inline(always)]
fn barrier() -> *mut u32 {
    let workspace: u64;
    // SAFETY: reads special registers, constant in a launch.
    unsafe {
        ptx!(
            "{{", ".reg .b32 low, high;",
            "mov.u32 high, %envreg1;",
            "mov.u32 low, %envreg2;",
            "mov.b64 {}, {{low, high}};", "}}",
            out(reg64) workspace,
            options(pure, nomem, nostack),
        );
    }
    if workspace == 0 { core::ptr::null_mut() } else { (workspace + 4) as *mut u32 }
}

/// Waits until all threads of all blocks of the grid are here, and makes what they have written, in any memory, visible to all of them.
/// CUDA's `this_grid().sync()`, with its words in memory.
///
/// What reads global memory without saying so, such as [`Pack::load_nc`](crate::vector::Pack::load_nc), may still see it as it was before:
/// what another block wrote is read by ordinary loads.
///
/// PTX `bar.sync`, `atom.add.acq_rel.gpu` and `ld.acquire.gpu`, sm_70.
///
/// # Safety
/// The kernel is declared `cooperative`, and every thread of every block calls this, as often as all others. In a launch that is not
/// cooperative it traps.
#[inline(always)]
pub unsafe fn sync() {
    let barrier = barrier();
    if barrier.is_null() {
        trap::trap();
    }
    // SAFETY: the caller's promise; the word is the driver's for this, and one thread of each block uses it.
    unsafe {
        thread::sync_threads();
        if thread::thread_idx_x() + thread::thread_idx_y() + thread::thread_idx_z() == 0 {
            // Together all arrivals add 2^31: the top bit turns when the last one is here, and the bits below are 0 again.
            let first = thread::block_idx_x() + thread::block_idx_y() + thread::block_idx_z() == 0;
            let blocks = thread::grid_dim_x() * thread::grid_dim_y() * thread::grid_dim_z();
            let before = atomic::add_acq_rel_u32(barrier, if first { 0x8000_0001u32.wrapping_sub(blocks) } else { 1 });
            while (atomic::load_acquire_u32(barrier) ^ before) >> 31 == 0 {}
        }
        thread::sync_threads();
    }
}
