//! What products with a weight of few bits share: C = A·Wᵀ, whose weight is read once and widened on the way.

mod operator;

pub use operator::WeightOnly;
pub(super) use operator::{Scaling, variants};

use cuda_std::launch::{DevicePtr, DevicePtrMut, Dim3};
use gpu_kernels::ops::gemm::gemm_w8a16::{self as gk, DEPTH, ROWS, Sizes};
use gpu_kernels::ops::gemv::gemv as sum;

use super::{note_work, sizes};
use crate::ops::elementwise::grid;
use crate::ops::model::{Bound, OpInfo};
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Which kernel computes a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// What the device has, and is fastest.
    Fastest,
    /// Clusters, whose blocks share k.
    Cluster,
    /// A workspace, whose parts a second launch adds.
    Parts,
}

/// Rows of A in a launch that leaves parts: each has a row of the grid of the one that adds them.
const MOST_ROWS: usize = 65_535;

/// Stages of a part of k, at least, where there are several.
const LEAST_STAGES: u32 = 8;

/// A product whose sizes fit together.
pub(super) struct Problem<'a, T, W> {
    pub(super) info: &'static OpInfo,
    /// `[m, k]`.
    pub(super) a: View<'a, T>,
    /// n rows of k elements, several a byte.
    pub(super) w: View<'a, W>,
    /// Contiguous.
    pub(super) scales: View<'a, f32>,
    /// `[m, n]`.
    pub(super) c: ViewMut<'a, T>,
}

/// How a kernel is launched, besides its grid.
pub(super) type Args<T, W, C> = (DevicePtr<T>, DevicePtr<W>, DevicePtr<f32>, DevicePtrMut<C>, Sizes);

impl<'a, T: Float, W: Dtype> Problem<'a, T, W> {
    /// Launches one of the kernels, told how many rows of A its blocks take: `cluster`, or `parts`, into a workspace, told as well whether rows can be copied in packs.
    pub(super) fn launch(
        mut self,
        stream: &Stream,
        path: Path,
        cluster: impl FnOnce(u32, u32, Args<T, W, T>) -> Result<()>,
        parts: impl Fn(u32, bool, Dim3, Args<T, W, f32>) -> Result<()>,
    ) -> Result<()> {
        let Self { info, a, w, scales, c } = &mut self;
        let [m, k]: [usize; 2] = a.dims(info.name, "a")?;
        let [_, n]: [usize; 2] = c.dims(info.name, "c")?;
        c.require_shape(info.name, "c", &[m, n])?;
        let strides = [a.require_row_stride(info.name, "a")?, w.require_row_stride(info.name, "w")?];
        let [a_stride, w_stride] = strides.map(|stride| stride as u64);
        let c_stride = c.require_row_stride(info.name, "c")? as u64;
        let [rows, columns, depth] = sizes(info, [("a", m), ("w", n), ("a", k)])?;
        // Of nothing, nothing is read.
        let packed = k == 0 || a.rows_aligned(16) && w.rows_aligned(16);
        let sizes = Sizes { a: a_stride, w: w_stride, c: c_stride, m: rows, n: columns, k: depth, padding: 0 };
        let blocks = |m: usize, r: u32, each: u32| {
            let tiles = n.div_ceil(ROWS as usize).saturating_mul(m.div_ceil(r as usize));
            grid(info, "c", tiles.saturating_mul(each as usize), 1)
        };
        if path == Path::Cluster && !packed {
            return Err(info.param_error("variant", "cluster", "rows of a and w at multiples of 16 bytes"));
        }
        if path == Path::Cluster || path == Path::Fastest && packed && stream.device().supports_hopper() {
            let r = match m {
                ..=16 => 16,
                17..=64 => 64,
                _ => 128,
            };
            let Some(blocks) = blocks(m, r, gk::CLUSTER)? else { return Ok(()) };
            let args = (a.ptr(stream)?, w.ptr(stream)?, scales.ptr(stream)?, c.ptr_mut(stream)?, sizes);
            note_work(Bound::Tensor(T::DTYPE), [1, rows, columns, depth]);
            return cluster(r, blocks, args);
        }
        for first in (0..m).step_by(MOST_ROWS) {
            let m = MOST_ROWS.min(m - first);
            let (a, mut c) = (a.slice(first..first + m)?, c.reborrow().slice(first..first + m)?);
            let r = if packed && m <= 16 { 16 } else { 64 };
            let Some(blocks) = blocks(m, r, 1)? else { return Ok(()) };
            let Some(sums) = grid(info, "c", n, sum::BLOCK as usize)? else { return Ok(()) };
            // As many parts as fill the device, of which none spends more on its sums than on its weights.
            let resident = gk::blocks_per_multiprocessor(r) * stream.device().info().multiprocessors;
            let count = (resident / blocks).min(depth.div_ceil(DEPTH) / LEAST_STAGES).max(1);
            let mut workspace = Tensor::<f32>::uninit(stream, [count as usize, m, n])?;
            let target = workspace.view_mut().ptr_mut(stream)?;
            let sizes = Sizes { c: n as u64, m: m as u32, ..sizes };
            let args = (a.ptr(stream)?, w.ptr(stream)?, scales.ptr(stream)?, target, sizes);
            note_work(Bound::Tensor(T::DTYPE), [1, m as u32, columns, depth]);
            parts(r, packed, (blocks, count).into(), args)?;
            let add = (target.into(), DevicePtr::null(), c.ptr_mut(stream)?, n as u64, m as u32, count, c_stride);
            // SAFETY: the workspace holds a sum for each part and element of c, and lives until the work that is queued here is done; c is
            // borrowed mutably and has these rows.
            unsafe { stream.launch::<sum::GemvSum<T>>((sums, m as u32), add)? };
        }
        Ok(())
    }
}
