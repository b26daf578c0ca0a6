//! 16-bit matrix products on the tensor cores, of operands in either order, single or batched.

mod layer;
mod operator;
mod padded;
mod path;
mod problem;
mod skinny;
mod split;
mod variants;

pub use layer::{GEMM_BF16, gemm_bf16, gemm_bf16_into};
pub use operator::{GEMM, GEMM_TO_F32, Gemm};
pub(super) use operator::{joined, kernels};
#[cfg(feature = "check")]
pub(crate) use padded::WORTH as WORTH_COPYING;
pub(super) use path::{Facts, Path};
pub use problem::Scalar;
pub(super) use split::{Pieces, pieces};

use cuda_std::float::Half;

use self::problem::{Problem, Shapes};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// C = A·B in f16 or bf16 with f32 accumulation: `a` is `[m, k]`, `b` is `[k, n]`, and the result is `[m, n]`; or each of these
/// is a batch of matrices, `[batch, …]`. One of the operands may be a single matrix that all products share.
///
/// Operands may have any strides: a [transposed](View::t) matrix is read in place. Operands that are contiguous along one of
/// their dimensions, with all other strides and the address multiples of 16 bytes, are read in packs of 16 bytes; on Hopper
/// they take the TMA and wgmma path, which is twice as fast as the path for all GPUs. There, a single product of up to 128 rows
/// or columns whose operands are contiguous along k takes about as long as reading them. Larger products first copy matrices
/// that are not aligned to packs, such as rows with an odd number of elements, into memory of the stream. Any m, n and k work,
/// and k = 0 gives zeros. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1 or C has more
/// than 2³¹ − 1 tiles, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let values: Vec<f16> = [1.0, 2.0, 3.0, 4.0].map(f16::from_f32).into();
/// let a = Tensor::from_slice(&stream, [2, 2], &values)?;
/// let product = ops::gemm(&stream, &a, a.view().t())?;
/// assert_eq!(product.to_vec(&stream)?, [5.0, 11.0, 11.0, 25.0].map(f16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn gemm<'a, T: Float + Half>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
) -> Result<Tensor<T>> {
    let (a, b) = (a.into(), b.into());
    let mut c =
        Tensor::result_as(operator::INFO.name, "c", stream, Shapes::of(&operator::INFO, a.shape(), b.shape())?.c())?;
    gemm_into(stream, 1.0, a, b, 0.0, &mut c)?;
    Ok(c)
}

/// C = α·A·B + β·C, with the shapes of [`gemm`]. α is a number or a tensor of one element. Rows of `c` are
/// contiguous, at any distance from each other. With β = 0 the contents of `c` are ignored; with α = 0 a product
/// that is infinite or NaN still gives NaN.
///
/// # Errors
/// Same as [`gemm`], and [`Error::Layout`](crate::Error::Layout) if the elements of a row of `c` are not adjacent.
pub fn gemm_into<'a, T: Float + Half>(
    stream: &Stream,
    alpha: impl Into<Scalar<'a>>,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
    beta: f32,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    Problem::new(&operator::INFO, alpha.into(), beta, a.into(), b.into(), c.into())?.launch(stream, None)
}

/// [`gemm`] with the result in f32, in which it was summed: for example a gradient of weights that is to be accumulated.
///
/// # Errors
/// Same as [`gemm`].
pub fn gemm_to_f32<'a, T: Float + Half>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
) -> Result<Tensor<f32>> {
    let (a, b) = (a.into(), b.into());
    let mut c = Tensor::result_as(
        operator::TO_F32.name,
        "c",
        stream,
        Shapes::of(&operator::TO_F32, a.shape(), b.shape())?.c(),
    )?;
    gemm_to_f32_into(stream, 1.0, a, b, 0.0, &mut c)?;
    Ok(c)
}

/// [`gemm_into`] with `c` in f32. With β = 1 and rows of `c` that are whole multiples of 16 bytes, the Hopper path adds to `c`
/// without reading it.
///
/// # Errors
/// Same as [`gemm_into`].
pub fn gemm_to_f32_into<'a, T: Float + Half>(
    stream: &Stream,
    alpha: impl Into<Scalar<'a>>,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
    beta: f32,
    c: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    Problem::new(&operator::TO_F32, alpha.into(), beta, a.into(), b.into(), c.into())?.launch(stream, None)
}
