//! Products of few tiles and a long k, computed in pieces along k.

use cuda_std::float::{Element, Half};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::hopper;
use gpu_kernels::ops::gemm::gemm::split::{COLUMNS, GemmSum, Sums, THREADS};

use super::super::cost::Tiles;
use super::super::operand::Major;
use super::super::plan;
use super::problem::{Problem, TMA_WANTS};
use crate::ops::elementwise::grid;
use crate::runtime::dtype::Float;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

/// The name of the variant whose pieces are cut into tiles of this number of columns, or of rows if they are `swapped`.
fn name(columns: u32, swapped: bool) -> String {
    match (columns, swapped) {
        (hopper::BLOCK_N, false) => "split".into(),
        (_, false) => format!("split_{columns}"),
        (_, true) => format!("split_swapped_{columns}"),
    }
}

impl<'a, T: Float + Half, C: Float + Element> Problem<'a, T, C> {
    /// Whether there is one product, with at least two stages along k, of operands that TMA takes; if they are `swapped`, both
    /// K-major.
    pub(super) fn fits_split(&self, swapped: bool) -> bool {
        let fits = |majors| !swapped || majors == (Major::K, Major::K);
        self.sizes.batch == 1 && self.sizes.k > hopper::BLOCK_K && self.fits_hopper().is_some_and(fits)
    }

    /// Launches tiles with this number of columns, or of rows if operands are `swapped`, for pieces along k, and the sum of these.
    /// Without memory for them it takes the tiles of whole products.
    pub(super) fn launch_split(mut self, stream: &Stream, columns: u32, swapped: bool) -> Result<()> {
        if self.sizes.batch == 0 {
            return Ok(());
        }
        if !self.fits_split(swapped) {
            let both = if swapped { ", both adjacent along k" } else { "" };
            let wanted = format!("one product, k above {}, {TMA_WANTS}{both}", hopper::BLOCK_K);
            return Err(self.info.param_error("variant", name(columns, swapped), wanted));
        }
        let gk::Problem { m, n, k, alpha, beta, c: [_, ldc], .. } = self.sizes;
        let sides = if swapped { [n, m] } else { [m, n] };
        let each = plan::piece(stream.device().info().multiprocessors, sides, k, columns);
        let (pieces, packs) = (k.div_ceil(each), n.div_ceil(COLUMNS));
        let columns_of_piece = packs * COLUMNS;
        let mut sums = match Tensor::<f32>::uninit(stream, [pieces, m, columns_of_piece].map(|size| size as usize)) {
            Err(Error::OutOfMemory { .. }) => {
                let tiles = self.whole_tiles(stream);
                return self.launch_by_tiles(stream, tiles);
            }
            sums => sums?,
        };
        let scale = self.scale_ptr(stream)?;
        let row = u64::from(columns_of_piece);
        let sizes = gk::Problem {
            a: [0, self.sizes.a[1], self.sizes.a[2]],
            b: [0, self.sizes.b[1], self.sizes.b[2]],
            c: [u64::from(m) * row, row],
            n: columns_of_piece,
            batch: pieces,
            alpha: 1.0,
            beta: 0.0,
            ..self.sizes
        };
        let of_pieces = Problem { info: self.info, a: self.a, b: self.b, c: sums.view_mut(), scale: None, sizes, each };
        let tiles = if swapped { Tiles::Swapped(columns) } else { Tiles::Columns(columns) };
        of_pieces.launch_by_tiles(stream, tiles)?;
        let threads = (m as usize).saturating_mul(packs as usize);
        let Some(blocks) = grid(self.info, "c", threads, THREADS as usize)? else { return Ok(()) };
        let of_sum = Sums { ldc, pieces, m, n, packs, alpha, beta };
        let args = (sums.view().ptr(stream)?, self.c.ptr_mut(stream)?, scale, of_sum);
        // SAFETY: the pieces are live and have these sizes; c is borrowed mutably and has these sizes.
        unsafe { stream.launch::<GemmSum<C>>(blocks, args) }
    }
}
