//! What only sm_90a has, beyond what `gemm` uses.

use cuda_std::{
    bf16,
    cluster::{self, ClusterPtr},
    f16, fence,
    float::Half,
    kernel,
    launch::TensorMap,
    mbarrier::Barrier,
    regs, shared,
    shared::SharedPtr,
    shared_field, thread,
    tma::{self, CachePolicy},
    warp,
    wgmma::{self, Accumulators, Descriptor, K_MAJOR, MN_MAJOR, Registers, Swizzle},
};

/// Shared memory of this module's kernels.
#[repr(C, align(1024))]
pub struct Layout {
    tile: [u8; 65536],
    barrier: Barrier,
}

/// Every tensor copy.
#[kernel(block = 128, cluster = 2, shared = Layout, arch = "sm_90a")]
pub unsafe fn tensor_copies(map: &TensorMap, n: i32) {
    unsafe {
        let memory = shared::dynamic::<Layout>();
        let (tile, bar) = (shared_field!(memory.tile), shared_field!(memory.barrier));
        let policy = CachePolicy::evict_first();
        macro_rules! copies {
            ($at:expr; $load:ident $hint:ident $multi:ident $multi_hint:ident $prefetch:ident $store:ident $store_hint:ident $add:ident) => {
                tma::$prefetch(map, $at);
                tma::$load(tile, map, $at, bar);
                tma::$hint(tile, map, $at, bar, policy);
                tma::$multi(tile, map, $at, bar, 3);
                tma::$multi_hint(tile, map, $at, bar, 3, CachePolicy::evict_last());
                tma::$store(map, $at, tile);
                tma::$store_hint(map, $at, tile, CachePolicy::evict_normal());
                tma::$add(map, $at, tile);
            };
        }
        if warp::elect_one() {
            tma::prefetch_descriptor(map);
            copies!([n]; load_1d load_1d_hint load_1d_multicast load_1d_multicast_hint prefetch_1d store_1d store_1d_hint add_1d);
            copies!([n, 1]; load_2d load_2d_hint load_2d_multicast load_2d_multicast_hint prefetch_2d store_2d store_2d_hint add_2d);
            copies!([n, 1, n]; load_3d load_3d_hint load_3d_multicast load_3d_multicast_hint prefetch_3d store_3d store_3d_hint add_3d);
            copies!([n, 1, n, 2]; load_4d load_4d_hint load_4d_multicast load_4d_multicast_hint prefetch_4d store_4d store_4d_hint add_4d);
            copies!([n, 1, n, 2, n]; load_5d load_5d_hint load_5d_multicast load_5d_multicast_hint prefetch_5d store_5d store_5d_hint add_5d);
            tma::commit_group();
            tma::wait_group_read::<1>();
            tma::wait_group::<0>();
        }
    }
}

/// Every copy of bytes, and every barrier operation.
#[kernel(block = 128, min_blocks = 1, cluster = (2, 1, 1), shared = Layout, arch = "sm_90a")]
pub unsafe fn byte_copies(x: *const u8, y: *mut f32) {
    unsafe {
        let memory = shared::dynamic::<Layout>();
        let (tile, bar) = (shared_field!(memory.tile), shared_field!(memory.barrier));
        if thread::thread_idx_x() == 0 {
            bar.init(1);
            fence::mbarrier_init();
        }
        cluster::arrive_relaxed();
        cluster::wait();
        tma::prefetch_bytes(x, 4096);
        bar.expect_tx(4096);
        bar.arrive_expect_tx(8192);
        tma::load_bytes(tile, x, 4096, bar);
        tma::load_bytes_multicast(tile, x, 4096, bar, 3);
        let other = cluster::map(bar, cluster::rank() ^ 1);
        other.arrive_expect_tx(4096);
        other.arrive();
        bar.arrive_remote(1);
        tma::send_bytes(cluster::map(tile, 1), tile, 4096, other);
        bar.wait_parity(0);
        bar.wait_parity(1);
        bar.wait_parity_cluster(0);
        while !bar.try_wait_parity(1) || !bar.try_wait_parity_cluster(0) {}
        ClusterPtr::<Barrier>::from_addr(other.addr()).signal();
        fence::proxy_async();
        fence::proxy_async_shared();
        fence::proxy_async_global();
        fence::acq_rel_cluster();
        tma::store_bytes(y, tile, 4096);
        tma::add_f32(y, tile.cast(), 4096);
        tma::commit_group();
        tma::wait_group::<0>();
        let remote = cluster::map(tile, 1).cast::<f32>().add(3);
        remote.write_async(1.0, other);
        remote.write(remote.read() + 1.0);
        cluster::arrive();
        cluster::wait();
        let indices = cluster::block_idx_x() ^ cluster::block_idx_y() ^ cluster::block_idx_z();
        let extents = cluster::block_dim_x() ^ cluster::block_dim_y() ^ cluster::block_dim_z();
        let clusters = cluster::cluster_idx_x() ^ cluster::cluster_idx_y() ^ cluster::cluster_idx_z();
        let grid = cluster::cluster_dim_x() ^ cluster::cluster_dim_y() ^ cluster::cluster_dim_z();
        let policy = CachePolicy::evict_last().bits() as u32;
        *y = (indices ^ extents ^ clusters ^ grid ^ cluster::size() ^ policy) as f32;
        regs::decrease::<24>();
        regs::increase::<240>();
    }
}

