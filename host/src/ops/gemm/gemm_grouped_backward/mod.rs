//! Gradient of the grouped matrix product.

mod operator;

pub use operator::{GEMM_GROUPED_BACKWARD, GemmGroupedBackward};

use cuda_std::float::{Element, Half};
use gpu_kernels::ops::gemm::gemm::{hopper, mma};
use gpu_kernels::ops::gemm::{self as gk_family, gemm_grouped_backward as gk};

use self::operator::INFO;
use super::operand::{Major, Operand, Tiling};
use super::product::Path;
use super::{gemm_grouped, note_work, sizes};
use crate::ops::elementwise::grid;
use crate::ops::model::Bound;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradients of [`gemm_grouped`](fn@crate::ops::gemm_grouped); that of the matrices is in f32.
///
/// `x` is `[rows, in]`, `weight` is `[groups, out, in]`, `offsets` is `[groups + 1]`, as in the forward, and `dy`, the gradient of the result, is
/// `[rows, out]`. In the rows of group g, dx = dy · W(g) and dweight(g) = dyᵀ · x. Rows of no group have a dx of zeros and contribute to no weight,
/// whatever they contain; the weight of a group without rows has a gradient of zeros. Sums are f32 in the order of the rows, the same every time. The
/// results are new dense tensors; the work is queued on `stream`.
///
/// Rows of `x` and `dy` may be padded; `weight` may have any strides. As in the forward, the fast paths need rows at multiples of 16 bytes.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows or the offsets are not contiguous or rows
/// not equally far apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [3, 1], &[1.0, 2.0, 3.0].map(f16::from_f32))?;
/// let weight = Tensor::from_slice(&stream, [2, 1, 1], &[10.0, 100.0].map(f16::from_f32))?;
/// let offsets = Tensor::from_slice(&stream, [3], &[0, 1, 3])?;
/// let dy = Tensor::from_slice(&stream, [3, 1], &[1.0, 0.5, -1.0].map(f16::from_f32))?;
/// let gradients = ops::gemm_grouped_backward(&stream, &x, &weight, &offsets, &dy)?;
/// assert_eq!(gradients.dx.to_vec(&stream)?, [10.0, 50.0, -100.0].map(f16::from_f32));
/// assert_eq!(gradients.dweight.to_vec(&stream)?, [1.0, -2.0]);
/// # Ok(())
/// # }
/// ```
pub fn gemm_grouped_backward<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    offsets: impl Into<View<'a, i32>>,
    dy: impl Into<View<'a, T>>,
) -> Result<GroupedGradients<T>> {
    let (x, weight, offsets, dy) = (x.into(), weight.into(), offsets.into(), dy.into());
    let mut dx = Tensor::result(stream, x.shape())?;
    let mut dweight = Tensor::result(stream, weight.shape())?;
    let gradients = GroupedGradientsMut { dx: (&mut dx).into(), dweight: WeightGradient::F32((&mut dweight).into()) };
    gemm_grouped_backward_into(stream, x, weight, offsets, dy, false, gradients)?;
    Ok(GroupedGradients { dx, dweight })
}

/// The gradients of [`gemm_grouped`](fn@crate::ops::gemm_grouped) with respect to its inputs.
#[derive(Debug)]
pub struct GroupedGradients<T> {
    /// The gradient with respect to the rows, `[rows, in]`.
    pub dx: Tensor<T>,
    /// The gradient with respect to the matrices, `[groups, out, in]`, in f32, as it was summed.
    pub dweight: Tensor<f32>,
}

/// Where to write [`GroupedGradients`].
#[derive(Debug)]
pub struct GroupedGradientsMut<'a, T> {
    /// The gradient with respect to the rows, `[rows, in]`; rows may be padded.
    pub dx: ViewMut<'a, T>,
    /// The gradient with respect to the matrices, `[groups, out, in]`, with a contiguous last dimension.
    pub dweight: WeightGradient<'a, T>,
}

/// The gradient of weights, in either of two types.
#[derive(Debug)]
pub enum WeightGradient<'a, T> {
    /// In f32, as it was summed.
    F32(ViewMut<'a, f32>),
    /// Rounded to the type of the weights.
    Rounded(ViewMut<'a, T>),
}

/// [`gemm_grouped_backward`] that writes to `gradients`. With `accumulate`, the gradient of the matrices is added to the present contents;
/// without it, the present contents are ignored.
///
/// # Errors
/// Same as [`gemm_grouped_backward`].
pub fn gemm_grouped_backward_into<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    offsets: impl Into<View<'a, i32>>,
    dy: impl Into<View<'a, T>>,
    accumulate: bool,
    gradients: GroupedGradientsMut<'a, T>,
) -> Result<()> {
    let of = Inputs { x: x.into(), weight: weight.into(), offsets: offsets.into(), dy: dy.into() };
    launch(stream, of, accumulate, gradients, Path::Fastest)
}

/// The inputs of the gradient.
struct Inputs<'a, T> {
    x: View<'a, T>,
    weight: View<'a, T>,
    offsets: View<'a, i32>,
    dy: View<'a, T>,
}

