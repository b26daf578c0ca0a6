//! How long a product by tiles takes on Hopper, by a model of what bounds it, and so which tiles are picked.

use gpu_kernels::ops::gemm::gemm::hopper::{BLOCK_M, CLUSTER, NARROW, STAGE_BYTES, SWAPPED, TALL, WIDTHS};
use gpu_kernels::ops::gemm::gemm::skinny;

use super::plan;

/// How C is cut into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiles {
    /// Into tiles with this number of columns.
    Columns(u32),
    /// Into tiles with more rows.
    Tall,
    /// Into tiles with this number of rows, with operands swapped.
    Swapped(u32),
    /// Into tiles with this number of rows and 128 columns, with operands swapped, of which a block has half the rows.
    Narrow(u32),
    /// Into tiles with this number of columns, for each of several pieces along k, whose sum is a second launch.
    Pieces(u32),
    /// The same into tiles with this number of rows, with operands swapped.
    SwappedPieces(u32),
}

/// What the time of a product depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// `[batch, m, n, k]`.
    pub(crate) sizes: [u32; 4],
    /// Bytes of an element of an operand.
    pub(crate) bytes: u32,
    /// The microseconds that scales add to a stage.
    pub(crate) scaling: f64,
    /// Of A and of B: whether what is adjacent in memory starts at multiples of 32 bytes, the sectors of L2.
    pub(crate) in_sectors: [bool; 2],
}

/// A launch, with the first loads and the last stores, in microseconds.
const LAUNCH: f64 = 4.7;
/// A column of a tile in a stage: 4 clocks, at the 1.6 GHz that power allows.
const COLUMN: f64 = 0.0025;
/// How much longer it takes in tall tiles, of which three consumers share the multiprocessor, for 1.5 times as many rows.
const TALL_COLUMN: f64 = 1.6;
/// What a tile takes beside its stages.
const TILE: f64 = 1.0;
/// The bytes that memory delivers in a microsecond.
const MEMORY: f64 = 4.2e6;
/// The bytes that L2 delivers.
const L2: f64 = 10e6;
/// How much longer that takes if they start within sectors.
const ACROSS_SECTORS: f64 = 1.75;
/// The zeros outside of a tensor, for which TMA asks L2 too, all blocks for the same few lines.
const ZEROS: f64 = 2.5e6;
/// The launch that adds pieces, and the bytes of these that are written and read in a microsecond.
const SUM: f64 = 1.8;
const SUMMED: f64 = 2.6e6;
/// A stage of few rows or columns that is cut along k by four: of at most [`skinny::MOST_ALONE`], and of more.
const QUARTER: [f64; 2] = [0.05, 0.13];

impl Tiles {
    /// All those of swapped operands and whole products.
    pub(crate) fn of_swapped() -> impl Iterator<Item = Self> {
        SWAPPED.map(Self::Swapped).into_iter().chain(NARROW.map(Self::Narrow))
    }

    /// All those of pieces.
    pub(crate) fn of_pieces() -> impl Iterator<Item = Self> {
        WIDTHS.map(Self::Pieces).into_iter().chain(SWAPPED.map(Self::SwappedPieces))
    }
}

impl Shape {
    /// The fastest of these, the first of several that are equal.
    pub(crate) fn fastest(&self, multiprocessors: u32, of: impl IntoIterator<Item = Tiles>) -> Option<Tiles> {
        let timed = of.into_iter().map(|tiles| (self.micros(multiprocessors, tiles), tiles));
        timed.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, tiles)| tiles)
    }

    /// The microseconds that it takes: for the multiply-adds of all waves, or for what L2 or memory delivers. Where these are
    /// about equal it is somewhat longer.
    ///
    /// The constants fit what `warpsmith tune` measured for 140 products on an H200, in which m was from 64 to 3584. What is picked by
    /// them takes 1.7% longer than the fastest in the mean, and a fifth at most; to change each of them by a tenth makes little
    /// difference.
    pub(crate) fn micros(&self, multiprocessors: u32, tiles: Tiles) -> f64 {
        let [batch, mut m, mut n, k] = self.sizes;
        let [mut a, mut b] = self.in_sectors.map(|are_in| if are_in { 1.0 } else { ACROSS_SECTORS });
        if matches!(tiles, Tiles::Swapped(_) | Tiles::Narrow(_) | Tiles::SwappedPieces(_)) {
            ((m, n), (a, b)) = ((n, m), (b, a));
        }
        let (mut products, mut depth, mut column, mut sum) = (batch, k, COLUMN, 0.0);
        let block = match tiles {
            Tiles::Columns(columns) | Tiles::Swapped(columns) => [BLOCK_M, columns],
            Tiles::Narrow(columns) => {
                column /= f64::from(CLUSTER);
                [BLOCK_M / CLUSTER, columns]
            }
            Tiles::Tall => {
                column *= TALL_COLUMN;
                TALL
            }
            Tiles::Pieces(columns) | Tiles::SwappedPieces(columns) => {
                depth = plan::piece(multiprocessors, [m, n], [k, self.stage()], columns);
                products = k.div_ceil(depth);
                sum = self.added(products);
                [BLOCK_M, columns]
            }
        };
        let [block_m, columns] = block.map(f64::from);
        let rows = block_m * f64::from(CLUSTER);
        let [m, n, products] = [m, n, products].map(f64::from);
        let steps = f64::from(depth.div_ceil(self.stage()));
        let (down, across) = ((m / rows).ceil(), (n / columns).ceil());
        let waves = (down * across * products / f64::from((multiprocessors / CLUSTER).max(1))).ceil();
        let busy = waves * (steps * (columns * column + self.scaling) + TILE);
        // Blocks without rows skip them.
        let skipped = matches!(tiles, Tiles::Columns(_) | Tiles::Pieces(_));
        let above = down * rows - m;
        let above = if skipped && above >= block_m { above - block_m } else { above };
        let loads = f64::from(STAGE_BYTES) * steps * products;
        let loaded = loads * (m * across * a + n * down * b) / L2;
        let zeros = loads * (above * across + (across * columns - n) * down) / ZEROS;
        LAUNCH + (busy.powi(4) + (loaded + zeros).powi(4) + self.read().powi(4)).sqrt().sqrt() + sum
    }

    /// The microseconds of a launch that adds so many pieces.
    pub(crate) fn added(&self, pieces: u32) -> f64 {
        let [_, m, n, _] = self.sizes.map(f64::from);
        SUM + 4.0 * m * n * f64::from(pieces) / SUMMED
    }

    /// The microseconds that it takes by the clusters of four that cut k, if it has few rows or columns.
    pub(crate) fn quarters(&self) -> f64 {
        let [_, m, n, k] = self.sizes;
        let [of_up_to_most, of_more] = QUARTER;
        let step = if m.min(n) <= skinny::MOST_ALONE { of_up_to_most } else { of_more };
        LAUNCH + (f64::from(k.div_ceil(self.stage())) * step).hypot(self.read())
    }

    /// Elements along k of a stage.
    fn stage(&self) -> u32 {
        STAGE_BYTES / self.bytes
    }

    /// The microseconds in which memory delivers both operands.
    fn read(&self) -> f64 {
        let [batch, m, n, k] = self.sizes.map(f64::from);
        f64::from(self.bytes) * batch * (m + n) * k / MEMORY
    }
}

