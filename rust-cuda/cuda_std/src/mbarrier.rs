//! Memory barriers in shared memory: counters of arrivals and of bytes, which asynchronous copies complete.
//!
//! A [`Barrier`] counts down the arrivals of its current phase, and bytes expected of asynchronous copies. When both
//! reach zero the phase completes and the next begins. Waiters name a phase by its parity: the first phase has parity 0,
//! and waiting for parity 1 on a fresh barrier returns at once, as if a phase before the first had completed.
//!
//! sm_90 unless noted (waiting and arriving locally: sm_80, without `try_wait`'s suspension).

use crate::{cluster::ClusterPtr, shared::SharedPtr, warp::Lane};

/// A barrier's storage in shared memory.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Barrier(u64);

impl SharedPtr<Barrier> {
    /// Sets the barrier up for phases of `count` arrivals. One thread does this, then
    /// [`fence::mbarrier_init`](crate::fence::mbarrier_init) and a block or cluster barrier publish it.
    /// PTX `mbarrier.init.shared::cta.b64`, sm_80.
    ///
    /// # Safety
    /// No barrier is live at this address; `count` is from 1 to 2^20 - 1.
    #[inline(always)]
    pub unsafe fn init(self, count: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!("mbarrier.init.shared::cta.b64 [{}], {};", in(reg32) self.addr(), in(reg32) count, options(nostack));
        }
    }

    /// Ends the barrier's life, so that its memory can be used otherwise. PTX `mbarrier.inval.shared::cta.b64`, sm_80.
    ///
    /// # Safety
    /// The barrier is live and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn invalidate(self) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!("mbarrier.inval.shared::cta.b64 [{}];", in(reg32) self.addr(), options(nostack));
        }
    }

    /// Arrives once, releasing this thread's earlier memory accesses. PTX `mbarrier.arrive.shared::cta.b64`, sm_80.
    ///
    /// # Safety
    /// The barrier is live and its phase still expects an arrival.
    #[inline(always)]
    pub unsafe fn arrive(self) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!("mbarrier.arrive.shared::cta.b64 _, [{}];", in(reg32) self.addr(), options(nostack));
        }
    }

    /// Arrives once and adds `bytes` to what the phase expects of asynchronous copies.
    /// PTX `mbarrier.arrive.expect_tx.shared::cta.b64`.
    ///
    /// # Safety
    /// As for [`arrive`](Self::arrive); copies of exactly `bytes` complete on this phase.
    #[inline(always)]
    pub unsafe fn arrive_expect_tx(self, bytes: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};",
                in(reg32) self.addr(), in(reg32) bytes,
                options(nostack),
            );
        }
    }

    /// Adds `bytes` to what the phase expects, without arriving. PTX `mbarrier.expect_tx.relaxed.cta.shared::cta.b64`.
    ///
    /// # Safety
    /// The barrier is live; copies of exactly `bytes` complete on this phase.
    #[inline(always)]
    pub unsafe fn expect_tx(self, bytes: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{}], {};",
                in(reg32) self.addr(), in(reg32) bytes,
                options(nostack),
            );
        }
    }

    /// Arrives at the barrier at the same place in the shared memory of block `rank` of this cluster.
    /// PTX `mapa.shared::cluster`, `mbarrier.arrive.release.cluster.shared::cluster.b64`.
    ///
    /// # Safety
    /// That barrier is live, its phase expects an arrival, and its block has not ended.
    #[inline(always)]
    pub unsafe fn arrive_remote(self, rank: u32) {
        // SAFETY: the caller's promise.
        unsafe { crate::cluster::map(self, rank).arrive() }
    }

    /// Whether the phase with this parity has completed; may suspend the thread for a while first. On true, what the
    /// arrivals released is visible. PTX `mbarrier.try_wait.parity.shared::cta.b64`.
    ///
    /// # Safety
    /// The barrier is live; the phase meant is the current one or the one before.
    #[inline(always)]
    pub unsafe fn try_wait_parity(self, parity: u32) -> bool {
        let done: u32;
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "{{", ".reg .pred p;",
                "mbarrier.try_wait.parity.shared::cta.b64 p, [{barrier}], {parity};",
                "selp.u32 {done}, 1, 0, p;", "}}",
                barrier = in(reg32) self.addr(), parity = in(reg32) parity, done = out(reg32) done,
                options(nostack),
            );
        }
        done != 0
    }

    /// As [`try_wait_parity`](Self::try_wait_parity), without suspending. PTX `mbarrier.test_wait.parity.shared::cta.b64`, sm_80.
    ///
    /// # Safety
    /// As for [`try_wait_parity`](Self::try_wait_parity).
    #[inline(always)]
    pub unsafe fn test_wait_parity(self, parity: u32) -> bool {
        let done: u32;
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "{{", ".reg .pred p;",
                "mbarrier.test_wait.parity.shared::cta.b64 p, [{barrier}], {parity};",
                "selp.u32 {done}, 1, 0, p;", "}}",
                barrier = in(reg32) self.addr(), parity = in(reg32) parity, done = out(reg32) done,
                options(nostack),
            );
        }
        done != 0
    }

    /// Waits until the phase with this parity has completed.
    ///
    /// # Safety
    /// As for [`try_wait_parity`](Self::try_wait_parity).
    #[inline(always)]
    pub unsafe fn wait_parity(self, parity: u32) {
        // SAFETY: the caller's promise.
        while !unsafe { self.try_wait_parity(parity) } {}
    }

    /// As [`try_wait_parity`](Self::try_wait_parity), and on true what blocks of the cluster released is visible.
    /// PTX `mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64`.
    ///
    /// # Safety
    /// As for [`try_wait_parity`](Self::try_wait_parity).
    #[inline(always)]
    pub unsafe fn try_wait_parity_cluster(self, parity: u32) -> bool {
        let done: u32;
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "{{", ".reg .pred p;",
                "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [{barrier}], {parity};",
                "selp.u32 {done}, 1, 0, p;", "}}",
                barrier = in(reg32) self.addr(), parity = in(reg32) parity, done = out(reg32) done,
                options(nostack),
            );
        }
        done != 0
    }

    /// Waits as [`wait_parity`](Self::wait_parity) does, and also sees what blocks of the cluster released.
    ///
    /// # Safety
    /// As for [`try_wait_parity`](Self::try_wait_parity).
    #[inline(always)]
    pub unsafe fn wait_parity_cluster(self, parity: u32) {
        // SAFETY: the caller's promise.
        while !unsafe { self.try_wait_parity_cluster(parity) } {}
    }

    /// Makes this thread's earlier [`cp_async`](crate::cp_async) copies arrive once when they complete, on top of the
    /// counted arrivals of the phase. PTX `cp.async.mbarrier.arrive.noinc.shared::cta.b64`, sm_80.
    ///
    /// # Safety
    /// As for [`arrive`](Self::arrive).
    #[inline(always)]
    pub unsafe fn arrive_on_cp_async(self) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{}];",
                in(reg32) self.addr(),
                options(nostack),
            );
        }
    }
}

