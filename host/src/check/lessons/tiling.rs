//! How a square product is cut into tiles, and tiles into waves.

use gpu_kernels::ops::gemm::gemm::{hopper, mma};

use super::run::{part, variant};
use crate::check::bench::Timing;
use crate::ops::gemm::cost::{Shape, Tiles};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// What a step of a tile takes longer than its columns do, in columns, where few waves of tiles keep the clock high.
const BESIDE: usize = 32;

/// The tiles that the kernel of a device computes, and how many at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Rows of a tile, counted from its first, that are left out if C has none of them.
    part: usize,
    /// A step along k.
    pub(super) depth: usize,
    /// Tiles that are computed at the same time.
    pub(super) at_once: usize,
    /// Blocks that compute a tile together.
    blocks: usize,
    /// Whether blocks stay and take several tiles.
    persistent: bool,
    /// How long a step takes, of one of the widest tile's.
    pub(super) step: f64,
    /// The variant that it is, if it is not the operator's choice.
    variant: Option<&'static str>,
}

impl Tiling {
    /// Of the kernel that is picked for a product of that side.
    pub(super) fn of(info: &DeviceInfo, side: usize) -> Self {
        if info.compute_capability == (9, 0) {
            let [m, n, k] = [side as u32; 3];
            // What 8 does not divide is copied to where sectors begin.
            let in_sectors = [!side.is_multiple_of(8) || side.is_multiple_of(16); 2];
            let shape = Shape { sizes: [1, m, n, k], bytes: 2, scaling: 0.0, in_sectors };
            // Only where TMA can store C may operands be swapped.
            let narrow = hopper::NARROW.map(Tiles::Narrow).into_iter().filter(|_| side.is_multiple_of(8));
            let all = hopper::FINE_WIDTHS.map(Tiles::Columns).into_iter().chain(narrow).chain([Tiles::Tall]);
            match shape.fastest(info.multiprocessors, all) {
                Some(Tiles::Columns(columns)) => Self::on_hopper(info, [hopper::BLOCK_M, columns], None),
                Some(Tiles::Narrow(rows)) => Self::narrow(info, rows),
                _ => Self::on_hopper(info, hopper::TALL, None),
            }
        } else {
            Self::of_any(info)
        }
    }

    /// Of the one with the widest tiles.
    pub(super) fn widest(info: &DeviceInfo) -> Self {
        if info.compute_capability == (9, 0) {
            Self::on_hopper(info, [hopper::BLOCK_M, hopper::BLOCK_N], Some("hopper"))
        } else {
            Self::of_any(info)
        }
    }

    fn on_hopper(info: &DeviceInfo, block: [u32; 2], variant: Option<&'static str>) -> Self {
        let [rows, columns, widest_rows, widest] =
            [block[0], block[1], hopper::BLOCK_M, hopper::BLOCK_N].map(|size| size as usize);
        let step = (columns * rows / widest_rows + BESIDE) as f64 / (widest + BESIDE) as f64;
        let (blocks, depth) = (hopper::CLUSTER as usize, hopper::BLOCK_K as usize);
        // A block of the pair without rows skips its part of the tile, but not of a tall one.
        let part = if rows == widest_rows { rows } else { blocks * rows };
        let rows = blocks * rows;
        let at_once = info.multiprocessors as usize / blocks;
        Self { rows, columns, part, depth, at_once, blocks, persistent: true, step, variant }
    }

    /// Of pairs of blocks that share columns of C, and have half of these rows each; in a square rows and columns do not differ.
    fn narrow(info: &DeviceInfo, rows: u32) -> Self {
        let of_block = Self::on_hopper(info, [hopper::BLOCK_M, rows / hopper::CLUSTER], None);
        let rows_of_pair = hopper::BLOCK_M as usize;
        Self { rows: rows_of_pair, columns: rows as usize, part: rows_of_pair, ..of_block }
    }

    /// Of the kernel that runs on every device, and takes operands that lie in no packs.
    pub(super) fn of_any(info: &DeviceInfo) -> Self {
        let multiprocessors = info.multiprocessors as usize;
        let (rows, columns, depth) = (mma::BLOCK as usize, mma::BLOCK as usize, mma::BLOCK_K as usize);
        let (at_once, step) = (multiprocessors, 1.0);
        Self { rows, columns, part: rows, depth, at_once, blocks: 1, persistent: false, step, variant: None }
    }

    /// Such a product in bf16.
    pub(super) fn part(self, side: usize, k: usize) -> Result<Timing> {
        let dims = [("m", side), ("n", side), ("k", k)];
        match self.variant {
            Some(name) => variant("gemm_bf16", name, DType::BF16, dims),
            None => part("gemm_bf16", DType::BF16, dims),
        }
    }

    pub(super) fn tiles(self, side: usize) -> usize {
        side.div_ceil(self.rows) * side.div_ceil(self.columns)
    }

    pub(super) fn waves(self, side: usize) -> usize {
        self.tiles(side).div_ceil(self.at_once)
    }

    pub(super) fn grid(self, side: usize) -> usize {
        let tiles = self.tiles(side);
        self.blocks * if self.persistent { tiles.min(self.at_once) } else { tiles }
    }

    /// Operations of whole tiles, but for parts of the last ones that are left out.
    pub(super) fn operations(self, side: usize, k: usize) -> usize {
        2 * side.next_multiple_of(self.part) * side.next_multiple_of(self.columns) * k
    }

    /// Operations of whole waves.
    pub(super) fn paid(self, side: usize, k: usize) -> usize {
        2 * self.waves(side) * self.at_once * self.rows * self.columns * k
    }

    /// Of the sides that are whole tiles, up to a few waves, the one where the next side takes most in addition for what it is more.
    pub(super) fn strike(self) -> usize {
        let step = self.rows.max(self.columns);
        let sides = (1..).map(|n| n * step).take_while(|side| self.waves(*side) <= 4);
        let gain = |side: usize| self.waves(side + 1) as f64 / self.waves(side) as f64;
        sides.max_by(|a, b| gain(*a).total_cmp(&gain(*b)).then(a.cmp(b))).unwrap_or(step)
    }
}
