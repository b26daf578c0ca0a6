//! Products of few tiles and a long k, computed in pieces along k.

use cuda_std::float::{Element, Half};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::hopper::BLOCK_K;
use gpu_kernels::ops::gemm::gemm::split::{COLUMNS, GemmSum, Sums, THREADS};

use super::super::cost::Tiles;
use super::super::operand::Operand;
use super::super::plan;
use super::path::Path;
use super::problem::Problem;
use crate::ops::elementwise::grid;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

/// Matrices in f32 whose sum is a product, one behind the other.
pub(in super::super) struct Pieces {
    pub(in super::super) sums: Tensor<f32>,
    pub(in super::super) count: u32,
    /// Packs of a row of each.
    pub(in super::super) packs: u32,
}

impl Pieces {
    /// Memory for so many of `[m, n]` each, whose rows are whole packs.
    pub(in super::super) fn uninit(stream: &Stream, count: u32, [m, n]: [u32; 2]) -> Result<Self> {
        let packs = n.div_ceil(COLUMNS);
        let sums = Tensor::uninit(stream, [count, m, packs * COLUMNS].map(|size| size as usize))?;
        Ok(Self { sums, count, packs })
    }

    /// The sizes of the products whose results they are, of operands that TMA loads, as zeros where there is none.
    pub(in super::super) fn sizes(&self, sizes: &gk::Problem) -> gk::Problem {
        let row = self.packs * COLUMNS;
        let gk::Problem { m, a: [_, a, a_k], b: [_, b, b_k], .. } = *sizes;
        gk::Problem {
            a: [0, a, a_k],
            b: [0, b, b_k],
            c: [u64::from(m) * u64::from(row), u64::from(row)],
            n: row,
            batch: self.count,
            alpha: 1.0,
            beta: 0.0,
            ..*sizes
        }
    }

    /// What a launch that adds them takes, for a result of these sizes.
    pub(in super::super) fn to(&self, sizes: &gk::Problem) -> Sums {
        let gk::Problem { m, n, c: [_, ldc], .. } = *sizes;
        Sums { ldc, pieces: self.count, m, n, packs: self.packs }
    }

    /// The number of blocks of such a launch, if there is anything to add; `arg` is the result.
    pub(in super::super) fn blocks(&self, info: &'static OpInfo, arg: &'static str) -> Result<Option<u32>> {
        let elements = self.sums.len() / self.count as usize;
        grid(info, arg, elements / COLUMNS as usize, THREADS as usize)
    }
}

/// A·Bᵀ in f32, of operands whose rows are `[m, k]` and `[n, k]`, on this path: in pieces if that cuts k, otherwise in one.
pub(in super::super) fn pieces<T: Float + Half>(
    info: &'static OpInfo,
    stream: &Stream,
    [a, b]: [Operand<'_, T>; 2],
    [m, n, k]: [u32; 3],
    path: Path,
) -> Result<Pieces> {
    let (a_strides, b_strides) = (a.layout.strides, b.layout.strides);
    let sizes = gk::Problem { a: a_strides, b: b_strides, c: [0; 2], m, n, k, batch: 1, alpha: 1.0, beta: 0.0 };
    let cut = match path {
        Path::Tiles(Tiles::Pieces(columns)) => Some((Tiles::Columns(columns), [m, n], columns)),
        Path::Tiles(Tiles::SwappedPieces(rows)) => Some((Tiles::Swapped(rows), [n, m], rows)),
        _ => None,
    };
    let multiprocessors = stream.device().info().multiprocessors;
    let each = cut.map_or(0, |(_, sides, columns)| plan::piece(multiprocessors, sides, [k, BLOCK_K], columns));
    let count = if each == 0 { 1 } else { k.div_ceil(each) };
    let mut pieces = Pieces::uninit(stream, count, [m, n])?;
    let of_pieces = pieces.sizes(&sizes);
    let sizes = if each == 0 { gk::Problem { n, ..of_pieces } } else { of_pieces };
    let problem = Problem { info, a, b, c: pieces.sums.view_mut(), scale: None, sizes, each };
    problem.launch_by(stream, cut.map_or(path, |(tiles, ..)| Path::Tiles(tiles)))?;
    Ok(pieces)
}

impl<T: Float + Half, C: Float + Element> Problem<'_, T, C> {
    /// Launches such tiles for pieces along k, and the sum of these. Without memory for them it takes the tiles of whole products.
    pub(super) fn launch_split(mut self, stream: &Stream, tiles: Tiles) -> Result<()> {
        let gk::Problem { m, n, k, alpha, beta, .. } = self.sizes;
        let pieces = match pieces(self.info, stream, [self.a, self.b], [m, n, k], Path::Tiles(tiles)) {
            Err(Error::OutOfMemory { .. }) => {
                let tiles = self.facts().whole_tiles(stream);
                return self.launch_by(stream, Path::Tiles(tiles));
            }
            pieces => pieces?,
        };
        let Some(blocks) = pieces.blocks(self.info, "c")? else { return Ok(()) };
        let (from, sums) = (pieces.sums.view().ptr(stream)?, pieces.to(&self.sizes));
        let args = (from, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, sums, alpha, beta);
        // SAFETY: the pieces are live and have these sizes; c is borrowed mutably and has these sizes.
        unsafe { stream.launch::<GemmSum<C>>(blocks, args) }
    }
}
