//! The Hopper path: TMA feeds shared memory, warpgroup MMA drains it, and a persistent grid walks the tiles.
//!
//! A cluster of two blocks computes a 256 × 256 tile of C: each block owns 128 rows, and both need the same 256 columns of B,
//! so each loads half of B and multicasts it to the pair. Inside a block, warpgroup 0 produces (one thread issues every
//! copy) and warpgroups 1 and 2 consume, 64 rows of the tile each.
//!
//! A stage is 64 of k, in panels of 64 × 64 elements that keep the way the operand lies: K-major, a row of 128 bytes belongs to a row of the
//! operand; MN-major, to an index of k. wgmma reads either, so that no operand is ever transposed.
//!
//! Two mbarriers guard each of the [`STAGES`] buffers. `full` completes when the bytes of a stage have landed; `empty`
//! completes when all four consumer warpgroups of the *pair* have finished reading, because the multicast writes both.
//!
//! The epilogue leaves through shared memory when C's rows are 16-byte aligned and hold whole 16-byte units (stmatrix, then a
//! TMA store that clips at the edges of C), so that global writes are full 128-byte lines, and from registers otherwise. Where an f32 C
//! accumulates, TMA adds to it: the multiprocessor never reads C, and since each element gets one addend a launch, the result is the
//! same every time. The producer is already filling the stages of the next tile meanwhile.

mod store;
mod tiles;

use cuda_std::float::{Element, Half};
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::wgmma::{self, Descriptor, K_MAJOR, MN_MAJOR};
use cuda_std::{cluster, fence, kernel, regs, shared_field, thread, tma};

use self::store::{Accumulators, Output};
use self::tiles::Tiles;
use super::{Problem, factor};

pub use self::store::{ADD, DIRECT, TILES};

/// Rows of C a block computes.
pub const BLOCK_M: u32 = 128;
/// Columns of C a block computes.
pub const BLOCK_N: u32 = 256;
/// Depth of one stage: 64 elements of 16 bits are the 128 bytes of the widest swizzle.
pub const BLOCK_K: u32 = 64;
/// Rows and columns of a panel.
pub const PANEL: u32 = 64;
/// Stages in flight: four of 48 KiB leave room for the epilogue's buffers.
pub const STAGES: u32 = 4;
/// Blocks of a cluster; they share the columns of C.
pub const CLUSTER: u32 = 2;
/// One producer and two consumer warpgroups.
pub const THREADS: u32 = 3 * WARPGROUP;
/// Rows the epilogue stores at a time: one consumer's.
pub const STORE_M: u32 = PANEL;

const WARPGROUP: u32 = 128;
const CONSUMERS: u32 = 2;
const PANEL_BYTES: u32 = PANEL * PANEL * 2;
const A_BYTES: u32 = BLOCK_M * BLOCK_K * 2;
const B_BYTES: u32 = BLOCK_N * BLOCK_K * 2;
/// What the epilogue stores at a time.
const SLAB_BYTES: u32 = STORE_M * 128;

/// Columns of type `C` that the epilogue stores at a time: one row of the 128-byte swizzle.
pub const fn slab_columns<C>() -> u32 {
    128 / size_of::<C>() as u32
}

/// The block's shared memory. Swizzled buffers must start at multiples of 1024 bytes.
#[repr(C, align(1024))]
pub struct Shared {
    a: [[u8; A_BYTES as usize]; STAGES as usize],
    b: [[u8; B_BYTES as usize]; STAGES as usize],
    c: [[[u8; SLAB_BYTES as usize]; 2]; CONSUMERS as usize],
    full: [Barrier; STAGES as usize],
    empty: [Barrier; STAGES as usize],
}

/// The block's shared memory by name.
#[derive(Clone, Copy)]
struct Memory(SharedPtr<Shared>);

impl Memory {
    #[inline(always)]
    fn a(self, stage: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        shared_field!(memory.a).at(stage).cast()
    }

    #[inline(always)]
    fn b(self, stage: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        shared_field!(memory.b).at(stage).cast()
    }

    #[inline(always)]
    fn slabs(self, consumer: u32) -> [SharedPtr<u8>; 2] {
        let Self(memory) = self;
        let slabs = shared_field!(memory.c).at(consumer);
        [slabs.at(0).cast(), slabs.at(1).cast()]
    }

    #[inline(always)]
    fn full(self, stage: u32) -> SharedPtr<Barrier> {
        let Self(memory) = self;
        shared_field!(memory.full).at(stage)
    }

    #[inline(always)]
    fn empty(self, stage: u32) -> SharedPtr<Barrier> {
        let Self(memory) = self;
        shared_field!(memory.empty).at(stage)
    }
}

