//! The Hopper path: TMA fills shared memory, warpgroup MMA consumes it, and a persistent grid walks over the tiles.
//!
//! A cluster of two blocks computes a tile of 256 rows of C: each block owns 128 rows, and both need the same columns
//! of B, 256 or fewer if that fills the device's waves of tiles better, so each loads half of B and multicasts it to
//! the pair. Inside a block, warpgroup 0 produces (one thread issues every copy) and warpgroups 1 and 2 consume, 64
//! rows of the tile each. A pair's tile of 384 by 192 has a third consumer in each block: a square product of 2112 is
//! one wave of it.
//!
//! Where results are too few for such tiles on all multiprocessors, the blocks of a pair have the same 128 rows, of which
//! each loads half and multicasts it, and columns of their own ([`Narrow`]): a pair's tile is half as large, and a block
//! takes in as many bytes a stage. 200 rows of activations by a weight of 8192 are 64 such pairs.
//!
//! A stage is 128 bytes of k: 64 elements of 16 bits, 128 of 8, 32 of f32. It keeps the operand's layout: for a K-major
//! operand, a row of 128 bytes belongs to a row of the operand; for an MN-major one, which only 16-bit types may be,
//! panels of 64 × 64 elements have a row for each index of k. wgmma reads either, so that no operand is ever
//! transposed.
//!
//! Two mbarriers guard each of the stages. `full` completes when the bytes of a stage have landed; `empty`
//! completes when all consumer warpgroups of the *pair* have finished reading, because the multicast writes both.
//!
//! The epilogue stores through shared memory when C's rows are 16-byte aligned and hold whole 16-byte units: a warp writes
//! its 16 rows of a slab by stmatrix, and they leave in full lines of 128 bytes, by a TMA store that clips at the edges of
//! C. A block with a single tile has nothing to do while TMA reads shared memory, and stores 16 bytes per lane instead,
//! as it stores what is left of a width that is not a whole number of slabs; MN-major B then has panels that are not read
//! to their end. Other rows are stored from shared memory too, those of 16 bits in units that are aligned in C and
//! consist of parts of two, those of f32 one element per lane; or, where C is also read (β ≠ 0), from registers. Where an
//! f32 C accumulates, TMA adds to it: the multiprocessor never reads C, and since each element gets one addend per launch,
//! the result is the same every time. Meanwhile the producer already fills the stages of the next tile.
//!
//! TMA asks L2 for zeros outside of a tensor as well, all blocks for the same few lines: a block that has no rows in the
//! last tile of a column loads no A, and its consumers skip the stages.
//!
//! At 1216³, one wave, 2.4 of a block's 8.1 µs on an H200 are before the first wgmma and after the last. So the first
//! tile is found while barriers are initialised and the cluster meets, and the code of rare ways to store lies behind
//! that of the others: a block runs through most of its instructions once, and waits for them at each jump.

mod kernels;
mod memory;
mod multiply;
mod produce;
mod store;
mod tiles;

use core::hint::cold_path;
use core::marker::PhantomData;

use cuda_std::float::Element;
use cuda_std::launch::TensorMap;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::wgmma::{self, Descriptor, Registers};
use cuda_std::{cluster, fence, regs, thread, tma, warp};

use super::Problem;
use super::epilogue::{Epilogue, Sum};

pub(super) use self::kernels::{run, run_by, run_narrow, run_narrow_8, run_swapped_8, run_tall, walk};
pub(super) use self::memory::{Cursor, Memory, Shared, Wide};
use self::memory::{TOLD, WIDE_BYTES};
pub(super) use self::memory::{b_bytes, stages, stages_beside};
pub use self::memory::{loaded, shared_bytes, swapped_bytes, tall_shared_bytes};
pub(super) use self::multiply::{Floats8, Halves, Integers8, Multiply, Operands, Swapped8, Tf32};
use self::produce::produce;
pub(super) use self::store::Output;
pub use self::store::{ADD, DIRECT, SWAPPED_ROWS, TILES, UNITS, WARP_ROWS};
pub(super) use self::tiles::{Narrow, Tile, Tiles, Walk, at_least_one, place};

