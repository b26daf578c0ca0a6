//! Copies of tiles, by tensor map.

use cuda_std_macros::ptx_registers;

use super::{CachePolicy, TensorMap};
use crate::{mbarrier::Barrier, shared::SharedPtr};

/// The copies of one dimensionality.
macro_rules! tiles {
    (
        $dimensions:literal, $dim:literal:
        $load:ident $load_hint:ident $multicast:ident $multicast_hint:ident $prefetch:ident
        $store:ident $store_hint:ident $add:ident
    ) => {
        #[doc = concat!("Starts the load of a ", $dim, " tile into shared memory; its bytes complete on `barrier`.")]
        #[doc = concat!("\n\nPTX `cp.async.bulk.tensor.", $dim, ".shared::cluster.global.tile.mbarrier::complete_tx::bytes`.")]
        ///
        /// # Safety
        /// The map has this many dimensions; `destination` is valid for the box and aligned to 128 bytes (1024 with
        /// 128-byte swizzle); `barrier` is live and expects the bytes.
        #[inline(always)]
        pub unsafe fn $load<T>(
            destination: SharedPtr<T>,
            map: &TensorMap,
            coordinates: [i32; $dimensions],
            barrier: SharedPtr<Barrier>,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("cp.async.bulk.tensor.", $dim, ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"),
                    " [{destination}], [{map}, {{{c*}}}], [{barrier}];",
                    array c = [$dimensions] in(reg32) coordinates,
                    destination = in(reg32) destination.addr(), map = in(reg64) map,
                    barrier = in(reg32) barrier.addr(),
                    options(nostack),
                );
            }
        }

        #[doc = concat!("[`", stringify!($load), "`] with an L2 cache policy. PTX suffix `.L2::cache_hint`.")]
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($load), "`].")]
        #[inline(always)]
        pub unsafe fn $load_hint<T>(
            destination: SharedPtr<T>,
            map: &TensorMap,
            coordinates: [i32; $dimensions],
            barrier: SharedPtr<Barrier>,
            policy: CachePolicy,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("cp.async.bulk.tensor.", $dim, ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"),
                    ".L2::cache_hint [{destination}], [{map}, {{{c*}}}], [{barrier}], {policy};",
                    array c = [$dimensions] in(reg32) coordinates,
                    destination = in(reg32) destination.addr(), map = in(reg64) map,
                    barrier = in(reg32) barrier.addr(), policy = in(reg64) policy.bits(),
                    options(nostack),
                );
            }
        }

        #[doc = concat!("[`", stringify!($load), "`] into every block of the cluster whose rank's bit is set in `blocks`.")]
        /// In each of them the tile lands, and its bytes complete, at the offsets that `destination` and `barrier` have in this block.
        /// PTX suffix `.multicast::cluster`.
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($load), "`], in every block of the mask.")]
        #[inline(always)]
        pub unsafe fn $multicast<T>(
            destination: SharedPtr<T>,
            map: &TensorMap,
            coordinates: [i32; $dimensions],
            barrier: SharedPtr<Barrier>,
            blocks: u16,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("cp.async.bulk.tensor.", $dim, ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"),
                    ".multicast::cluster [{destination}], [{map}, {{{c*}}}], [{barrier}], {blocks};",
                    array c = [$dimensions] in(reg32) coordinates,
                    destination = in(reg32) destination.addr(), map = in(reg64) map,
                    barrier = in(reg32) barrier.addr(), blocks = in(reg16) blocks,
                    options(nostack),
                );
            }
        }

        #[doc = concat!("[`", stringify!($multicast), "`] with an L2 cache policy. PTX suffix `.L2::cache_hint`.")]
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($multicast), "`].")]
        #[inline(always)]
        pub unsafe fn $multicast_hint<T>(
            destination: SharedPtr<T>,
            map: &TensorMap,
            coordinates: [i32; $dimensions],
            barrier: SharedPtr<Barrier>,
            blocks: u16,
            policy: CachePolicy,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("cp.async.bulk.tensor.", $dim, ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"),
                    ".multicast::cluster.L2::cache_hint",
                    " [{destination}], [{map}, {{{c*}}}], [{barrier}], {blocks}, {policy};",
                    array c = [$dimensions] in(reg32) coordinates,
                    destination = in(reg32) destination.addr(), map = in(reg64) map,
                    barrier = in(reg32) barrier.addr(), blocks = in(reg16) blocks,
                    policy = in(reg64) policy.bits(),
                    options(nostack),
                );
            }
        }

        #[doc = concat!("Fetches a ", $dim, " tile into L2. PTX `cp.async.bulk.prefetch.tensor.", $dim, ".L2.global.tile`.")]
        ///
        /// # Safety
        /// The map has this many dimensions.
        #[inline(always)]
        pub unsafe fn $prefetch(map: &TensorMap, coordinates: [i32; $dimensions]) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("cp.async.bulk.prefetch.tensor.", $dim, ".L2.global.tile [{map}, {{{c*}}}];"),
                    array c = [$dimensions] in(reg32) coordinates,
                    map = in(reg64) map,
                    options(nostack),
                );
            }
        }

        #[doc = concat!("Starts the store of a ", $dim, " tile from shared memory; it belongs to the next [`commit_group`](super::commit_group).")]
        #[doc = concat!("\n\nPTX `cp.async.bulk.tensor.", $dim, ".global.shared::cta.tile.bulk_group`.")]
        ///
        /// # Safety
        /// The map has this many dimensions; `source` holds the box, aligned as for a load, written before a
        /// [`fence::proxy_async`](crate::fence::proxy_async), and is not written before the group's wait.
        #[inline(always)]
        pub unsafe fn $store<T>(map: &TensorMap, coordinates: [i32; $dimensions], source: SharedPtr<T>) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("cp.async.bulk.tensor.", $dim, ".global.shared::cta.tile.bulk_group"),
                    " [{map}, {{{c*}}}], [{source}];",
                    array c = [$dimensions] in(reg32) coordinates,
                    map = in(reg64) map, source = in(reg32) source.addr(),
                    options(nostack),
                );
            }
        }

        #[doc = concat!("[`", stringify!($store), "`] with an L2 cache policy. PTX suffix `.L2::cache_hint`.")]
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($store), "`].")]
        #[inline(always)]
        pub unsafe fn $store_hint<T>(
            map: &TensorMap,
            coordinates: [i32; $dimensions],
            source: SharedPtr<T>,
            policy: CachePolicy,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("cp.async.bulk.tensor.", $dim, ".global.shared::cta.tile.bulk_group"),
                    ".L2::cache_hint [{map}, {{{c*}}}], [{source}], {policy};",
                    array c = [$dimensions] in(reg32) coordinates,
                    map = in(reg64) map, source = in(reg32) source.addr(), policy = in(reg64) policy.bits(),
                    options(nostack),
                );
            }
        }

        #[doc = concat!("Starts the addition of a ", $dim, " tile in shared memory to one in global memory, element by element, atomically.")]
        #[doc = concat!("\n\nPTX `cp.reduce.async.bulk.tensor.", $dim, ".global.shared::cta.add.tile.bulk_group`.")]
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($store), "`].")]
        #[inline(always)]
        pub unsafe fn $add<T>(map: &TensorMap, coordinates: [i32; $dimensions], source: SharedPtr<T>) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("cp.reduce.async.bulk.tensor.", $dim, ".global.shared::cta.add.tile.bulk_group"),
                    " [{map}, {{{c*}}}], [{source}];",
                    array c = [$dimensions] in(reg32) coordinates,
                    map = in(reg64) map, source = in(reg32) source.addr(),
                    options(nostack),
                );
            }
        }
    };
}

tiles!(1, "1d": load_1d load_1d_hint load_1d_multicast load_1d_multicast_hint prefetch_1d store_1d store_1d_hint add_1d);
tiles!(2, "2d": load_2d load_2d_hint load_2d_multicast load_2d_multicast_hint prefetch_2d store_2d store_2d_hint add_2d);
tiles!(3, "3d": load_3d load_3d_hint load_3d_multicast load_3d_multicast_hint prefetch_3d store_3d store_3d_hint add_3d);
tiles!(4, "4d": load_4d load_4d_hint load_4d_multicast load_4d_multicast_hint prefetch_4d store_4d store_4d_hint add_4d);
tiles!(5, "5d": load_5d load_5d_hint load_5d_multicast load_5d_multicast_hint prefetch_5d store_5d store_5d_hint add_5d);
