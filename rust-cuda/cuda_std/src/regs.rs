//! Moving registers between warpgroups: producers give up what consumers need.

/// Grows each thread's registers to `COUNT`, waiting until they are free. PTX `setmaxnreg.inc.sync.aligned.u32`, sm_90a.
///
/// # Safety
/// All warps of the warpgroup execute this, convergently; the kernel declares its block size (as `#[kernel]` does).
#[inline(always)]
pub unsafe fn increase<const COUNT: u32>() {
    const { assert!(COUNT >= 24 && COUNT <= 256 && COUNT.is_multiple_of(8), "a multiple of 8 from 24 to 256") };
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("setmaxnreg.inc.sync.aligned.u32 {};", const COUNT, options(nostack));
    }
}

/// Shrinks each thread's registers to `COUNT`. PTX `setmaxnreg.dec.sync.aligned.u32`, sm_90a.
///
/// # Safety
/// As for [`increase`].
#[inline(always)]
pub unsafe fn decrease<const COUNT: u32>() {
    const { assert!(COUNT >= 24 && COUNT <= 256 && COUNT.is_multiple_of(8), "a multiple of 8 from 24 to 256") };
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("setmaxnreg.dec.sync.aligned.u32 {};", const COUNT, options(nostack));
    }
}
