//! Entropy of the softmax of rows of logits.

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::loss::entropy as gk;

use super::batch::in_range;
use super::logits::{Logits, require_classes};
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The entropy −Σ p·ln p of p = softmax(`logits` / `temperature`), for every row.
///
/// `logits` is `[rows, classes]`, or any other shape of two dimensions or more whose last is the classes; the elements of a row are adjacent,
/// and rows may be padded. The result, in f32, has the other dimensions. −∞ has probability 0 and adds nothing; +∞, NaN or a row of nothing
/// but −∞ give NaN. The work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `logits` has fewer than two dimensions or no classes,
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if `temperature` is not positive and finite,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let logits = Tensor::from_slice(&stream, [1, 4], &[0.0f32; 4])?;
/// let entropy = ops::entropy(&stream, &logits, 1.0)?;
/// assert!((entropy.to_vec(&stream)?[0] - 4f32.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
pub fn entropy<'a, T: Float>(stream: &Stream, logits: impl Into<View<'a, T>>, temperature: f32) -> Result<Tensor<f32>> {
    let logits = logits.into();
    let outer = logits.shape().split_last().map_or(&[][..], |(_, outer)| outer);
    let mut entropies = Tensor::uninit(stream, outer)?;
    entropy_into(stream, logits, temperature, &mut entropies)?;
    Ok(entropies)
}

/// [`entropy`] into `entropies`, of the outer dimensions of `logits`, contiguous.
///
/// # Errors
/// As of [`entropy`].
pub fn entropy_into<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    temperature: f32,
    entropies: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    launch(&FORWARD, stream, logits.into(), temperature, Wanted::Entropies(entropies.into()))
}

/// The derivative by the logits of Σ upstream · entropy: what a bonus for entropy in an objective asks for. `upstream` has the outer dimensions
/// of `logits`, contiguous; the result has their shape and is dense.
///
/// # Errors
/// As of [`entropy`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// # let stream = Device::open()?.stream()?;
/// let logits = Tensor::from_slice(&stream, [1, 2], &[0.0f32, 1.0])?;
/// let bonus = Tensor::from_slice(&stream, [1], &[0.01f32])?;
/// let gradient = ops::entropy_backward(&stream, &logits, &bonus, 1.0)?.to_vec(&stream)?;
/// // Towards even probabilities.
/// assert!(gradient[0] > 0.0 && gradient[0] == -gradient[1]);
/// # Ok(())
/// # }
/// ```
pub fn entropy_backward<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    upstream: impl Into<View<'a, f32>>,
    temperature: f32,
) -> Result<Tensor<T>> {
    let logits = logits.into();
    let mut gradient = Tensor::uninit(stream, logits.shape())?;
    entropy_backward_into(stream, logits, upstream.into(), temperature, &mut gradient)?;
    Ok(gradient)
}

/// [`entropy_backward`] into `gradient`, which has the shape of `logits`; its rows may be padded.
///
/// # Errors
/// As of [`entropy`].
pub fn entropy_backward_into<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    upstream: impl Into<View<'a, f32>>,
    temperature: f32,
    gradient: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(&BACKWARD, stream, logits.into(), temperature, Wanted::Gradient(upstream.into(), gradient.into()))
}

/// What is computed of the rows.
enum Wanted<'a, T> {
    Entropies(ViewMut<'a, f32>),
    Gradient(View<'a, f32>, ViewMut<'a, T>),
}

