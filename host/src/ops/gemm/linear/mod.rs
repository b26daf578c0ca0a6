//! A linear layer with a fused epilogue.

mod operator;

use cuda_std::float::Half;
use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::gemm::gemm::hopper;
use gpu_kernels::ops::gemm::linear as gk;

use self::operator::INFO;
pub use self::operator::{LINEAR, Linear};
use super::cost::Tiles;
pub use super::epilogue::{Activation, Epilogue};
use super::gemm::{self, Facts};
use super::plan;
use super::product::Problem;
use crate::runtime::dtype::Float;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = act(x·Wᵀ + bias) + residual in f16 or bf16 with f32 accumulation: `x` is `[rows, in]`, `weight` `[out, in]`, and the result `[rows, out]`.
///
/// `epilogue` holds the bias, activation and residual, each of which is optional. They are applied in f32 to the sums while the
/// next part of the product is fetched: only the result is written, and it is rounded once. Rows of all tensors may be padded;
/// with `in` = 0 the epilogue is applied to zeros. On Hopper, rows of `x` and `weight` at multiples of 16 bytes take the TMA
/// and wgmma path; for few of them, and for large matrices whose rows lie between such multiples, the product is first stored
/// in f32, in memory of the stream. Everything else takes the mma.sync path. The result is a new dense tensor; the work is
/// queued on `stream`.
///
/// For the gradient, without an activation, use [`linear_backward`](fn@crate::ops::linear_backward).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if rows are not contiguous and equally far
/// apart, [`Error::TooLarge`] if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops::{self, Activation, Epilogue}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 2], &[1.0, 2.0].map(f16::from_f32))?;
/// let weight = Tensor::from_slice(&stream, [2, 2], &[3.0, 4.0, -5.0, 1.0].map(f16::from_f32))?;
/// let bias = Tensor::from_slice(&stream, [2], &[0.5, 1.0].map(f16::from_f32))?;
/// let after = Epilogue::new().bias(&bias).activation(Activation::Relu).residual(&x);
/// let y = ops::linear(&stream, &x, &weight, after)?;
/// assert_eq!(y.to_vec(&stream)?, [12.5, 2.0].map(f16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn linear<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    epilogue: Epilogue<'a, T>,
) -> Result<Tensor<T>> {
    let (x, weight) = (x.into(), weight.into());
    let [rows, _]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [out, _]: [usize; 2] = weight.dims(INFO.name, "weight")?;
    let mut y = Tensor::result_as(INFO.name, "y", stream, [rows, out])?;
    linear_into(stream, x, weight, epilogue, &mut y)?;
    Ok(y)
}

/// [`linear`] into `y`, `[rows, out]`, whose rows may be padded.
///
/// # Errors
/// Same as [`linear`].
pub fn linear_into<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    epilogue: Epilogue<'a, T>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, x.into(), weight.into(), epilogue, y.into(), None)
}

/// Which kernel computes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    /// Tiles of TMA and wgmma.
    Tiles(Tiles),
    /// A product in f32, and a launch for the rest.
    Summed,
    /// mma.sync.
    Mma,
}

impl Path {
    /// The fastest tiles that there are kernels of, if they take the product.
    fn tiles(facts: &Facts, stream: &Stream) -> Option<Tiles> {
        let all = hopper::WIDTHS.map(Tiles::Columns).into_iter().chain(Tiles::of_swapped());
        let fits = stream.device().supports_hopper() && facts.is_along_k();
        facts.fastest(stream, all).filter(|_| fits)
    }

    /// Whether it can compute such a product, on a device with TMA and wgmma if `hopper`.
    fn is_taken_by(self, facts: &Facts, hopper: bool) -> bool {
        match self {
            Self::Tiles(tiles) => facts.is_along_k() && facts.takes(gemm::Path::Tiles(tiles), hopper),
            Self::Summed => facts.in_f32().sizes.iter().all(|size| *size > 0),
            Self::Mma => true,
        }
    }

