//! Product of matrices of 8-bit integers on the tensor cores, with scales.

use core::marker::PhantomData;

use gpu_kernels::ops::gemm::gemm_int8 as gk;

use super::product::{Path, Problem};
use super::scaled::{
    C_TYPE, How, Kernels, NAMES, ScaledProduct, Scales, Scaling, pieces, swapped, variants, variants_by_rows,
};
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::quant::quantize_rows_int8;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// c\[i, j\] = a_scales\[i\] · b_scales\[j\] · Σ a\[i, k\] · b\[j, k\], where `a` is `[m, k]` and `b` is `[n, k]`, both of
/// 8-bit integers.
///
/// `a_scales` is `[m]`, or `[1]` for all of `a`; `b_scales` is `[n]`, with a scale for each column of the result, or `[1]`.
/// Rows of `a` and `b` may be padded; rows at multiples of 16 bytes are read fastest, and on Hopper take the TMA and wgmma
/// path. Sums are exact in 32 bits; k = 0 gives zeros. The result, `[m, n]` of any float type, is a new dense tensor; the work
/// is queued on `stream`.
///
/// Dettmers et al., "LLM.int8()" (arXiv:2208.07339).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if rows are not contiguous and equally far apart, [`Error::TooLarge`] if m or n exceeds
/// 2³¹ − 1 or k 2¹⁷ − 1, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [2, 2], &[1i8, 2, 3, -4])?;
/// let b = Tensor::from_slice(&stream, [1, 2], &[10i8, 1])?;
/// let rows = Tensor::from_slice(&stream, [2], &[0.5f32, 2.0])?;
/// let all = Tensor::from_slice(&stream, [1], &[1.0f32])?;
/// assert_eq!(ops::gemm_int8::<f32>(&stream, &a, &rows, &b, &all)?.to_vec(&stream)?, [6.0, 52.0]);
/// # Ok(())
/// # }
/// ```
pub fn gemm_int8<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, i8>>,
    a_scales: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, i8>>,
    b_scales: impl Into<View<'a, f32>>,
) -> Result<Tensor<T>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    gemm_int8_into(stream, a, a_scales.into(), b, b_scales.into(), &mut c)?;
    Ok(c)
}

/// [`gemm_int8`] into `c`, `[m, n]`, whose rows may be padded.
///
/// # Errors
/// Same as [`gemm_int8`].
pub fn gemm_int8_into<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, i8>>,
    a_scales: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, i8>>,
    b_scales: impl Into<View<'a, f32>>,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, a.into(), a_scales.into(), b.into(), b_scales.into(), c.into(), None)
}

fn launch<T: Float>(
    stream: &Stream,
    a: View<'_, i8>,
    a_scales: View<'_, f32>,
    b: View<'_, i8>,
    b_scales: View<'_, f32>,
    c: ViewMut<'_, T>,
    path: Option<How>,
) -> Result<()> {
    let [m, k]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let problem = Problem::of_rows(&INFO, NAMES, a, b, c)?;
    require_depth(INFO.name, k)?;
    let scales =
        [Scales::of(&INFO, stream, "a_scales", a_scales, m)?, Scales::of(&INFO, stream, "b_scales", b_scales, n)?];
    problem.launch_scaled::<Of<T>>(stream, path, scales)
}

/// The kernels.
struct Of<T>(PhantomData<T>);

impl<T: Float> Kernels<i8, i8, T> for Of<T> {
    type Hopper = gk::GemmInt8Hopper<T>;
    type Packed = gk::GemmInt8Mma<T, 16>;
    type Any = gk::GemmInt8Mma<T, 1>;
    type Pieces208 = gk::GemmInt8Pieces<208>;
    type Pieces128 = gk::GemmInt8Pieces<128>;
    type Pieces64 = gk::GemmInt8Pieces<64>;
    type Swapped208 = gk::GemmInt8Swapped<T, 208, false>;
    type Swapped192 = gk::GemmInt8Swapped<T, 192, false>;
    type Swapped160 = gk::GemmInt8Swapped<T, 160, false>;
    type Swapped128 = gk::GemmInt8Swapped<T, 128, false>;
    type Swapped96 = gk::GemmInt8Swapped<T, 96, false>;
    type Swapped64 = gk::GemmInt8Swapped<T, 64, false>;
    type Narrow224 = gk::GemmInt8Swapped<T, 224, true>;
    type Narrow160 = gk::GemmInt8Swapped<T, 160, true>;
    type Narrow128 = gk::GemmInt8Swapped<T, 128, true>;
    type Narrow64 = gk::GemmInt8Swapped<T, 64, true>;
    type Sum = gk::GemmInt8Sum<T>;
}

