//! Fences: the order of memory accesses as other threads, and other paths to memory, see it.

macro_rules! fence {
    ($($name:ident, $instruction:literal, $arch:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`, ", $arch, ".")]
        #[inline(always)]
        pub fn $name() {
            // SAFETY: orders accesses, makes none.
            unsafe {
                ptx!(concat!($instruction, ";"), options(nostack));
            }
        }
    )* };
}

fence! {
    threadfence_block, "fence.sc.cta", "sm_70", "Sequentially consistent fence among the threads of the block, CUDA's `__threadfence_block`.";
    threadfence, "fence.sc.gpu", "sm_70", "Sequentially consistent fence among the threads of the device, CUDA's `__threadfence`.";
    threadfence_system, "fence.sc.sys", "sm_70", "Sequentially consistent fence among all devices and the host, CUDA's `__threadfence_system`.";
    acq_rel_block, "fence.acq_rel.cta", "sm_70", "Acquire-release fence among the threads of the block.";
    acq_rel_cluster, "fence.acq_rel.cluster", "sm_90", "Acquire-release fence among the threads of the cluster.";
    acq_rel, "fence.acq_rel.gpu", "sm_70", "Acquire-release fence among the threads of the device: enough to publish data before setting a flag.";
    acq_rel_system, "fence.acq_rel.sys", "sm_70", "Acquire-release fence among all devices and the host.";
    proxy_async, "fence.proxy.async", "sm_90", "Orders ordinary accesses and those of the asynchronous proxy (TMA, wgmma operands): after writing shared memory that TMA is to store or wgmma to read.";
    proxy_async_shared, "fence.proxy.async.shared::cta", "sm_90", "[`proxy_async`] for this block's shared memory only.";
    proxy_async_global, "fence.proxy.async.global", "sm_90", "[`proxy_async`] for global memory only.";
    mbarrier_init, "fence.mbarrier_init.release.cluster", "sm_90", "Makes this thread's barrier initializations visible to the cluster and to the asynchronous proxy; a block or cluster barrier follows.";
}