/// Rows of C a block computes.
pub const BLOCK_M: u32 = 128;
/// Columns of C a block computes, unless fewer fill the last wave better.
pub const BLOCK_N: u32 = 256;
/// Both.
pub const TILE: [u32; 2] = [BLOCK_M, BLOCK_N];
/// The widths that it can have. Narrower tiles leave less of the last wave unused.
pub const WIDTHS: [u32; 4] = [BLOCK_N, 192, 128, 64];
/// These widths and the intermediate ones that fill what [`WIDTHS`] leave of a wave, for results of 16 bits. They are
/// multiples of 16, so that each block of a cluster loads whole groups of the eight rows after which the swizzle
/// repeats.
pub const FINE_WIDTHS: [u32; 10] = [BLOCK_N, 240, 224, 208, 192, 160, 144, 128, 96, 64];
/// Likewise for results of f32, whose tiles are whole slabs of 32 columns.
pub const FINE_WIDTHS_F32: [u32; 6] = [BLOCK_N, 192, 160, 128, 96, 64];
/// Rows of C that tiles of swapped operands have, whose [`CLUSTER`] · [`BLOCK_M`] rows are columns of C.
pub const SWAPPED: [u32; 7] = [208, 192, 160, 144, 128, 96, 64];
/// Columns of C that such tiles have.
pub const SWAPPED_COLUMNS: u32 = CLUSTER * BLOCK_M;
/// Rows of C that pairs of blocks have where they share [`NARROW_COLUMNS`] of it.
pub const NARROW: [u32; 5] = [208, 160, 128, 96, 64];
/// The columns.
pub const NARROW_COLUMNS: u32 = BLOCK_M;
/// What [`NARROW`] is, of operands of 8 bits.
pub const NARROW_8: [u32; 4] = [224, 160, 128, 64];
/// What [`SWAPPED`] is of pieces of products of 8 bits, and of whole ones.
pub const PIECES_8: [u32; 3] = [208, 128, 64];
/// See [`PIECES_8`].
pub const SWAPPED_8: [u32; 6] = [208, 192, 160, 128, 96, 64];
/// Depth of a stage in bytes: a row of the widest swizzle.
pub const STAGE_BYTES: u32 = 128;
/// Rows and columns of a panel of 16-bit elements.
pub const PANEL: u32 = 64;
/// Blocks of a cluster; they share the columns of C.
pub const CLUSTER: u32 = 2;
/// One producer and two consumer warpgroups.
pub const THREADS: u32 = (1 + CONSUMERS) * WARPGROUP;
/// Rows and columns of C a block of the tall tiles computes.
pub const TALL: [u32; 2] = [192, 192];
/// One producer and three consumer warpgroups, for these.
pub const TALL_THREADS: u32 = (1 + TALL_CONSUMERS) * WARPGROUP;
/// Rows of a tile that a consumer has.
pub const STORE_M: u32 = 64;

pub(super) const WARPGROUP: u32 = 128;
/// Warps of the producer's warpgroup that produce nothing.
pub(super) const IDLE_WARPS: u32 = WARPGROUP / 32 - 1;
pub(super) const CONSUMERS: u32 = 2;
pub(super) const TALL_CONSUMERS: u32 = TALL[0] / STORE_M;
/// A consumer's rows of A in a stage, and a panel of any operand.
pub(super) const PANEL_BYTES: u32 = PANEL * STAGE_BYTES;
/// A consumer's rows of what the epilogue stores at a time.
const SLAB_BYTES: u32 = STORE_M * 128;

/// Sums of a thread, of a consumer's [`STORE_M`] × [`BLOCK_N`].
const SUMS: usize = sums(BLOCK_N);

const fn sums(block_n: u32) -> usize {
    (block_n / 2) as usize
}

/// Columns of type `C` that the epilogue stores at a time: one row of the 128-byte swizzle.
pub const fn slab_columns<C>() -> u32 {
    128 / size_of::<C>() as u32
}

/// Elements of type `T` along k in a stage.
pub(super) const fn depth<T>() -> u32 {
    STAGE_BYTES / size_of::<T>() as u32
}