    /// The fastest one, by a model of their time.
    fn planned(facts: &Facts, stream: &Stream) -> Self {
        let of = stream.device().info().multiprocessors;
        match (Self::tiles(facts, stream), facts.in_f32().micros_of_sums(stream)) {
            (Some(tiles), Some(summed)) if summed < facts.shape().micros(of, tiles) => Self::Summed,
            (Some(tiles), _) => Self::Tiles(tiles),
            (None, Some(_)) => Self::Summed,
            (None, None) => Self::Mma,
        }
    }
}

fn launch<T: Float + Half>(
    stream: &Stream,
    x: View<'_, T>,
    weight: View<'_, T>,
    Epilogue { bias, activation, residual }: Epilogue<'_, T>,
    y: ViewMut<'_, T>,
    path: Option<Path>,
) -> Result<()> {
    let [rows, _]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [out, _]: [usize; 2] = weight.dims(INFO.name, "weight")?;
    let mut problem = Problem::of_rows(&INFO, ["x", "weight", "y"], x, weight, y)?;
    problem.require_devices(stream)?;
    let mut after = (DevicePtr::null(), DevicePtr::null(), 0, activation.number());
    let (of_bias, of_residual, stride, _) = &mut after;
    if let Some(bias) = bias {
        bias.require_shape(INFO.name, "bias", &[out])?;
        bias.require_contiguous(INFO.name, "bias")?;
        bias.require_device(INFO.name, "bias", stream)?;
        *of_bias = bias.ptr(stream)?;
    }
    if let Some(residual) = residual {
        residual.require_shape(INFO.name, "residual", &[rows, out])?;
        *stride = residual.require_row_stride(INFO.name, "residual")? as u64;
        residual.require_device(INFO.name, "residual", stream)?;
        *of_residual = residual.ptr(stream)?;
    }
    let facts = problem.facts();
    let path = path.map_or_else(|| picked(stream, &problem), Ok)?;
    if !path.is_taken_by(&facts, true) {
        let name = Path::NAMED.iter().find(|(_, named)| *named == path).map_or("", |(name, _)| name);
        let wanted = "sizes above 0, and rows of x and weight, for swapped operands of y too, at multiples of 16 bytes";
        return Err(INFO.param_error("variant", name, wanted));
    }
    match path {
        Path::Tiles(tiles) => launch_tiles(stream, problem, tiles, after),
        Path::Summed => match launch_summed(stream, &mut problem, after) {
            // Sums need four bytes per element of y.
            Err(Error::OutOfMemory { .. }) => match Path::tiles(&facts, stream) {
                Some(tiles) => launch_tiles(stream, problem, tiles, after),
                None => launch_mma(stream, problem, after),
            },
            result => result,
        },
        Path::Mma => launch_mma(stream, problem, after),
    }
}

/// The path that tuning found fastest, if it takes the problem; else the planned one.
fn picked<T: Float + Half>(stream: &Stream, problem: &Problem<'_, T, T, T>) -> Result<Path> {
    let (facts, hopper) = (problem.facts(), stream.device().supports_hopper());
    let layouts = [&problem.a.layout, &problem.b.layout];
    let tuned = plan::tuned(stream, &INFO, [T::DTYPE; 3], &problem.sizes, layouts, Path::NAMED)?;
    let tuned = tuned.filter(|path| path.is_taken_by(&facts, hopper));
    Ok(tuned.unwrap_or_else(|| Path::planned(&facts, stream)))
}

/// What follows the product: bias and residual, or null, the distance of its rows, and the number of the activation.
type After<T> = (DevicePtr<T>, DevicePtr<T>, u64, u32);

