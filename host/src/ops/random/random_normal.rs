//! Normally distributed random numbers.

use std::f64::consts::PI;

use gpu_kernels::ops::random::random_normal as gk;

use super::generator::{ARGS, Generator, generate_into};
use super::{OFFSET, Philox, SEED};
use crate::dispatch;
use crate::ops::model::{OpInfo, ParamInfo, ParamValue, Tolerance};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::ViewMut;

/// A new dense tensor of normally distributed random numbers with this mean and standard deviation.
///
/// [`Philox`] defines the words of an element; elements 4q and 4q + 1 form a pair, as do 4q + 2 and 4q + 3. No number is
/// further from the mean than 6.77 standard deviations. Arithmetic is in f32 and rounded once to the storage type. The work is
/// queued on `stream`.
///
/// Box and Muller, "A Note on the Generation of Random Normal Deviates" (Annals of Mathematical Statistics 29, 1958).
///
/// # Errors
/// [`Error::InvalidParam`](crate::Error::InvalidParam) unless the mean is finite and the standard deviation finite and not negative,
/// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, ops::{self, Philox}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = ops::random_normal::<f32>(&stream, [1000], 5.0, 2.0, Philox::new(42))?.to_vec(&stream)?;
/// // Four standard errors.
/// assert!((x.iter().sum::<f32>() / 1000.0 - 5.0).abs() < 0.25);
/// # Ok(())
/// # }
/// ```
pub fn random_normal<T: Float>(
    stream: &Stream,
    shape: impl AsRef<[usize]>,
    mean: f32,
    std: f32,
    random: Philox,
) -> Result<Tensor<T>> {
    let mut y = Tensor::result_as(INFO.name, "y", stream, shape)?;
    random_normal_into(stream, mean, std, random, &mut y)?;
    Ok(y)
}

/// [`random_normal`] into `y`, of any shape; its rows may be padded.
///
/// # Errors
/// Same as [`random_normal`], and [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart.
pub fn random_normal_into<'a, T: Float>(
    stream: &Stream,
    mean: f32,
    std: f32,
    random: Philox,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    if !mean.is_finite() {
        return Err(INFO.param_error("mean", mean, "a finite number"));
    }
    if !(std.is_finite() && std >= 0.0) {
        return Err(INFO.param_error("std", std, "a finite number, not negative"));
    }
    let Philox { seed, offset } = random;
    generate_into::<T, gk::RandomNormal<T>>(&INFO, stream, y.into(), |y, rows, d, stride| {
        (y, rows, d, stride, mean, std, seed, offset)
    })
}

static INFO: OpInfo = OpInfo {
    name: "random_normal",
    bench_name: "random.normal",
    summary: "normally distributed random numbers",
    math: "y = mean + std · √(−2 ln u) · cos θ, and sin θ for the next element",
    args: ARGS,
    params: &[
        ParamInfo::float("mean", 0.0, "the mean"),
        ParamInfo::float("std", 1.0, "the standard deviation"),
        SEED,
        OFFSET,
    ],
    dtypes: DType::FLOATS,
    kernels: &[gk::RANDOM_NORMAL],
    variants: &[],
};

/// Element `i`, with mean 0 and standard deviation 1.
fn normal(random: Philox, i: usize) -> f64 {
    let words = random.words(i / 4);
    let (a, b) = (words[i % 4 / 2 * 2], words[i % 4 / 2 * 2 + 1]);
    // Defined as an f32, rounded to nearest in each step.
    let u = (a as f32).mul_add(f32::powi(2.0, -32), f32::powi(2.0, -33));
    let r = (-2.0 * f64::from(u).ln()).sqrt();
    let angle = 2.0 * PI * f64::from(b as f32) / f64::powi(2.0, 32) - PI;
    r * if i.is_multiple_of(2) { angle.cos() } else { angle.sin() }
}

/// [`random_normal`] in the registry.
pub static RANDOM_NORMAL: Generator = Generator {
    info: &INFO,
    launch: |stream, args, params| {
        let (mean, std, random) = (params.f32("mean")?, params.f32("std")?, Philox::of(params)?);
        dispatch!(INFO, args.dtype("y")?, float => |T| random_normal_into::<T>(stream, mean, std, random, args.output("y")?))
    },
    reference: |params, elements| {
        let (mean, std) = (f64::from(params.f32("mean")?), f64::from(params.f32("std")?));
        let random = Philox::of(params)?;
        Ok(elements.map(|i| mean + std * normal(random, i)).collect())
    },
    tolerance: |case| {
        // r up to 6.77 times 2⁻²⁰ of sine and cosine and 2⁻²¹ of the angle, and two ulp of the mean.
        let (mean, std) = (case.params.f64("mean")?.abs(), case.params.f64("std")?);
        let why =
            "storage rounding; sin.approx and cos.approx err by 2⁻²⁰ and the angle by 2⁻²¹, times r of up to 6.77";
        Ok(Tolerance::rounded(case.dtype, 1e-5 * std + f64::powi(2.0, -23) * mean, 1e-6, why))
    },
    params: &[
        ("mean", ParamValue::Float(10.0)),
        ("std", ParamValue::Float(0.25)),
        ("seed", ParamValue::Int(-7)),
        ("offset", ParamValue::Int(1 << 40)),
    ],
};
