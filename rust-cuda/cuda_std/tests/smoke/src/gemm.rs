//! A Hopper GEMM in outline: TMA with multicast, wgmma, stmatrix and TMA store.

use cuda_std::{
    bf16, cluster, f16, fence,
    float::Half,
    kernel,
    launch::TensorMap,
    matrix,
    mbarrier::Barrier,
    regs, shared, shared_field, thread, tma, warp,
    wgmma::{self, Descriptor, K_MAJOR},
};

const STAGES: usize = 4;
const A_BYTES: usize = 128 * 64 * 2;
const B_BYTES: usize = 256 * 64 * 2;

/// Shared memory of [`gemm`].
#[repr(C, align(1024))]
pub struct Tiles {
    a: [[u8; A_BYTES]; STAGES],
    b: [[u8; B_BYTES]; STAGES],
    full: [Barrier; STAGES],
    empty: [Barrier; STAGES],
}

/// C = A Bᵀ, one tile a block, a cluster of two sharing B.
#[kernel(dtypes(T: f16, bf16), block = 384, min_blocks = 1, cluster = 2, shared = Tiles, arch = "sm_90a", no_spills)]
pub unsafe fn gemm<T: Half>(a: &TensorMap, b: &TensorMap, c: &TensorMap, k_tiles: u32) {
    unsafe {
        let memory = shared::dynamic::<Tiles>();
        let (tiles_a, tiles_b) = (shared_field!(memory.a), shared_field!(memory.b));
        let (full, empty) = (shared_field!(memory.full), shared_field!(memory.empty));
        let group = warp::warp_id_uniform() / 4;
        let rank = cluster::rank();
        if thread::thread_idx_x() == 0 {
            for stage in 0..STAGES as u32 {
                full.at(stage).init(1);
                empty.at(stage).init(4);
            }
            tma::prefetch_descriptor(a);
            tma::prefetch_descriptor(b);
            fence::mbarrier_init();
        }
        cluster::sync();
        let (mut stage, mut parity) = (0u32, 0u32);
        if group == 0 {
            regs::decrease::<40>();
            if warp::warp_id_uniform() == 0 && warp::elect_one() {
                let mut k = 0;
                while k < k_tiles {
                    empty.at(stage).wait_parity(parity ^ 1);
                    let bar = full.at(stage);
                    bar.arrive_expect_tx((A_BYTES + B_BYTES) as u32);
                    let x = (k * 64) as i32;
                    tma::load_2d(tiles_a.at(stage), a, [x, thread::block_idx_x() as i32 * 128], bar);
                    tma::load_2d_multicast(
                        tiles_b.at(stage).cast::<u8>().add(rank * (B_BYTES / 2) as u32),
                        b,
                        [x, (thread::block_idx_y() * 256 + rank * 128) as i32],
                        bar,
                        3,
                    );
                    stage += 1;
                    if stage == STAGES as u32 {
                        stage = 0;
                        parity ^= 1;
                    }
                    k += 1;
                }
            }
        } else {
            regs::increase::<232>();
            let consumer = group - 1;
            let mut d = [0.0; 128];
            let mut previous = 0;
            let mut k = 0;
            while k < k_tiles {
                full.at(stage).wait_parity(parity);
                let da = Descriptor::k_major_128b(tiles_a.at(stage).cast::<u8>().add(consumer * 64 * 128));
                let db = Descriptor::k_major_128b(tiles_b.at(stage));
                wgmma::fence();
                wgmma::m64n256k16::<T, K_MAJOR, K_MAJOR>(&mut d, da, db, k > 0);
                wgmma::m64n256k16::<T, K_MAJOR, K_MAJOR>(&mut d, da.advance(32), db.advance(32), true);
                wgmma::m64n256k16::<T, K_MAJOR, K_MAJOR>(&mut d, da.advance(64), db.advance(64), true);
                wgmma::m64n256k16::<T, K_MAJOR, K_MAJOR>(&mut d, da.advance(96), db.advance(96), true);
                wgmma::commit();
                wgmma::wait::<1>();
                if k > 0 && thread::thread_idx_x().is_multiple_of(128) {
                    empty.at(previous).arrive();
                    empty.at(previous).arrive_remote(rank ^ 1);
                }
                previous = stage;
                stage += 1;
                if stage == STAGES as u32 {
                    stage = 0;
                    parity ^= 1;
                }
                k += 1;
            }
            wgmma::wait_for::<0>(&mut d);
            // Every 16 columns a warp stores four 8x8 matrices; swizzled addresses are the GEMM's own business.
            let lane = warp::lane_id();
            let out = shared::dynamic::<u8>().add(consumer * 64 * 512 + (warp::warp_id() % 4) * 16 * 512);
            for j in 0..16 {
                let row = out.add((lane % 16) * 512 + j as u32 * 32 + lane / 16 * 16);
                matrix::store_x4(
                    row,
                    [
                        T::pack(d[8 * j], d[8 * j + 1]),
                        T::pack(d[8 * j + 2], d[8 * j + 3]),
                        T::pack(d[8 * j + 4], d[8 * j + 5]),
                        T::pack(d[8 * j + 6], d[8 * j + 7]),
                    ],
                );
            }
            fence::proxy_async_shared();
            thread::named_barrier::sync(1, 256);
            if thread::thread_idx_x() == 128 {
                tma::store_2d(
                    c,
                    [thread::block_idx_y() as i32 * 256, thread::block_idx_x() as i32 * 128],
                    shared::dynamic::<u8>(),
                );
                tma::commit_group();
                tma::wait_group::<0>();
            }
        }
        cluster::sync();
    }
}
