//! Asynchronous copies from global to shared memory, thread by thread. sm_80.
//!
//! Copies are gathered into groups by [`commit`]; [`wait_group`] waits for all but the latest few. Data is visible to
//! the copying thread after its wait, to the block after a barrier on top.

use crate::shared::SharedPtr;

macro_rules! copy {
    ($name:ident, $filled:ident, $instruction:literal, $bytes:literal, $doc:literal) => {
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`.\n\n# Safety\nBoth addresses are valid and aligned to ", $bytes, " bytes; the destination is not accessed before the wait.")]
        #[inline(always)]
        pub unsafe fn $name<T, U>(destination: SharedPtr<T>, source: *const U) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!($instruction, " [{}], [{}], ", $bytes, ";"),
                    in(reg32) destination.addr(), in(reg64) source,
                    options(nostack),
                );
            }
        }

        #[doc = concat!("[`", stringify!($name), "`] of the first `bytes` bytes; the rest of the destination becomes zero. With 0 bytes the source is not read.")]
        #[doc = concat!("\n\nPTX `", $instruction, "` with a source size.\n\n# Safety\nAs for [`", stringify!($name), "`]; `bytes` is at most ", $bytes, ".")]
        #[inline(always)]
        pub unsafe fn $filled<T, U>(destination: SharedPtr<T>, source: *const U, bytes: u32) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!($instruction, " [{}], [{}], ", $bytes, ", {};"),
                    in(reg32) destination.addr(), in(reg64) source, in(reg32) bytes,
                    options(nostack),
                );
            }
        }
    };
}

copy!(copy_16, copy_16_zero_fill, "cp.async.cg.shared.global", "16", "Copies 16 bytes through L2 only: for tiles.");
copy!(copy_16_l1, copy_16_l1_zero_fill, "cp.async.ca.shared.global", "16", "Copies 16 bytes through L1.");
copy!(copy_8, copy_8_zero_fill, "cp.async.ca.shared.global", "8", "Copies 8 bytes through L1.");
copy!(copy_4, copy_4_zero_fill, "cp.async.ca.shared.global", "4", "Copies 4 bytes through L1.");

/// Closes the group of this thread's copies since the last one. PTX `cp.async.commit_group`.
#[inline(always)]
pub fn commit() {
    // SAFETY: only groups copies.
    unsafe {
        ptx!("cp.async.commit_group;", options(nostack));
    }
}

/// Waits until at most `PENDING` of this thread's latest groups are unfinished. PTX `cp.async.wait_group`.
#[inline(always)]
pub fn wait_group<const PENDING: u32>() {
    // SAFETY: only waits.
    unsafe {
        ptx!("cp.async.wait_group {};", const PENDING, options(nostack));
    }
}

/// Waits for all of this thread's copies. PTX `cp.async.wait_all`.
#[inline(always)]
pub fn wait_all() {
    // SAFETY: only waits.
    unsafe {
        ptx!("cp.async.wait_all;", options(nostack));
    }
}
