//! Clusters: blocks that run together and reach each other's shared memory. sm_90.

use core::marker::PhantomData;

use crate::shared::SharedPtr;

/// A pointer into the shared memory of some block of this cluster.
#[repr(transparent)]
pub struct ClusterPtr<T> {
    address: u32,
    pointee: PhantomData<*mut T>,
}

impl<T> Clone for ClusterPtr<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ClusterPtr<T> {}

impl<T> ClusterPtr<T> {
    /// The pointer with this address of the cluster's shared window.
    #[inline(always)]
    pub const fn from_addr(address: u32) -> Self {
        Self { address, pointee: PhantomData }
    }

    /// The address in the cluster's shared window.
    #[inline(always)]
    pub const fn addr(self) -> u32 {
        self.address
    }

    /// The pointer `count` elements further.
    #[inline(always)]
    pub const fn add(self, count: u32) -> Self {
        Self::from_addr(self.address.wrapping_add(count.wrapping_mul(size_of::<T>() as u32)))
    }

    /// The same address, pointing to another type.
    #[inline(always)]
    pub const fn cast<U>(self) -> ClusterPtr<U> {
        ClusterPtr::from_addr(self.address)
    }
}

impl<T: crate::warp::Lane> ClusterPtr<T> {
    /// Loads a value. PTX `ld.shared::cluster.b32`.
    ///
    /// # Safety
    /// The address is aligned and initialized, and its block has not ended.
    #[inline(always)]
    pub unsafe fn read(self) -> T {
        let bits: u32;
        // SAFETY: the caller's promise.
        unsafe {
            ptx!("ld.shared::cluster.b32 {}, [{}];", out(reg32) bits, in(reg32) self.address, options(nostack));
        }
        T::from_bits(bits)
    }

    /// Stores a value. PTX `st.shared::cluster.b32`.
    ///
    /// # Safety
    /// The address is aligned, nobody else accesses it meanwhile, and its block has not ended.
    #[inline(always)]
    pub unsafe fn write(self, value: T) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!("st.shared::cluster.b32 [{}], {};", in(reg32) self.address, in(reg32) value.to_bits(), options(nostack));
        }
    }
}

/// Where `pointer` is in the shared memory of block `rank` of the cluster. PTX `mapa.shared::cluster.u32`.
#[inline(always)]
pub fn map<T>(pointer: SharedPtr<T>, rank: u32) -> ClusterPtr<T> {
    let address: u32;
    // SAFETY: address arithmetic.
    unsafe {
        ptx!(
            "mapa.shared::cluster.u32 {}, {}, {};",
            out(reg32) address, in(reg32) pointer.addr(), in(reg32) rank,
            options(pure, nomem, nostack),
        );
    }
    ClusterPtr::from_addr(address)
}

macro_rules! special {
    ($($name:ident, $register:literal, $doc:literal;)*) => { $(
        #[doc = concat!($doc, " PTX `", $register, "`.")]
        #[inline(always)]
        pub fn $name() -> u32 {
            let value: u32;
            // SAFETY: reads a special register, constant in a thread.
            unsafe {
                ptx!(concat!("mov.u32 {}, ", $register, ";"), out(reg32) value, options(pure, nomem, nostack));
            }
            value
        }
    )* };
}

special! {
    rank, "%cluster_ctarank", "This block's rank in its cluster.";
    size, "%cluster_nctarank", "Blocks in the cluster.";
    block_idx_x, "%cluster_ctaid.x", "This block's x index in its cluster.";
    block_idx_y, "%cluster_ctaid.y", "This block's y index in its cluster.";
    block_idx_z, "%cluster_ctaid.z", "This block's z index in its cluster.";
    block_dim_x, "%cluster_nctaid.x", "Blocks in the cluster along x.";
    block_dim_y, "%cluster_nctaid.y", "Blocks in the cluster along y.";
    block_dim_z, "%cluster_nctaid.z", "Blocks in the cluster along z.";
    cluster_idx_x, "%clusterid.x", "The cluster's x index in the grid.";
    cluster_idx_y, "%clusterid.y", "The cluster's y index in the grid.";
    cluster_idx_z, "%clusterid.z", "The cluster's z index in the grid.";
    cluster_dim_x, "%nclusterid.x", "Clusters in the grid along x.";
    cluster_dim_y, "%nclusterid.y", "Clusters in the grid along y.";
    cluster_dim_z, "%nclusterid.z", "Clusters in the grid along z.";
}

/// Counts this thread in at the cluster's barrier, releasing its earlier memory accesses.
/// PTX `barrier.cluster.arrive.release.aligned`.
///
/// # Safety
/// All threads of the cluster execute this once before the matching [`wait`], the lanes of each warp together.
#[inline(always)]
pub unsafe fn arrive() {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("barrier.cluster.arrive.release.aligned;", options(nostack));
    }
}

/// [`arrive`] without releasing anything: only for the order of execution. PTX `barrier.cluster.arrive.relaxed.aligned`.
///
/// # Safety
/// As for [`arrive`].
#[inline(always)]
pub unsafe fn arrive_relaxed() {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("barrier.cluster.arrive.relaxed.aligned;", options(nostack));
    }
}

/// Waits until all threads of the cluster have arrived; what they released is visible after.
/// PTX `barrier.cluster.wait.acquire.aligned`.
///
/// # Safety
/// Follows an [`arrive`] of this thread; the lanes of each warp together.
#[inline(always)]
pub unsafe fn wait() {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("barrier.cluster.wait.acquire.aligned;", options(nostack));
    }
}

/// Synchronizes all threads of the cluster: [`arrive`], then [`wait`].
///
/// # Safety
/// As for [`arrive`].
#[inline(always)]
pub unsafe fn sync() {
    // SAFETY: the caller's promise.
    unsafe {
        arrive();
        wait();
    }
}
