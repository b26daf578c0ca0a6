//! A grid and those before and behind it in its stream: programmatic dependent launch.
//!
//! A kernel that declares itself `#[kernel(programmatic)]` begins with [`wait_for_launch_ahead`], and may then be launched before the launch
//! ahead of it has ended: its blocks find their places while that one's last blocks still run, which hides the microseconds between
//! two launches. The host sees to that by itself. The launch ahead may be any kernel; one that calls [`launch_dependents`] early
//! lets the next in as soon as there is room.
//!
//! Before sm_90 there are no such launches, and both functions do nothing.

use crate::arch;

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

/// Tells that this block has nothing against the next launch in the stream being begun, if that one waits by itself. A hint: the
/// next one still sees everything that this grid writes. It counts once every block has called it or has ended.
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