fn launch<T: Float>(
    info: &'static OpInfo,
    stream: &Stream,
    logits: View<'_, T>,
    temperature: f32,
    wanted: Wanted<'_, T>,
) -> Result<()> {
    require_classes(info, "logits", logits.shape())?;
    let mut rows = Rows::of(info, "logits", &logits)?;
    let stride = logits.require_row_stride(info.name, "logits")? as u64;
    let outer = &logits.shape()[..logits.shape().len() - 1];
    let scale = in_range(info, "temperature", temperature, |t| t > 0.0, "above zero")?.recip();
    in_range(info, "temperature", scale, |_| true, "whose reciprocal is one")?;
    let mut entropies = DevicePtrMut::null();
    let (mut upstream, mut gradient) = (DevicePtr::null(), None);
    match wanted {
        Wanted::Entropies(mut into) => {
            into.require_shape(info.name, "entropies", outer)?;
            into.require_contiguous(info.name, "entropies")?;
            entropies = into.ptr_mut(stream)?;
        }
        Wanted::Gradient(factors, into) => {
            factors.require_shape(info.name, "upstream", outer)?;
            factors.require_contiguous(info.name, "upstream")?;
            upstream = factors.ptr(stream)?;
            gradient = Some(into);
        }
    }
    let mut logits = Logits::from(logits);
    let (logits, (gradient, g_stride)) = logits.pointers(info, stream, stride, &mut rows, gradient)?;
    let Some(plan) = rows.plan_clustered::<T>(info, stream.device())? else { return Ok(()) };
    let args = (logits, upstream, entropies, gradient, stride, g_stride, scale, plan.rows, plan.d);
    // SAFETY: the tensors are live; every row holds d elements at its stride, what there is one of a row has as many elements, there is a
    // gradient only with upstream ones, and what is written is borrowed mutably. The plan names a team that holds such rows.
    unsafe { launch_rows!(stream, plan, gk::Entropy / EntropyCluster, T, args) }
}

const LOGITS: ArgInfo = ArgInfo::input("logits", "[rows, classes] or more dimensions, rows may be padded");

const PARAMS: &[ParamInfo] = &[ParamInfo::float("temperature", 1.0, "what the logits are divided by")];

