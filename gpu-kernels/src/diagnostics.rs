//! Kernels that test the launch and error-handling machinery around kernels.

use cuda_std::{kernel, thread, trap};

/// Traps in every block, so that the host's handling of a failed kernel can be tested on a real device.
///
/// # Safety
/// The kernel accesses no memory; the device context is lost.
#[kernel(block = 32)]
pub unsafe fn trap_now(code: u32) {
    if code != 0 || thread::thread_idx_x() < 32 {
        trap::trap();
    }
}
