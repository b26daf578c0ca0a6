//! Reductions, of each row to a value or of whole tensors.

pub mod argmax;
pub mod l2_norm;
pub mod max;
mod operator;
pub mod sum;
pub mod top_k;

pub use argmax::{argmax_rows, argmax_rows_into};
pub use l2_norm::{l2_norm, l2_norm_into, l2_norm_rows, l2_norm_rows_into};
pub use max::{max, max_into, max_rows, max_rows_into};
pub use operator::Reduction;
pub use sum::{mean, mean_into, mean_rows, mean_rows_into, sum, sum_into, sum_rows, sum_rows_into};
pub use top_k::{MAX_K, top_k, top_k_into};

use cuda_std::launch::{DevicePtr, DevicePtrMut};

use super::model::OpInfo;
use super::rows::{self, RowPlan, Rows};
use crate::runtime::dtype::Float;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Arguments of a reduction's kernel.
type Args<T> = (DevicePtr<T>, DevicePtrMut<f32>, u64, u64, u64, f32);

/// A kernel that folds rows. Folding the results of the parts of a row gives the result of the whole row.
trait Fold {
    /// Launches the instance that the plan names.
    ///
    /// # Safety
    /// Same as [`Stream::launch`].
    unsafe fn launch<T: Float>(stream: &Stream, plan: RowPlan, args: Args<T>) -> Result<()>;
}

/// A reduction: its public functions and its registry entries, for rows and for whole tensors.
macro_rules! reductions {
    (
        $fold:ident: $what:literal, $none:literal;
        $rows:ident, $rows_into:ident, $rows_entry:ident; $whole:ident, $whole_into:ident, $whole_entry:ident;
        kernels: $kernels:expr; math: $math:literal; of_none: $of_none:expr; factor: $factor:expr;
        reference: $first:expr, $step:expr, $finish:expr; tolerance: $tolerance:expr;
    ) => {
        #[doc = concat!($what, " of every row of `x`, in f32.")]
        ///
        /// `x` is `[rows, d]`, or has more dimensions, the last of which is `d`; the elements of a row are contiguous, and rows
        /// may be padded. The result is a new tensor of the other dimensions. The order of the arithmetic is always the same.
        #[doc = $none]
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if `x` has fewer than two dimensions, or no columns to find a result in,
        /// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
        /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
        pub fn $rows<'a, T: crate::Float>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
        ) -> crate::Result<crate::Tensor<f32>> {
            let x = x.into();
            let outer = &x.shape()[..x.shape().len().saturating_sub(1)];
            let mut y = crate::Tensor::result(stream, outer)?;
            $rows_into(stream, x, &mut y)?;
            Ok(y)
        }

        #[doc = concat!("[`", stringify!($rows), "`] into `y`, which is contiguous and has the outer dimensions of `x`.")]
        ///
        /// # Errors
        #[doc = concat!("As of [`", stringify!($rows), "`].")]
        pub fn $rows_into<'a, T: crate::Float>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
            y: impl Into<crate::ViewMut<'a, f32>>,
        ) -> crate::Result<()> {
            crate::ops::reduce::rows_into::<$fold, T>(&OF_ROWS, stream, x.into(), $of_none, $factor, y.into())
        }

        #[doc = concat!($what, " of all of `x`, in f32.")]
        ///
        /// `x` has any shape; its rows may be padded. The result is a new tensor of one element. The order of the arithmetic
        /// depends only on the shape and on whether `x` is contiguous.
        #[doc = $none]
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if `x` has no elements to find a result in,
        /// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
        /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
        pub fn $whole<'a, T: crate::Float>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
        ) -> crate::Result<crate::Tensor<f32>> {
            let mut y = crate::Tensor::result(stream, [1])?;
            $whole_into(stream, x.into(), &mut y)?;
            Ok(y)
        }

        #[doc = concat!("[`", stringify!($whole), "`] into `y`, of shape `[1]`.")]
        ///
        /// # Errors
        #[doc = concat!("As of [`", stringify!($whole), "`].")]
        pub fn $whole_into<'a, T: crate::Float>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
            y: impl Into<crate::ViewMut<'a, f32>>,
        ) -> crate::Result<()> {
            crate::ops::reduce::whole_into::<$fold, T>(&OF_ALL, stream, x.into(), $of_none, $factor, y.into())
        }

        static OF_ROWS: OpInfo = OpInfo {
            name: stringify!($rows),
            bench_name: concat!("reduce.", stringify!($rows)),
            summary: concat!($what, " of rows"),
            math: concat!($math, ", for each row"),
            args: &[
                ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
                ArgInfo::output("y", "the outer dimensions of x, contiguous").of(&[DType::F32]),
            ],
            params: &[],
            dtypes: DType::FLOATS,
            kernels: &[$kernels],
            variants: &[],
        };

        static OF_ALL: OpInfo = OpInfo {
            name: stringify!($whole),
            bench_name: concat!("reduce.", stringify!($whole)),
            summary: concat!($what, " of a tensor"),
            math: concat!($math, ", over all elements"),
            args: &[
                ArgInfo::input("x", "any shape, rows may be padded"),
                ArgInfo::output("y", "[1]").of(&[DType::F32]),
            ],
            params: &[],
            dtypes: DType::FLOATS,
            kernels: &[$kernels],
            variants: &[],
        };

        #[doc = concat!("[`", stringify!($rows), "`] in the registry.")]
        pub static $rows_entry: Reduction = Reduction {
            info: &OF_ROWS,
            launch: |stream, args| {
                dispatch!(OF_ROWS, args.dtype("x")?, float => |T| {
                    $rows_into::<T>(stream, args.input("x")?, args.output("y")?)
                })
            },
            whole: false,
            needs_columns: $of_none.is_none(),
            first: $first,
            step: $step,
            finish: $finish,
            tolerance: $tolerance,
        };

        #[doc = concat!("[`", stringify!($whole), "`] in the registry.")]
        pub static $whole_entry: Reduction = Reduction {
            info: &OF_ALL,
            launch: |stream, args| {
                dispatch!(OF_ALL, args.dtype("x")?, float => |T| {
                    $whole_into::<T>(stream, args.input("x")?, args.output("y")?)
                })
            },
            whole: true,
            ..$rows_entry
        };
    };
}
use reductions;