const fn facts([name, bench_name, summary, math]: [&'static str; 4], args: &'static [ArgInfo]) -> OpInfo {
    OpInfo {
        name,
        bench_name,
        summary,
        math,
        args,
        params: PARAMS,
        dtypes: DType::FLOATS,
        kernels: &[gk::ENTROPY, gk::ENTROPY_CLUSTER],
        variants: &[],
    }
}

static FORWARD: OpInfo = facts(
    ["entropy", "loss.entropy_fwd", "entropy of the softmax of rows of logits", "H = −Σ p·ln p, p = softmax(x / T)"],
    &[LOGITS, ArgInfo::output("entropies", "the outer dimensions of logits, contiguous").of(&[DType::F32])],
);

static BACKWARD: OpInfo = facts(
    ["entropy_backward", "loss.entropy_bwd", "gradient of entropy by row", "gradient = −p · (ln p + H) / T · upstream"],
    &[
        LOGITS,
        ArgInfo::input("upstream", "the outer dimensions of logits, contiguous").of(&[DType::F32]),
        ArgInfo::output("gradient", "the shape of logits, rows may be padded"),
    ],
);

/// A form of the operator in the registry.
pub struct EntropyOf {
    info: &'static OpInfo,
}

/// [`entropy`](entropy()) in the registry.
pub static ENTROPY: EntropyOf = EntropyOf { info: &FORWARD };
/// [`entropy_backward`] in the registry.
pub static ENTROPY_BACKWARD: EntropyOf = EntropyOf { info: &BACKWARD };

impl EntropyOf {
    fn is_backward(&self) -> bool {
        self.info.name == BACKWARD.name
    }
}

/// The entropy of a row, and its derivative by the logits.
fn exact(x: &[f64], temperature: f64) -> (f64, Vec<f64>) {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let below: Vec<_> = x.iter().map(|x| (x - max) / temperature).collect();
    let sum: f64 = below.iter().map(|below| below.exp()).sum();
    let ln = |below: f64| below - sum.ln();
    let p = |below: f64| ln(below).exp();
    let entropy = -below.iter().map(|x| if p(*x) == 0.0 { 0.0 } else { p(*x) * ln(*x) }).sum::<f64>();
    let slope = |below: &f64| match p(*below) {
        _ if entropy.is_nan() => entropy,
        0.0 => 0.0,
        p => -p * (ln(*below) + entropy) / temperature,
    };
    (entropy, below.iter().map(slope).collect())
}

impl Operator for EntropyOf {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let info = self.info;
        let name = "tokens=8192 vocab=131072 bf16";
        let mut cases = vec![Case::production(info, name, DType::BF16, dims(8192, 131_072))];
        for &dtype in info.dtypes {
            let of_teams = rows::cases(info, dtype, rows::LIMITS, &["upstream", "entropies"]);
            cases.extend(of_teams.into_iter().filter(|case| case.dims.get("d") != Some(0)));
            cases.extend([
                Case::odd(info, dtype, dims(11, 88)).param("temperature", 2.0),
                Case::odd(info, dtype, dims(5, 16)).param("temperature", 0.25),
                Case::boundary(info, dtype, dims(70, 3)).values("logits", Values::Specials),
                Case::boundary(info, dtype, dims(3, 64)).values("logits", Values::Constant(f64::NEG_INFINITY)),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let mut specs = vec![InputSpec::normal("logits", case.dtype, [rows, d])];
        if self.is_backward() {
            specs.push(InputSpec::normal("upstream", DType::F32, [rows]));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let logits = inputs.get("logits")?;
        require_classes(self.info, "logits", logits.shape())?;
        let outer = &logits.shape()[..logits.shape().len() - 1];
        params.f32("temperature")?;
        if self.is_backward() {
            inputs.get("upstream")?.has_shape(outer)?;
            return Ok(vec![TensorMeta::new("gradient", logits.dtype(), logits.shape())]);
        }
        Ok(vec![TensorMeta::new("entropies", DType::F32, outer)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (temperature, info) = (params.f32("temperature")?, self.info);
        dispatch!(info, args.dtype("logits")?, float => |T| {
            let wanted = match self.is_backward() {
                true => Wanted::Gradient(args.input("upstream")?, args.output("gradient")?),
                false => Wanted::Entropies(args.output("entropies")?),
            };
            launch::<T>(info, stream, args.input("logits")?, temperature, wanted)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (logits, temperature) = (inputs.get("logits")?, params.f64("temperature")?);
        let of_row = |row: usize| exact(&reference::row(logits, row), temperature);
        if output == "entropies" {
            return Ok(rows.iter().map(|row| of_row(*row).0).collect());
        }
        let upstream = inputs.get("upstream")?.to_f64();
        Ok(reference::by_row(rows, |row| of_row(row).1.into_iter().map(|slope| slope * upstream[row]).collect()))
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [d] = case.dims(["d"])?;
        let temperature = case.params.f64("temperature")?;
        // √d·2⁻²⁴ of sums, 2⁻²² of exponentials, 2⁻²³ of exponents up to 16, at a low temperature of larger ones.
        let statistics = ((d as f64).sqrt() * roundoff(DType::F32) + 4e-6) * temperature.recip().max(1.0);
        if output == "entropies" {
            let why = "logarithms of up to six, weighed by probabilities with the error of statistics";
            return Ok(Tolerance::new(6.0 * statistics, 2.0 * statistics, why));
        }
        // Of normal logits no class has more than e⁵ times its share; upstream gradients are up to 4.
        let greatest = if temperature < 1.0 { 1.0 } else { (128.0 / d.max(1) as f64).min(1.0) };
        let why = "one rounding to storage; the statistics' error of logarithms that may cancel, times a probability";
        Ok(Tolerance::rounded(case.dtype, 4.0 * greatest * 8.0 * statistics / temperature, 4.0 * statistics, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let passes = if self.is_backward() { 2 } else { 1 };
        Ok(Cost::memory((passes * rows * d * case.dtype.size() + 4 * rows) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.is_backward().then_some(Gradient {
            forward: &ENTROPY,
            of_outputs: &[("upstream", "entropies")],
            of_inputs: &[("gradient", "logits")],
        })
    }
}