impl ClusterPtr<Barrier> {
    /// Arrives once at a barrier of any block in the cluster.
    /// PTX `mbarrier.arrive.release.cluster.shared::cluster.b64`.
    ///
    /// # Safety
    /// The barrier is live, its phase expects an arrival, and its block has not ended.
    #[inline(always)]
    pub unsafe fn arrive(self) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{}];",
                in(reg32) self.addr(),
                options(nostack),
            );
        }
    }

    /// [`arrive`](Self::arrive) that releases within this block only: it spares the fence of the cluster's, a hundred cycles
    /// and more. Enough to hand back a buffer that only asynchronous operations read, once their completion was waited for.
    /// PTX `mbarrier.arrive.shared::cluster.b64`.
    ///
    /// # Safety
    /// As for [`arrive`](Self::arrive).
    #[inline(always)]
    pub unsafe fn signal(self) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!("mbarrier.arrive.shared::cluster.b64 _, [{}];", in(reg32) self.addr(), options(nostack));
        }
    }

    /// Arrives once at a barrier of any block in the cluster, and adds `bytes` to what its phase expects.
    /// PTX `mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64`.
    ///
    /// # Safety
    /// As for [`arrive`](Self::arrive).
    #[inline(always)]
    pub unsafe fn arrive_expect_tx(self, bytes: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [{}], {};",
                in(reg32) self.addr(), in(reg32) bytes,
                options(nostack),
            );
        }
    }
}

impl<T: Lane> ClusterPtr<T> {
    /// Stores a value and completes its four bytes on `barrier`, which is in the same block: who waits for the barrier sees it, without a fence or a
    /// barrier of the whole cluster. PTX `st.async.shared::cluster.mbarrier::complete_tx::bytes.b32`.
    ///
    /// # Safety
    /// As for [`write`](Self::write); the barrier's phase expects the bytes, and its block does not end before it.
    #[inline(always)]
    pub unsafe fn write_async(self, value: T, barrier: ClusterPtr<Barrier>) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!(
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [{}], {}, [{}];",
                in(reg32) self.addr(), in(reg32) value.to_bits(), in(reg32) barrier.addr(),
                options(nostack),
            );
        }
    }
}
