//! Product of matrices of 8-bit floats on the tensor cores, with scales.

use core::marker::PhantomData;

use gpu_kernels::ops::gemm::gemm_fp8 as gk;

use super::product::{Path, Problem};
use super::scaled::{
    A_TYPE, C_TYPE, How, Kernels, NAMES, ScaledProduct, Scales, Scaling, pieces, swapped, variants, variants_by_rows,
};
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float, Float8};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};
use crate::{dispatch, f8e4m3};

/// c\[i, j\] = a_scales\[i\] · b_scales\[j\] · Σ a\[i, k\] · b\[j, k\], where `a` is `[m, k]` and `b` is `[n, k]`, both of
/// 8-bit floats.
///
/// `a` is [`f8e4m3`](struct@crate::f8e4m3), or [`f8e5m2`](struct@crate::f8e5m2), which is usual for gradients; `b`, a weight,
/// is f8e4m3. `a_scales` is `[m]`, or `[1]` for all of `a`; `b_scales` is `[n]`, with a scale for each column of the result, or
/// `[1]`. Rows of `a` and `b` may be padded; rows at multiples of 16 bytes are read fastest, and on Hopper take the TMA and
/// wgmma path. k = 0 gives zeros. The result, `[m, n]` of any float type, is a new dense tensor; the work is queued on
/// `stream`.
///
/// Hopper's tensor cores keep only some 13 bits below the greatest addend, as cuBLAS does with fast accumulation; where that is
/// not enough, use [`gemm_fp8_blocks`](super::gemm_fp8_blocks()), which accumulates in f32.
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
/// let a = Tensor::from_slice(&stream, [2, 2], &[1.0, 2.0, 3.0, -4.0].map(f8e4m3::from_f32))?;
/// let b = Tensor::from_slice(&stream, [1, 2], &[10.0, 1.0].map(f8e4m3::from_f32))?;
/// let rows = Tensor::from_slice(&stream, [2], &[0.5f32, 2.0])?;
/// let all = Tensor::from_slice(&stream, [1], &[1.0f32])?;
/// assert_eq!(ops::gemm_fp8::<_, f32>(&stream, &a, &rows, &b, &all)?.to_vec(&stream)?, [6.0, 52.0]);
/// # Ok(())
/// # }
/// ```
pub fn gemm_fp8<'a, Q: Float8, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, Q>>,
    a_scales: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, f8e4m3>>,
    b_scales: impl Into<View<'a, f32>>,
) -> Result<Tensor<T>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    gemm_fp8_into(stream, a, a_scales.into(), b, b_scales.into(), &mut c)?;
    Ok(c)
}

/// [`gemm_fp8`] into `c`, `[m, n]`, whose rows may be padded.
///
/// # Errors
/// Same as [`gemm_fp8`].
pub fn gemm_fp8_into<'a, Q: Float8, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, Q>>,
    a_scales: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, f8e4m3>>,
    b_scales: impl Into<View<'a, f32>>,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, a.into(), a_scales.into(), b.into(), b_scales.into(), c.into(), None)
}

fn launch<Q: Float8, T: Float>(
    stream: &Stream,
    a: View<'_, Q>,
    a_scales: View<'_, f32>,
    b: View<'_, f8e4m3>,
    b_scales: View<'_, f32>,
    c: ViewMut<'_, T>,
    path: Option<How>,
) -> Result<()> {
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let problem = Problem::of_rows(&INFO, NAMES, a, b, c)?;
    let scales =
        [Scales::of(&INFO, stream, "a_scales", a_scales, m)?, Scales::of(&INFO, stream, "b_scales", b_scales, n)?];
    problem.launch_scaled::<Of<Q, T>>(stream, path, scales)
}

/// The kernels.
struct Of<Q, T>(PhantomData<(Q, T)>);

impl<Q: Float8, T: Float> Kernels<Q, f8e4m3, T> for Of<Q, T> {
    type Hopper = gk::GemmFp8Hopper<Q, T>;
    type Packed = gk::GemmFp8Mma<Q, T, 16>;
    type Any = gk::GemmFp8Mma<Q, T, 1>;
    type Pieces208 = gk::GemmFp8Pieces<Q, 208>;
    type Pieces128 = gk::GemmFp8Pieces<Q, 128>;
    type Pieces64 = gk::GemmFp8Pieces<Q, 64>;
    type Swapped208 = gk::GemmFp8Swapped<Q, T, 208, false>;
    type Swapped192 = gk::GemmFp8Swapped<Q, T, 192, false>;
    type Swapped160 = gk::GemmFp8Swapped<Q, T, 160, false>;
    type Swapped128 = gk::GemmFp8Swapped<Q, T, 128, false>;
    type Swapped96 = gk::GemmFp8Swapped<Q, T, 96, false>;
    type Swapped64 = gk::GemmFp8Swapped<Q, T, 64, false>;
    type Narrow224 = gk::GemmFp8Swapped<Q, T, 224, true>;
    type Narrow160 = gk::GemmFp8Swapped<Q, T, 160, true>;
    type Narrow128 = gk::GemmFp8Swapped<Q, T, 128, true>;
    type Narrow64 = gk::GemmFp8Swapped<Q, T, 64, true>;
    type Sum = gk::GemmFp8Sum<T>;
}

/// The operator's entry in the registry.
pub static GEMM_FP8: ScaledProduct = ScaledProduct {
    info: &INFO,
    scaling: Scaling::Rows,
    b: DType::F8E4M3,
    production: &[(4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 7168)],
    launch: |stream, args, path| run(stream, args, (path != Path::Fastest).then_some(How::Fused(path))),
};

static INFO: OpInfo = OpInfo {
    name: "gemm_fp8",
    bench_name: "gemm.fp8",
    summary: "product of matrices of 8-bit floats on the tensor cores, with scales",
    math: "C = diag(a_scales)·(A·Bᵀ)·diag(b_scales)",
    args: &[
        ArgInfo::input("a", "[m, k], of the type `from`, rows may be padded").of(DType::FLOAT8S),
        ArgInfo::input("a_scales", "[m] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::input("b", "[n, k], rows may be padded").of(&[DType::F8E4M3]),
        ArgInfo::input("b_scales", "[n] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::output("c", "[m, n], of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[A_TYPE, C_TYPE],
    dtypes: DType::FLOATS,
    kernels: &[gk::GEMM_FP8_MMA, gk::GEMM_FP8_HOPPER, gk::GEMM_FP8_SWAPPED, gk::GEMM_FP8_PIECES, gk::GEMM_FP8_SUM],
    variants: variants_by_rows!(run),
};

fn run(stream: &Stream, args: &mut Arguments<'_>, path: Option<How>) -> Result<()> {
    dispatch!(INFO, args.dtype("a")?, [crate::f8e4m3, crate::f8e5m2] => |Q| {
        dispatch!(INFO, args.dtype("c")?, float => |T| {
            let (a, a_scales) = (args.input("a")?, args.input("a_scales")?);
            let (b, b_scales) = (args.input("b")?, args.input("b_scales")?);
            launch::<Q, T>(stream, a, a_scales, b, b_scales, args.output("c")?, path)
        })
    })
}
