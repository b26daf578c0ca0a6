//! Clocks, for measuring inside a kernel.

/// This multiprocessor's cycle counter. PTX `mov.u64 %clock64`.
#[inline(always)]
pub fn clock64() -> u64 {
    let cycles: u64;
    // SAFETY: reads a special register.
    unsafe {
        ptx!("mov.u64 {}, %clock64;", out(reg64) cycles, options(nomem, nostack));
    }
    cycles
}

/// Nanoseconds on a clock that all multiprocessors share; its resolution is about a microsecond. PTX `mov.u64 %globaltimer`.
#[inline(always)]
pub fn global_timer_ns() -> u64 {
    let nanoseconds: u64;
    // SAFETY: reads a special register.
    unsafe {
        ptx!("mov.u64 {}, %globaltimer;", out(reg64) nanoseconds, options(nomem, nostack));
    }
    nanoseconds
}

/// Suspends the thread for up to twice `nanoseconds` (at most 1 ms). PTX `nanosleep.u32`, sm_70.
#[inline(always)]
pub fn nanosleep(nanoseconds: u32) {
    // SAFETY: no effect on memory.
    unsafe {
        ptx!("nanosleep.u32 {};", in(reg32) nanoseconds, options(nomem, nostack));
    }
}
