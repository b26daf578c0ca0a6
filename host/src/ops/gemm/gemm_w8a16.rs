//! Product of 16-bit activations with a weight of 8-bit integers.

use cuda_std::float::Half;
use gpu_kernels::ops::gemm::gemm_w8a16 as gk;
use gpu_kernels::ops::gemv::gemv::GEMV_SUM;
use half::{bf16, f16};

use super::weight_only::{Path, Problem, Scaling, WeightOnly, by_plan, variants};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// c\[i, j\] = scales\[j\] · Σ a\[i, k\] · w\[j, k\], where `a` is `[m, k]` of 16-bit floats, `w` is `[n, k]` of 8-bit integers
/// and `scales` is `[n]`.
///
/// This is a linear layer whose weight takes half of the memory and, for few rows of `a`, less time: the weight is widened
/// exactly on the way to the tensor cores. [`quantize_rows_int8`](crate::ops::quantize_rows_int8()) makes `w` and `scales` from
/// a weight. Rows may be padded; rows at multiples of 16 bytes are read fastest. Any m works, but the weight is widened again
/// for each slice of up to 192 rows. Sums are f32 in a fixed order; k = 0 gives zeros. The result, `[m, n]`, is a new dense tensor; the work
/// is queued on `stream`.
///
/// Dettmers et al., "LLM.int8()" (arXiv:2208.07339); Kim et al., "Who Says Elephants Can't Run" (arXiv:2211.10017).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [1, 2], &[1.0, -2.0].map(bf16::from_f32))?;
/// let w = Tensor::from_slice(&stream, [2, 2], &[100i8, 2, 3, -4])?;
/// let scales = Tensor::from_slice(&stream, [2], &[0.25f32, 2.0])?;
/// let c = ops::gemm_w8a16(&stream, &a, &w, &scales)?;
/// assert_eq!(c.to_vec(&stream)?, [24.0, 22.0].map(bf16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn gemm_w8a16<'a, T: Float + Half>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    w: impl Into<View<'a, i8>>,
    scales: impl Into<View<'a, f32>>,
) -> Result<Tensor<T>> {
    let (a, w) = (a.into(), w.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = w.dims(INFO.name, "w")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    gemm_w8a16_into(stream, a, w, scales.into(), &mut c)?;
    Ok(c)
}

/// [`gemm_w8a16`] into `c`, `[m, n]`, whose rows may be padded.
///
/// # Errors
/// Same as [`gemm_w8a16`].
pub fn gemm_w8a16_into<'a, T: Float + Half>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    w: impl Into<View<'a, i8>>,
    scales: impl Into<View<'a, f32>>,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, a.into(), w.into(), scales.into(), c.into(), Path::Fastest)
}

fn launch<'a, T: Float + Half>(
    stream: &Stream,
    a: View<'a, T>,
    w: View<'a, i8>,
    scales: View<'a, f32>,
    c: ViewMut<'a, T>,
    path: Path,
) -> Result<()> {
    let [m, k]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = w.dims(INFO.name, "w")?;
    w.require_shape(INFO.name, "w", &[n, k])?;
    scales.require_shape(INFO.name, "scales", &[n])?;
    scales.require_contiguous(INFO.name, "scales")?;
    c.require_shape(INFO.name, "c", &[m, n])?;
    Problem { info: &INFO, a, w, scales, c }.launch(
        stream,
        path,
        // SAFETY: the tensors are live and have these sizes at these strides, c is borrowed mutably, no size is zero, there are
        // blocks for all rows of the weight, k consists of whole packs and rows are aligned for them.
        |kernel, blocks, args| unsafe {
            match kernel {
                [false, false] => stream.launch::<gk::GemmW8a16Skinny<T, false, 8>>(blocks, args),
                [false, true] => stream.launch::<gk::GemmW8a16Skinny<T, false, 16>>(blocks, args),
                [true, false] => stream.launch::<gk::GemmW8a16Skinny<T, true, 8>>(blocks, args),
                [true, true] => stream.launch::<gk::GemmW8a16Skinny<T, true, 16>>(blocks, args),
            }
        },
        |plan, grid, args| {
            // SAFETY: the same, with a cluster for each tile.
            unsafe {
                by_plan!(plan, R, SHARE, BLOCKS => {
                    stream.launch::<gk::GemmW8a16Cluster<T, R, SHARE, BLOCKS>>(grid, args)
                })
            }
        },
        |r, packed, grid, args| {
            // SAFETY: the same, with a block for each tile and part, and a sum in the workspace for each element of each.
            unsafe {
                match (r, packed) {
                    (16, _) => stream.launch::<gk::GemmW8a16Parts<T, 16, true>>(grid, args),
                    (_, true) => stream.launch::<gk::GemmW8a16Parts<T, 64, true>>(grid, args),
                    (_, false) => stream.launch::<gk::GemmW8a16Parts<T, 64, false>>(grid, args),
                }
            }
        },
    )
}

/// The operator's entry in the registry.
pub static GEMM_W8A16: WeightOnly = WeightOnly { info: &INFO, scaling: Scaling::Rows, launch: run };

static INFO: OpInfo = OpInfo {
    name: "gemm_w8a16",
    bench_name: "gemm.w8a16",
    summary: "product of 16-bit activations with a weight of 8-bit integers and a scale a row",
    math: "C = A·(diag(scales)·W)ᵀ",
    args: &[
        ArgInfo::input("a", "[m, k], rows may be padded"),
        ArgInfo::input("w", "[n, k], rows may be padded").of(&[DType::I8]),
        ArgInfo::input("scales", "[n], contiguous").of(&[DType::F32]),
        ArgInfo::output("c", "[m, n], rows may be padded"),
    ],
    params: &[],
    dtypes: &[DType::F16, DType::BF16],
    // The first of the summing kernels is for results in f32, which this operator does not have.
    kernels: &[gk::GEMM_W8A16_SKINNY, gk::GEMM_W8A16_CLUSTER, gk::GEMM_W8A16_PARTS, GEMV_SUM.split_at(1).1],
    variants: variants!(run, Scaling::Rows),
};

fn run(stream: &Stream, args: &mut Arguments<'_>, path: Path) -> Result<()> {
    dispatch!(INFO, args.dtype("a")?, [f16, bf16] => |T| {
        let (a, w, scales) = (args.input("a")?, args.input("w")?, args.input("scales")?);
        launch::<T>(stream, a, w, scales, args.output("c")?, path)
    })
}
