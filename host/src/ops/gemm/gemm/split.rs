//! Products with fewer tiles than the GPU multiplies at a time, split along k.

use cuda_std::float::{Element, Half};
use gpu_kernels::ops::gemm as gk_family;
use gpu_kernels::ops::gemm::gemm::{hopper, split as gk};

use super::super::operand::Operand;
use super::problem::Problem;
use crate::ops::elementwise::grid;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// Why the path does not take a problem.
const WANTED: &str = "one product of operands that lie in packs of 16 bytes, and k in parts that are multiples of 8";

/// Elements of k a part is a multiple of, so that parts lie in packs as the whole does.
const PART: u32 = 8;
/// The most parts.
const MOST: u32 = 32;

/// What parts cost, in steps of 64 of k: a tile takes 1024 cycles of a multiprocessor for each, 0.6 µs.
mod steps {
    /// The second launch.
    pub(super) const LAUNCH: f64 = 6.0;
    /// Start and end of a tile's pipeline, of which each wave of clusters has one.
    pub(super) const WAVE: f64 = 4.0;
    /// Writing and reading a part, by the elements of C: 8 bytes each at 4 TB/s.
    pub(super) const ELEMENT: f64 = 8.0 / 4e6 / 0.6;
}

/// Whether k can be cut into so many parts.
fn divides(k: u32, parts: u32) -> bool {
    k.is_multiple_of(PART * parts)
}

/// How many parts of k a product of one matrix is fastest in on such a device, 1 if it is not to be split.
///
/// Clusters take a tile of one part each, so that fewer tiles than clusters leave some idle: 1024 × 1024 has 16 tiles, and an H200 66 clusters.
/// Against what splitting saves of the longest cluster's steps stands what the parts cost: they are written and read again in f32.
pub(super) fn best(device: &DeviceInfo, [m, n, k]: [u32; 3]) -> u32 {
    let clusters = f64::from((device.multiprocessors / hopper::CLUSTER).max(1));
    let tiles = f64::from(m.div_ceil(hopper::CLUSTER * hopper::BLOCK_M)) * f64::from(n.div_ceil(hopper::BLOCK_N));
    let steps = |parts: u32| {
        let waves = (tiles * f64::from(parts) / clusters).ceil();
        let products = waves * (f64::from(k / parts / hopper::BLOCK_K) + steps::WAVE);
        let elements = f64::from(m) * f64::from(n) * f64::from(parts);
        products + if parts == 1 { 0.0 } else { steps::LAUNCH + elements * steps::ELEMENT }
    };
    // A part has a few stages at least.
    let fits = |parts: &u32| *parts == 1 || divides(k, *parts) && k / *parts >= 4 * hopper::BLOCK_K;
    (1..=MOST).filter(fits).min_by(|a, b| steps(*a).total_cmp(&steps(*b))).unwrap_or(1)
}

/// The fewest parts of which there are several.
pub(super) fn fewest(k: u32) -> Option<u32> {
    (2..=MOST).find(|parts| k > 0 && divides(k, *parts))
}

impl<'a, T: Float + Half, C: Float + Element> Problem<'a, T, C> {
    /// How many parts the product is fastest in, 1 if it is not to be split.
    pub(super) fn parts(&self, stream: &Stream) -> u32 {
        let gk_family::Problem { m, n, k, batch, .. } = self.sizes;
        if batch == 1 && self.fits_hopper().is_some() { best(stream.device().info(), [m, n, k]) } else { 1 }
    }

    /// In parts of k, as products of a batch into memory of the stream's, then their sum; in as few as can be if none are given. Without that memory
    /// as a whole.
    pub(super) fn launch_split(mut self, stream: &Stream, parts: Option<u32>) -> Result<()> {
        let gk_family::Problem { m, n, k, batch, alpha, beta, c: [_, ldc], .. } = self.sizes;
        let parts = parts.or_else(|| fewest(k)).filter(|_| batch == 1 && self.fits_hopper().is_some());
        let Some(parts) = parts else { return Err(self.info.param_error("variant", "split", WANTED)) };
        let shape = [parts, m, n].map(|size| size as usize);
        let mut sums = match Tensor::<f32>::uninit(stream, shape) {
            Err(Error::OutOfMemory { .. }) => return self.launch_hopper(stream),
            sums => sums?,
        };
        let (a, b) = (part(self.a.rows, parts)?, part(self.b.rows, parts)?);
        let sizes = gk_family::Problem {
            a: a.lies.strides,
            b: b.lies.strides,
            c: [u64::from(m) * u64::from(n), u64::from(n)],
            k: k / parts,
            batch: parts,
            alpha: 1.0,
            beta: 0.0,
            ..self.sizes
        };
        Problem { info: self.info, a, b, c: sums.view_mut(), scale: None, sizes }.launch_hopper(stream)?;
        let packed =
            n.is_multiple_of(4) && (m < 2 || ldc.is_multiple_of(4)) && self.c.alignment() >= 4 * size_of::<C>();
        let of = gk::Parts { ldc, m, n, parts, alpha, beta, padding: 0 };
        let args = (sums.view().ptr(stream)?, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, of);
        let each = gk::THREADS as usize * if packed { 4 } else { 1 };
        let Some(grid) = grid(self.info, "c", m as usize * n as usize, each)? else { return Ok(()) };
        // SAFETY: the sums are parts of m × n, c is live and borrowed mutably, and packs are taken only where both lie for them.
        unsafe {
            if packed {
                stream.launch::<gk::GemmSum<C, 4>>(grid, args)
            } else {
                stream.launch::<gk::GemmSum<C, 1>>(grid, args)
            }
        }
    }
}

/// A matrix of rows along k as so many of parts of them.
fn part<T: Float>(rows: View<'_, T>, parts: u32) -> Result<Operand<'_, T>> {
    let (last, parts) = (rows.shape().len() - 1, parts as usize);
    let (shape, strides) = (rows.shape().to_vec(), rows.strides().to_vec());
    let (m, k) = (shape[last - 1], shape[last] / parts);
    Ok(Operand::new(rows.strided(0, [parts, m, k], &[k * strides[last], strides[last - 1], strides[last]])?))
}