#[cfg(test)]
mod tests {
    use gpu_kernels::ops::gemm::gemm::hopper::FINE_WIDTHS;

    use super::Tiles::{self, Columns, Narrow, Pieces, Swapped, SwappedPieces, Tall};
    use super::{Shape, plan};

    fn shape(m: u32, n: u32, k: u32) -> Shape {
        Shape { sizes: [1, m, n, k], bytes: 2, scaling: 0.0, in_sectors: [k.is_multiple_of(16); 2] }
    }

    fn fastest(m: u32, n: u32, k: u32) -> Tiles {
        let whole = FINE_WIDTHS.map(Columns).into_iter().chain([Tall]).chain(Tiles::of_swapped());
        shape(m, n, k).fastest(132, whole.chain(Tiles::of_pieces())).unwrap()
    }

    #[test]
    fn tiles_fill_waves() {
        let square = |n| fastest(n, n, n);
        // 6 × 9 tiles of 160 columns are one wave, as are 7 × 9 of 208 and 6 × 11 tall ones.
        assert_eq!([1152, 1440, 1792, 2048].map(square), [96, 144, 208, 256].map(Columns));
        // 8 × 8 of 240 and, in two waves, 11 × 12.
        assert_eq!([1800, 2816].map(square), [Columns(240); 2]);
        assert_eq!([2112, 3000].map(square), [Tall; 2]);
        assert_eq!([2432, 4096, 8192, 16384].map(square), [192, 256, 256, 256].map(Columns));
        assert_eq!(fastest(8192, 28672, 8192), Columns(256));
    }

    #[test]
    fn few_tiles_of_a_long_k_are_cut_into_pieces() {
        let pieces = |m, n, k| match fastest(m, n, k) {
            Pieces(columns) => Some(k.div_ceil(plan::piece(132, [m, n], [k, 64], columns))),
            _ => None,
        };
        assert_eq!([pieces(512, 512, 16384), pieces(1024, 1024, 16384)], [Some(8), Some(4)]);
        assert_eq!([pieces(1024, 1024, 4096), pieces(256, 256, 1024), pieces(8192, 8192, 8192)], [None; 3]);
    }

    #[test]
    fn where_tiles_are_few_pairs_share_columns() {
        // 64 pairs, where tiles of 256 columns are 32.
        assert_eq!([fastest(200, 8192, 8192), fastest(304, 4096, 4096)], [Narrow(208), Narrow(160)]);
        assert_eq!([fastest(128, 8192, 8192), fastest(96, 4096, 4096)], [Narrow(128), Narrow(96)]);
    }

    #[test]
    fn rows_that_leave_tiles_empty_fill_tiles_of_swapped_operands() {
        assert_eq!([fastest(384, 5120, 5120), fastest(320, 2560, 2560)], [Swapped(128), Swapped(64)]);
    }

    #[test]
    fn sizes_have_no_limit() {
        for tiles in [Columns(64), Tall, Swapped(64), Narrow(64), Pieces(64), SwappedPieces(64)] {
            let micros = |sizes| Shape { sizes, bytes: 2, scaling: 0.0, in_sectors: [true; 2] }.micros(1, tiles);
            assert!(micros([1, 1, 1, 1]) < micros([1, 1 << 31, 1 << 31, 1 << 31]));
            assert!(micros([u32::MAX; 4]).is_finite());
        }
    }
}
