//! Dropout and its backward.

use gpu_kernels::ops::random::dropout as gk;

use super::{OFFSET, Philox, SEED};
use crate::dispatch;
use crate::ops::elementwise::{Operand, Plan, longest_block, pointwise_shape};
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = 0 with probability `p`, else x / (1 − p), elementwise.
///
/// No mask is stored: [`dropout_backward`] with the same `p` and `random` drops the same elements. [`Philox`] defines which
/// word decides about an element; p is rounded to a multiple of 2⁻³². A dropped element becomes 0 even if it is infinite or
/// NaN. `x` has any shape; its rows may be padded. The result is a new dense tensor; the work is queued on `stream`.
///
/// Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting" (JMLR 15, 2014).
///
/// # Errors
/// [`Error::InvalidParam`](crate::Error::InvalidParam) unless 0 ≤ p < 1, [`Error::Layout`](crate::Error::Layout) if rows are not equally
/// far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, Philox}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::filled(&stream, [1000], 3.0f32)?;
/// let y = ops::dropout(&stream, &x, 0.25, Philox::new(42))?.to_vec(&stream)?;
/// assert!(y.iter().all(|y| [0.0, 4.0].contains(y)));
/// let dx = ops::dropout_backward(&stream, &x, 0.25, Philox::new(42))?;
/// assert_eq!(dx.to_vec(&stream)?, y);
/// # Ok(())
/// # }
/// ```
pub fn dropout<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, p: f32, random: Philox) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    dropout_into(stream, x, p, random, &mut y)?;
    Ok(y)
}

/// [`dropout`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// Same as [`dropout`], and [`Error::Shape`](crate::Error::Shape) if the shapes differ.
pub fn dropout_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    p: f32,
    random: Philox,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(&FORWARD, stream, x.into(), p, random, y.into())
}

/// The gradient of [`dropout`]: dx = dy / (1 − p), or 0 where `x` was dropped.
///
/// `p` and `random` are those of the forward. The result is a new dense tensor.
///
/// # Errors
/// Same as [`dropout`].
pub fn dropout_backward<'a, T: Float>(
    stream: &Stream,
    dy: impl Into<View<'a, T>>,
    p: f32,
    random: Philox,
) -> Result<Tensor<T>> {
    let dy = dy.into();
    let mut dx = Tensor::result(stream, dy.shape())?;
    dropout_backward_into(stream, dy, p, random, &mut dx)?;
    Ok(dx)
}

/// [`dropout_backward`] into `dx`, which has the shape of `dy`; its rows may be padded.
///
/// # Errors
/// Same as [`dropout`], and [`Error::Shape`](crate::Error::Shape) if the shapes differ.
pub fn dropout_backward_into<'a, T: Float>(
    stream: &Stream,
    dy: impl Into<View<'a, T>>,
    p: f32,
    random: Philox,
    dx: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(&BACKWARD, stream, dy.into(), p, random, dx.into())
}

fn launch<T: Float>(
    info: &OpInfo,
    stream: &Stream,
    x: View<'_, T>,
    p: f32,
    random: Philox,
    mut y: ViewMut<'_, T>,
) -> Result<()> {
    if !(0.0..1.0).contains(&p) {
        return Err(info.param_error("p", p, "from 0 to below 1"));
    }
    stream.require_devices(info.name, &[(info.args[0].name, &x), (info.args[1].name, &y)])?;
    let operands = [Operand::read(info.args[0].name, &x), Operand::written(info.args[1].name, &y)];
    let Some(plan) = Plan::new::<gk::Dropout<T>>(info, size_of::<T>(), operands)? else { return Ok(()) };
    let [x_stride, y_stride] = plan.strides;
    let (x, y) = (x.ptr(stream)?, y.ptr_mut(stream)?);
    let args = (x, y, plan.rows, plan.d, x_stride, y_stride, threshold(p), scale(p), random.seed, random.offset);
    // SAFETY: both tensors are live and have these rows at these strides, and y is borrowed mutably.
    unsafe { stream.launch::<gk::Dropout<T>>(plan.grid, args) }
}

/// An element is dropped if its word is below this. An f32 below 1 is at most 1 − 2⁻²⁴.
fn threshold(p: f32) -> u32 {
    (f64::from(p) * f64::powi(2.0, 32)).round() as u32
}

/// The factor of elements that are kept.
fn scale(p: f32) -> f32 {
    (1.0 / (1.0 - f64::from(p))) as f32
}

