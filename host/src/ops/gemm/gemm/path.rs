//! The kernels that compute a product, and which of them is picked.

use core::iter;

use gpu_kernels::ops::gemm::gemm::hopper::{self, BLOCK_K, BLOCK_N};
use gpu_kernels::ops::gemm::gemm::{pairs, skinny, thin};

use super::super::cost::Shape;
use super::super::cost::Tiles::{self, Columns, Narrow, Pieces, Swapped, SwappedPieces, Tall};
use super::super::operand::{Major, OperandLayout, gains_from_copies};
use super::super::plan;
use super::padded;
use crate::runtime::dtype::DType;
use crate::runtime::stream::Stream;

/// What L2 reads of memory at a time, in bytes.
const SECTOR: u64 = 32;
/// Rows up to which paths that cut k, or take all of it for few rows of the weight, are faster than tiles of pairs of blocks: those of the smallest
/// tiles of swapped operands.
const FEW: u32 = 64;
/// Bytes of an element of an operand.
const BYTES: u32 = 2;

/// Which kernel computes a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Path {
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
    /// One of these after copies of operands.
    Padded,
    /// mma.sync.
    Mma,
}

impl Path {
    /// What it requires of a product.
    pub(super) fn wants(self) -> String {
        const TMA: &str =
            "k > 0, and a and b with adjacent elements along one dimension and all else at multiples of 16 bytes";
        const ALONG_K: &str = "k > 0, and rows of a and columns of b contiguous and at multiples of 16 bytes";
        let few = |most: u32| format!("{ALONG_K}, one product of at most {most} rows or columns");
        match self {
            Self::Skinny => few(skinny::MOST),
            Self::SkinnyAlone => few(skinny::MOST_ALONE),
            Self::Pairs => few(pairs::MOST),
            Self::Thin(rows) => few(thin::most(rows)),
            Self::Tiles(Columns(columns)) if !hopper::WIDTHS.contains(&columns) => {
                format!("{TMA}, elements of a adjacent along k, and for 240, 224, 208 and 144 columns c in the type of a and b")
            }
            Self::Tiles(Columns(_) | Tall) => TMA.into(),
            Self::Tiles(Swapped(_) | Narrow(_)) => {
                format!("{ALONG_K}, rows of c at such multiples too, and beta 0, or 1 for c in f32")
            }
            Self::Tiles(Pieces(_)) => format!("one product, k above {BLOCK_K}, {TMA}"),
            Self::Tiles(SwappedPieces(_)) => format!("one product, k above {BLOCK_K}, {ALONG_K}"),
            Self::Padded => {
                "operands with adjacent elements along one dimension, of which one does not lie at multiples of 16 bytes"
                    .into()
            }
            Self::Mma => "anything".into(),
        }
    }
}

/// What decides how a product is computed: its sizes, and how its matrices lie.
#[derive(Clone, Copy)]
pub(in super::super) struct Facts {
    /// `[batch, m, n, k]`.
    pub(in super::super) sizes: [u32; 4],
    /// The layouts of A, by rows, and of B, by columns.
    pub(in super::super) operands: [OperandLayout; 2],
    /// The type of C, and how tiles are stored in it.
    pub(in super::super) c: DType,
    pub(in super::super) store: u32,
}

impl Facts {
    /// The order of the operands if TMA takes them. With k = 0, a tile would never be loaded.
    pub(in super::super) fn fits_hopper(&self) -> Option<[Major; 2]> {
        let [_, m, n, _] = self.sizes;
        let [a, b] = &self.operands;
        (m > 0 && n > 0).then_some(())?;
        Some([a.fits_tma()?, b.fits_tma()?])
    }

    /// Whether operands can be swapped: they are contiguous along k, and TMA stores C. From registers, columns of the sums
    /// would be written, and read if β requires it, one element of a row at a time.
    pub(in super::super) fn fits_swapped(&self) -> bool {
        self.is_along_k() && self.store != hopper::DIRECT
    }

    /// Whether TMA takes both operands, and their elements are adjacent along k.
    pub(in super::super) fn is_along_k(&self) -> bool {
        self.fits_hopper() == Some([Major::K; 2])
    }

    /// Whether there is one product, with at least two stages along k.
    fn can_be_split(&self) -> bool {
        let [batch, _, _, k] = self.sizes;
        batch == 1 && k > BLOCK_K
    }

    /// Whether clusters can take the product, with at most `most` vectors.
    fn fits_skinny(&self, most: u32) -> bool {
        let [batch, m, n, _] = self.sizes;
        batch == 1 && (1..=most).contains(&m.min(n)) && self.is_along_k()
    }

    /// Whether an operand needs a copy, and the copies can be read in packs.
    fn fits_padded(&self) -> bool {
        let [a, b] = &self.operands;
        // A tensor without elements has no known layout.
        !self.sizes.contains(&0) && gains_from_copies([a, b])
    }

    /// Whether copies are worth their cost.
    fn is_worth_padding(&self) -> bool {
        let [least, side] = padded::WORTH;
        let [batch, m, n, k] = self.sizes.map(u64::from);
        self.fits_padded() && m.min(n) >= side && m * n >= (least / (k * batch).max(1)).max(1)
    }

