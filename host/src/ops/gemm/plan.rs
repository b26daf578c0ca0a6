//! Selects the kernel of a product of few rows or columns, and what `warpsmith tune` has found faster than what is planned.

use gpu_kernels::ops::gemm::Problem;
use gpu_kernels::ops::gemm::gemm::hopper::{BLOCK_M, CLUSTER, WIDTHS};
use gpu_kernels::ops::gemm::gemm::{pairs, ring, skinny, thin};

use super::operand::{Major, OperandLayout};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tuned::Product;

/// The path that tuning found fastest for a product, among those with these names, if any. The caller checks whether it takes
/// the operands.
pub(super) fn tuned<P: Copy>(
    stream: &Stream,
    info: &OpInfo,
    dtypes: [DType; 3],
    sizes: &Problem,
    layout: [&OperandLayout; 2],
    paths: &[(&str, P)],
) -> Result<Option<P>> {
    let product = || Product { dtypes, sizes: [sizes.batch, sizes.m, sizes.n, sizes.k], layouts: layout.map(letter) };
    let path = |name: &str| paths.iter().find(|(known, _)| *known == name).map(|(_, path)| *path);
    stream.device().tuned_variant(info.name, product, path)
}

/// The letter that stands for an operand's layout in a [`Product`].
fn letter(layout: &OperandLayout) -> char {
    match (layout.major, layout.adjacent()) {
        (Some(Major::K), _) => 'k',
        (Some(Major::Mn), _) => 'n',
        (None, Some(Major::K)) => 'K',
        (None, Some(Major::Mn)) => 'N',
        (None, None) => '-',
    }
}

/// The number of columns of tiles for a product of many rows and few columns, `[m, n]`, if tiles are better than cutting along
/// k, as the path for few rows or columns does.
///
/// Tiles take the narrowest width that holds all columns; k has to be cut only if there are tiles for less than a third of the
/// multiprocessors. Relative to cutting k, on an H200 (k = 8192) tiles take 0.88 to 0.93 of the time with 48 and 64 columns of
/// 8192 rows and more, 0.83 with 128, but 1.04 to 1.16 with 16 and, for 2048 rows, 1.18 and more with any number.
pub(crate) fn of_few_columns(multiprocessors: u32, [m, n]: [usize; 2]) -> Option<u32> {
    let tiles = m.div_ceil((CLUSTER * BLOCK_M) as usize);
    let narrowest = WIDTHS.into_iter().rev().find(|width| *width as usize >= n)?;
    let is_full = n > 32 && m > n && tiles.saturating_mul(3) >= (multiprocessors / CLUSTER) as usize;
    is_full.then_some(narrowest)
}

/// Whether a product of few rows and `n` columns has tiles with swapped operands, which take 256 columns of C, for a third of the
/// multiprocessors.
///
/// On an H200 tiles then take 0.88 to 0.94 of the time of cutting k with 32 to 64 rows of 8192 columns and more, but 1.01 to 1.07 with 16 and,
/// with tiles for less than a third, 1.12 and more.
pub(crate) fn rows_fill_tiles(multiprocessors: u32, n: usize) -> bool {
    n.div_ceil((CLUSTER * BLOCK_M) as usize).saturating_mul(3) >= (multiprocessors / CLUSTER) as usize
}

/// The elements of k of a piece, where a product of `[m, n]` results in tiles of `columns` columns is cut along k into stages of
/// `depth`: so many that the pieces of all tiles are a wave, but no more pieces than have four stages each, and at least two.
pub(crate) fn piece(multiprocessors: u32, [m, n]: [u32; 2], [k, depth]: [u32; 2], columns: u32) -> u32 {
    let tiles = u64::from(m.div_ceil(CLUSTER * BLOCK_M)) * u64::from(n.div_ceil(columns));
    let steps = k.div_ceil(depth);
    let fill = u64::from(multiprocessors / CLUSTER) / tiles.max(1);
    let pieces = fill.min(u64::from(steps / 4)).max(2) as u32;
    steps.div_ceil(pieces) * depth
}

/// Whether pairs of blocks are better than clusters of four and than tiles, for a product `[m, n]` of up to 64 rows or columns.
///
/// The blocks of a pair are neighbours on the chip, so every multiprocessor gets one. Clusters of four leave multiprocessors
/// idle if the number in a GPC is not a multiple of four: of 64 such clusters, two blocks per multiprocessor, an H200 delays
/// some until others have ended. Relative to the better of clusters of four and tiles, on an H200 (k = 8192, k = 4096 for 4096
/// rows of the weight), pairs take, with 16, 32 and 48 vectors:
///
/// - 8192 rows, one wave: 0.93, 0.84 and 0.92;
/// - 4096 rows, one wave of half as many rows a pair: 0.99, 0.92 and 0.95;
/// - 11008 to 28672 rows, several waves: 0.90 to 0.99, 0.91 to 0.97 and 0.92 to 1.02; with 64 vectors 1.02 to 1.04, but 0.93
///   for 18944, of which tiles of 256 rows are slightly more than one wave;
/// - 8704 rows, of which 256 are left for a second wave: 1.10, 1.05 and 1.13; 5120 rows, with a multiprocessor in three empty:
///   1.04, 0.96 and 0.99.
pub(crate) fn are_better_by_pairs(multiprocessors: u32, [m, n]: [usize; 2]) -> bool {
    let (vectors, rows, pairs) = (m.min(n), m.max(n), (multiprocessors / pairs::PAIR) as usize);
    let tiles = |rows_each: u32| rows.div_ceil(rows_each as usize);
    let fills_once = |tiles: usize| (pairs * 3 / 4..=pairs).contains(&tiles);
    let leaves_tiles_empty = (pairs + 1..=pairs * 3 / 2).contains(&tiles(CLUSTER * BLOCK_M));
    let has_many_waves = tiles(ring::ROWS) > pairs * 6 / 5 && (vectors <= 32 || leaves_tiles_empty);
    (1..=pairs::MOST as usize).contains(&vectors)
        && (fills_once(tiles(ring::ROWS)) || fills_once(tiles(ring::WARPGROUP_ROWS)) || has_many_waves)
}

