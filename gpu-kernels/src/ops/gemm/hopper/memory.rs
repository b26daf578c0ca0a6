//! A block's shared memory: the ring of stages, and the places of the tiles that its producer has found.

use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{cluster, fence, shared_field, thread, warp};

use super::{
    BLOCK_N, CLUSTER, CONSUMERS, PANEL, PANEL_BYTES, SLAB_BYTES, STAGE_BYTES, STORE_M, TALL, TALL_CONSUMERS, Tile,
    WARPGROUP, Walk,
};

/// The block's shared memory: `STAGES` stages, in each of which B takes `B` bytes and A a panel for each of `H`
/// consumers. Swizzled buffers must start at multiples of 1024 bytes.
#[repr(C, align(1024))]
pub struct Shared<const B: usize, const STAGES: usize, const H: usize = { CONSUMERS as usize }> {
    a: [[[u8; PANEL_BYTES as usize]; H]; STAGES],
    b: [[u8; B]; STAGES],
    c: [[[u8; SLAB_BYTES as usize]; 2]; H],
    full: [Barrier; STAGES],
    empty: [Barrier; STAGES],
    told: [Told; TOLD],
}

/// The place of a tile: its first row and column, its product, the end of its rows, or 0 if there is no tile, and its
/// number of elements along k.
type Told = [u32; 5];

/// The number of tiles whose places are kept. The producer is at most all stages ahead, each of which may belong to a
/// different tile. All threads of a consumer have read a place when it releases its first stage of the next tile: only
/// then do they all wait for each other.
pub(super) const TOLD: usize = WIDE_STAGES + 1;

/// That of [`BLOCK_N`] columns: four stages of 48 KiB leave room for the epilogue's buffers.
pub(in super::super) type Wide = Shared<WIDE_BYTES, WIDE_STAGES>;

pub(super) const TALL_BYTES: usize = b_bytes(TALL[1]);
pub(super) const TALL_STAGES: usize = stages(TALL_CONSUMERS, TALL[1]);
pub(super) const WIDE_BYTES: usize = b_bytes(BLOCK_N);
pub(super) const WIDE_STAGES: usize = stages(CONSUMERS, BLOCK_N);

pub(in super::super) const fn b_bytes(block_n: u32) -> usize {
    (block_n * STAGE_BYTES) as usize
}

/// As many stages as there is memory for, beside 16 KiB per consumer for the epilogue.
pub(in super::super) const fn stages(consumers: u32, block_n: u32) -> usize {
    stages_beside(0, consumers, block_n)
}

/// The same beside so many bytes of the kernel's own.
pub(in super::super) const fn stages_beside(bytes: usize, consumers: u32, block_n: u32) -> usize {
    let slabs = (consumers * 2 * SLAB_BYTES) as usize;
    (224 * 1024 - slabs - bytes) / ((consumers * PANEL_BYTES) as usize + b_bytes(block_n))
}

/// Columns of B that are loaded for a tile of that many: for MN-major B all those of its panels, whose last columns the
/// products do not read.
pub const fn loaded(block_n: u32, is_mn_major: bool) -> u32 {
    if is_mn_major { block_n.next_multiple_of(PANEL) } else { block_n }
}

/// Shared memory of a block of swapped operands' tiles of `n` columns, of which it has half if they are `narrow`.
pub const fn swapped_bytes(n: u32, narrow: bool) -> usize {
    shared_bytes(if narrow { n / CLUSTER } else { n })
}

