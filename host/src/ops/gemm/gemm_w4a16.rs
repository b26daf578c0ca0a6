//! Product of 16-bit activations with a weight of 4-bit integers.

use cuda_std::float::Half;
use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::gemm::gemm_w4a16 as gk;
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

/// c\[i, j\] = Σ a\[i, k\] · scales\[j, ⌊k/128⌋\] · (q\[j, k\] − zeros\[j, ⌊k/128⌋\]), where `a` is `[m, k]` of 16-bit floats
/// and q are 4-bit integers, two per byte of `w`.
///
/// `w` is `[n, ⌈k/2⌉]`: the lower half of byte i of a row is q for k = 2i, the upper half is q for k = 2i + 1, both numbers
/// from 0 to 15. With an odd k the upper half of the last byte is ignored. `scales` and, if present, `zeros` are
/// `[n, ⌈k/128⌉]`, one for each group of 128 along k. A zero point is a number from 0 to 15 in the lower four bits of its byte;
/// the upper bits are ignored. Without zero points, each is 8. [`quantize_int4`](crate::ops::quantize_int4()) makes these
/// tensors from a weight. GPTQ and AWQ weights with groups of 128 have this form once their bytes are contiguous along k and
/// each zero point has a byte of its own, with a value one more than in GPTQ's files.
///
/// The weight is widened exactly on the way to the tensor cores; the sums of groups, times their scales, are added in f32. Rows
/// may be padded; rows at multiples of 16 bytes are read fastest. Any m works, but the weight is widened again for each
/// slice of up to 192 rows. Sums are f32 in a fixed order; k = 0 gives zeros. The result, `[m, n]`, is a new dense tensor; the work is queued on
/// `stream`.
///
/// Frantar et al., "GPTQ" (arXiv:2210.17323); Lin et al., "AWQ" (arXiv:2306.00978); "MARLIN" (arXiv:2408.11743).
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
/// let a = Tensor::from_slice(&stream, [1, 3], &[1.0, -2.0, 4.0].map(bf16::from_f32))?;
/// // 5, −8 and 0 in the first row, −1, 2 and 7 in the second.
/// let w = Tensor::from_slice(&stream, [2, 2], &[0x0du8, 0x08, 0xa7, 0x0f])?;
/// let scales = Tensor::from_slice(&stream, [2, 1], &[1.0f32, 0.5])?;
/// let c = ops::gemm_w4a16(&stream, &a, &w, &scales, None)?;
/// assert_eq!(c.to_vec(&stream)?, [21.0, 11.5].map(bf16::from_f32));
/// // With zero points of 0 and 15 the integers are 13, 0 and 8, and −8, −5 and 0.
/// let zeros = Tensor::from_slice(&stream, [2, 1], &[0u8, 15])?;
/// let c = ops::gemm_w4a16(&stream, &a, &w, &scales, Some(zeros.view()))?;
/// assert_eq!(c.to_vec(&stream)?, [45.0, 1.0].map(bf16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn gemm_w4a16<'a, T: Float + Half>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    w: impl Into<View<'a, u8>>,
    scales: impl Into<View<'a, f32>>,
    zeros: Option<View<'a, u8>>,
) -> Result<Tensor<T>> {
    let (a, w) = (a.into(), w.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = w.dims(INFO.name, "w")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    gemm_w4a16_into(stream, a, w, scales.into(), zeros, &mut c)?;
    Ok(c)
}

/// [`gemm_w4a16`] into `c`, `[m, n]`, whose rows may be padded.
///
/// # Errors
/// Same as [`gemm_w4a16`].
pub fn gemm_w4a16_into<'a, T: Float + Half>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    w: impl Into<View<'a, u8>>,
    scales: impl Into<View<'a, f32>>,
    zeros: Option<View<'a, u8>>,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, a.into(), w.into(), scales.into(), zeros, c.into(), Path::Fastest)
}

