//! Shared by products of 8-bit elements: C = A·Bᵀ, with scales for the rows of A and of B.

mod operator;

pub use operator::ScaledProduct;
pub(super) use operator::{A_TYPE, C_TYPE, Scaling, pieces, variants};

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel, TensorMap};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::{hopper, split};

use super::cost::{Shape, Tiles};
use super::gemm::Pieces;
use super::operand::{self, Major, Tiling};
use super::product::{Path, Problem};
use super::{note_work, plan};
use crate::ops::model::{Bound, OpInfo};
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::view::View;

/// The names of the operands and the result in errors.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// A scale for each row of a matrix, or one for all.
pub(super) struct Scales {
    values: DevicePtr<f32>,
    /// The distance from one scale to the next.
    step: u32,
}

impl Scales {
    /// The scales of a matrix of `rows` rows.
    pub(super) fn of(
        info: &'static OpInfo,
        stream: &Stream,
        arg: &'static str,
        scales: View<'_, f32>,
        rows: usize,
    ) -> Result<Self> {
        scales.require_device(info.name, arg, stream)?;
        let shared = *scales.shape().dims() == [1];
        if !shared {
            scales.require_shape(info.name, arg, &[rows])?;
            scales.require_contiguous(info.name, arg)?;
        }
        Ok(Self { values: scales.ptr(stream)?, step: u32::from(!shared) })
    }
}

/// The arguments of a kernel of the Hopper path that takes [`Scales`].
type HopperScaled<C> =
    (TensorMap, TensorMap, TensorMap, DevicePtrMut<C>, gk::Problem, u32, DevicePtr<f32>, DevicePtr<f32>, u32, u32);
/// The arguments of a kernel of the path for every GPU.
type MmaScaled<A, B, C> =
    (DevicePtr<A>, DevicePtr<B>, DevicePtrMut<C>, gk::Problem, DevicePtr<f32>, DevicePtr<f32>, u32, u32);

/// The same with scales per block.
type HopperBlocks<C, S> =
    (TensorMap, TensorMap, TensorMap, DevicePtrMut<C>, gk::Problem, u32, DevicePtr<S>, DevicePtr<S>);
type MmaBlocks<A, B, C, S> = (DevicePtr<A>, DevicePtr<B>, DevicePtrMut<C>, gk::Problem, DevicePtr<S>, DevicePtr<S>);