/// Shared memory of a block that loads so many columns of B, [`loaded`] of one of [`FINE_WIDTHS`](super::FINE_WIDTHS).
pub const fn shared_bytes(block_n: u32) -> usize {
    match block_n {
        240 => size_of::<Shared<{ b_bytes(240) }, { stages(CONSUMERS, 240) }>>(),
        224 => size_of::<Shared<{ b_bytes(224) }, { stages(CONSUMERS, 224) }>>(),
        208 => size_of::<Shared<{ b_bytes(208) }, { stages(CONSUMERS, 208) }>>(),
        192 => size_of::<Shared<{ b_bytes(192) }, { stages(CONSUMERS, 192) }>>(),
        160 => size_of::<Shared<{ b_bytes(160) }, { stages(CONSUMERS, 160) }>>(),
        144 => size_of::<Shared<{ b_bytes(144) }, { stages(CONSUMERS, 144) }>>(),
        128 => size_of::<Shared<{ b_bytes(128) }, { stages(CONSUMERS, 128) }>>(),
        112 => size_of::<Shared<{ b_bytes(112) }, { stages(CONSUMERS, 112) }>>(),
        104 => size_of::<Shared<{ b_bytes(104) }, { stages(CONSUMERS, 104) }>>(),
        96 => size_of::<Shared<{ b_bytes(96) }, { stages(CONSUMERS, 96) }>>(),
        80 => size_of::<Shared<{ b_bytes(80) }, { stages(CONSUMERS, 80) }>>(),
        64 => size_of::<Shared<{ b_bytes(64) }, { stages(CONSUMERS, 64) }>>(),
        48 => size_of::<Shared<{ b_bytes(48) }, { stages(CONSUMERS, 48) }>>(),
        32 => size_of::<Shared<{ b_bytes(32) }, { stages(CONSUMERS, 32) }>>(),
        _ => size_of::<Wide>(),
    }
}

/// The same of a block whose tile is [`TALL`].
pub const fn tall_shared_bytes() -> usize {
    size_of::<Shared<TALL_BYTES, TALL_STAGES, { TALL_CONSUMERS as usize }>>()
}

/// The block's shared memory by name.
#[derive(Clone, Copy)]
pub(in super::super) struct Memory<const B: usize, const STAGES: usize, const H: usize = { CONSUMERS as usize }>(
    pub(super) SharedPtr<Shared<B, STAGES, H>>,
);

impl<const B: usize, const STAGES: usize, const H: usize> Memory<B, STAGES, H> {
    #[inline(always)]
    pub(in super::super) fn a(self, stage: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        shared_field!(memory.a).at(stage).cast()
    }

    #[inline(always)]
    pub(in super::super) fn b(self, stage: u32) -> SharedPtr<u8> {
        let Self(memory) = self;
        shared_field!(memory.b).at(stage).cast()
    }

    #[inline(always)]
    pub(in super::super) fn slabs(self, consumer: u32) -> [SharedPtr<u8>; 2] {
        let Self(memory) = self;
        let slabs = shared_field!(memory.c).at(consumer);
        [slabs.at(0).cast(), slabs.at(1).cast()]
    }

    #[inline(always)]
    pub(in super::super) fn full(self, stage: u32) -> SharedPtr<Barrier> {
        let Self(memory) = self;
        shared_field!(memory.full).at(stage)
    }

    #[inline(always)]
    pub(super) fn empty(self, stage: u32) -> SharedPtr<Barrier> {
        let Self(memory) = self;
        shared_field!(memory.empty).at(stage)
    }

    #[inline(always)]
    pub(super) fn told(self, number: u32) -> SharedPtr<Told> {
        let Self(memory) = self;
        shared_field!(memory.told).at(number % TOLD as u32)
    }

    /// What a kernel has behind it.
    #[inline(always)]
    pub(in super::super) fn behind<T>(self) -> SharedPtr<T> {
        let Self(memory) = self;
        memory.add(1).cast()
    }

    /// Whether there is a tile `number` for consumers whose first stage of it is `at`.
    #[inline(always)]
    pub(super) unsafe fn find<W: Walk>(self, tiles: &mut W, number: u32, at: Cursor) -> bool {
        if !W::TOLD {
            return tiles.find();
        }
        self.full(at.stage).wait_parity(at.parity);
        let [_, _, _, end, _] = self.told(number).read();
        // As in `is_idle`.
        warp::shuffle_idx(end, 0) != 0
    }

    /// The place of that tile.
    #[inline(always)]
    pub(super) unsafe fn tile<W: Walk>(self, tiles: &W, number: u32) -> Tile {
        if !W::TOLD {
            return tiles.tile();
        }
        let [row, column, product, end, _] = self.told(number).read();
        let end = if W::ALONG_K { None } else { Some(end) };
        Tile { row, column, product, b: 0, end, k: None, alone: false }
    }