/// Fails unless 32-bit sums can hold this number of products.
fn require_depth(op: &'static str, k: usize) -> Result<()> {
    if k > gk::MAX_K as usize {
        let reason = format!("k is {k}, sums of 32 bits take at most {}", gk::MAX_K);
        return Err(Error::too_large(op, "a", reason));
    }
    Ok(())
}

/// C = A·Bᵀ in 8-bit integers, where `a` is `[m, k]` and `b` is `[n, k]`, both of floats: both are [quantized by
/// row](quantize_rows_int8()) and multiplied by [`gemm_int8`].
///
/// The cost in accuracy: each factor is off by at most half a step, 1/254 of the greatest magnitude in its row. A weight that
/// is used more than once should be quantized once beforehand. The result, `[m, n]`, is a new dense tensor; the work is queued
/// on `stream`.
///
/// # Errors
/// Same as [`quantize_rows_int8`](quantize_rows_int8()) and [`gemm_int8`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [1, 2], &[127.0f32, -1.0])?;
/// let b = Tensor::from_slice(&stream, [2, 2], &[1.27f32, 0.0, 0.0, -254.0])?;
/// let c = ops::matmul_int8(&stream, &a, &b)?.to_vec(&stream)?;
/// assert!((c[0] - 161.29).abs() < 1e-4 && (c[1] - 254.0).abs() < 1e-4);
/// # Ok(())
/// # }
/// ```
pub fn matmul_int8<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
) -> Result<Tensor<T>> {
    // Errors that the two operators would report under their own names.
    let (a, b, op) = (a.into(), b.into(), "matmul_int8");
    stream.require_devices(op, &[("a", &a), ("b", &b)])?;
    let ([_, k], [n, _]): ([usize; 2], [usize; 2]) = (a.dims(op, "a")?, b.dims(op, "b")?);
    b.require_shape(op, "b", &[n, k])?;
    a.require_row_stride(op, "a")?;
    b.require_row_stride(op, "b")?;
    require_depth(op, k)?;
    // And those of memory and of sizes, which are not known beforehand.
    let named = |mut error, arg| {
        match &mut error {
            Error::OutOfMemory { of, .. } => *of = Some((op, arg)),
            Error::TooLarge { op: of, arg: its, .. } => (*of, *its) = (op, arg),
            _ => {}
        }
        error
    };
    let quantized = |x, arg| quantize_rows_int8(stream, x).map_err(|error| named(error, arg));
    let ((a, a_scales), (b, b_scales)) = (quantized(a, "a")?, quantized(b, "b")?);
    gemm_int8(stream, &a, &a_scales, &b, &b_scales).map_err(|error| named(error, "c"))
}

/// The operator's entry in the registry.
pub static GEMM_INT8: ScaledProduct = ScaledProduct {
    info: &INFO,
    scaling: Scaling::Rows,
    b: DType::I8,
    production: &[(4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 8192)],
    launch: |stream, args, path| run(stream, args, (path != Path::Fastest).then_some(How::Fused(path))),
};

static INFO: OpInfo = OpInfo {
    name: "gemm_int8",
    bench_name: "gemm.int8",
    summary: "product of matrices of 8-bit integers on the tensor cores, with scales",
    math: "C = diag(a_scales)·(A·Bᵀ)·diag(b_scales)",
    args: &[
        ArgInfo::input("a", "[m, k], rows may be padded").of(&[DType::I8]),
        ArgInfo::input("a_scales", "[m] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::input("b", "[n, k], rows may be padded").of(&[DType::I8]),
        ArgInfo::input("b_scales", "[n] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::output("c", "[m, n], of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[C_TYPE],
    dtypes: DType::FLOATS,
    kernels: &[gk::GEMM_INT8_MMA, gk::GEMM_INT8_HOPPER, gk::GEMM_INT8_SWAPPED, gk::GEMM_INT8_PIECES, gk::GEMM_INT8_SUM],
    variants: variants_by_rows!(run),
};

fn run(stream: &Stream, args: &mut Arguments<'_>, path: Option<How>) -> Result<()> {
    dispatch!(INFO, args.dtype("c")?, float => |T| {
        let (a, a_scales) = (args.input("a")?, args.input("a_scales")?);
        let (b, b_scales) = (args.input("b")?, args.input("b_scales")?);
        launch::<T>(stream, a, a_scales, b, b_scales, args.output("c")?, path)
    })
}
