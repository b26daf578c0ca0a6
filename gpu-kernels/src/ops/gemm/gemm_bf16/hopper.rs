//! The Hopper path: TMA feeds shared memory, warpgroup MMA drains it, and a persistent grid walks the tiles.
//!
//! A cluster of two blocks computes a 256 × 256 tile of C: each block owns 128 rows, and both need the same 256 rows of B,
//! so each loads half of B and multicasts it to the pair. Inside a block, warpgroup 0 produces (one thread issues every
//! copy) and warpgroups 1 and 2 consume, 64 rows of the tile each.
//!
//! Two mbarriers guard each of the [`STAGES`] buffers. `full` completes when the bytes of a stage have landed; `empty`
//! completes when all four consumer warpgroups of the *pair* have finished reading, because the multicast writes both.
//!
//! The epilogue leaves through shared memory when C's rows are 16-byte aligned and hold whole 16-byte units (stmatrix, then a
//! TMA store that clips at the edges of C), so that global writes are full 128-byte lines, and from registers otherwise. The producer is already
//! filling the stages of the next tile meanwhile.

use core::num::NonZeroU32;

use cuda_std::float::{Element, Half};
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::wgmma::{self, Descriptor, K_MAJOR};
use cuda_std::{bf16, cluster, fence, kernel, matrix, regs, shared_field, thread, tma};

/// Rows of C a block computes.
pub const BLOCK_M: u32 = 128;
/// Columns of C a block computes.
pub const BLOCK_N: u32 = 256;
/// Depth of one stage: 64 bf16 are the 128 bytes of the widest swizzle.
pub const BLOCK_K: u32 = 64;
/// Stages in flight: four of 48 KiB leave room for the epilogue's buffers.
pub const STAGES: u32 = 4;
/// Blocks of a cluster; they share the columns of C.
pub const CLUSTER: u32 = 2;
/// One producer and two consumer warpgroups.
pub const THREADS: u32 = 3 * WARPGROUP;

const WARPGROUP: u32 = 128;
const CONSUMERS: u32 = 2;
/// Rows of a warpgroup MMA, hence of one consumer.
const WG_M: u32 = 64;
/// Rows the epilogue stores at a time: one consumer's.
pub const STORE_M: u32 = WG_M;
/// Columns the epilogue stores at a time: one 128-byte swizzle row.
pub const STORE_N: u32 = 64;
/// Cluster rows that are walked before moving to the next column of tiles, so that a wave's panels of A and B stay in L2.
const GROUP_M: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// The block's shared memory. Swizzled buffers must start at multiples of 1024 bytes.
#[repr(C, align(1024))]
pub struct Shared {
    a: [[bf16; (BLOCK_M * BLOCK_K) as usize]; STAGES as usize],
    b: [[bf16; (BLOCK_N * BLOCK_K) as usize]; STAGES as usize],
    c: [[[bf16; (WG_M * STORE_N) as usize]; 2]; CONSUMERS as usize],
    full: [Barrier; STAGES as usize],
    empty: [Barrier; STAGES as usize],
}

const A_BYTES: u32 = BLOCK_M * BLOCK_K * 2;
const B_BYTES: u32 = BLOCK_N * BLOCK_K * 2;

/// The block's shared memory by name.
#[derive(Clone, Copy)]
struct Memory(SharedPtr<Shared>);

impl Memory {
    #[inline(always)]
    fn a(self, stage: u32) -> SharedPtr<bf16> {
        let Self(memory) = self;
        shared_field!(memory.a).at(stage).cast()
    }

    #[inline(always)]
    fn b(self, stage: u32) -> SharedPtr<bf16> {
        let Self(memory) = self;
        shared_field!(memory.b).at(stage).cast()
    }

