//! The kernels that compute a product, by the names of their variants, and which of them is picked.

use core::iter;

use cuda_std::float::{Element, Half};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::hopper::{BLOCK_N, SWAPPED};
use gpu_kernels::ops::gemm::gemm::{pairs, skinny, thin};

use super::super::cost::Shape;
use super::super::cost::Tiles::{self, Columns, Pieces, Swapped, SwappedPieces, Tall};
use super::super::operand::OperandLayout;
use super::super::plan;
use super::problem::Problem;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// What L2 reads of memory at a time, in bytes.
const SECTOR: u64 = 32;

/// Which kernel computes a product.
#[derive(Clone, Copy)]
pub(super) enum Path {
    /// Clusters of four blocks that split k.
    Skinny,
    /// The same, each block with a multiprocessor to itself.
    SkinnyAlone,
    /// Pairs of blocks that split k.
    Pairs,
    /// Blocks that take this number of rows of the weight and all of k.
    Thin(u32),
    /// Tiles, each by a cluster.
    Tiles(Tiles),
    Padded,
    Mma,
}

impl Path {
    /// The variants' names.
    pub(super) const NAMED: [(&'static str, Self); 34] = [
        ("skinny", Self::Skinny),
        ("skinny_alone", Self::SkinnyAlone),
        ("skinny_pairs", Self::Pairs),
        ("thin", Self::Thin(32)),
        ("thin_64", Self::Thin(64)),
        ("hopper", Self::Tiles(Columns(256))),
        ("hopper_208", Self::Tiles(Columns(208))),
        ("hopper_192", Self::Tiles(Columns(192))),
        ("hopper_160", Self::Tiles(Columns(160))),
        ("hopper_144", Self::Tiles(Columns(144))),
        ("hopper_128", Self::Tiles(Columns(128))),
        ("hopper_96", Self::Tiles(Columns(96))),
        ("hopper_64", Self::Tiles(Columns(64))),
        ("hopper_tall", Self::Tiles(Tall)),
        ("swapped_208", Self::Tiles(Swapped(208))),
        ("swapped_192", Self::Tiles(Swapped(192))),
        ("swapped_160", Self::Tiles(Swapped(160))),
        ("swapped_144", Self::Tiles(Swapped(144))),
        ("swapped_128", Self::Tiles(Swapped(128))),
        ("swapped_96", Self::Tiles(Swapped(96))),
        ("swapped_64", Self::Tiles(Swapped(64))),
        ("split", Self::Tiles(Pieces(256))),
        ("split_192", Self::Tiles(Pieces(192))),
        ("split_128", Self::Tiles(Pieces(128))),
        ("split_64", Self::Tiles(Pieces(64))),
        ("split_swapped_208", Self::Tiles(SwappedPieces(208))),
        ("split_swapped_192", Self::Tiles(SwappedPieces(192))),
        ("split_swapped_160", Self::Tiles(SwappedPieces(160))),
        ("split_swapped_144", Self::Tiles(SwappedPieces(144))),
        ("split_swapped_128", Self::Tiles(SwappedPieces(128))),
        ("split_swapped_96", Self::Tiles(SwappedPieces(96))),
        ("split_swapped_64", Self::Tiles(SwappedPieces(64))),
        ("padded", Self::Padded),
        ("mma", Self::Mma),
    ];
}

impl<T: Float + Half, C: Float + Element> Problem<'_, T, C> {
    /// The path that tuning found fastest, if it takes the problem.
    pub(super) fn tuned(&self, stream: &Stream) -> Result<Option<Path>> {
        let (dtypes, layout) = ([T::DTYPE, T::DTYPE, C::DTYPE], [&self.a.layout, &self.b.layout]);
        let path = plan::tuned(stream, self.info, dtypes, &self.sizes, layout, &Path::NAMED)?;
        let Some(path) = path else { return Ok(None) };
        let hopper = stream.device().supports_hopper();
        let takes = match path {
            Path::Skinny => hopper && self.fits_skinny(skinny::MOST),
            Path::SkinnyAlone => hopper && self.fits_skinny(skinny::MOST_ALONE),
            Path::Pairs => hopper && self.fits_skinny(pairs::MOST),
            Path::Thin(rows) => hopper && self.fits_skinny(thin::most(rows)),
            Path::Tiles(tiles) => hopper && self.takes(tiles),
            Path::Padded => self.fits_padded(),
            Path::Mma => true,
        };
        Ok(takes.then_some(path))
    }

