//! Shared by products with a low-bit weight: C = A·Wᵀ, whose weight is read once and widened on the way.

mod operator;

pub use operator::WeightOnly;
pub(super) use operator::{Scaling, variants};

use cuda_std::launch::{DevicePtr, DevicePtrMut, Dim3, TensorMap};
use gpu_kernels::ops::gemm::gemm_w8a16::{self as gk, DEPTH, Plan, ROWS, Sizes};
use gpu_kernels::ops::gemv::gemv as sum;

use super::{note_work, sizes};
use crate::ops::elementwise::grid;
use crate::ops::model::{Bound, OpInfo};
use crate::runtime::dtype::{DType, Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};
use crate::runtime::view::{View, ViewMut};

/// Which kernel computes a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// The fastest kernel that the device supports.
    Fastest,
    /// For up to eight rows of A, in whole packs.
    Skinny,
    /// Clusters whose blocks split k.
    Cluster,
    /// Blocks that write partial sums to a workspace, which a second launch adds up.
    Parts,
}

/// The maximum number of rows of A in a launch that writes partial sums: each row is a row of the
/// grid of the kernel that adds them.
const MOST_ROWS: usize = 65_535;

/// The minimum number of stages of a part of k, if there are several parts.
const LEAST_STAGES: u32 = 8;

/// A product with checked sizes.
pub(super) struct Problem<'a, T, W> {
    pub(super) info: &'static OpInfo,
    /// `[m, k]`.
    pub(super) a: View<'a, T>,
    /// n rows of k elements, several per byte.
    pub(super) w: View<'a, W>,
    /// Contiguous.
    pub(super) scales: View<'a, f32>,
    /// `[m, n]`.
    pub(super) c: ViewMut<'a, T>,
}

/// Arguments of the kernel of clusters: the tensor maps of the weight and of A, scales, C and sizes.
pub(super) type Args<T> = (TensorMap, TensorMap, DevicePtr<f32>, DevicePtrMut<T>, Sizes);

/// Arguments of the kernel for few rows of A.
pub(super) type SkinnyArgs<T, W> = (DevicePtr<T>, DevicePtr<W>, DevicePtr<f32>, DevicePtrMut<T>, Sizes);

/// Arguments of the kernel that writes partial sums.
pub(super) type PartsArgs<T, W> = (DevicePtr<T>, DevicePtr<W>, DevicePtr<f32>, DevicePtrMut<f32>, Sizes);

/// Rows of A that a block can take, with clusters and blocks to a multiprocessor as [`OF_NARROW`] has them, and as [`OF_WIDE`].
const NARROW: [u32; 3] = [16, 32, 64];
const WIDE: [u32; 4] = [96, 128, 160, 192];
/// Blocks of a cluster, and blocks that fit on a multiprocessor, of the kernels for few rows of A and for more.
const OF_NARROW: [[u32; 2]; 5] = [[4, 1], [3, 1], [2, 1], [2, 2], [1, 2]];
const OF_WIDE: [[u32; 2]; 4] = [[4, 1], [3, 1], [2, 1], [1, 1]];
/// What a block does for each step of k beside its products, in rows of A that would take as long: to widen the weight.
const WIDENING: u64 = 64;
/// What begins and ends a wave of blocks, of one or of two to a multiprocessor, in steps of k.
const WAVE: [u64; 2] = [6, 9];