/// Where a kernel's operands and results are.
#[derive(Clone, Copy)]
pub(super) struct Matrices<'a, C> {
    pub(super) a: &'a TensorMap,
    pub(super) b: &'a TensorMap,
    pub(super) c_map: &'a TensorMap,
    pub(super) c: *mut C,
    pub(super) problem: Problem,
    pub(super) store: u32,
}

/// The work of consumers. This is not a closure: the compiler would call a large one, and wgmma cannot stay in flight
/// across a call.
pub(super) trait Consume<C, E, const B: usize, const STAGES: usize, const H: usize = { CONSUMERS as usize }> {
    /// How often they release a stage to each producer of the pair: once each, if nothing but products has read it.
    const RELEASES: u32 = H as u32;
    /// Whether those of a block without rows [skip](Memory::skip) the stages of its tile, although they walk themselves.
    const SKIPS: bool = false;

    /// Initialises barriers of their own. Run by one thread.
    #[inline(always)]
    unsafe fn initialise(&self, _: Memory<B, STAGES, H>) {}

    /// Run by the producer's [`IDLE_WARPS`].
    #[inline(always)]
    unsafe fn assist<W: Walk>(&self, _: Memory<B, STAGES, H>, _: &Problem, tiles: W) {
        tiles.meanwhile();
    }