    /// On Hopper, the path for few rows or columns, unless these fill tiles; then the wgmma path, which reaches twice the speed
    /// of mma.sync.
    pub(super) fn planned(&self, stream: &Stream) -> Path {
        match stream.device().supports_hopper() {
            true if self.fits_skinny(skinny::MOST) => self.of_few(stream),
            true if self.fits_hopper().is_some() => Path::Tiles(self.tiles(stream)),
            _ if self.is_worth_padding() => Path::Padded,
            _ => Path::Mma,
        }
    }

    /// Whether C can be cut into such tiles.
    fn takes(&self, tiles: Tiles) -> bool {
        match tiles {
            Columns(columns) => self.widths().contains(&columns),
            Tall => self.fits_hopper().is_some(),
            Swapped(_) => self.fits_swapped(),
            Pieces(_) => self.fits_split(false),
            SwappedPieces(_) => self.fits_split(true),
        }
    }

    /// For few rows or columns: pieces of a long k, tiles that they fill, or clusters that share k.
    fn of_few(&self, stream: &Stream) -> Path {
        let sizes = [self.sizes.m, self.sizes.n].map(|size| size as usize);
        let of = stream.device().info().multiprocessors;
        let rows = || {
            // The path that cuts k has separate kernels for up to 16.
            let are_worth = |(_, are_enough): &(u32, bool)| *are_enough && self.sizes.m > 16 && self.fits_swapped();
            plan::of_few_rows(of, sizes).filter(are_worth).map(|(rows, _)| Path::Tiles(Swapped(rows)))
        };
        let pieces = Tiles::of_pieces().filter(|tiles| self.takes(*tiles));
        let shape = self.shape();
        if let Some(tiles) = shape.fastest(of, pieces).filter(|tiles| shape.micros(of, *tiles) < shape.quarters()) {
            return Path::Tiles(tiles);
        }
        if let Some(rows) = plan::fills_without_cuts(of, sizes) {
            return Path::Thin(rows);
        }
        if plan::are_better_by_pairs(of, sizes) {
            return Path::Pairs;
        }
        if plan::leaves_half_empty(of, sizes) {
            return Path::SkinnyAlone;
        }
        let columns = || plan::of_few_columns(of, sizes).map(|columns| Path::Tiles(Columns(columns)));
        columns().or_else(rows).unwrap_or(Path::Skinny)
    }

    /// The fastest tiles.
    pub(super) fn tiles(&self, stream: &Stream) -> Tiles {
        self.fastest(stream, Tiles::of_pieces())
    }

    /// Those of whole products, without memory for pieces.
    pub(super) fn whole_tiles(&self, stream: &Stream) -> Tiles {
        self.fastest(stream, iter::empty())
    }

    fn fastest(&self, stream: &Stream, pieces: impl Iterator<Item = Tiles>) -> Tiles {
        let whole = self.widths().iter().map(|columns| Columns(*columns));
        let others = SWAPPED.map(Swapped).into_iter().chain([Tall]).chain(pieces).filter(|tiles| self.takes(*tiles));
        let of = stream.device().info().multiprocessors;
        self.shape().fastest(of, whole.chain(others)).unwrap_or(Columns(BLOCK_N))
    }

    fn shape(&self) -> Shape {
        let gk::Problem { batch, m, n, k, .. } = self.sizes;
        let in_sectors =
            [&self.a.layout, &self.b.layout].map(|OperandLayout { strides: [_, row, along_k], .. }| {
                let elements = SECTOR / size_of::<T>() as u64;
                (*row == 1 || row.is_multiple_of(elements)) && (*along_k == 1 || along_k.is_multiple_of(elements))
            });
        Shape { sizes: [batch, m, n, k], in_sectors }
    }
}