/// How a product of `m` rows of A with `n` of the weight is divided: of [`NARROW`] by the least that has room for all rows of A, or by
/// those of [`WIDE`], whichever takes the fewest steps, of the rows and the widening.
fn plan([m, n, k]: [u32; 3], bits: u32, multiprocessors: u32) -> Plan {
    let multiprocessors = u64::from(multiprocessors);
    let timed = |r: u32, [share, blocks]: [u32; 2]| {
        let plan = Plan::of(r as usize, bits, share, blocks);
        let all = u64::from(m.div_ceil(r)) * u64::from(n.div_ceil(ROWS)) * u64::from(share);
        // Multiprocessors come in groups that larger clusters do not fill; and where these have room, so have slices of fewer rows.
        if share > 2 && (4 * all > 3 * multiprocessors || r > 128) {
            return (u64::MAX, plan);
        }
        let steps = u64::from(k.div_ceil(plan.depth()).div_ceil(share));
        let waves = all.div_ceil(multiprocessors * u64::from(blocks));
        let all_steps = all.div_ceil(multiprocessors).saturating_mul(steps);
        let all_steps = all_steps.saturating_add(waves.saturating_mul(WAVE[blocks as usize - 1]));
        (all_steps.saturating_mul(u64::from(r) + WIDENING), plan)
    };
    let narrow = NARROW.into_iter().find(|r| m <= *r).map(|r| OF_NARROW.map(|of| timed(r, of)));
    let wide = || WIDE.into_iter().flat_map(|r| OF_WIDE.map(|of| timed(r, of)));
    // Of equals the first.
    let least = |a: (u64, Plan), b: (u64, Plan)| if b.0 < a.0 { b } else { a };
    let fastest = narrow.map_or_else(|| wide().reduce(least), |all| all.into_iter().reduce(least));
    fastest.map_or(Plan::of(192, bits, 1, 1), |(_, plan)| plan)
}

/// Launches the kernel for a plan: `$launch`, where its numbers are `$r`, `$share` and `$blocks`.
macro_rules! by_plan {
    ($plan:expr, $r:ident, $share:ident, $blocks:ident => $launch:expr) => {
        $crate::ops::gemm::weight_only::by_plan!(@match $plan, [$r, $share, $blocks], $launch;
            16: 4, 1; 16: 3, 1; 16: 2, 1; 16: 2, 2; 16: 1, 2;
            32: 4, 1; 32: 3, 1; 32: 2, 1; 32: 2, 2; 32: 1, 2;
            64: 4, 1; 64: 3, 1; 64: 2, 1; 64: 2, 2; 64: 1, 2;
            96: 4, 1; 96: 3, 1; 96: 2, 1; 96: 1, 1;
            128: 4, 1; 128: 3, 1; 128: 2, 1; 128: 1, 1;
            160: 2, 1; 160: 1, 1;
            192: 2, 1;
        )
    };
    (@match $plan:expr, [$r:ident, $share:ident, $blocks:ident], $launch:expr; $($of:literal: $by:literal, $to:literal;)*) => {
        match ($plan.r, $plan.share, $plan.blocks) {
            $(($of, $by, $to) => {
                const $r: usize = $of;
                const $share: u32 = $by;
                const $blocks: u32 = $to;
                $launch
            })*
            _ => {
                const $r: usize = 192;
                const $share: u32 = 1;
                const $blocks: u32 = 1;
                $launch
            }
        }
    };
}

pub(super) use by_plan;