    /// The tile's elements of k; `all` if tiles have no ranges of their own.
    #[inline(always)]
    pub(super) unsafe fn depth<W: Walk>(self, tiles: &W, number: u32, all: u32) -> u32 {
        if !W::ALONG_K {
            return tiles.depth(all);
        }
        let [.., depth] = self.told(number).read();
        depth
    }

    /// Whether the tile, of `m` rows in all, has none for a consumer; where consumers walk themselves, none for the block, which
    /// then has loaded no A. Read from lane 0, so that ptxas knows that a warp's threads stay at the same stage: descriptors are
    /// in uniform registers only then, and with 64 columns a product waits for their copies a third of its time.
    #[inline(always)]
    pub(super) unsafe fn is_idle<W: Walk>(self, tiles: &W, number: u32, m: u32, consumer: u32) -> bool {
        if W::ALONG_K {
            return false;
        }
        let is_idle = if W::TOLD {
            let [row, _, _, end, _] = self.told(number).read();
            row + consumer * STORE_M >= end
        } else {
            tiles.tile().row >= m
        };
        warp::shuffle_idx(u32::from(is_idle), 0) != 0
    }

    /// Skips the stages of a tile without reading them. Run by a whole warpgroup, whose threads then go on together, so
    /// that none is a round of stages behind.
    #[inline(always)]
    pub(super) unsafe fn skip(self, at: Cursor, steps: u32, lane: u32, barrier: u32) {
        if lane < 32 {
            let mut at = at;
            for _ in 0..steps {
                self.full(at.stage).wait_parity(at.parity);
                self.release(at.stage, lane);
                at.advance(STAGES);
            }
        }
        thread::named_barrier::sync(barrier, WARPGROUP);
    }

    /// Tells the producers of the pair that this warpgroup has read a stage. `lane` is the caller's in it.
    #[inline(always)]
    pub(in super::super) unsafe fn release(self, stage: u32, lane: u32) {
        if lane < CLUSTER {
            cluster::map(self.empty(stage), lane).signal();
        }
    }

    /// Writes zeros past the first `rows` rows of a stage of panels, along k: this consumer's part of A, and half of
    /// B's, which has [`BLOCK_N`] columns. Run by all consumers.
    #[inline(always)]
    pub(super) unsafe fn clear(self, stage: u32, rows: u32, consumer: u32, lane: u32) {
        if rows >= PANEL {
            return;
        }
        let b = self.b(stage).add(2 * consumer * PANEL_BYTES);
        let panels = [self.a(stage).add(consumer * PANEL_BYTES), b, b.add(PANEL_BYTES)];
        // A row is eight chunks of 16 bytes, whose order does not matter.
        let mut row = rows + lane / 8;
        while row < PANEL {
            for panel in panels {
                let chunk = panel.add(row * STAGE_BYTES + lane % 8 * 16);
                Pack([0u32; 4]).store(chunk.cast::<u32>().as_ptr());
            }
            row += WARPGROUP / 8;
        }
        fence::proxy_async_shared();
        thread::named_barrier::sync(1 + CONSUMERS, CONSUMERS * WARPGROUP);
    }
}

/// The stage a loop is at, and the parity of the barrier phase that it waits for.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Cursor {
    pub(in super::super) stage: u32,
    pub(in super::super) parity: u32,
}

impl Cursor {
    /// To the next of `stages`.
    #[inline(always)]
    pub(in super::super) fn advance(&mut self, stages: usize) {
        self.stage += 1;
        if self.stage == stages as u32 {
            self.stage = 0;
            self.parity ^= 1;
        }
    }

    /// By `steps`.
    #[inline(always)]
    pub(super) fn advance_by(&mut self, steps: u32, stages: usize) {
        let (stage, stages) = (self.stage + steps, stages as u32);
        self.stage = stage % stages;
        self.parity ^= stage / stages % 2;
    }
}