    #[inline(always)]
    fn c(self, consumer: u32, buffer: u32) -> SharedPtr<bf16> {
        let Self(memory) = self;
        shared_field!(memory.c).at(consumer).at(buffer).cast()
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

/// The walk of a cluster over the tiles of C, the same in producer and consumers.
#[derive(Clone, Copy)]
struct Tiles {
    rows: u32,
    columns: NonZeroU32,
}

impl Tiles {
    /// The tiles of an m × n matrix, neither of them zero.
    #[inline(always)]
    fn of(m: u32, n: u32) -> Self {
        Self { rows: m.div_ceil(CLUSTER * BLOCK_M), columns: NonZeroU32::MIN.saturating_add((n - 1) / BLOCK_N) }
    }

    #[inline(always)]
    fn count(self) -> u32 {
        self.rows * self.columns.get()
    }

    /// First row and first column of cluster tile `index`, in tiles of `CLUSTER * BLOCK_M` and of `BLOCK_N`.
    #[inline(always)]
    fn origin(self, index: u32) -> (u32, u32) {
        let group_tiles = self.columns.saturating_mul(GROUP_M);
        let group = index / group_tiles;
        let first = group * GROUP_M.get();
        let height = NonZeroU32::MIN.saturating_add((self.rows - first).min(GROUP_M.get()) - 1);
        let within = index - group * group_tiles.get();
        (first + within % height, within / height)
    }
}

/// C = A·Bᵀ for row-major bf16 `a` (m × k), `b` (n × k) and `c` (m × n, rows `ldc` apart).
///
/// `a_map` loads `BLOCK_M` × `BLOCK_K` boxes, `b_map` half of `BLOCK_N` × `BLOCK_K`, `c_map` stores 64 × `STORE_N`, all in
/// 128-byte swizzle; loads outside a tensor read zero and stores outside are dropped. `c_map` is used if `store_tiles` is not 0.
///
/// # Safety
/// The maps describe live tensors of the sizes passed; `c` is valid for writes of m rows of n elements.
#[kernel(block = THREADS, min_blocks = 1, cluster = CLUSTER, shared = Shared, arch = "sm_90a", no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_bf16_hopper(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut bf16,
    m: u32,
    n: u32,
    k: u32,
    ldc: u64,
    store_tiles: u32,
) {
    let memory = Memory(shared::dynamic());
    let rank = cluster::rank();
    let warpgroup = thread::thread_idx_x() / WARPGROUP;
    let tiles = Tiles::of(m, n);
    let steps = k.div_ceil(BLOCK_K);

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
            produce(memory, a_map, b_map, tiles, steps, rank);
        }
    } else {
        regs::increase::<232>();
        let consumer = warpgroup - 1;
        let output = Output { map: c_map, c, m, n, ldc, tiled: store_tiles != 0 };
        consume(memory, tiles, steps, rank, consumer, &output);
    }
    // A block that left would take the shared memory that its peer still signals.
    cluster::sync();
}

/// Fills the stages of every tile of this cluster, in order. Run by one thread.
#[inline(always)]
unsafe fn produce(memory: Memory, a: &TensorMap, b: &TensorMap, tiles: Tiles, steps: u32, rank: u32) {
    const EVERY_BLOCK: u16 = (1 << CLUSTER) - 1;
    const B_ROWS: u32 = BLOCK_N / CLUSTER;
    let mut at = Cursor { stage: 0, parity: 0 };
    let mut index = thread::block_idx_x() / CLUSTER;
    while index < tiles.count() {
        let (row, column) = tiles.origin(index);
        let m0 = ((row * CLUSTER + rank) * BLOCK_M) as i32;
        let n0 = (column * BLOCK_N + rank * B_ROWS) as i32;
        for step in 0..steps {
            // A fresh barrier counts as having completed the phase before its first: the first round does not wait.
            memory.empty(at.stage).wait_parity(at.parity ^ 1);
            let full = memory.full(at.stage);
            full.arrive_expect_tx(A_BYTES + B_BYTES);
            let k0 = (step * BLOCK_K) as i32;
            tma::load_2d(memory.a(at.stage), a, [k0, m0], full);
            let half = memory.b(at.stage).byte_add(rank * (B_BYTES / CLUSTER));
            tma::load_2d_multicast(half, b, [k0, n0], full, EVERY_BLOCK);
            at.advance();
        }
        index += thread::grid_dim_x() / CLUSTER;
    }
}

/// Where a consumer's results go.
struct Output<'a> {
    map: &'a TensorMap,
    c: *mut bf16,
    m: u32,
    n: u32,
    ldc: u64,
    tiled: bool,
}