fn launch<T: Float + Half>(
    stream: &Stream,
    of: Inputs<'_, T>,
    accumulate: bool,
    GroupedGradientsMut { dx, dweight }: GroupedGradientsMut<'_, T>,
    path: Path,
) -> Result<()> {
    let Inputs { x, weight, offsets, dy } = of;
    stream.require_devices(INFO.name, &[("x", &x), ("weight", &weight), ("offsets", &offsets)])?;
    stream.require_devices(INFO.name, &[("dy", &dy), ("dx", &dx)])?;
    let [rows, depth]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [groups, out, _]: [usize; 3] = weight.dims(INFO.name, "weight")?;
    weight.require_shape(INFO.name, "weight", &[groups, out, depth])?;
    offsets.require_shape(INFO.name, "offsets", &[groups.saturating_add(1)])?;
    offsets.require_contiguous(INFO.name, "offsets")?;
    dy.require_shape(INFO.name, "dy", &[rows, out])?;
    dx.require_shape(INFO.name, "dx", &[rows, depth])?;
    x.require_row_stride(INFO.name, "x")?;
    dy.require_row_stride(INFO.name, "dy")?;
    dx.require_row_stride(INFO.name, "dx")?;
    if path == Path::Hopper {
        let (of_rows, of_matrices) = (Operand::new(dy), Operand::new(weight.t()));
        if gemm_grouped::by_tma(&of_rows, &of_matrices, &dx, [groups, rows, depth]).is_none() {
            let wanted = "groups and out > 0, rows of dy and dx at multiples of 16 bytes and those of dx of whole ones, and matrices with adjacent elements in one order and all else at such multiples";
            return Err(INFO.param_error("variant", "hopper", wanted));
        }
    }
    let beta = if accumulate { 1.0 } else { 0.0 };
    match dweight {
        WeightGradient::F32(dweight) => of_weight(stream, dy, x, offsets, beta, dweight, path)?,
        WeightGradient::Rounded(dweight) => of_weight(stream, dy, x, offsets, beta, dweight, path)?,
    }
    gemm_grouped::launch(stream, dy, weight.t(), offsets, dx, path)
}

/// dweight(g) = dyᵀ · x over the rows of group g, + β · dweight(g).
fn of_weight<T: Float + Half, C: Float + Element>(
    stream: &Stream,
    dy: View<'_, T>,
    x: View<'_, T>,
    offsets: View<'_, i32>,
    beta: f32,
    mut dweight: ViewMut<'_, C>,
    path: Path,
) -> Result<()> {
    let ([rows, out], [_, depth]) = (dy.dims::<2>(INFO.name, "dy")?, x.dims::<2>(INFO.name, "x")?);
    // There is one offset more than groups, as was checked.
    let groups = offsets.shape()[0] - 1;
    dweight.require_device(INFO.name, "dweight", stream)?;
    dweight.require_shape(INFO.name, "dweight", &[groups, out, depth])?;
    dweight.require_inner_contiguous(INFO.name, "dweight")?;
    let [m, n, k, batch] = sizes(&INFO, [("dy", out), ("x", depth), ("x", rows), ("weight", groups)])?;
    let tiles = m.div_ceil(mma::BLOCK) as usize * n.div_ceil(mma::BLOCK) as usize;
    let blocks = grid(&INFO, "dweight", tiles.saturating_mul(groups), 1)?;
    // A column of an operand is a row of the product.
    let (a, b) = (Operand::new(dy.t()), Operand::new(x.t()));
    let fits = [&a, &b].iter().all(|operand| operand.layout.fits_tma() == Some(Major::Mn));
    if path == Path::Hopper && !fits {
        let wanted = "rows of x and dy, of which there are some, at multiples of 16 bytes";
        return Err(INFO.param_error("variant", "hopper", wanted));
    }
    let Some(blocks) = blocks else { return Ok(()) };
    let problem = gk_family::Problem {
        a: a.layout.strides,
        b: b.layout.strides,
        c: [dweight.strides()[0], dweight.strides()[1]].map(|stride| stride as u64),
        m,
        n,
        k,
        batch,
        alpha: 1.0,
        beta,
    };
    note_work(Bound::Tensor(T::DTYPE), [1, m, n, k]);
    if path == Path::Hopper || path == Path::Fastest && fits && stream.device().supports_hopper() {
        let Tiling { maps: [a_map, b_map, c_map], store, grid } =
            Tiling::new(stream, (&a, &b), [Major::Mn; 2], &mut dweight, &problem, hopper::TILE)?;
        let args = (a_map, b_map, c_map, dweight.ptr_mut(stream)?, problem, store, offsets.ptr(stream)?);
        // SAFETY: the maps and dweight describe live tensors of these sizes, dweight is borrowed mutably, and there are groups + 1 offsets.
        return unsafe { stream.launch::<gk::GemmGroupedBackwardHopper<T, C>>(grid, args) };
    }
    let (dy, x) = (a.rows.ptr(stream)?, b.rows.ptr(stream)?);
    let args = (dy, x, dweight.ptr_mut(stream)?, problem, offsets.ptr(stream)?);
    // SAFETY: the tensors are live and have these sizes at these strides, and dweight is borrowed mutably; packs are read only where operands are
    // aligned.
    unsafe {
        if [&a, &b].iter().all(|operand| operand.layout.major == Some(Major::Mn)) {
            stream.launch::<gk::GemmGroupedBackwardMma<T, C, 8>>(blocks, args)
        } else {
            stream.launch::<gk::GemmGroupedBackwardMma<T, C, 1>>(blocks, args)
        }
    }
}