    /// Run by each consumer warpgroup, with its number, its output and its tiles.
    unsafe fn consume<W: Walk>(self, memory: Memory<B, STAGES, H>, consumer: u32, output: &Output<'_, C, E>, tiles: W);
}

/// Splits the block into its roles, of which `H` warpgroups consume.
#[inline(always)]
pub(super) unsafe fn split<O: Operands, C, E: Copy, W: Walk, K, const B: usize, const STAGES: usize, const H: usize>(
    of: Matrices<'_, C>,
    epilogue: E,
    tiles: W,
    consumers: K,
) where
    K: Consume<C, E, B, STAGES, H>,
{
    let memory: Memory<B, STAGES, H> = Memory(shared::dynamic());
    // Read from lane 0, so that ptxas knows the value to be warp-uniform: descriptors are then in uniform registers.
    let warpgroup = warp::warp_id_uniform() / (WARPGROUP / 32);

    // Not by the warp that finds the first tile meanwhile.
    if thread::thread_idx_x() == 32 {
        tma::prefetch_descriptor(of.a);
        tma::prefetch_descriptor(of.b);
        for stage in 0..STAGES as u32 {
            memory.full(stage).init(1);
            memory.empty(stage).init(CLUSTER * K::RELEASES);
        }
        consumers.initialise(memory);
        fence::mbarrier_init();
    }
    // The peer's copies and arrivals land in this block: no block may start before both have initialised their
    // barriers. The fence has already released these; a barrier with release semantics would make every thread wait for
    // all its memory operations.
    cluster::arrive_relaxed();

    if warpgroup == 0 {
        if H > 2 {
            regs::decrease::<32>();
        } else {
            regs::decrease::<40>();
        }
        let mut walk = tiles;
        let first = walk.find().then(|| walk.tile().computed_here());
        cluster::wait();
        if thread::thread_idx_x() == 0 {
            let skip = K::SKIPS && !W::TOLD && !W::TWO_BS;
            produce::<O, W, B, STAGES, H>(memory, of.a, of.b, &of.problem, walk, first, skip);
        } else if thread::thread_idx_x() >= 32 {
            consumers.assist(memory, &of.problem, tiles);
        }
    } else {
        if H > 2 {
            regs::increase::<160>();
        } else {
            regs::increase::<232>();
        }
        cluster::wait();
        let consumer = warpgroup - 1;
        let (slabs, barrier) = (memory.slabs(consumer), 1 + consumer);
        let Matrices { c_map, c, problem, store, .. } = of;
        let output = Output { map: c_map, c, epilogue, problem, store, slabs, barrier };
        consumers.consume(memory, consumer, &output, tiles);
    }
}

/// The descriptors of a stage of an operand for the four products of 32 bytes of k.
#[inline(always)]
pub(super) const fn descriptors(tile: SharedPtr<u8>, is_mn_major: bool) -> [Descriptor; 4] {
    // K-major, 32 bytes of the swizzled row; MN-major, sixteen rows of it.
    let (first, step) = if is_mn_major {
        (Descriptor::mn_major_128b(tile, PANEL_BYTES), 2048)
    } else {
        (Descriptor::k_major_128b(tile), 32)
    };
    [first, first.advance(step), first.advance(2 * step), first.advance(3 * step)]
}

/// Consumers that multiply the stages of every tile of this cluster and store C.
struct Whole<M, const R: usize>(PhantomData<M>);

impl<M, C, E, const R: usize, const B: usize, const STAGES: usize, const H: usize> Consume<C, E, B, STAGES, H>
    for Whole<M, R>
where
    M: Multiply<R>,
    C: Element,
    E: Epilogue,
    [M::Sum; R]: Registers,
{
    // Only for types whose tiles can be narrow, so that A is most of what is loaded; where the epilogue has data of rows and
    // columns, there are no registers for it.
    const SKIPS: bool =
        M::BYTES == 2 && H == CONSUMERS as usize && !E::SWAPPED && size_of::<E::Row>() + size_of::<E::Read>() == 0;

    #[inline(always)]
    unsafe fn consume<W: Walk>(
        self,
        memory: Memory<B, STAGES, H>,
        consumer: u32,
        output: &Output<'_, C, E>,
        mut tiles: W,
    ) {
        const { assert!(!W::ALONG_K || M::A_MN && M::B_MN && B == WIDE_BYTES) };
        let lane = thread::thread_idx_x() % WARPGROUP;
        let depth = STAGE_BYTES / M::BYTES;
        let (mut at, mut number) = (Cursor::default(), 0);
        let mut sums = [M::Sum::ZERO; R];
        while memory.find(&mut tiles, number, at) {
            let k = memory.depth(&tiles, number, output.problem.k);
            let steps = W::steps(k, depth);
            let skips = W::TOLD || !W::TWO_BS && <Self as Consume<C, E, B, STAGES, H>>::SKIPS;
            if skips && memory.is_idle(&tiles, number, output.problem.m, consumer) {
                cold_path();
                memory.skip(at, steps, lane, output.barrier);
                at.advance_by(steps, STAGES);
                tiles.advance();
                number += 1;
                continue;
            }
            let mut previous = at.stage;
            // Of a last stage that is there to a quarter at most, the other products are of zeros.
            let rest = k % depth;
            let is_short = !W::ALONG_K && (1..=depth / 4).contains(&rest);
            let whole = if is_short { steps - 1 } else { steps };
            for step in 0..whole {
                memory.full(at.stage).wait_parity(at.parity);
                if W::ALONG_K && step + 1 == steps {
                    memory.clear(at.stage, k - step * depth, consumer, lane);
                }
                // A consumer's rows are one panel in either layout.
                let a = descriptors(memory.a(at.stage).add(consumer * PANEL_BYTES), M::A_MN);
                let b = descriptors(memory.b(at.stage), M::B_MN);
                wgmma::fence();
                // The first product of a tile overwrites.
                M::multiply(&mut sums, a[0], b[0], step != 0);
                M::multiply(&mut sums, a[1], b[1], true);
                M::multiply(&mut sums, a[2], b[2], true);
                M::multiply(&mut sums, a[3], b[3], true);
                wgmma::commit();
                // One group stays in flight; the stage before it has been read and goes back to both producers.
                wgmma::wait::<1>();
                if step != 0 {
                    memory.release(previous, lane);
                }
                previous = at.stage;
                at.advance(STAGES);
            }
            if is_short {
                memory.full(at.stage).wait_parity(at.parity);
                let a = descriptors(memory.a(at.stage).add(consumer * PANEL_BYTES), M::A_MN);
                let b = descriptors(memory.b(at.stage), M::B_MN);
                wgmma::fence();
                M::multiply(&mut sums, a[0], b[0], whole != 0);
                wgmma::commit();
                wgmma::wait::<1>();
                if whole != 0 {
                    memory.release(previous, lane);
                }
                previous = at.stage;
                at.advance(STAGES);
            }
            let part = output.part(lane, consumer, memory.tile(&tiles, number));
            wgmma::wait_for::<0>(&mut sums);
            memory.release(previous, lane);
            part.store(&mut sums);
            tiles.advance();
            number += 1;
        }
        output.finish(lane);
    }
}