/// Multiplies the stages of every tile of this cluster and stores C. Run by a whole warpgroup.
#[inline(always)]
unsafe fn consume(memory: Memory, tiles: Tiles, steps: u32, rank: u32, consumer: u32, output: &Output) {
    let lane = thread::thread_idx_x() % WARPGROUP;
    let product = wgmma::m64n256k16::<bf16, K_MAJOR, K_MAJOR>;
    let mut at = Cursor { stage: 0, parity: 0 };
    let mut acc = [0.0f32; (BLOCK_N / 2) as usize];
    let mut index = thread::block_idx_x() / CLUSTER;
    while index < tiles.count() {
        let mut previous = at.stage;
        for step in 0..steps {
            memory.full(at.stage).wait_parity(at.parity);
            let a = Descriptor::k_major_128b(memory.a(at.stage).add(consumer * WG_M * BLOCK_K));
            let b = Descriptor::k_major_128b(memory.b(at.stage));
            wgmma::fence();
            // Sixteen bf16 of k are 32 bytes of the swizzled row. The first product of a tile overwrites.
            product(&mut acc, a, b, step != 0);
            product(&mut acc, a.advance(32), b.advance(32), true);
            product(&mut acc, a.advance(64), b.advance(64), true);
            product(&mut acc, a.advance(96), b.advance(96), true);
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
        let (row, column) = tiles.origin(index);
        let m0 = (row * CLUSTER + rank) * BLOCK_M + consumer * WG_M;
        if output.tiled {
            store_tiled(memory, &acc, consumer, lane, output.map, m0, column * BLOCK_N);
        } else {
            store_direct(&acc, lane, output, m0, column * BLOCK_N);
        }
        index += thread::grid_dim_x() / CLUSTER;
    }
    // Shared memory goes with the block: the stores must have read it.
    if lane == 0 {
        tma::wait_group_read::<0>();
    }
}

/// Stores a consumer's 64 × `BLOCK_N` results through its two swizzled buffers of 64 columns.
///
/// Lane l of warp w holds rows 16w + l/4 and 8 below it, columns 8j + 2(l mod 4) and the next, in acc[4j..4j + 4].
#[inline(always)]
unsafe fn store_tiled(
    memory: Memory,
    acc: &[f32; (BLOCK_N / 2) as usize],
    consumer: u32,
    lane: u32,
    map: &TensorMap,
    m0: u32,
    n0: u32,
) {
    // Each of a warp's 32 lanes points stmatrix at one row of one of four 8×8 matrices: rows 0-7 and 8-15 of two
    // neighbouring blocks of eight columns.
    let row = (lane / 32) * 16 + lane % 16;
    let right = (lane % 32) / 16;
    let mut slice = 0;
    while slice < BLOCK_N / STORE_N {
        let buffer = memory.c(consumer, slice % 2);
        // The store that last read this buffer was issued two slices ago.
        if lane == 0 {
            tma::wait_group_read::<1>();
        }
        thread::named_barrier::sync(1 + consumer, WARPGROUP);
        let mut pair = 0;
        while pair < STORE_N / 16 {
            let first = ((slice * STORE_N + pair * 16) / 2) as usize;
            let chunk = (pair * 2 + right) ^ (row % 8);
            matrix::store_x4(
                buffer.add(row * STORE_N + chunk * 8),
                [
                    bf16::pack(acc[first], acc[first + 1]),
                    bf16::pack(acc[first + 2], acc[first + 3]),
                    bf16::pack(acc[first + 4], acc[first + 5]),
                    bf16::pack(acc[first + 6], acc[first + 7]),
                ],
            );
            pair += 1;
        }
        fence::proxy_async_shared();
        thread::named_barrier::sync(1 + consumer, WARPGROUP);
        if lane == 0 {
            tma::store_2d(map, [(n0 + slice * STORE_N) as i32, m0 as i32], buffer);
            tma::commit_group();
        }
        slice += 1;
    }
}

/// Stores a consumer's results from registers, element by element: for C whose rows TMA cannot address.
#[inline(always)]
unsafe fn store_direct(acc: &[f32; (BLOCK_N / 2) as usize], lane: u32, output: &Output, m0: u32, n0: u32) {
    let row = m0 + (lane / 32) * 16 + (lane % 32) / 4;
    let mut j = 0;
    while j < BLOCK_N / 8 {
        let column = n0 + j * 8 + (lane % 4) * 2;
        let mut i = 0;
        while i < 4 {
            let (row, column) = (row + (i / 2) * 8, column + i % 2);
            if row < output.m && column < output.n {
                let at = u64::from(row) * output.ldc + u64::from(column);
                *output.c.add(at as usize) = Element::from_f32(acc[(j * 4 + i) as usize]);
            }
            i += 1;
        }
        j += 1;
    }
}