/// The stage a loop is at, and the parity of the barrier phase it waits for.
#[derive(Clone, Copy)]
struct Cursor {
    stage: u32,
    parity: u32,
}

impl Cursor {
    #[inline(always)]
    fn advance(&mut self) {
        self.stage += 1;
        if self.stage == STAGES {
            self.stage = 0;
            self.parity ^= 1;
        }
    }
}

/// C = α·A·B + β·C of each of the problem's products; α times `scale`, unless that is null.
///
/// `a_map` loads boxes of `BLOCK_M` × `BLOCK_K` and `b_map` half of `BLOCK_N` × `BLOCK_K`, K-major ones whole and MN-major ones in panels;
/// `c_map` stores `STORE_M` rows of 128 bytes. All are in 128-byte swizzle and their last dimension is the product; loads outside a tensor read zero
/// and stores outside are dropped. `store` says which way C leaves, and whether `c_map` is used: [`DIRECT`], [`TILES`] or [`ADD`].
///
/// # Safety
/// The maps describe live tensors of the problem's sizes; `c` is valid for reads and writes of its elements. m, n and k are not zero;
/// `scale` is null or valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(A_MN: false, true, B_MN: false, true), where(C == T || C == f32),
    block = THREADS, min_blocks = 1, cluster = CLUSTER, shared = Shared, arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_hopper<T: Half, C: Element, const A_MN: bool, const B_MN: bool>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    scale: *const f32,
    problem: Problem,
    store: u32,
) {
    let memory = Memory(shared::dynamic());
    let rank = cluster::rank();
    let warpgroup = thread::thread_idx_x() / WARPGROUP;

    if thread::thread_idx_x() == 0 {
        tma::prefetch_descriptor(a_map);
        tma::prefetch_descriptor(b_map);
        for stage in 0..STAGES {
            memory.full(stage).init(1);
            memory.empty(stage).init(CLUSTER * CONSUMERS);
        }
        fence::mbarrier_init();
    }
    // The peer's copies and arrivals land here: no block may start before both have their barriers.
    cluster::sync();

    if warpgroup == 0 {
        regs::decrease::<40>();
        if thread::thread_idx_x() == 0 {
            produce::<A_MN, B_MN>(memory, a_map, b_map, &problem, rank);
        }
    } else {
        regs::increase::<232>();
        let consumer = warpgroup - 1;
        let slabs = memory.slabs(consumer);
        let output =
            Output { map: c_map, c, alpha: factor(problem.alpha, scale), problem, store, slabs, barrier: 1 + consumer };
        consume::<T, C, A_MN, B_MN>(memory, rank, consumer, &output);
    }
    // A block that left would take the shared memory that its peer still signals.
    cluster::sync();
}

/// Fills the stages of every tile of this cluster, in order. Run by one thread.
#[inline(always)]
unsafe fn produce<const A_MN: bool, const B_MN: bool>(
    memory: Memory,
    a: &TensorMap,
    b: &TensorMap,
    problem: &Problem,
    rank: u32,
) {
    const EVERY_BLOCK: u16 = (1 << CLUSTER) - 1;
    const B_COLUMNS: u32 = BLOCK_N / CLUSTER;
    let tiles = Tiles::of(problem);
    let steps = problem.k.div_ceil(BLOCK_K);
    // A matrix that all products share has no next.
    let of_product = |stride: u64, product: u32| if stride == 0 { 0 } else { product as i32 };
    let mut at = Cursor { stage: 0, parity: 0 };
    let mut index = thread::block_idx_x() / CLUSTER;
    while index < tiles.count() {
        let tile = tiles.at(index);
        let m0 = ((tile.row * CLUSTER + rank) * BLOCK_M) as i32;
        let n0 = (tile.column * BLOCK_N + rank * B_COLUMNS) as i32;
        let (a_product, b_product) = (of_product(problem.a[0], tile.product), of_product(problem.b[0], tile.product));
        for step in 0..steps {
            // A fresh barrier counts as having completed the phase before its first: the first round does not wait.
            memory.empty(at.stage).wait_parity(at.parity ^ 1);
            let full = memory.full(at.stage);
            full.arrive_expect_tx(A_BYTES + B_BYTES);
            let k0 = (step * BLOCK_K) as i32;
            let to = memory.a(at.stage);
            if A_MN {
                let mut panel = 0;
                while panel < BLOCK_M / PANEL {
                    let from = [m0 + (panel * PANEL) as i32, k0, a_product];
                    tma::load_3d(to.add(panel * PANEL_BYTES), a, from, full);
                    panel += 1;
                }
            } else {
                tma::load_3d(to, a, [k0, m0, a_product], full);
            }
            let to = memory.b(at.stage).add(rank * (B_BYTES / CLUSTER));
            if B_MN {
                let mut panel = 0;
                while panel < B_COLUMNS / PANEL {
                    let from = [n0 + (panel * PANEL) as i32, k0, b_product];
                    tma::load_3d_multicast(to.add(panel * PANEL_BYTES), b, from, full, EVERY_BLOCK);
                    panel += 1;
                }
            } else {
                tma::load_3d_multicast(to, b, [k0, n0, b_product], full, EVERY_BLOCK);
            }
            at.advance();
        }
        index += thread::grid_dim_x() / CLUSTER;
    }
}

