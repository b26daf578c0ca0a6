//! sin² + cos², elementwise, in one kernel or in five.

use gpu_kernels::ops::elementwise::{add as gk_add, sin2_cos2 as gk};

use super::{launch_map, launch_zip, pointwise};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The number of kernels that compute an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// One kernel: 2·n elements of traffic for n elements.
    Fused,
    /// One kernel for each of the five operations: 11·n elements of traffic.
    Unfused,
}

/// y = sin²(x) + cos²(x), elementwise: the same expression in one kernel or in five, to show what fusion gains.
///
/// `x` has any shape; its rows may be padded. It is in radians, with |x| up to 2⁵⁰; infinities and NaN give NaN. With five
/// kernels, every intermediate result is rounded to the storage type. The result is a new dense tensor; the work is queued on
/// `stream`.
///
/// # Errors
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, Fusion}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [3], &[0.0f32, 1.0, -20.0])?;
/// let (fused, unfused) = (ops::sin2_cos2(&stream, &x, Fusion::Fused)?, ops::sin2_cos2(&stream, &x, Fusion::Unfused)?);
/// let both = [fused.to_vec(&stream)?, unfused.to_vec(&stream)?].concat();
/// assert!(both.iter().all(|y| (y - 1.0).abs() < 1e-6));
/// # Ok(())
/// # }
/// ```
pub fn sin2_cos2<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, fusion: Fusion) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    sin2_cos2_into(stream, x, fusion, &mut y)?;
    Ok(y)
}

/// [`sin2_cos2`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, and for five kernels [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn sin2_cos2_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    fusion: Fusion,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, y) = (x.into(), y.into());
    if fusion == Fusion::Fused {
        return launch_map::<T, gk::Sin2Cos2<T>>(&INFO, stream, x, y);
    }
    y.require_shape(INFO.name, "y", x.shape())?;
    let new = || Tensor::<T>::result(stream, x.shape());
    let [mut sine, mut cosine, mut sine2, mut cosine2] = [new()?, new()?, new()?, new()?];
    launch_map::<T, gk::Sin<T>>(&INFO, stream, x, sine.view_mut())?;
    launch_map::<T, gk::Cos<T>>(&INFO, stream, x, cosine.view_mut())?;
    launch_map::<T, gk::Square<T>>(&INFO, stream, sine.view(), sine2.view_mut())?;
    launch_map::<T, gk::Square<T>>(&INFO, stream, cosine.view(), cosine2.view_mut())?;
    launch_zip::<T, gk_add::Add<T>>(&SUM, stream, [sine2.view(), cosine2.view()], y)
}

/// The operator's entry in the registry.
pub struct Sin2Cos2;

/// [`sin2_cos2`] in the registry.
pub static SIN2_COS2: Sin2Cos2 = Sin2Cos2;

static INFO: OpInfo = OpInfo {
    name: "sin2_cos2",
    bench_name: "ew.sin2_cos2",
    summary: "sine and cosine, squared and added, in one kernel or in five",
    math: "y = sin²(x) + cos²(x)",
    args: &[
        ArgInfo::input("x", "any shape, rows may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::SIN2_COS2, gk::SIN, gk::COS, gk::SQUARE, gk_add::ADD],
    variants: &[
        Variant {
            name: "fused",
            doc: "one kernel, 2·n elements of traffic: what is picked",
            applies: |_, _| true,
            launch: |stream, args, _| launch(stream, args, Fusion::Fused),
        },
        Variant {
            name: "unfused",
            doc: "a kernel for each of five operations, 11·n elements of traffic",
            applies: |_, _| true,
            launch: |stream, args, _| launch(stream, args, Fusion::Unfused),
        },
    ],
};

/// The operator description with the argument names that its last step uses in errors.
static SUM: OpInfo = OpInfo {
    args: &[ArgInfo::input("sin²", ""), ArgInfo::input("cos²", ""), ArgInfo::output("y", "")],
    variants: &[],
    ..INFO
};

fn launch(stream: &Stream, args: &mut Arguments<'_>, fusion: Fusion) -> Result<()> {
    dispatch!(INFO, args.dtype("x")?, float => |T| {
        sin2_cos2_into::<T>(stream, args.input("x")?, fusion, args.output("y")?)
    })
}

impl Operator for Sin2Cos2 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = pointwise::cases(&INFO);
        // Values beyond 2⁵⁰ are outside its domain; of the special values of f16, only infinities and NaN are.
        cases.retain(|case| case.dtype == DType::F16 || case.values_of("x").is_none());
        let large = Values::Uniform { low: -1e15, high: 1e15 };
        let dtypes = [DType::F32, DType::BF16];
        cases.extend(dtypes.map(|dtype| Case::boundary(&INFO, dtype, [("rows", 1), ("d", 999)]).values("x", large)));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let wide = Values::Normal { std: 3.0 };
        Ok(vec![InputSpec::new("x", case.dtype, pointwise::shape(case)?, wide).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        launch(stream, args, Fusion::Fused)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::elementwise(inputs.get("x")?, rows, |x| x.sin().powi(2) + x.cos().powi(2)))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        // Unfused has the larger error: sine and cosine are rounded, which doubles in their squares, then the squares
        // and the sum are rounded.
        let why = "four roundings to storage where there are five kernels; 2 ulp of the f32 sine and cosine, squared";
        Ok(Tolerance::new(1e-7, 4.0 * roundoff(case.dtype) + 1e-6, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        // The traffic of one kernel; five kernels move 11·n elements.
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