impl<'a, T: Float, W: Dtype> Problem<'a, T, W> {
    /// Launches one of the kernels: `skinny`, with flags for a single row of A and for twice as many warps; `cluster`, with the
    /// plan of its kernel; or `parts`, which writes to a workspace, with that number and a flag for rows that can be copied in packs.
    pub(super) fn launch(
        mut self,
        stream: &Stream,
        path: Path,
        skinny: impl FnOnce([bool; 2], u32, SkinnyArgs<T, W>) -> Result<()>,
        cluster: impl FnOnce(Plan, u32, Args<T>) -> Result<()>,
        parts: impl Fn(u32, bool, Dim3, PartsArgs<T, W>) -> Result<()>,
    ) -> Result<()> {
        let Self { info, a, w, scales, c } = &mut self;
        stream.require_devices(info.name, &[("a", a), ("w", w), ("scales", scales), ("c", c)])?;
        let [m, k]: [usize; 2] = a.dims(info.name, "a")?;
        let [_, n]: [usize; 2] = c.dims(info.name, "c")?;
        c.require_shape(info.name, "c", &[m, n])?;
        let strides = [a.require_row_stride(info.name, "a")?, w.require_row_stride(info.name, "w")?];
        let [a_stride, w_stride] = strides.map(|stride| stride as u64);
        let c_stride = c.require_row_stride(info.name, "c")? as u64;
        let [rows, columns, depth] = sizes(info, [("a", m), ("w", n), ("a", k)])?;
        // If k is 0, nothing is read.
        let packed = k == 0 || a.rows_aligned(16) && w.rows_aligned(16);
        let sizes = Sizes { a: a_stride, w: w_stride, c: c_stride, m: rows, n: columns, k: depth, padding: 0 };
        let grid_of = |m: usize, [r, rows, share]: [u32; 3]| {
            let tiles = n.div_ceil(rows as usize).saturating_mul(m.div_ceil(r as usize));
            grid(info, "c", tiles.saturating_mul(share as usize), 1)
        };
        let bits = if W::DTYPE == DType::I8 { 8 } else { 4 };
        // This kernel counts the scales of groups in 32 bits.
        let counted = scales.len() <= u32::MAX as usize;
        let whole = packed && k > 0 && depth.is_multiple_of(gk::lane_depth(bits)) && rows <= gk::SKINNY_MOST && counted;
        if path == Path::Skinny && !whole {
            let expected =
                "at most 8 rows of a, k > 0 of whole packs of 16 bytes of w, and rows of a and w at multiples of them";
            return Err(info.param_error("variant", "skinny", expected));
        }
        if path == Path::Skinny || path == Path::Fastest && whole {
            let Some(blocks) = grid_of(m, [gk::SKINNY_MOST, gk::SKINNY_ROWS, 1])? else { return Ok(()) };
            let args = (a.ptr(stream)?, w.ptr(stream)?, scales.ptr(stream)?, c.ptr_mut(stream)?, sizes);
            note_work(Bound::Tensor(T::DTYPE), [1, rows, columns, depth]);
            let large = is_large(m == 1, bits, [blocks, stream.device().info().multiprocessors]);
            return skinny([m == 1, large], blocks, args);
        }
        // TMA must not be given rows that overlap.
        let apart = (m < 2 || strides[0] >= k) && (n < 2 || strides[1] >= w.shape()[1]);
        let fits = packed && k > 0 && apart;
        if path == Path::Cluster && !fits {
            return Err(info.param_error("variant", "cluster", "k > 0, and rows of a and w at multiples of 16 bytes"));
        }
        if path == Path::Cluster || path == Path::Fastest && fits && stream.device().supports_hopper() {
            let plan = plan([rows, columns, depth], bits, stream.device().info().multiprocessors);
            let Some(blocks) = grid_of(m, [plan.r, plan.rows(), plan.share])? else { return Ok(()) };
            let weight = map(stream, w, w_stride, [plan.rows(), plan.row_bytes()])?;
            let vectors = map(stream, a, a_stride, [plan.r, gk::PANEL_BYTES])?;
            let args = (weight, vectors, scales.ptr(stream)?, c.ptr_mut(stream)?, sizes);
            note_work(Bound::Tensor(T::DTYPE), [1, rows, columns, depth]);
            return cluster(plan, blocks, args);
        }
        for first in (0..m).step_by(MOST_ROWS) {
            let m = MOST_ROWS.min(m - first);
            let (a, mut c) = (a.slice(first..first + m)?, c.reborrow().slice(first..first + m)?);
            let r = if packed && m <= 16 { 16 } else { 64 };
            let Some(blocks) = grid_of(m, [r, ROWS, 1])? else { return Ok(()) };
            let Some(sums) = grid(info, "c", n, sum::BLOCK as usize)? else { return Ok(()) };
            // As many parts as fill the device, but so few that none moves more bytes of sums than of weights.
            let resident = gk::blocks_per_multiprocessor(r) * stream.device().info().multiprocessors;
            let count = (resident / blocks).min(depth.div_ceil(DEPTH) / LEAST_STAGES).max(1);
            let workspace = Tensor::<f32>::uninit(stream, [count as usize, m, n]);
            let mut workspace = workspace.map_err(|error| error.of(info.name, "workspace"))?;
            let target = workspace.view_mut().ptr_mut(stream)?;
            let sizes = Sizes { c: n as u64, m: m as u32, ..sizes };
            let args = (a.ptr(stream)?, w.ptr(stream)?, scales.ptr(stream)?, target, sizes);
            note_work(Bound::Tensor(T::DTYPE), [1, m as u32, columns, depth]);
            parts(r, packed, (blocks, count).into(), args)?;
            let add = (target.into(), DevicePtr::null(), c.ptr_mut(stream)?, n as u64, m as u32, count, c_stride);
            // SAFETY: the workspace holds a sum for each part and element of c, and lives until the work queued here is done; c
            // is borrowed mutably and has these rows.
            unsafe { stream.launch::<sum::GemvSum<T>>((sums, m as u32), add)? };
        }
        Ok(())
    }
}

