//! Products of few rows, or of rows that leave tiles of 256 empty: sums of swapped operands, whole or in pieces along k, and a
//! launch that adds them.

use cuda_std::launch::{DevicePtrMut, TensorMap};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::hopper;

use super::super::cost::{Shape, Tiles};
use super::super::gemm::Pieces;
use super::super::operand::{self, Tiling};
use super::super::product::{Path, Problem};
use super::super::{note_work, plan};
use crate::ops::model::Bound;
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;

/// How a product of 8-bit elements is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum How {
    /// By a kernel that also scales and rounds.
    Fused(Path),
    /// By such tiles, by another kernel that also scales and rounds.
    Tiled(Tiles),
    /// As sums of swapped operands, by tiles of this number of rows, and a launch that adds them.
    Pieces(u32),
}

/// The kernels of such sums.
#[derive(Clone, Copy)]
pub(in super::super) struct Kinds {
    /// The rows of their tiles.
    pub(in super::super) rows: &'static [u32],
    /// Those of a kernel of swapped operands that does all, if there is one.
    pub(in super::super) swapped: &'static [u32],
    /// The same of pairs of blocks that share columns.
    pub(in super::super) narrow: &'static [u32],
    /// The columns of the tiles of the kernel that does all.
    pub(in super::super) columns: u32,
    /// Those of other kernels that do all.
    pub(in super::super) fewer_columns: &'static [u32],
    /// The microseconds that scales add to a stage of such tiles.
    pub(in super::super) scaling: fn(Tiles) -> f64,
}

/// The arguments of a kernel of such sums.
pub(in super::super) type OfPieces = (TensorMap, TensorMap, TensorMap, DevicePtrMut<f32>, gk::Problem, u32, u32);

impl<A: Dtype, B: Dtype, C: Float> Problem<'_, A, B, C> {
    /// Launches the product in this way, or in the fastest: `by_pieces` with tiles of so many rows, `by_tiles` or `fused`.
    pub(in super::super) fn launch_how(
        mut self,
        stream: &Stream,
        how: Option<How>,
        kinds: Kinds,
        by_pieces: impl FnOnce(&mut Self, u32) -> Result<()>,
        by_tiles: impl FnOnce(Self, Tiles) -> Result<()>,
        fused: impl FnOnce(Self, Path) -> Result<()>,
    ) -> Result<()> {
        self.require_devices(stream)?;
        let planned = || self.planned(stream, kinds).map_or(How::Fused(Path::Fastest), |(how, _)| how);
        let path = match how.unwrap_or_else(planned) {
            How::Pieces(_) if !self.fits_pieces() => {
                let wanted = "no size of zero, and rows of a and b that lie at multiples of 16 bytes";
                return Err(self.info.param_error("variant", "pieces", wanted));
            }
            How::Pieces(rows) => match by_pieces(&mut self, rows) {
                // Sums need four bytes per element of C.
                Err(Error::OutOfMemory { .. }) => Path::Fastest,
                result => return result,
            },
            How::Fused(path) => path,
            How::Tiled(Tiles::Columns(_)) if !self.fits_pieces() => {
                let wanted = "no size of zero, and rows of a and b that lie at multiples of 16 bytes";
                return Err(self.info.param_error("variant", "columns", wanted));
            }
            How::Tiled(Tiles::Swapped(_) | Tiles::Narrow(_)) if !self.facts().fits_swapped() => {
                let wanted = "no size of zero, and rows of a, b and c that lie at multiples of 16 bytes";
                return Err(self.info.param_error("variant", "swapped", wanted));
            }
            How::Tiled(tiles) => return by_tiles(self, tiles),
        };
        fused(self, path)
    }

    /// The sums by tiles of so many rows, by a kernel that is launched with its grid and these arguments.
    pub(in super::super) fn sums(
        &self,
        stream: &Stream,
        rows: u32,
        launch: impl FnOnce(u32, OfPieces) -> Result<()>,
    ) -> Result<Pieces> {
        let (gk::Problem { m, n, k, .. }, each) = (self.sizes, self.each(stream, rows));
        let mut pieces = Pieces::uninit(stream, if each == 0 { 1 } else { k.div_ceil(each) }, [m, n])?;
        let sizes = pieces.sizes(&self.sizes);
        let mut to = pieces.sums.view_mut();
        let Tiling { maps: [b, a, map], store, grid } =
            Tiling::swapped(stream, (&self.a, &self.b), &mut to, &sizes, [rows, hopper::SWAPPED_COLUMNS])?;
        let to = to.ptr_mut(stream)?;
        note_work(Bound::Tensor(A::DTYPE), [1, m, n, k]);
        launch(grid, (b, a, map, to, operand::swapped(&sizes), store, each))?;
        Ok(pieces)
    }

    /// Whether TMA takes both operands, and there are results.
    fn fits_pieces(&self) -> bool {
        self.facts().is_along_k()
    }

    fn shape(&self, scaling: f64) -> Shape {
        Shape { sizes: self.facts().sizes, bytes: size_of::<A>() as u32, scaling, in_sectors: [true; 2] }
    }

    /// The fastest way, by a model of their time, and its microseconds; none without wgmma, or if TMA does not take the operands.
    pub(in super::super) fn planned(&self, stream: &Stream, kinds: Kinds) -> Option<(How, f64)> {
        if !self.fits_pieces() || !stream.device().supports_hopper() {
            return None;
        }
        let of = stream.device().info().multiprocessors;
        let micros = |tiles| self.shape((kinds.scaling)(tiles)).micros(of, tiles);
        let pieces = kinds.rows.iter().map(|rows| match self.each(stream, *rows) {
            0 => (How::Pieces(*rows), micros(Tiles::Swapped(*rows)) + self.shape(0.0).added(1)),
            _ => (How::Pieces(*rows), micros(Tiles::SwappedPieces(*rows))),
        });
        let swapped =
            kinds.swapped.iter().copied().map(Tiles::Swapped).chain(kinds.narrow.iter().copied().map(Tiles::Narrow));
        let swapped = swapped.filter(|_| self.facts().fits_swapped());
        let tiled = kinds.fewer_columns.iter().copied().map(Tiles::Columns).chain(swapped);
        let tiled = tiled.map(|tiles| (How::Tiled(tiles), micros(tiles)));
        let fused = (How::Fused(Path::Fastest), micros(Tiles::Columns(kinds.columns)));
        pieces.chain(tiled).chain([fused]).min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// The elements of k of each of the pieces of tiles of so many rows; 0 if that is all of k.
    fn each(&self, stream: &Stream, rows: u32) -> u32 {
        let of = stream.device().info().multiprocessors;
        let (gk::Problem { m, n, k, .. }, depth) = (self.sizes, hopper::STAGE_BYTES / size_of::<A>() as u32);
        let tiles = n.div_ceil(hopper::CLUSTER * hopper::BLOCK_M).saturating_mul(m.div_ceil(rows));
        // Two pieces of every tile are at most a wave.
        let is_cut = k > depth && tiles <= of / hopper::CLUSTER / 2;
        if is_cut { plan::piece(of, [n, m], [k, depth], rows) } else { 0 }
    }
}