    /// The numbers of columns that tiles can have.
    fn widths(&self) -> &'static [u32] {
        match (self.fits_hopper(), self.c.size()) {
            (Some([Major::K, _]), 2) => &hopper::FINE_WIDTHS,
            (Some([Major::K, _]), _) => &hopper::FINE_WIDTHS_F32,
            (Some([Major::Mn, _]), _) => &hopper::WIDTHS,
            (None, _) => &[],
        }
    }

    /// Whether a path takes the product, on a device that has TMA and wgmma if `hopper`.
    pub(in super::super) fn takes(&self, path: Path, hopper: bool) -> bool {
        match path {
            Path::Skinny => hopper && self.fits_skinny(skinny::MOST),
            Path::SkinnyAlone => hopper && self.fits_skinny(skinny::MOST_ALONE),
            Path::Pairs => hopper && self.fits_skinny(pairs::MOST),
            Path::Thin(rows) => hopper && self.fits_skinny(thin::most(rows)),
            Path::Tiles(tiles) => hopper && self.takes_tiles(tiles),
            Path::Padded => self.fits_padded(),
            Path::Mma => true,
        }
    }

    /// Whether C can be cut into such tiles.
    fn takes_tiles(&self, tiles: Tiles) -> bool {
        match tiles {
            Columns(columns) => self.widths().contains(&columns),
            Tall => self.fits_hopper().is_some(),
            Swapped(_) | Narrow(_) => self.fits_swapped(),
            Pieces(_) => self.can_be_split() && self.fits_hopper().is_some(),
            SwappedPieces(_) => self.can_be_split() && self.is_along_k(),
        }
    }

    /// On Hopper, the path for few rows or columns, unless these fill tiles; then the wgmma path, which reaches twice the speed
    /// of mma.sync.
    pub(in super::super) fn planned(&self, stream: &Stream) -> Path {
        match stream.device().supports_hopper() {
            true if self.fits_skinny(skinny::MOST) => self.of_few(stream),
            true if self.fits_hopper().is_some() => Path::Tiles(self.tiles(stream)),
            _ if self.is_worth_padding() => Path::Padded,
            _ => Path::Mma,
        }
    }

    /// The same product into a dense matrix of f32.
    pub(in super::super) fn in_f32(&self) -> Self {
        Self { c: DType::F32, store: hopper::TILES, ..*self }
    }

    /// The microseconds of the planned path and of a launch that adds its pieces, or reads what it stores; none if there is
    /// only the path for any strides, and none are counted for copies of operands, without which there is only that.
    pub(in super::super) fn micros_of_sums(&self, stream: &Stream) -> Option<f64> {
        let (of, shape) = (stream.device().info().multiprocessors, self.shape());
        match self.planned(stream) {
            Path::Mma => None,
            Path::Padded => Some(0.0),
            Path::Tiles(tiles @ (Pieces(_) | SwappedPieces(_))) => Some(shape.micros(of, tiles)),
            Path::Tiles(tiles) => Some(shape.micros(of, tiles) + shape.added(1)),
            Path::Skinny | Path::SkinnyAlone | Path::Pairs | Path::Thin(_) => Some(shape.quarters() + shape.added(1)),
        }
    }

    /// For few rows or columns: pieces of a long k, tiles that they fill, or clusters that share k.
    fn of_few(&self, stream: &Stream) -> Path {
        let [_, m, n, _] = self.sizes;
        let sizes = [m, n].map(|size| size as usize);
        let of = stream.device().info().multiprocessors;
        if m > FEW && m < n && self.fits_swapped() {
            return Path::Tiles(self.tiles(stream));
        }
        let (shape, quarters) = (self.shape(), self.shape().quarters());
        if let Some(tiles) = self.pieces(stream).filter(|tiles| shape.micros(of, *tiles) < quarters) {
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
        // The path that cuts k has separate kernels for up to 16 rows.
        if m > 16 && m < n && self.fits_swapped() && plan::rows_fill_tiles(of, n as usize) {
            return Path::Tiles(Swapped(FEW));
        }
        plan::of_few_columns(of, sizes).map_or(Path::Skinny, |columns| Path::Tiles(Columns(columns)))
    }

    /// The fastest tiles.
    pub(super) fn tiles(&self, stream: &Stream) -> Tiles {
        self.fastest(stream, self.whole().chain(Tiles::of_pieces())).unwrap_or(Columns(BLOCK_N))
    }

    /// Those of whole products, without memory for pieces.
    pub(super) fn whole_tiles(&self, stream: &Stream) -> Tiles {
        self.fastest(stream, self.whole()).unwrap_or(Columns(BLOCK_N))
    }

    /// Those of pieces, if any.
    fn pieces(&self, stream: &Stream) -> Option<Tiles> {
        self.fastest(stream, Tiles::of_pieces())
    }

    fn whole(&self) -> impl Iterator<Item = Tiles> {
        let columns = self.widths().iter().copied().map(Columns);
        columns.chain(Tiles::of_swapped()).chain(iter::once(Tall))
    }

    /// The fastest of these tiles into which C can be cut.
    pub(in super::super) fn fastest(&self, stream: &Stream, of: impl Iterator<Item = Tiles>) -> Option<Tiles> {
        let multiprocessors = stream.device().info().multiprocessors;
        self.shape().fastest(multiprocessors, of.filter(|tiles| self.takes_tiles(*tiles)))
    }

    pub(in super::super) fn shape(&self) -> Shape {
        let in_sectors = self.operands.map(|OperandLayout { strides: [_, row, along_k], .. }| {
            let elements = SECTOR / u64::from(BYTES);
            (row == 1 || row.is_multiple_of(elements)) && (along_k == 1 || along_k.is_multiple_of(elements))
        });
        Shape { sizes: self.sizes, bytes: BYTES, scaling: 0.0, in_sectors }
    }
}