/// The descriptors of a stage of an operand for the four products of 16 of k.
#[inline(always)]
const fn descriptors<const MN: bool>(tile: SharedPtr<u8>) -> [Descriptor; 4] {
    // K-major, sixteen elements of k are 32 bytes of the swizzled row; MN-major, sixteen rows of it.
    let (first, step) =
        if MN { (Descriptor::mn_major_128b(tile, PANEL_BYTES), 2048) } else { (Descriptor::k_major_128b(tile), 32) };
    [first, first.advance(step), first.advance(2 * step), first.advance(3 * step)]
}

/// Multiplies the stages of every tile of this cluster and stores C. Run by a whole warpgroup.
#[inline(always)]
unsafe fn consume<T: Half, C: Element, const A_MN: bool, const B_MN: bool>(
    memory: Memory,
    rank: u32,
    consumer: u32,
    output: &Output<C>,
) {
    let lane = thread::thread_idx_x() % WARPGROUP;
    let tiles = Tiles::of(&output.problem);
    let steps = output.problem.k.div_ceil(BLOCK_K);
    let mut at = Cursor { stage: 0, parity: 0 };
    let mut acc: Accumulators = [0.0; (BLOCK_N / 2) as usize];
    let mut index = thread::block_idx_x() / CLUSTER;
    while index < tiles.count() {
        let mut previous = at.stage;
        for step in 0..steps {
            memory.full(at.stage).wait_parity(at.parity);
            // A consumer's rows are one panel, whichever way it lies.
            let a = descriptors::<A_MN>(memory.a(at.stage).add(consumer * PANEL_BYTES));
            let b = descriptors::<B_MN>(memory.b(at.stage));
            wgmma::fence();
            // The first product of a tile overwrites.
            product::<T, A_MN, B_MN>(&mut acc, a[0], b[0], step != 0);
            product::<T, A_MN, B_MN>(&mut acc, a[1], b[1], true);
            product::<T, A_MN, B_MN>(&mut acc, a[2], b[2], true);
            product::<T, A_MN, B_MN>(&mut acc, a[3], b[3], true);
            wgmma::commit();
            // One group stays in flight; the stage before it has been read and goes back to both producers.
            wgmma::wait::<1>();
            if step != 0 && lane < CLUSTER {
                cluster::map(memory.empty(previous), lane).signal();
            }
            previous = at.stage;
            at.advance();
        }
        wgmma::wait_for::<0>(&mut acc);
        if lane < CLUSTER {
            cluster::map(memory.empty(previous), lane).signal();
        }
        let tile = tiles.at(index);
        let m0 = (tile.row * CLUSTER + rank) * BLOCK_M + consumer * PANEL;
        output.store::<T>(&mut acc, lane, [m0, tile.column * BLOCK_N, tile.product]);
        index += thread::grid_dim_x() / CLUSTER;
    }
    // Shared memory goes with the block: the stores must have read it.
    if lane == 0 {
        tma::wait_group_read::<0>();
    }
}

/// Starts the product of 64 rows of A and 256 columns of B over sixteen of k.
#[inline(always)]
unsafe fn product<T: Half, const A_MN: bool, const B_MN: bool>(
    acc: &mut Accumulators,
    a: Descriptor,
    b: Descriptor,
    accumulate: bool,
) {
    match (A_MN, B_MN) {
        (false, false) => wgmma::m64n256k16::<T, K_MAJOR, K_MAJOR>(acc, a, b, accumulate),
        (false, true) => wgmma::m64n256k16::<T, K_MAJOR, MN_MAJOR>(acc, a, b, accumulate),
        (true, false) => wgmma::m64n256k16::<T, MN_MAJOR, K_MAJOR>(acc, a, b, accumulate),
        (true, true) => wgmma::m64n256k16::<T, MN_MAJOR, MN_MAJOR>(acc, a, b, accumulate),
    }
}
