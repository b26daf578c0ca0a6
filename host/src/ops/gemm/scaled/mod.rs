//! Shared by products of 8-bit elements: C = A·Bᵀ, with scales for the rows of A and of B.

mod operator;
mod pieces;

pub use operator::ScaledProduct;
pub(super) use operator::{
    A_TYPE, C_TYPE, OF_NARROW, OF_PIECES, OF_SWAPPED, Scaling, pieces, swapped, variants, variants_by_rows,
};
pub(super) use pieces::{How, Kinds, OfPieces};

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel, TensorMap};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::{hopper, split};

use super::cost::Tiles;
use super::product::{Path, Problem};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::Result;
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

    /// Launches a kernel of sums that need no more scales, by tiles of so many rows, and one that adds them.
    pub(super) fn launch_pieces(
        &mut self,
        stream: &Stream,
        rows: u32,
        launch: impl FnOnce(u32, OfPieces) -> Result<()>,
    ) -> Result<()> {
        let pieces = self.sums(stream, rows, launch)?;
        let Some(blocks) = pieces.blocks(self.info, NAMES[2])? else { return Ok(()) };
        let (from, c) = (pieces.sums.view().ptr(stream)?, self.c.ptr_mut(stream)?);
        let args = (from, c, DevicePtr::null(), pieces.to(&self.sizes), 1.0, 0.0);
        // SAFETY: the pieces are live and have these sizes; c is borrowed mutably and has these sizes.
        unsafe { stream.launch::<split::GemmSum<C>>(blocks, args) }
    }

    /// Launches a kernel with scales for the rows of both operands: in this way, or in the fastest.
    pub(super) fn launch_scaled<K: Kernels<A, B, C>>(
        self,
        stream: &Stream,
        how: Option<How>,
        [a, b]: [Scales; 2],
    ) -> Result<()> {
        let by_pieces = |problem: &mut Self, rows| {
            // SAFETY: the maps describe live tensors of these sizes; the pieces are this call's.
            let pieces = problem.sums(stream, rows, |grid, args| unsafe {
                match rows {
                    208 => stream.launch::<K::Pieces208>(grid, args),
                    128 => stream.launch::<K::Pieces128>(grid, args),
                    _ => stream.launch::<K::Pieces64>(grid, args),
                }
            })?;
            let Some(blocks) = pieces.blocks(problem.info, NAMES[2])? else { return Ok(()) };
            let (from, c) = (pieces.sums.view().ptr(stream)?, problem.c.ptr_mut(stream)?);
            let args = (from, c, pieces.to(&problem.sizes), a.values, b.values, a.step, b.step);
            // SAFETY: the pieces are live and have these sizes; c is borrowed mutably, and there is a scale for each row or one for all.
            unsafe { stream.launch::<K::Sum>(blocks, args) }
        };
        let kinds = Kinds {
            rows: &hopper::PIECES_8,
            swapped: &hopper::SWAPPED_8,
            narrow: &hopper::NARROW_8,
            columns: hopper::BLOCK_N,
            fewer_columns: &[],
            scaling: |_| 0.0,
        };
        let by_tiles = |problem: Self, tiles| {
            problem.launch_tiles(stream, tiles, |grid, (b_map, a_map, c_map, c, sizes, store)| {
                let args = (b_map, a_map, c_map, c, sizes, store, a.values, b.values, a.step, b.step);
                // SAFETY: the maps and c describe live tensors of these sizes, c is borrowed mutably, and there is a scale for each row or one for all.
                unsafe {
                    match tiles {
                        Tiles::Narrow(224) => stream.launch::<K::Narrow224>(grid, args),
                        Tiles::Narrow(160) => stream.launch::<K::Narrow160>(grid, args),
                        Tiles::Narrow(128) => stream.launch::<K::Narrow128>(grid, args),
                        Tiles::Narrow(_) => stream.launch::<K::Narrow64>(grid, args),
                        Tiles::Swapped(208) => stream.launch::<K::Swapped208>(grid, args),
                        Tiles::Swapped(192) => stream.launch::<K::Swapped192>(grid, args),
                        Tiles::Swapped(160) => stream.launch::<K::Swapped160>(grid, args),
                        Tiles::Swapped(128) => stream.launch::<K::Swapped128>(grid, args),
                        Tiles::Swapped(96) => stream.launch::<K::Swapped96>(grid, args),
                        _ => stream.launch::<K::Swapped64>(grid, args),
                    }
                }
            })
        };
        self.launch_how(stream, how, kinds, by_pieces, by_tiles, |problem, path| {
            problem.launch(
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
                        if packed {
                            stream.launch::<K::Packed>(grid, args)
                        } else {
                            stream.launch::<K::Any>(grid, args)
                        }
                    }
                },
            )
        })
    }
}

/// The arguments of the kernel that adds and scales sums.
type OfSum<C> = (DevicePtr<f32>, DevicePtrMut<C>, split::Sums, DevicePtr<f32>, DevicePtr<f32>, u32, u32);

/// The kernels of an operator with scales for rows.
pub(super) trait Kernels<A, B, C> {
    type Hopper: Kernel<Args = HopperScaled<C>>;
    /// Reads packs.
    type Packed: Kernel<Args = MmaScaled<A, B, C>>;
    type Any: Kernel<Args = MmaScaled<A, B, C>>;
    type Pieces208: Kernel<Args = OfPieces>;
    type Pieces128: Kernel<Args = OfPieces>;
    type Pieces64: Kernel<Args = OfPieces>;
    type Swapped208: Kernel<Args = HopperScaled<C>>;
    type Swapped192: Kernel<Args = HopperScaled<C>>;
    type Swapped160: Kernel<Args = HopperScaled<C>>;
    type Swapped128: Kernel<Args = HopperScaled<C>>;
    type Swapped96: Kernel<Args = HopperScaled<C>>;
    type Swapped64: Kernel<Args = HopperScaled<C>>;
    type Narrow224: Kernel<Args = HopperScaled<C>>;
    type Narrow160: Kernel<Args = HopperScaled<C>>;
    type Narrow128: Kernel<Args = HopperScaled<C>>;
    type Narrow64: Kernel<Args = HopperScaled<C>>;
    type Sum: Kernel<Args = OfSum<C>>;
}