fn launch_tiles<T: Float + Half>(
    stream: &Stream,
    problem: Problem<'_, T, T, T>,
    tiles: Tiles,
    (bias, residual, stride, activation): After<T>,
) -> Result<()> {
    problem.launch_tiles(stream, tiles, |grid, (x_map, weight_map, y_map, y, problem, store)| {
        let args = (x_map, weight_map, y_map, y, problem, store, bias, residual, stride, activation);
        // SAFETY: the maps and y describe live tensors of these sizes, y is borrowed mutably, and bias and residual have
        // these sizes if present.
        unsafe {
            match tiles {
                Tiles::Swapped(208) => stream.launch::<gk::LinearSwapped<T, 208, false>>(grid, args),
                Tiles::Swapped(192) => stream.launch::<gk::LinearSwapped<T, 192, false>>(grid, args),
                Tiles::Swapped(160) => stream.launch::<gk::LinearSwapped<T, 160, false>>(grid, args),
                Tiles::Swapped(144) => stream.launch::<gk::LinearSwapped<T, 144, false>>(grid, args),
                Tiles::Swapped(128) => stream.launch::<gk::LinearSwapped<T, 128, false>>(grid, args),
                Tiles::Swapped(96) => stream.launch::<gk::LinearSwapped<T, 96, false>>(grid, args),
                Tiles::Swapped(_) => stream.launch::<gk::LinearSwapped<T, 64, false>>(grid, args),
                Tiles::Narrow(208) => stream.launch::<gk::LinearSwapped<T, 208, true>>(grid, args),
                Tiles::Narrow(160) => stream.launch::<gk::LinearSwapped<T, 160, true>>(grid, args),
                Tiles::Narrow(128) => stream.launch::<gk::LinearSwapped<T, 128, true>>(grid, args),
                Tiles::Narrow(96) => stream.launch::<gk::LinearSwapped<T, 96, true>>(grid, args),
                Tiles::Narrow(_) => stream.launch::<gk::LinearSwapped<T, 64, true>>(grid, args),
                Tiles::Columns(64) => stream.launch::<gk::LinearHopper<T, 64>>(grid, args),
                Tiles::Columns(128) => stream.launch::<gk::LinearHopper<T, 128>>(grid, args),
                Tiles::Columns(192) => stream.launch::<gk::LinearHopper<T, 192>>(grid, args),
                _ => stream.launch::<gk::LinearHopper<T, { hopper::BLOCK_N }>>(grid, args),
            }
        }
    })
}

/// The sums in f32 by the path that is fastest for them, then the rest.
fn launch_summed<T: Float + Half>(
    stream: &Stream,
    problem: &mut Problem<'_, T, T, T>,
    (bias, residual, stride, activation): After<T>,
) -> Result<()> {
    let gpu_kernels::ops::gemm::Problem { m, n, k, .. } = problem.sizes;
    let path = problem.facts().in_f32().planned(stream);
    let pieces = gemm::pieces(&INFO, stream, [problem.a, problem.b], [m, n, k], path)?;
    let Some(blocks) = pieces.blocks(&INFO, "y")? else { return Ok(()) };
    let (from, sums) = (pieces.sums.view().ptr(stream)?, pieces.to(&problem.sizes));
    let args = (from, problem.c.ptr_mut(stream)?, sums, bias, residual, stride, activation);
    // SAFETY: the pieces are live and have these sizes; y is borrowed mutably, and bias and residual have these sizes if present.
    unsafe { stream.launch::<gk::LinearSum<T>>(blocks, args) }
}

fn launch_mma<T: Float + Half>(
    stream: &Stream,
    problem: Problem<'_, T, T, T>,
    (bias, residual, stride, activation): After<T>,
) -> Result<()> {
    problem.launch_mma(stream, |grid, packed, (x, weight, y, problem)| {
        let args = (x, weight, y, problem, bias, residual, stride, activation);
        // SAFETY: the tensors are live and have these sizes at these strides, and y is borrowed mutably; only operands that are
        // aligned for packs are read in packs.
        unsafe {
            if packed {
                stream.launch::<gk::LinearMma<T, 8>>(grid, args)
            } else {
                stream.launch::<gk::LinearMma<T, 1>>(grid, args)
            }
        }
    })
}