/// Whether blocks for few rows of A, or a single one, are to have twice [`gk::SKINNY_WARPS`], of which one fits on a multiprocessor:
/// where two would not find as many blocks, or the last wave would be half empty. A weight of few bits, or several vectors with it,
/// has too few steps for that.
fn is_large(alone: bool, bits: u32, [blocks, multiprocessors]: [u32; 2]) -> bool {
    let one_each = blocks <= multiprocessors && (alone || bits == 8);
    let three_each = bits == 8 && (2 * multiprocessors + 1..=3 * multiprocessors).contains(&blocks);
    one_each || three_each
}

/// The tensor map of a matrix whose rows are `stride` elements apart, in boxes of these numbers of rows and bytes of each.
fn map<T: Dtype>(stream: &Stream, matrix: &View<'_, T>, stride: u64, [rows, bytes]: [u32; 2]) -> Result<TensorMap> {
    let [all, inner] = [0, 1].map(|i| matrix.shape()[i] as u64);
    let size = size_of::<T>() as u64;
    // The stride of a single row does not matter, but it must be valid.
    let stride = if all < 2 { (inner * size).next_multiple_of(16) } else { stride * size };
    stream.device().tensor_map(&TensorMapDesc {
        address: matrix.ptr(stream)?.addr(),
        dtype: T::DTYPE,
        dims: &[inner, all],
        strides_bytes: &[stride],
        box_dims: &[bytes / size as u32, rows],
        swizzle: if bytes == 64 { Swizzle::B64 } else { Swizzle::B128 },
        l2_promotion: L2Promotion::B256,
        oob_fill: OobFill::Zero,
    })
}

#[cfg(test)]
mod tests {
    use super::is_large;

    #[test]
    fn slices_leave_few_multiprocessors_empty() {
        let plan = |m, n, k| {
            let plan = super::plan([m, n, k], 8, 132);
            [plan.r, plan.share, plan.blocks]
        };
        assert_eq!([1, 17, 64].map(|m| plan(m, 8192, 8192)), [[16, 2, 1], [32, 2, 1], [64, 2, 1]]);
        assert_eq!([65, 128].map(|m| plan(m, 8192, 8192)), [[96, 2, 1], [128, 2, 1]]);
        assert_eq!([150, 192].map(|m| plan(m, 8192, 8192)), [[160, 2, 1], [192, 2, 1]]);
        // Two slices of 64 tiles each are one wave.
        assert_eq!([256, 304, 384].map(|m| plan(m, 8192, 8192)), [[128, 1, 1], [160, 1, 1], [192, 1, 1]]);
        assert_eq!([304, 384].map(|m| plan(m, 4096, 8192)), [[160, 2, 1], [192, 2, 1]]);
        // 32 tiles are for three blocks each, 16 for four.
        assert_eq!([16, 128].map(|m| plan(m, 4096, 14336)), [[16, 3, 1], [128, 3, 1]]);
        assert_eq!([32, 128].map(|m| plan(m, 2048, 8192)), [[32, 4, 1], [128, 4, 1]]);
        // Blocks that begin while others multiply, of clusters or alone.
        assert_eq!([10240, 28672].map(|n| plan(16, n, 8192)), [[16, 2, 2], [16, 1, 2]]);
        assert_eq!(plan(4096, 8192, 8192), [192, 1, 1]);
        assert_eq!(plan(u32::MAX, u32::MAX, u32::MAX)[2], 1);
    }

    #[test]
    fn blocks_are_large_where_there_are_few() {
        assert_eq!([128, 192, 320, 896].map(|blocks| is_large(true, 8, [blocks, 132])), [true, false, true, false]);
        assert_eq!([128, 320].map(|blocks| is_large(true, 4, [blocks, 132])), [true, false]);
        assert!(!is_large(false, 4, [128, 132]));
    }
}
