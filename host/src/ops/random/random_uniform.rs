//! Uniformly distributed random numbers.

use std::ops::Range;

use gpu_kernels::ops::random::random_uniform as gk;

use super::generator::{ARGS, Generator, generate_into};
use super::{OFFSET, Philox, SEED};
use crate::dispatch;
use crate::ops::model::{OpInfo, ParamInfo, ParamValue, Params, Tolerance};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::ViewMut;

/// A new dense tensor of random numbers, uniformly distributed over `range`: start + (end − start) · u, with 2²⁴ values
/// of u in [0, 1).
///
/// [`Philox`] defines the word of an element. Arithmetic is in f32 and rounded once to the storage type, which may give the end
/// of the range. The work is queued on `stream`.
///
/// # Errors
/// [`Error::InvalidParam`](crate::Error::InvalidParam) unless start, end and their difference are finite,
/// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, ops::{self, Philox}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = ops::random_uniform::<f32>(&stream, [100], -1.0..1.0, Philox::new(42))?;
/// assert!(x.to_vec(&stream)?.iter().all(|x| (-1.0..1.0).contains(x)));
/// # Ok(())
/// # }
/// ```
pub fn random_uniform<T: Float>(
    stream: &Stream,
    shape: impl AsRef<[usize]>,
    range: Range<f32>,
    random: Philox,
) -> Result<Tensor<T>> {
    let mut y = Tensor::result_as(INFO.name, "y", stream, shape)?;
    random_uniform_into(stream, range, random, &mut y)?;
    Ok(y)
}

/// [`random_uniform`] into `y`, of any shape; its rows may be padded.
///
/// # Errors
/// Same as [`random_uniform`], and [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart.
pub fn random_uniform_into<'a, T: Float>(
    stream: &Stream,
    range: Range<f32>,
    random: Philox,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (low, size) = (range.start, range.end - range.start);
    // If an end is not finite, the difference is not either.
    if !size.is_finite() {
        return Err(INFO.param_error("range", format!("{range:?}"), "finite ends, finitely far apart"));
    }
    let Philox { seed, offset } = random;
    generate_into::<T, gk::RandomUniform<T>>(&INFO, stream, y.into(), |y, rows, d, stride| {
        (y, rows, d, stride, low, size, seed, offset)
    })
}

static INFO: OpInfo = OpInfo {
    name: "random_uniform",
    bench_name: "random.uniform",
    summary: "random numbers, evenly over a range",
    math: "y = low + (high − low) · u, u in [0, 1)",
    args: ARGS,
    params: &[
        ParamInfo::float("low", 0.0, "the least number"),
        ParamInfo::float("high", 1.0, "what numbers are below"),
        SEED,
        OFFSET,
    ],
    dtypes: DType::FLOATS,
    kernels: &[gk::RANDOM_UNIFORM],
    variants: &[],
};

fn range(params: &Params) -> Result<Range<f32>> {
    Ok(params.f32("low")?..params.f32("high")?)
}

/// [`random_uniform`] in the registry.
pub static RANDOM_UNIFORM: Generator = Generator {
    info: &INFO,
    launch: |stream, args, params| {
        let (range, random) = (range(params)?, Philox::of(params)?);
        dispatch!(INFO, args.dtype("y")?, float => |T| random_uniform_into::<T>(stream, range, random, args.output("y")?))
    },
    reference: |params, elements| {
        let (range, random) = (range(params)?, Philox::of(params)?);
        let (low, size) = (f64::from(range.start), f64::from(range.end - range.start));
        let uniform = |i: usize| f64::from(random.words(i / 4)[i % 4] >> 8) / f64::from(1 << 24);
        Ok(elements.map(|i| low + size * uniform(i)).collect())
    },
    tolerance: |case| {
        // The fused multiply-add rounds to f32 what storage then rounds.
        let range = range(&case.params)?;
        let abs = f64::powi(2.0, -24) * f64::from(range.start.abs().max(range.end.abs()));
        Ok(Tolerance::rounded(case.dtype, abs, 0.0, "one f32 rounding of a number in the range, and storage"))
    },
    params: &[
        ("low", ParamValue::Float(-3.5)),
        ("high", ParamValue::Float(-2.0)),
        ("seed", ParamValue::Int(-7)),
        ("offset", ParamValue::Int(1 << 40)),
    ],
};