/// Rows to reduce: their number, their length, and their distance.
#[derive(Clone, Copy)]
struct Problem {
    rows: usize,
    d: usize,
    stride: usize,
}

/// y[r] of every row of `x`.
///
/// # Safety
/// `x` is such rows and `y` an element for each.
unsafe fn fold<F: Fold, T: Float>(
    info: &OpInfo,
    stream: &Stream,
    x: DevicePtr<T>,
    Problem { rows, d, stride }: Problem,
    y: DevicePtrMut<f32>,
    factor: f32,
) -> Result<()> {
    let aligned = x.addr().is_multiple_of(16) && (rows <= 1 || (stride * size_of::<T>()).is_multiple_of(16));
    let Some(plan) = Rows::new("x", rows, d, aligned).plan::<T>(info)? else { return Ok(()) };
    // SAFETY: the caller's promise; the plan names a team that holds such rows.
    unsafe { F::launch::<T>(stream, plan, (x, y, plan.rows, plan.d, stride as u64, factor)) }
}

/// The result of `n` contiguous elements: they are folded as long rows first, and then the results of those rows.
///
/// # Safety
/// `x` is `n` elements, at least one, and `y` is one.
unsafe fn fold_all<F: Fold, T: Float>(
    info: &OpInfo,
    stream: &Stream,
    x: DevicePtr<T>,
    n: usize,
    y: DevicePtrMut<f32>,
    factor: f32,
) -> Result<()> {
    // As many as a block holds.
    let width = 4096 * gpu_kernels::lanes::<T>();
    let (rows, tail) = (n / width, n % width);
    let of = |rows, d| Problem { rows, d, stride: d };
    if rows == 0 || n == width {
        // SAFETY: the caller's promise.
        return unsafe { fold::<F, T>(info, stream, x, of(1, n), y, factor) };
    }
    let partials = stream.workspace::<f32>(info.name, rows + usize::from(tail > 0))?;
    let results = partials.ptr_mut();
    // SAFETY: rows · width + tail elements are n, and the scratch has an element for each row and one for the tail.
    unsafe {
        fold::<F, T>(info, stream, x, of(rows, width), results, 1.0)?;
        fold::<F, T>(
            info,
            stream,
            x.add((rows * width) as u64),
            of(usize::from(tail > 0), tail),
            results.add(rows as u64),
            1.0,
        )?;
        fold_all::<F, f32>(info, stream, results.into(), partials.len(), y, factor)
    }
}