/// The number of rows of the weight per block that takes all of k, if a product of 49 to 128 rows or columns, `[m, n]`, fills
/// the multiprocessors once with such blocks.
///
/// Such a block loads all vectors for its rows alone, twice the bytes of the rows. With fewer vectors, the bytes in shared
/// memory are the same; fewer blocks leave multiprocessors empty that cutting k would use, and more need a second wave for what
/// clusters of half a multiprocessor start with. On an H200 64 by 4096 × 4096 take 14.9 µs and, cut, 16.7; 48 take 16.6 and
/// 16.3; 128 by 8192 × 8192 take 40.8 and 43.5.
pub(crate) fn fills_without_cuts(multiprocessors: u32, [m, n]: [usize; 2]) -> Option<u32> {
    let once = multiprocessors as usize * 3 / 4..=multiprocessors as usize;
    let [few, many] = thin::ROWS;
    let rows = if m.min(n) <= thin::most(few) as usize { few } else { many };
    let fills =
        (49..=thin::most(rows) as usize).contains(&m.min(n)) && once.contains(&m.max(n).div_ceil(rows as usize));
    fills.then_some(rows)
}

/// Whether a product of 17 to 64 rows or columns, `[m, n]`, that is cut along k by four leaves half of the multiprocessors
/// empty with one block on each.
///
/// Then no block has to share the memory of its multiprocessor, and twice as many bytes are in flight: on an H200 64 by 2048 ×
/// 8192 take 15.6 µs instead of 18.6. With 4096 rows of the weight, 128 blocks, not all clusters of four fit at a time, and
/// 17.2 become 19.2.
pub(crate) fn leaves_half_empty(multiprocessors: u32, [m, n]: [usize; 2]) -> bool {
    let blocks = m.max(n).div_ceil(ring::ROWS as usize).saturating_mul(skinny::SHARE as usize);
    (17..=skinny::MOST_ALONE as usize).contains(&m.min(n)) && blocks <= multiprocessors as usize / 2
}

#[cfg(test)]
mod tests {
    #[test]
    fn few_columns_fill_one_tile_of_many_rows() {
        let columns = |m, n| super::of_few_columns(132, [m, n]);
        assert_eq!([columns(8192, 64), columns(8192, 65), columns(28672, 33)], [Some(64), Some(128), Some(64)]);
        assert_eq!([columns(8192, 32), columns(4096, 64), columns(64, 8192), columns(0, 0)], [None; 4]);
        assert_eq!(columns(usize::MAX, 257), None);
    }

    #[test]
    fn few_rows_fill_tiles_of_swapped_operands() {
        let fill = |n| super::rows_fill_tiles(132, n);
        assert_eq!(
            [fill(8192), fill(5633), fill(5376), fill(4096), fill(usize::MAX)],
            [true, true, false, false, true]
        );
    }

    #[test]
    fn pairs_fill_waves() {
        let better = |m, n| super::are_better_by_pairs(132, [m, n]);
        assert_eq!([better(1, 8192), better(8448, 64), better(48, 4096), better(16, 4224)], [true; 4]);
        assert_eq!([better(16, 28672), better(32, 11008), better(64, 18944), better(16, usize::MAX)], [true; 4]);
        assert_eq!(
            [better(65, 8192), better(0, 8192), better(16, 2048), better(16, 5120), better(16, 8704)],
            [false; 5]
        );
        assert_eq!([better(48, 28672), better(64, 11008), better(33, 14336)], [false; 3]);
        // A device of one multiprocessor has no room for a pair.
        assert!(!super::are_better_by_pairs(1, [0, 0]));
    }

    #[test]
    fn blocks_with_all_of_k_fill_the_multiprocessors_once() {
        let fills = |m, n| super::fills_without_cuts(132, [m, n]);
        assert_eq!([fills(64, 4096), fills(4096, 49), fills(56, 4224)], [Some(32); 3]);
        assert_eq!([fills(128, 8192), fills(8192, 65)], [Some(64); 2]);
        assert_eq!([fills(48, 4096), fills(65, 4096), fills(64, 4256), fills(64, 3072), fills(0, 0)], [None; 5]);
        assert_eq!([fills(129, 8192), fills(128, 8512), fills(128, 4096)], [None; 3]);
    }

    #[test]
    fn few_blocks_have_a_multiprocessor_each() {
        let leaves = |m, n| super::leaves_half_empty(132, [m, n]);
        assert_eq!([leaves(64, 2048), leaves(2048, 17)], [true; 2]);
        assert_eq!(
            [leaves(16, 2048), leaves(65, 2048), leaves(64, 2049), leaves(0, 0), leaves(20, usize::MAX)],
            [false; 5]
        );
    }

    #[test]
    fn pieces_are_of_whole_stages() {
        // At least two, and never more than all of k.
        assert_eq!(
            [super::piece(132, [9, 9], [65, 64], 256), super::piece(1, [1 << 30, 1 << 30], [129, 64], 64)],
            [64, 128]
        );
    }
}