/// Dropout in the registry, in one direction.
pub struct Dropout {
    info: &'static OpInfo,
}

/// [`dropout`] in the registry.
pub static DROPOUT: Dropout = Dropout { info: &FORWARD };

/// [`dropout_backward`] in the registry.
pub static DROPOUT_BACKWARD: Dropout = Dropout { info: &BACKWARD };

static FORWARD: OpInfo = OpInfo {
    name: "dropout",
    bench_name: "random.dropout",
    summary: "elements dropped at random, the others scaled, without a stored mask",
    math: "y = x / (1 − p), or 0 with probability p",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[ParamInfo::float("p", 0.1, "the share that is dropped, from 0 to below 1"), SEED, OFFSET],
    dtypes: DType::FLOATS,
    kernels: &[gk::DROPOUT],
    variants: &[],
};

static BACKWARD: OpInfo = OpInfo {
    name: "dropout_backward",
    bench_name: "random.dropout_backward",
    summary: "gradient of dropout",
    math: "dx = dy / (1 − p), or 0 where x was dropped",
    args: &[
        ArgInfo::input("dy", "any shape, rows may be padded"),
        ArgInfo::output("dx", "the shape of dy, rows may be padded"),
    ],
    ..FORWARD
};

impl Operator for Dropout {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let info = self.info;
        let [x, y] = [info.args[0].name, info.args[1].name];
        let mut cases = Vec::new();
        for &dtype in info.dtypes {
            let block = longest_block(dtype, 1);
            let name = format!("n=2^28 p=0.1 {}", dtype.name());
            let padded = |case: Case, [of_x, of_y]: [usize; 2]| {
                case.arrange(x, Arrangement::DENSE.row_pad(of_x)).arrange(y, Arrangement::DENSE.row_pad(of_y))
            };
            cases.extend([
                Case::production(info, name, dtype, dims(1, 1 << 28)),
                Case::odd(info, dtype, dims(1, block + 1003)).param("p", 0.5),
                Case::odd(info, dtype, dims(1, 1003)).offset(1),
                // Packs that begin at every residue modulo four.
                padded(Case::odd(info, dtype, dims(5, 203)), [5, 13]).param("p", 0.5),
                padded(Case::odd(info, dtype, dims(7, 37)), [3, 4]),
                Case::tiny(info, dtype, dims(1, 1)).param("p", 0.5),
                Case::tiny(info, dtype, dims(3, 7)),
                Case::empty(info, dtype, dims(0, 8)),
                Case::empty(info, dtype, dims(8, 0)),
                Case::boundary(info, dtype, dims(3, 100)).param("p", 0.0),
                Case::boundary(info, dtype, dims(3, 100)).param("p", 0.999),
                Case::boundary(info, dtype, dims(3, 100)).param("seed", -7).param("offset", 1i64 << 40),
                Case::boundary(info, dtype, dims(1, 600)).values(x, Values::Specials),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let x = self.info.args[0].name;
        Ok(vec![InputSpec::normal(x, case.dtype, pointwise_shape(case)?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get(self.info.args[0].name)?;
        Ok(vec![TensorMeta::new(self.info.args[1].name, x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let [x, y] = [self.info.args[0].name, self.info.args[1].name];
        let (p, random) = (params.f32("p")?, Philox::of(params)?);
        dispatch!(self.info, args.dtype(x)?, float => |T| {
            launch::<T>(self.info, stream, args.input(x)?, p, random, args.output(y)?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get(self.info.args[0].name)?;
        let (p, random) = (params.f32("p")?, Philox::of(params)?);
        let (threshold, scale) = (threshold(p), f64::from(scale(p)));
        let len = reference::row_len(x.shape());
        let numbers = rows.iter().flat_map(|row| row * len..(row + 1) * len);
        let kept = |i: usize| random.words(i / 4)[i % 4] >= threshold;
        let values = reference::select(x, rows).into_iter().zip(numbers);
        Ok(values.map(|(x, i)| if kept(i) { x * scale } else { 0.0 }).collect())
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::rounded(case.dtype, 0.0, 6e-8, "the same elements; one f32 product, rounded to storage"))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        let backward = std::ptr::eq(self.info, &BACKWARD);
        backward.then_some(Gradient { forward: &DROPOUT, of_outputs: &[("dy", "y")], of_inputs: &[("dx", "x")] })
    }
}
