//! Product of matrices in MXFP8.

use gpu_kernels::ops::gemm::gemm_mxfp8 as gk;

use super::product::{Path, Problem};
use super::scaled::{A_TYPE, C_TYPE, NAMES, ScaledProduct, Scaling, of_blocks, variants};
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float, Float8};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};
use crate::{dispatch, f8e4m3, f8e8m0};

/// A·Bᵀ for `a` of `[m, k]` and `b` of `[n, k]` in 8-bit floats, of which each 32 along k of a row have a power of two as their scale.
///
/// `a` is [`f8e4m3`](struct@crate::f8e4m3), or [`f8e5m2`](struct@crate::f8e5m2), as gradients are; `b`, a weight, is f8e4m3. `a_scales` is `[m, ⌈k/32⌉]` and
/// `b_scales` `[n, ⌈k/32⌉]`, contiguous: what [`quantize_mxfp8_1x32`](crate::ops::quantize_mxfp8_1x32()) makes of either. Groups' sums are added in f32,
/// times their scales, whatever these are; NaN as a scale makes NaN of what it touches. Rows of `a` and `b` may be padded; those at multiples of
/// 16 bytes are read fastest, and on Hopper take the TMA and wgmma path. k = 0 gives zeros. The result, `[m, n]` of any float type, is a new dense
/// tensor; the work is queued on `stream`.
///
/// Hopper has no instruction that takes such scales: there [`gemm_fp8_blocks`](super::gemm_fp8_blocks()) is about three times as fast, and
/// [`dequantize_mxfp8`](crate::ops::dequantize_mxfp8()) of both operands and a product in bf16, which takes memory for them, nearly twice.
///
/// Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f8e4m3, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 80], &[0.5f32; 80])?;
/// let weight = Tensor::from_slice(&stream, [2, 80], &[3.0f32; 160])?;
/// let (a, a_scales) = ops::quantize_mxfp8_1x32::<f32, f8e4m3>(&stream, &x)?;
/// let (b, b_scales) = ops::quantize_mxfp8_1x32::<f32, f8e4m3>(&stream, &weight)?;
/// let y = ops::gemm_mxfp8::<_, f32>(&stream, &a, &a_scales, &b, &b_scales)?;
/// assert_eq!(y.to_vec(&stream)?, [120.0; 2]);
/// # Ok(())
/// # }
/// ```
pub fn gemm_mxfp8<'a, Q: Float8, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, Q>>,
    a_scales: impl Into<View<'a, f8e8m0>>,
    b: impl Into<View<'a, f8e4m3>>,
    b_scales: impl Into<View<'a, f8e8m0>>,
) -> Result<Tensor<T>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::uninit(stream, [m, n])?;
    gemm_mxfp8_into(stream, a, a_scales.into(), b, b_scales.into(), &mut c)?;
    Ok(c)
}

/// [`gemm_mxfp8`] into `c`, whose rows may be padded.
///
/// # Errors
/// As of [`gemm_mxfp8`].
pub fn gemm_mxfp8_into<'a, Q: Float8, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, Q>>,
    a_scales: impl Into<View<'a, f8e8m0>>,
    b: impl Into<View<'a, f8e4m3>>,
    b_scales: impl Into<View<'a, f8e8m0>>,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, a.into(), a_scales.into(), b.into(), b_scales.into(), c.into(), Path::Fastest)
}

fn launch<Q: Float8, T: Float>(
    stream: &Stream,
    a: View<'_, Q>,
    a_scales: View<'_, f8e8m0>,
    b: View<'_, f8e4m3>,
    b_scales: View<'_, f8e8m0>,
    c: ViewMut<'_, T>,
    path: Path,
) -> Result<()> {
    let [m, k]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let problem = Problem::of_rows(&INFO, NAMES, a, b, c)?;
    let groups = k.div_ceil(gk::GROUP as usize);
    let scales = of_blocks(&INFO, stream, [a_scales, b_scales], [[m, groups], [n, groups]])?;
    problem.launch_blocks::<gk::GemmMxfp8Hopper<Q, T>, gk::GemmMxfp8Mma<Q, T, 16>, gk::GemmMxfp8Mma<Q, T, 1>, _>(
        stream,
        path,
        gk::BLOCK_N,
        scales,
    )
}

/// The operator's entry in the registry.
pub static GEMM_MXFP8: ScaledProduct = ScaledProduct {
    info: &INFO,
    scaling: Scaling::Powers(gk::GROUP as usize),
    b: DType::F8E4M3,
    production: &[(4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 7168)],
    launch: run,
};

static INFO: OpInfo = OpInfo {
    name: "gemm_mxfp8",
    bench_name: "gemm.mxfp8",
    summary: "product of MXFP8: 8-bit floats with a power of two for each 32 along k",
    math: "cᵢⱼ = Σ_g a_scales[i, g]·b_scales[j, g]·Σ_{k in g} aᵢₖ·bⱼₖ",
    args: &[
        ArgInfo::input("a", "[m, k], of the type `from`, rows may be padded").of(DType::FLOAT8S),
        ArgInfo::input("a_scales", "[m, ⌈k/32⌉], contiguous").of(&[DType::F8E8M0]),
        ArgInfo::input("b", "[n, k], rows may be padded").of(&[DType::F8E4M3]),
        ArgInfo::input("b_scales", "[n, ⌈k/32⌉], contiguous").of(&[DType::F8E8M0]),
        ArgInfo::output("c", "[m, n], of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[A_TYPE, C_TYPE],
    dtypes: DType::FLOATS,
    kernels: &[gk::GEMM_MXFP8_MMA, gk::GEMM_MXFP8_HOPPER],
    variants: variants!(run),
};

fn run(stream: &Stream, args: &mut Arguments<'_>, path: Path) -> Result<()> {
    dispatch!(INFO, args.dtype("a")?, [crate::f8e4m3, crate::f8e5m2] => |Q| {
        dispatch!(INFO, args.dtype("c")?, float => |T| {
            let (a, a_scales) = (args.input("a")?, args.input("a_scales")?);
            let (b, b_scales) = (args.input("b")?, args.input("b_scales")?);
            launch::<Q, T>(stream, a, a_scales, b, b_scales, args.output("c")?, path)
        })
    })
}