/// Reduces rows; `of_none` is the result of a row without elements, and `factor` the factor of a result over a
/// given number of elements.
fn rows_into<F: Fold, T: Float>(
    info: &OpInfo,
    stream: &Stream,
    x: View<'_, T>,
    of_none: Option<f32>,
    factor: fn(usize) -> f32,
    mut y: ViewMut<'_, f32>,
) -> Result<()> {
    stream.require_devices(info.name, &[("x", &x), ("y", &y)])?;
    rows::require(info, "x", x.shape())?;
    y.require_shape(info.name, "y", &x.shape()[..x.shape().len() - 1])?;
    y.require_contiguous(info.name, "y")?;
    let problem = Problem { rows: x.rows(), d: x.cols(), stride: x.require_row_stride(info.name, "x")? };
    if problem.d == 0 && problem.rows > 0 {
        return nothing(info, stream, &x, of_none, &mut y);
    }
    // SAFETY: the tensors are live, x has these rows, y an element for each, and y is borrowed mutably.
    unsafe { fold::<F, T>(info, stream, x.ptr(stream)?, problem, y.ptr_mut(stream)?, factor(problem.d)) }
}

/// Reduces the whole tensor, with the options of [`rows_into`].
fn whole_into<F: Fold, T: Float>(
    info: &OpInfo,
    stream: &Stream,
    x: View<'_, T>,
    of_none: Option<f32>,
    factor: fn(usize) -> f32,
    mut y: ViewMut<'_, f32>,
) -> Result<()> {
    stream.require_devices(info.name, &[("x", &x), ("y", &y)])?;
    y.require_shape(info.name, "y", &[1])?;
    let n = x.len();
    if n == 0 {
        return nothing(info, stream, &x, of_none, &mut y);
    }
    let (from, to) = (x.ptr(stream)?, y.ptr_mut(stream)?);
    if x.is_contiguous() {
        // SAFETY: the tensors are live, x has n adjacent elements and y one, and y is borrowed mutably.
        return unsafe { fold_all::<F, T>(info, stream, from, n, to, factor(n)) };
    }
    let problem = Problem { rows: x.rows(), d: x.cols(), stride: x.require_row_stride(info.name, "x")? };
    let partials = stream.workspace::<f32>(info.name, problem.rows)?;
    // SAFETY: as above; x has these rows, and the scratch an element for each.
    unsafe {
        fold::<F, T>(info, stream, from, problem, partials.ptr_mut(), 1.0)?;
        fold_all::<F, f32>(info, stream, partials.ptr_mut().into(), problem.rows, to, factor(n))
    }
}

/// The result over no elements.
fn nothing<T>(
    info: &OpInfo,
    stream: &Stream,
    x: &View<'_, T>,
    of_none: Option<f32>,
    y: &mut ViewMut<'_, f32>,
) -> Result<()> {
    match of_none {
        Some(value) => y.fill(stream, value),
        None => Err(nothing_to_find(info, x.shape())),
    }
}

/// The error of reductions that have no result over no elements.
fn nothing_to_find(info: &OpInfo, shape: &[usize]) -> Error {
    info.shape_error("x", shape, "at least one element to find a result in")
}
