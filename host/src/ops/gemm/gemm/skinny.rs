//! Products with few rows or few columns.

use cuda_std::float::{Element, Half};
use gpu_kernels::ops::gemm::gemm::skinny as gk;

use super::super::operand::{Major, Operand};
use super::problem::Problem;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// Why the path does not take a problem.
const WANTED: &str = "k > 0, one product of at most 128 rows or columns, and rows of a and columns of b contiguous, at multiples of 16 bytes";

/// Whether the path takes a product of these sizes, of operands that lie so, on such a device.
pub(super) fn fits(device: &DeviceInfo, batch: usize, [m, n]: [usize; 2], majors: [Option<Major>; 2]) -> bool {
    device.compute_capability == (9, 0) && takes(batch, m.min(n)) && majors == [Some(Major::K); 2]
}

fn takes(batch: usize, vectors: usize) -> bool {
    batch == 1 && (1..=gk::MOST as usize).contains(&vectors)
}

impl<'a, T: Float + Half, C: Float + Element> Problem<'a, T, C> {
    /// Whether the path takes the problem.
    pub(super) fn fits_skinny(&self) -> bool {
        let majors = self.fits_hopper();
        takes(self.sizes.batch as usize, self.sizes.m.min(self.sizes.n) as usize)
            && matches!(majors, Some((Major::K, Major::K)))
    }

    /// By clusters of `share` blocks, [`gk::CLUSTER`] or [`gk::PAIR`].
    pub(super) fn launch_skinny(mut self, stream: &Stream, share: u32) -> Result<()> {
        if !self.fits_skinny() {
            return Err(self.info.param_error("variant", "skinny", WANTED));
        }
        let (m, n, ldc) = (self.sizes.m, self.sizes.n, self.sizes.c[1]);
        let few_rows = m <= n;
        let (weight, vectors) = if few_rows { (&self.b, &self.a) } else { (&self.a, &self.b) };
        let sizes = gk::Sizes {
            c: if few_rows { [1, ldc] } else { [ldc, 1] },
            rows: m.max(n),
            vectors: m.min(n),
            k: self.sizes.k,
            alpha: self.sizes.alpha,
            beta: self.sizes.beta,
            padding: 0,
        };
        let scale = self.scale_ptr(stream)?;
        let map = |operand: &Operand<'a, T>, rows| operand.map(stream, Major::K, rows);
        // The sums of a thread.
        let r = match sizes.vectors {
            ..=16 => 8,
            17..=64 => 32,
            _ => 64,
        };
        let (weight, vectors) = (map(weight, gk::ROWS)?, map(vectors, gk::vectors(r))?);
        let tiles = sizes.rows.div_ceil(gk::ROWS);
        let grid = share * tiles;
        let args = (weight, vectors, self.c.ptr_mut(stream)?, scale, sizes);
        self.note_work();
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably; no size is zero, and there are no more vectors than
        // the kernel takes.
        unsafe {
            match (share, r) {
                (gk::CLUSTER, 8) => stream.launch::<gk::GemmSkinny<T, C, { gk::CLUSTER }, 8>>(grid, args),
                (gk::CLUSTER, 32) => stream.launch::<gk::GemmSkinny<T, C, { gk::CLUSTER }, 32>>(grid, args),
                (gk::CLUSTER, _) => stream.launch::<gk::GemmSkinny<T, C, { gk::CLUSTER }, 64>>(grid, args),
                (_, 8) => stream.launch::<gk::GemmSkinny<T, C, { gk::PAIR }, 8>>(grid, args),
                (_, 32) => stream.launch::<gk::GemmSkinny<T, C, { gk::PAIR }, 32>>(grid, args),
                (_, _) => stream.launch::<gk::GemmSkinny<T, C, { gk::PAIR }, 64>>(grid, args),
            }
        }
    }
}
