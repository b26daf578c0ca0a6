//! The tensor memory accelerator: copies of whole tiles, and of plain byte ranges, by one thread. sm_90.
//!
//! Loads land in shared memory and complete bytes on an [`mbarrier`](crate::mbarrier); stores are gathered in groups
//! ([`commit_group`], [`wait_group`]). A tile's box, element strides, swizzle and out-of-bounds handling are in its
//! [`TensorMap`], which the host encodes; coordinates are in elements, the fastest dimension first. Parts of a box outside
//! the tensor are zero on loads (their bytes count) and skipped by stores.

mod bytes;
mod tiles;

pub use crate::launch::TensorMap;
pub use bytes::*;
pub use tiles::*;

/// What a kernel's entry point receives for a `&TensorMap`. [`TensorMap`] itself is aligned beyond what rustc passes by value.
#[doc(hidden)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Parameter([u64; 16]);

/// How L2 treats the lines of a copy.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CachePolicy(u64);

macro_rules! policy {
    ($($name:ident, $priority:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `createpolicy.fractional.", $priority, ".b64`, sm_80.")]
        #[inline(always)]
        pub fn $name() -> Self {
            let policy: u64;
            // SAFETY: no effect on memory.
            unsafe {
                ptx!(
                    concat!("createpolicy.fractional.", $priority, ".b64 {}, 1.0;"),
                    out(reg64) policy,
                    options(pure, nomem, nostack),
                );
            }
            Self(policy)
        }
    )* };
}

impl CachePolicy {
    policy! {
        evict_first, "L2::evict_first", "For data used once: its lines leave first.";
        evict_last, "L2::evict_last", "For data used by many blocks: its lines leave last.";
        evict_normal, "L2::evict_normal", "The default.";
    }

    /// The operand of instructions that take a policy.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// Fetches a descriptor into the descriptor cache, ahead of its first use. PTX `prefetch.tensormap`.
#[inline(always)]
pub fn prefetch_descriptor(map: &TensorMap) {
    // SAFETY: a hint.
    unsafe {
        ptx!("prefetch.tensormap [{}];", in(reg64) map, options(nostack));
    }
}

/// Closes the group of this thread's stores since the last one. PTX `cp.async.bulk.commit_group`.
#[inline(always)]
pub fn commit_group() {
    // SAFETY: only groups copies.
    unsafe {
        ptx!("cp.async.bulk.commit_group;", options(nostack));
    }
}

/// Waits until at most `PENDING` of this thread's latest groups are unfinished, their writes visible to this thread.
/// PTX `cp.async.bulk.wait_group`.
#[inline(always)]
pub fn wait_group<const PENDING: u32>() {
    // SAFETY: only waits.
    unsafe {
        ptx!("cp.async.bulk.wait_group {};", const PENDING, options(nostack));
    }
}

/// Waits until all but `PENDING` of this thread's latest groups have read their source, which may then be overwritten.
/// PTX `cp.async.bulk.wait_group.read`.
#[inline(always)]
pub fn wait_group_read<const PENDING: u32>() {
    // SAFETY: only waits.
    unsafe {
        ptx!("cp.async.bulk.wait_group.read {};", const PENDING, options(nostack));
    }
}