/// Writes accumulators out, so that nothing is left out.
#[inline(always)]
unsafe fn keep<T: Copy, const N: usize>(y: *mut T, d: [T; N]) {
    let at = thread::thread_idx_x() as usize * N;
    for (i, value) in d.into_iter().enumerate() {
        unsafe { *y.add(at + i) = value };
    }
}

#[inline(always)]
fn operands() -> (Descriptor, Descriptor) {
    let tile: SharedPtr<u8> = shared::dynamic();
    (Descriptor::k_major_128b(tile), Descriptor::k_major(tile.add(8192), Swizzle::B64))
}

macro_rules! half_products {
    ($($kernel:ident: $n:literal $count:literal $product:ident $registers:ident;)*) => { $(
        /// One width.
        #[kernel(dtypes(T: f16, bf16), block = 128, shared = Layout, arch = "sm_90a", no_spills)]
        pub unsafe fn $kernel<T: Half>(y: *mut f32, fragment: *const [u32; 4]) {
            unsafe {
                let (a, b) = operands();
                let mut d = [0.0; $count];
                let mut fragment = fragment.add(thread::thread_idx_x() as usize).read();
                fragment.pin();
                wgmma::fence_for(&mut d);
                wgmma::$product::<T, K_MAJOR, K_MAJOR>(&mut d, a, b, false);
                wgmma::$product::<T, MN_MAJOR, MN_MAJOR>(&mut d, a.advance(32), b.advance(32), true);
                wgmma::$registers::<T, K_MAJOR>(&mut d, fragment, b, true);
                wgmma::$registers::<T, MN_MAJOR>(&mut d, fragment, b, true);
                d.product::<T, K_MAJOR, K_MAJOR>(a, b, true);
                d.product_a_registers::<T, K_MAJOR>(fragment, b, true);
                wgmma::commit();
                wgmma::wait_for::<0>(&mut d);
                const { assert!(<[f32; $count] as Accumulators>::N == $n) };
                keep(y, d);
            }
        }
    )* };
}

half_products! {
    half8: 8 4 m64n8k16 m64n8k16_a_registers;
    half16: 16 8 m64n16k16 m64n16k16_a_registers;
    half32: 32 16 m64n32k16 m64n32k16_a_registers;
    half48: 48 24 m64n48k16 m64n48k16_a_registers;
    half64: 64 32 m64n64k16 m64n64k16_a_registers;
    half80: 80 40 m64n80k16 m64n80k16_a_registers;
    half96: 96 48 m64n96k16 m64n96k16_a_registers;
    half104: 104 52 m64n104k16 m64n104k16_a_registers;
    half128: 128 64 m64n128k16 m64n128k16_a_registers;
    half144: 144 72 m64n144k16 m64n144k16_a_registers;
    half160: 160 80 m64n160k16 m64n160k16_a_registers;
    half176: 176 88 m64n176k16 m64n176k16_a_registers;
    half192: 192 96 m64n192k16 m64n192k16_a_registers;
    half208: 208 104 m64n208k16 m64n208k16_a_registers;
    half224: 224 112 m64n224k16 m64n224k16_a_registers;
    half256: 256 128 m64n256k16 m64n256k16_a_registers;
}

macro_rules! other_products {
    ($($kernel:ident: $accumulator:ty, $count:literal, [$($product:ident $registers:ident)*];)*) => { $(
        /// One width.
        #[kernel(block = 128, shared = Layout, arch = "sm_90a", no_spills)]
        pub unsafe fn $kernel(y: *mut $accumulator, fragment: *const [u32; 4]) {
            unsafe {
                let (a, b) = operands();
                let mut d = [0 as $accumulator; $count];
                let mut fragment = fragment.add(thread::thread_idx_x() as usize).read();
                fragment.pin();
                wgmma::fence_for(&mut d);
                $(
                    wgmma::$product(&mut d, a, b, true);
                    wgmma::$registers(&mut d, fragment, b, true);
                )*
                wgmma::commit();
                wgmma::wait::<0>();
                d.pin();
                keep(y, d);
            }
        }
    )* };
}

