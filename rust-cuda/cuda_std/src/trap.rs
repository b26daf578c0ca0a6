//! Ending a kernel early.

/// Aborts the grid: the host sees a launch failure. PTX `trap`.
#[inline(always)]
pub fn trap() -> ! {
    // SAFETY: ends the kernel.
    unsafe { ptx!("trap;", options(noreturn, nomem, nostack)) }
}

/// Ends this thread, as returning from the kernel does. PTX `exit`.
#[inline(always)]
pub fn exit() -> ! {
    // SAFETY: ends the thread.
    unsafe { ptx!("exit;", options(noreturn, nomem, nostack)) }
}

/// Stops a debugger here. PTX `brkpt`.
#[inline(always)]
pub fn breakpoint() {
    // SAFETY: no effect on memory.
    unsafe {
        ptx!("brkpt;", options(nomem, nostack));
    }
}
