//! Products with few rows or few columns.

use cuda_std::float::{Element, Half};
use cuda_std::launch::TensorMap;
use gpu_kernels::ops::gemm::gemm::ring::{ROWS, Sizes, WARPGROUP_ROWS, vectors};
use gpu_kernels::ops::gemm::gemm::{pairs, skinny as gk, thin};

use super::super::operand::Major;
use super::problem::Problem;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

impl<'a, T: Float + Half, C: Float + Element> Problem<'a, T, C> {
    /// Launches clusters that split k.
    pub(super) fn launch_skinny(mut self, stream: &Stream) -> Result<()> {
        let sizes = self.few();
        // The smallest number of sums per thread that is sufficient.
        let r = [8, 32].into_iter().find(|r| vectors(*r) >= sizes.vectors).unwrap_or(64);
        let [weight, vectors] = self.few_maps(stream, WARPGROUP_ROWS, vectors(r))?;
        let grid = gk::SHARE * sizes.rows.div_ceil(ROWS);
        let args = (weight, vectors, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, sizes);
        self.note_work();
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably; no size is zero, and there
        // are at most as many vectors as the kernel takes.
        unsafe {
            match r {
                8 => stream.launch::<gk::GemmSkinny<T, C, 2, 8>>(grid, args),
                32 => stream.launch::<gk::GemmSkinny<T, C, 2, 32>>(grid, args),
                _ => stream.launch::<gk::GemmSkinny<T, C, 2, 64>>(grid, args),
            }
        }
    }

    /// Launches clusters that split k, with a multiprocessor for each block.
    pub(super) fn launch_skinny_alone(mut self, stream: &Stream) -> Result<()> {
        let sizes = self.few();
        let [weight, vectors] = self.few_maps(stream, WARPGROUP_ROWS, gk::MOST_ALONE)?;
        let grid = gk::SHARE * sizes.rows.div_ceil(ROWS);
        let args = (weight, vectors, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, sizes);
        self.note_work();
        // SAFETY: as for `launch_skinny`.
        unsafe { stream.launch::<gk::GemmSkinny<T, C, 1, 32>>(grid, args) }
    }

    /// Launches pairs of blocks that split k, as many as there is room for.
    pub(super) fn launch_pairs(mut self, stream: &Stream) -> Result<()> {
        let sizes = self.few();
        // The smallest number of sums per thread that is sufficient.
        let r = pairs::SUMS.into_iter().find(|r| vectors(*r) >= sizes.vectors).unwrap_or(32);
        let [weight, vectors] = self.few_maps(stream, WARPGROUP_ROWS, vectors(r))?;
        let room = (stream.device().info().multiprocessors / pairs::PAIR).max(1);
        let grid = pairs::PAIR * sizes.rows.div_ceil(WARPGROUP_ROWS).min(room);
        let args = (weight, vectors, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, sizes);
        self.note_work();
        // SAFETY: as for `launch_skinny`.
        unsafe {
            match r {
                8 => stream.launch::<pairs::GemmPairs<T, C, 8>>(grid, args),
                16 => stream.launch::<pairs::GemmPairs<T, C, 16>>(grid, args),
                24 => stream.launch::<pairs::GemmPairs<T, C, 24>>(grid, args),
                _ => stream.launch::<pairs::GemmPairs<T, C, 32>>(grid, args),
            }
        }
    }

    /// Launches blocks that take this number of rows of the weight and all of k.
    pub(super) fn launch_thin(mut self, stream: &Stream, rows: u32) -> Result<()> {
        let sizes = self.few();
        let [weight, vectors] = self.few_maps(stream, rows, thin::VECTORS)?;
        let grid = sizes.rows.div_ceil(rows).next_multiple_of(thin::CLUSTER);
        let args = (weight, vectors, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, sizes);
        self.note_work();
        // SAFETY: as for `launch_skinny`.
        unsafe {
            match rows {
                64 => stream.launch::<thin::GemmThin<T, C, 64>>(grid, args),
                _ => stream.launch::<thin::GemmThin<T, C, 32>>(grid, args),
            }
        }
    }

    /// The sizes of a product of few rows, or of few columns.
    fn few(&self) -> Sizes {
        let gpu_kernels::ops::gemm::Problem { m, n, k, c: [_, ldc], alpha, beta, .. } = self.sizes;
        let c = if m <= n { [1, ldc] } else { [ldc, 1] };
        Sizes { c, rows: m.max(n), vectors: m.min(n), k, alpha, beta, padding: 0 }
    }

    /// The tensor maps of its weight and of its vectors, in boxes of these numbers of each.
    fn few_maps(&self, stream: &Stream, rows: u32, vectors: u32) -> Result<[TensorMap; 2]> {
        let (weight, of) = if self.sizes.m <= self.sizes.n { (&self.b, &self.a) } else { (&self.a, &self.b) };
        Ok([weight.map(stream, Major::K, rows)?, of.map(stream, Major::K, vectors)?])
    }
}
