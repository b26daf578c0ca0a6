//! Products with few rows or few columns.

use cuda_std::float::{Element, Half};
use cuda_std::launch::TensorMap;
use gpu_kernels::ops::gemm::gemm::skinny::{self as gk, Cut};
use gpu_kernels::ops::gemm::gemm::thin;

use super::super::operand::Major;
use super::problem::Problem;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// Whether clusters can take a product of these sizes, with at most `most` vectors and operands in this layout, on such a device.
pub(super) fn fits(
    device: &DeviceInfo,
    batch: usize,
    [m, n]: [usize; 2],
    majors: [Option<Major>; 2],
    most: u32,
) -> bool {
    device.compute_capability == (9, 0) && takes(batch, m.min(n), most) && majors == [Some(Major::K); 2]
}

fn takes(batch: usize, vectors: usize, most: u32) -> bool {
    batch == 1 && (1..=most as usize).contains(&vectors)
}

impl<'a, T: Float + Half, C: Float + Element> Problem<'a, T, C> {
    /// Whether clusters can take the problem, with at most `most` vectors.
    pub(super) fn fits_skinny(&self, most: u32) -> bool {
        let majors = self.fits_hopper();
        takes(self.sizes.batch as usize, self.sizes.m.min(self.sizes.n) as usize, most)
            && matches!(majors, Some((Major::K, Major::K)))
    }

    /// Launches clusters that cut the product this way.
    pub(super) fn launch_skinny(mut self, stream: &Stream, cut: Cut) -> Result<()> {
        self.require_few(cut.most(), "skinny")?;
        let sizes = self.few();
        // The smallest number of sums per thread that is sufficient.
        let r = cut.sums().iter().copied().find(|r| gk::vectors(*r) >= sizes.vectors).unwrap_or(64);
        let [weight, vectors] = self.few_maps(stream, gk::ROWS, gk::vectors(r))?;
        let grid = cut.share * sizes.rows.div_ceil(gk::ROWS);
        let args = (weight, vectors, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, sizes);
        self.note_work();
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably; no size is zero, and there
        // are at most as many vectors as the kernel takes.
        unsafe {
            match (cut, r) {
                (Cut::FOUR, 8) => stream.launch::<gk::GemmSkinny<T, C, 4, 2, 8>>(grid, args),
                (Cut::FOUR, 32) => stream.launch::<gk::GemmSkinny<T, C, 4, 2, 32>>(grid, args),
                (Cut::FOUR, _) => stream.launch::<gk::GemmSkinny<T, C, 4, 2, 64>>(grid, args),
                (Cut::FOUR_ALONE, _) => stream.launch::<gk::GemmSkinny<T, C, 4, 1, 32>>(grid, args),
                (_, 8) => stream.launch::<gk::GemmSkinny<T, C, 2, 1, 8>>(grid, args),
                (_, 32) => stream.launch::<gk::GemmSkinny<T, C, 2, 1, 32>>(grid, args),
                (_, _) => stream.launch::<gk::GemmSkinny<T, C, 2, 1, 64>>(grid, args),
            }
        }
    }

    /// Launches blocks that take this number of rows of the weight and all of k.
    pub(super) fn launch_thin(mut self, stream: &Stream, rows: u32) -> Result<()> {
        self.require_few(thin::most(rows), "thin")?;
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

    fn require_few(&self, most: u32, variant: &str) -> Result<()> {
        if self.fits_skinny(most) {
            return Ok(());
        }
        let wanted = format!(
            "k > 0, one product of at most {most} rows or columns, and rows of a and columns of b contiguous, at multiples of 16 bytes"
        );
        Err(self.info.param_error("variant", variant, wanted))
    }

    /// The sizes of a product of few rows, or of few columns.
    fn few(&self) -> gk::Sizes {
        let gpu_kernels::ops::gemm::Problem { m, n, k, c: [_, ldc], alpha, beta, .. } = self.sizes;
        let c = if m <= n { [1, ldc] } else { [ldc, 1] };
        gk::Sizes { c, rows: m.max(n), vectors: m.min(n), k, alpha, beta, padding: 0 }
    }

    /// The tensor maps of its weight and of its vectors, in boxes of these numbers of each.
    fn few_maps(&self, stream: &Stream, rows: u32, vectors: u32) -> Result<[TensorMap; 2]> {
        let (weight, of) = if self.sizes.m <= self.sizes.n { (&self.b, &self.a) } else { (&self.a, &self.b) };
        Ok([weight.map(stream, Major::K, rows)?, of.map(stream, Major::K, vectors)?])
    }
}
