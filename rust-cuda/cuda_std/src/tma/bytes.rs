//! Copies of plain byte ranges.

use crate::{cluster::ClusterPtr, mbarrier::Barrier, shared::SharedPtr};

/// Starts the copy of `bytes` from global to shared memory; they complete on `barrier`.
/// PTX `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes`.
///
/// # Safety
/// Both ranges are valid, their addresses and `bytes` multiples of 16; `barrier` is live and expects the bytes.
#[inline(always)]
pub unsafe fn load_bytes<T, U>(destination: SharedPtr<T>, source: *const U, bytes: u32, barrier: SharedPtr<Barrier>) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}], {}, [{}];",
            in(reg32) destination.addr(), in(reg64) source, in(reg32) bytes, in(reg32) barrier.addr(),
            options(nostack),
        );
    }
}

/// [`load_bytes`] into every block of the cluster whose rank's bit is set in `blocks`. PTX suffix `.multicast::cluster`.
///
/// # Safety
/// As for [`load_bytes`], in every block of the mask.
#[inline(always)]
pub unsafe fn load_bytes_multicast<T, U>(
    destination: SharedPtr<T>,
    source: *const U,
    bytes: u32,
    barrier: SharedPtr<Barrier>,
    blocks: u16,
) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [{}], [{}], {}, [{}], {};",
            in(reg32) destination.addr(), in(reg64) source, in(reg32) bytes, in(reg32) barrier.addr(),
            in(reg16) blocks,
            options(nostack),
        );
    }
}

/// Starts the copy of `bytes` to the shared memory of a block in the cluster; they complete on that block's `barrier`.
/// PTX `cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes`.
///
/// # Safety
/// As for [`load_bytes`]; the other block has not ended.
#[inline(always)]
pub unsafe fn send_bytes<T, U>(
    destination: ClusterPtr<T>,
    source: SharedPtr<U>,
    bytes: u32,
    barrier: ClusterPtr<Barrier>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{}], [{}], {}, [{}];",
            in(reg32) destination.addr(), in(reg32) source.addr(), in(reg32) bytes, in(reg32) barrier.addr(),
            options(nostack),
        );
    }
}

/// Starts the copy of `bytes` from shared to global memory; it belongs to the next [`commit_group`](super::commit_group).
/// PTX `cp.async.bulk.global.shared::cta.bulk_group`.
///
/// # Safety
/// Both ranges are valid, their addresses and `bytes` multiples of 16; the source was written before a
/// [`fence::proxy_async`](crate::fence::proxy_async) and is not written before the group's wait.
#[inline(always)]
pub unsafe fn store_bytes<T, U>(destination: *mut T, source: SharedPtr<U>, bytes: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "cp.async.bulk.global.shared::cta.bulk_group [{}], [{}], {};",
            in(reg64) destination, in(reg32) source.addr(), in(reg32) bytes,
            options(nostack),
        );
    }
}

/// Starts the atomic addition of `bytes` of `f32` in shared memory to global memory; see [`store_bytes`].
/// PTX `cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32`.
///
/// # Safety
/// As for [`store_bytes`].
#[inline(always)]
pub unsafe fn add_f32(destination: *mut f32, source: SharedPtr<f32>, bytes: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [{}], [{}], {};",
            in(reg64) destination, in(reg32) source.addr(), in(reg32) bytes,
            options(nostack),
        );
    }
}

/// Fetches `bytes` (a multiple of 16) into L2. PTX `cp.async.bulk.prefetch.L2.global`.
///
/// # Safety
/// The range is valid and aligned to 16 bytes.
#[inline(always)]
pub unsafe fn prefetch_bytes<T>(source: *const T, bytes: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("cp.async.bulk.prefetch.L2.global [{}], {};", in(reg64) source, in(reg32) bytes, options(nostack));
    }
}