/// The scales of both operands' blocks, contiguous and of these shapes.
pub(super) fn of_blocks<S: Dtype>(
    info: &'static OpInfo,
    stream: &Stream,
    [a, b]: [View<'_, S>; 2],
    shapes: [[usize; 2]; 2],
) -> Result<[DevicePtr<S>; 2]> {
    for (arg, scales, shape) in [("a_scales", &a, shapes[0]), ("b_scales", &b, shapes[1])] {
        scales.require_shape(info.name, arg, &shape)?;
        scales.require_contiguous(info.name, arg)?;
        scales.require_device(info.name, arg, stream)?;
    }
    Ok([a.ptr(stream)?, b.ptr(stream)?])
}

impl<A: Dtype, B: Dtype, C: Float> Problem<'_, A, B, C> {
    /// [`launch_scaled`](Self::launch_scaled) with scales per block; on Hopper, tiles have `block_n` columns.
    pub(super) fn launch_blocks<H, P, N, S: Dtype>(
        self,
        stream: &Stream,
        path: Path,
        block_n: u32,
        [of_a, of_b]: [DevicePtr<S>; 2],
    ) -> Result<()>
    where
        H: Kernel<Args = HopperBlocks<C, S>>,
        P: Kernel<Args = MmaBlocks<A, B, C, S>>,
        N: Kernel<Args = MmaBlocks<A, B, C, S>>,
    {
        self.launch(
            stream,
            path,
            block_n,
            |grid, (a, b, c_map, c, problem, store)| {
                let args = (a, b, c_map, c, problem, store, of_a, of_b);
                // SAFETY: the maps and c describe live tensors of these sizes, c is borrowed mutably, and there is a scale for each block.
                unsafe { stream.launch::<H>(grid, args) }
            },
            |grid, packed, (a, b, c, problem)| {
                let args = (a, b, c, problem, of_a, of_b);
                // SAFETY: the same; only operands that are aligned for packs are read in packs.
                unsafe { if packed { stream.launch::<P>(grid, args) } else { stream.launch::<N>(grid, args) } }
            },
        )
    }

    /// Launches a kernel with scales for the rows of both operands: by this path, or by the fastest one.
    pub(super) fn launch_scaled<K: Kernels<A, B, C>>(
        mut self,
        stream: &Stream,
        path: Option<How>,
        scales: [Scales; 2],
    ) -> Result<()> {
        self.require_devices(stream)?;
        let [a, b] = &scales;
        let path = match path.unwrap_or_else(|| self.planned(stream)) {
            How::Pieces(_) if !self.fits_pieces() => {
                let wanted = "no size of zero, and rows of a and b that lie at multiples of 16 bytes";
                return Err(self.info.param_error("variant", "pieces", wanted));
            }
            How::Pieces(rows) => match self.launch_pieces::<K>(stream, rows, &scales) {
                // Sums need four bytes per element of C.
                Err(Error::OutOfMemory { .. }) => Path::Fastest,
                result => return result,
            },
            How::Fused(path) => path,
        };
        self.launch(
            stream,
            path,
            hopper::BLOCK_N,
            |grid, (a_map, b_map, c_map, c, problem, store)| {
                let args = (a_map, b_map, c_map, c, problem, store, a.values, b.values, a.step, b.step);
                // SAFETY: the maps and c describe live tensors of these sizes, c is borrowed mutably, and there is a scale for each row or one for all.
                unsafe { stream.launch::<K::Hopper>(grid, args) }
            },
            |grid, packed, (x, y, c, problem)| {
                let args = (x, y, c, problem, a.values, b.values, a.step, b.step);
                // SAFETY: the same; only operands that are aligned for packs are read in packs.
                unsafe {
                    if packed { stream.launch::<K::Packed>(grid, args) } else { stream.launch::<K::Any>(grid, args) }
                }
            },
        )
    }

    /// Whether TMA takes both operands, and there are results.
    fn fits_pieces(&self) -> bool {
        self.facts().fits_hopper() == Some([Major::K; 2])
    }

    fn shape(&self) -> Shape {
        Shape { sizes: self.facts().sizes, bytes: size_of::<A>() as u32, in_sectors: [true; 2] }
    }

    /// The fastest path, by a model of their time.
    fn planned(&self, stream: &Stream) -> How {
        let fused = How::Fused(Path::Fastest);
        if !self.fits_pieces() || !stream.device().supports_hopper() {
            return fused;
        }
        let (of, shape) = (stream.device().info().multiprocessors, self.shape());
        let pieces = hopper::SWAPPED_8.map(|rows| (self.micros_of_pieces(stream, rows), rows));
        let fastest = pieces.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b));
        match fastest {
            Some((micros, rows)) if micros < shape.micros(of, Tiles::Columns(hopper::BLOCK_N)) => How::Pieces(rows),
            _ => fused,
        }
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

    fn micros_of_pieces(&self, stream: &Stream, rows: u32) -> f64 {
        let (of, shape) = (stream.device().info().multiprocessors, self.shape());
        match self.each(stream, rows) {
            0 => shape.micros(of, Tiles::Swapped(rows)) + shape.added(1),
            _ => shape.micros(of, Tiles::SwappedPieces(rows)),
        }
    }

    /// The sums by tiles of so many rows, then the scales.
    fn launch_pieces<K: Kernels<A, B, C>>(&mut self, stream: &Stream, rows: u32, [a, b]: &[Scales; 2]) -> Result<()> {
        let (gk::Problem { m, n, k, c: [_, ldc], .. }, each) = (self.sizes, self.each(stream, rows));
        let mut pieces = Pieces::uninit(stream, if each == 0 { 1 } else { k.div_ceil(each) }, [m, n])?;
        let sizes = pieces.sizes(&self.sizes);
        let Tiling { maps: [b_map, a_map, map], store, grid } =
            Tiling::swapped(stream, (&self.a, &self.b), &mut pieces.sums.view_mut(), &sizes, rows)?;
        let args = (b_map, a_map, map, pieces.sums.view_mut().ptr_mut(stream)?, operand::swapped(&sizes), store, each);
        note_work(Bound::Tensor(A::DTYPE), [1, m, n, k]);
        // SAFETY: the maps describe live tensors of these sizes; the pieces are this call's.
        unsafe {
            match rows {
                160 => stream.launch::<K::Pieces160>(grid, args)?,
                128 => stream.launch::<K::Pieces128>(grid, args)?,
                96 => stream.launch::<K::Pieces96>(grid, args)?,
                _ => stream.launch::<K::Pieces64>(grid, args)?,
            }
        }
        let Some(blocks) = pieces.blocks(self.info, "c")? else { return Ok(()) };
        let (from, sums) = (pieces.sums.view().ptr(stream)?, pieces.to(ldc, [m, n]));
        let args = (from, self.c.ptr_mut(stream)?, sums, a.values, b.values, a.step, b.step);
        // SAFETY: the pieces are live and have these sizes; c is borrowed mutably, and there is a scale for each row or one for all.
        unsafe { stream.launch::<K::Sum>(blocks, args) }
    }
}

/// How a product with scales for rows is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// By a kernel that also scales.
    Fused(Path),
    /// As sums of swapped operands, by tiles of this number of rows, and a launch that adds and scales them.
    Pieces(u32),
}

/// The arguments of a kernel of sums.
type OfPieces = (TensorMap, TensorMap, TensorMap, DevicePtrMut<f32>, gk::Problem, u32, u32);
/// The arguments of the kernel that adds and scales them.
type OfSum<C> = (DevicePtr<f32>, DevicePtrMut<C>, split::Sums, DevicePtr<f32>, DevicePtr<f32>, u32, u32);

/// The kernels of an operator with scales for rows.
pub(super) trait Kernels<A, B, C> {
    type Hopper: Kernel<Args = HopperScaled<C>>;
    /// Reads packs.
    type Packed: Kernel<Args = MmaScaled<A, B, C>>;
    type Any: Kernel<Args = MmaScaled<A, B, C>>;
    type Pieces160: Kernel<Args = OfPieces>;
    type Pieces128: Kernel<Args = OfPieces>;
    type Pieces96: Kernel<Args = OfPieces>;
    type Pieces64: Kernel<Args = OfPieces>;
    type Sum: Kernel<Args = OfSum<C>>;
}