other_products! {
    float32: f32, 16, [
        m64n32k32_e4m3 m64n32k32_e4m3_a_registers
        m64n32k32_e5m2_e4m3 m64n32k32_e5m2_e4m3_a_registers m64n32k32_e4m3_e5m2 m64n32k32_e4m3_e5m2_a_registers];
    float64: f32, 32, [
        m64n64k8_tf32 m64n64k8_tf32_a_registers m64n64k32_e4m3 m64n64k32_e4m3_a_registers
        m64n64k32_e5m2_e4m3 m64n64k32_e5m2_e4m3_a_registers m64n64k32_e4m3_e5m2 m64n64k32_e4m3_e5m2_a_registers];
    float80: f32, 40, [
        m64n80k32_e4m3 m64n80k32_e4m3_a_registers
        m64n80k32_e5m2_e4m3 m64n80k32_e5m2_e4m3_a_registers m64n80k32_e4m3_e5m2 m64n80k32_e4m3_e5m2_a_registers];
    float96: f32, 48, [
        m64n96k32_e4m3 m64n96k32_e4m3_a_registers
        m64n96k32_e5m2_e4m3 m64n96k32_e5m2_e4m3_a_registers m64n96k32_e4m3_e5m2 m64n96k32_e4m3_e5m2_a_registers];
    float112: f32, 56, [
        m64n112k32_e4m3 m64n112k32_e4m3_a_registers
        m64n112k32_e5m2_e4m3 m64n112k32_e5m2_e4m3_a_registers m64n112k32_e4m3_e5m2 m64n112k32_e4m3_e5m2_a_registers];
    float128: f32, 64, [
        m64n128k8_tf32 m64n128k8_tf32_a_registers m64n128k32_e4m3 m64n128k32_e4m3_a_registers
        m64n128k32_e5m2_e4m3 m64n128k32_e5m2_e4m3_a_registers m64n128k32_e4m3_e5m2 m64n128k32_e4m3_e5m2_a_registers];
    float160: f32, 80, [
        m64n160k32_e4m3 m64n160k32_e4m3_a_registers
        m64n160k32_e5m2_e4m3 m64n160k32_e5m2_e4m3_a_registers m64n160k32_e4m3_e5m2 m64n160k32_e4m3_e5m2_a_registers];
    float192: f32, 96, [
        m64n192k8_tf32 m64n192k8_tf32_a_registers m64n192k32_e4m3 m64n192k32_e4m3_a_registers
        m64n192k32_e5m2_e4m3 m64n192k32_e5m2_e4m3_a_registers m64n192k32_e4m3_e5m2 m64n192k32_e4m3_e5m2_a_registers];
    float256: f32, 128, [
        m64n256k8_tf32 m64n256k8_tf32_a_registers m64n256k32_e4m3 m64n256k32_e4m3_a_registers
        m64n256k32_e5m2_e4m3 m64n256k32_e5m2_e4m3_a_registers m64n256k32_e4m3_e5m2 m64n256k32_e4m3_e5m2_a_registers];
    integer32: i32, 16, [m64n32k32_s8 m64n32k32_s8_a_registers];
    integer64: i32, 32, [m64n64k32_s8 m64n64k32_s8_a_registers];
    integer80: i32, 40, [m64n80k32_s8 m64n80k32_s8_a_registers];
    integer96: i32, 48, [m64n96k32_s8 m64n96k32_s8_a_registers];
    integer112: i32, 56, [m64n112k32_s8 m64n112k32_s8_a_registers];
    integer128: i32, 64, [m64n128k32_s8 m64n128k32_s8_a_registers];
    integer160: i32, 80, [m64n160k32_s8 m64n160k32_s8_a_registers];
    integer192: i32, 96, [m64n192k32_s8 m64n192k32_s8_a_registers];
    integer256: i32, 128, [m64n256k32_s8 m64n256k32_s8_a_registers];
}

/// The remaining descriptors.
#[kernel(block = 128, arch = "sm_90a")]
pub unsafe fn descriptors(y: *mut u64) {
    unsafe {
        let tile = shared::dynamic::<u8>();
        *y = Descriptor::mn_major_128b(tile, 8192).0 ^ Descriptor::new(tile, 128, 256, Swizzle::None).0;
        *y.add(1) = Descriptor::k_major(tile, Swizzle::B32).0;
    }
}