fn launch<'a, T: Float + Half>(
    stream: &Stream,
    a: View<'a, T>,
    w: View<'a, u8>,
    scales: View<'a, f32>,
    zeros: Option<View<'a, u8>>,
    c: ViewMut<'a, T>,
    path: Path,
) -> Result<()> {
    let [m, k]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = w.dims(INFO.name, "w")?;
    w.require_shape(INFO.name, "w", &Scaling::Groups.weight(n, k))?;
    scales.require_shape(INFO.name, "scales", &Scaling::Groups.scales(n, k))?;
    scales.require_contiguous(INFO.name, "scales")?;
    if let Some(zeros) = &zeros {
        zeros.require_shape(INFO.name, "zeros", &Scaling::Groups.scales(n, k))?;
        zeros.require_contiguous(INFO.name, "zeros")?;
        zeros.require_device(INFO.name, "zeros", stream)?;
    }
    c.require_shape(INFO.name, "c", &[m, n])?;
    let asymmetric = zeros.is_some();
    let zeros = zeros.map_or(Ok(DevicePtr::null()), |zeros| zeros.ptr(stream))?;
    Problem { info: &INFO, a, w, scales, c }.launch(
        stream,
        path,
        |[alone, large], blocks, (a, w, scales, c, sizes)| {
            let args = (a, w, scales, zeros, c, sizes);
            // SAFETY: the tensors are live and have these sizes at these strides, c is borrowed mutably, no size is zero, there
            // are blocks for all rows of the weight, k consists of whole packs and rows are aligned for them, and zero points
            // are read only if present.
            unsafe {
                match (alone, large, asymmetric) {
                    (false, _, false) => stream.launch::<gk::GemmW4a16Skinny<T, false, 8, false>>(blocks, args),
                    (false, _, true) => stream.launch::<gk::GemmW4a16Skinny<T, false, 8, true>>(blocks, args),
                    (true, false, false) => stream.launch::<gk::GemmW4a16Skinny<T, true, 8, false>>(blocks, args),
                    (true, false, true) => stream.launch::<gk::GemmW4a16Skinny<T, true, 8, true>>(blocks, args),
                    (true, true, false) => stream.launch::<gk::GemmW4a16Skinny<T, true, 16, false>>(blocks, args),
                    (true, true, true) => stream.launch::<gk::GemmW4a16Skinny<T, true, 16, true>>(blocks, args),
                }
            }
        },
        |plan, grid, (weight, vectors, scales, c, sizes)| {
            let args = (weight, vectors, scales, zeros, c, sizes);
            // SAFETY: the same, with a cluster for each tile.
            unsafe {
                by_plan!(plan, R, SHARE, BLOCKS => match asymmetric {
                    false => stream.launch::<gk::GemmW4a16Cluster<T, R, SHARE, BLOCKS, false>>(grid, args),
                    true => stream.launch::<gk::GemmW4a16Cluster<T, R, SHARE, BLOCKS, true>>(grid, args),
                })
            }
        },
        |r, packed, grid, (a, w, scales, parts, sizes)| {
            let args = (a, w, scales, zeros, parts, sizes);
            // SAFETY: the same, with a block for each tile and part, and a sum in the workspace for each element of each.
            unsafe {
                match (r, packed, asymmetric) {
                    (16, _, false) => stream.launch::<gk::GemmW4a16Parts<T, 16, true, false>>(grid, args),
                    (16, _, true) => stream.launch::<gk::GemmW4a16Parts<T, 16, true, true>>(grid, args),
                    (_, true, false) => stream.launch::<gk::GemmW4a16Parts<T, 64, true, false>>(grid, args),
                    (_, true, true) => stream.launch::<gk::GemmW4a16Parts<T, 64, true, true>>(grid, args),
                    (_, false, false) => stream.launch::<gk::GemmW4a16Parts<T, 64, false, false>>(grid, args),
                    (_, false, true) => stream.launch::<gk::GemmW4a16Parts<T, 64, false, true>>(grid, args),
                }
            }
        },
    )
}

/// The operator's entry in the registry.
pub static GEMM_W4A16: WeightOnly = WeightOnly { info: &INFO, scaling: Scaling::Groups, launch: run };

static INFO: OpInfo = OpInfo {
    name: "gemm_w4a16",
    bench_name: "gemm.w4a16",
    summary: "product of 16-bit activations with a weight of 4-bit integers, and a scale and a zero point for each 128 of a row",
    math: "cᵢⱼ = Σ_g scales[j, g]·Σ_{k in g} aᵢₖ·(qⱼₖ − zeros[j, g]), zeros 8 if there are none",
    args: &[
        ArgInfo::input("a", "[m, k], rows may be padded"),
        ArgInfo::input("w", "[n, ⌈k/2⌉], two integers a byte, rows may be padded").of(&[DType::U8]),
        ArgInfo::input("scales", "[n, ⌈k/128⌉], contiguous").of(&[DType::F32]),
        ArgInfo::input("zeros", "[n, ⌈k/128⌉], the lower four bits of a byte, contiguous").of(&[DType::U8]).optional(),
        ArgInfo::output("c", "[m, n], rows may be padded"),
    ],
    params: &[],
    dtypes: &[DType::F16, DType::BF16],
    // The first of the summing kernels is for results in f32, which this operator does not have.
    kernels: &[gk::GEMM_W4A16_SKINNY, gk::GEMM_W4A16_CLUSTER, gk::GEMM_W4A16_PARTS, GEMV_SUM.split_at(1).1],
    variants: variants!(run, Scaling::Groups),
};

fn run(stream: &Stream, args: &mut Arguments<'_>, path: Path) -> Result<()> {
    dispatch!(INFO, args.dtype("a")?, [f16, bf16] => |T| {
        let (a, w, scales) = (args.input("a")?, args.input("w")?, args.input("scales")?);
        let zeros = args.optional_input("zeros")?;
        launch::<T>(stream, a, w, scales, zeros, args.output("c")?, path)
    })
}
