//! How a kernel divides its work, and the layout of its shared memory.

use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;

const WARPGROUP: u32 = 128;
/// Of a team.
const WARPGROUPS: u32 = 2;
/// Rows of a warpgroup's product, and of a warp's part of it.
const WARPGROUP_ROWS: u32 = 64;
pub(super) const WARP_ROWS: u32 = 16;
/// Elements of k that a vector has in a row of the widest swizzle.
pub(super) const PANEL: u32 = 64;
/// Bytes of such a row.
pub const PANEL_BYTES: u32 = 128;
/// Bytes of a row of the weight in a stage.
const ROW_BYTES: u32 = 128;

/// How the kernel for `r` vectors divides its work.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Vectors.
    pub r: u32,
    /// Of an element of the weight.
    pub bits: u32,
    /// Blocks of a cluster.
    pub share: u32,
    /// Blocks that are to fit on a multiprocessor.
    pub blocks: u32,
}

impl Plan {
    /// The plan of a kernel for `r` vectors, with clusters of `share` blocks, `blocks` of which fit on a multiprocessor.
    #[inline(always)]
    pub const fn of(r: usize, bits: u32, share: u32, blocks: u32) -> Self {
        Self { r: r as u32, bits, share, blocks }
    }

    /// Teams of a block. With few vectors a multiprocessor has two, of one block or of two.
    #[inline(always)]
    pub const fn teams(self) -> u32 {
        if self.r < 96 { 2 / self.blocks } else { 1 }
    }

    /// Rows of the weight that a block takes.
    #[inline(always)]
    pub const fn rows(self) -> u32 {
        WARPGROUPS * WARPGROUP_ROWS
    }

    /// Elements of k in a stage.
    #[inline(always)]
    pub const fn depth(self) -> u32 {
        self.row_bytes() * 8 / self.bits
    }

    /// Bytes of a row of the weight in a stage.
    #[inline(always)]
    pub const fn row_bytes(self) -> u32 {
        if self.r >= 64 && self.bits < 8 { ROW_BYTES / 2 } else { ROW_BYTES }
    }

    /// Threads of a block.
    #[inline(always)]
    pub const fn threads(self) -> u32 {
        self.teams() * WARPGROUPS * WARPGROUP
    }

    #[inline(always)]
    const fn weight_bytes(self) -> u32 {
        self.rows() * self.row_bytes()
    }

    #[inline(always)]
    const fn vector_bytes(self) -> u32 {
        self.r * PANEL_BYTES
    }

    #[inline(always)]
    pub(super) const fn stage_bytes(self) -> u32 {
        self.weight_bytes() + self.depth() / PANEL * self.vector_bytes()
    }

    /// Of a team.
    #[inline(always)]
    pub(super) const fn stages(self) -> u32 {
        216 * 1024 / self.blocks / self.teams() / self.stage_bytes()
    }

    /// The number of teams, in all blocks of a cluster, among which k is split.
    #[inline(always)]
    pub(super) const fn members(self) -> u32 {
        self.share * self.teams()
    }

    /// Of a team.
    #[inline(always)]
    pub(super) const fn warps(self) -> u32 {
        WARPGROUPS * WARPGROUP / 32
    }

    /// Warps whose sums a block adds, or of the last one fewer.
    #[inline(always)]
    pub(super) const fn part(self) -> u32 {
        (self.rows() / WARP_ROWS).div_ceil(self.share)
    }

    /// Of all teams.
    #[inline(always)]
    const fn ring_bytes(self) -> u32 {
        self.teams() * self.stages() * self.stage_bytes()
    }

    /// Of what all members have for a block.
    #[inline(always)]
    const fn sums_bytes(self) -> u32 {
        self.members() * self.part() * (self.r / 2) * 32 * 4
    }

    /// Whether there is room for the sums beside the stages. Otherwise they overwrite the stages after all blocks of
    /// the cluster have read them.
    #[inline(always)]
    pub(super) const fn is_apart(self) -> bool {
        self.blocks * (self.ring_bytes() + self.sums_bytes()) <= 224 * 1024
    }

    /// Before the barriers.
    #[inline(always)]
    const fn data_bytes(self) -> u32 {
        assert!(self.is_apart() || self.sums_bytes() <= self.ring_bytes());
        if self.is_apart() { self.ring_bytes() + self.sums_bytes() } else { self.ring_bytes() }
    }

    /// Of shared memory.
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        let stages = (self.teams() * self.stages()) as usize;
        self.data_bytes() as usize + (2 * stages + 2) * size_of::<Barrier>()
    }
}

/// The block's shared memory, as one of its teams sees it.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) at: SharedPtr<u8>,
    pub(super) plan: Plan,
    pub(super) team: u32,
}

impl Memory {
    #[inline(always)]
    pub(super) fn weight(self, stage: u32) -> SharedPtr<u8> {
        self.at.byte_add((self.team * self.plan.stages() + stage) * self.plan.stage_bytes())
    }

    /// [`PANEL`] elements of k of all vectors.
    #[inline(always)]
    pub(super) fn vectors(self, stage: u32, panel: u32) -> SharedPtr<u8> {
        self.weight(stage).byte_add(self.plan.weight_bytes() + panel * self.plan.vector_bytes())
    }

    #[inline(always)]
    fn barrier(self, index: u32) -> SharedPtr<Barrier> {
        self.at.byte_add(self.plan.data_bytes()).cast::<Barrier>().add(index)
    }

    #[inline(always)]
    pub(super) fn full(self, stage: u32) -> SharedPtr<Barrier> {
        self.barrier(self.team * self.plan.stages() + stage)
    }

    #[inline(always)]
    pub(super) fn empty(self, stage: u32) -> SharedPtr<Barrier> {
        self.barrier((self.plan.teams() + self.team) * self.plan.stages() + stage)
    }

    /// Completes when no block of the cluster reads its stages any more.
    #[inline(always)]
    pub(super) fn read(self) -> SharedPtr<Barrier> {
        self.barrier(2 * self.plan.teams() * self.plan.stages())
    }

    /// Completes when the sums of all members are here.
    #[inline(always)]
    pub(super) fn complete(self) -> SharedPtr<Barrier> {
        self.read().add(1)
    }

    /// The sums that a warp of `member` has for this block, and those of the next warps.
    #[inline(always)]
    pub(super) fn sums(self, member: u32, warp: u32) -> SharedPtr<f32> {
        let sums = if self.plan.is_apart() { self.at.byte_add(self.plan.ring_bytes()) } else { self.at };
        sums.cast::<f32>().add((member * self.plan.part() + warp) * (self.plan.r / 2) * 32)
    }
}
