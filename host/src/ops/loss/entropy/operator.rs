//! The operators in the registry.

use cuda_std::launch::Instance;
use gpu_kernels::ops::loss::entropy as gk;

use super::call::Call;
use super::exact::Exact;
use crate::dispatch;
use crate::ops::loss::logits::require_classes;
use crate::ops::model::*;
use crate::ops::rows;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const LOGITS: ArgInfo = ArgInfo::input("logits", "[rows, classes] or more dimensions, rows may be padded");

const PARAMS: &[ParamInfo] = &[ParamInfo::float("temperature", 1.0, "what the logits are divided by")];

const fn facts(
    [name, bench_name, summary, math]: [&'static str; 4],
    args: &'static [ArgInfo],
    kernels: &'static [&'static [Instance]],
) -> OpInfo {
    OpInfo { name, bench_name, summary, math, args, params: PARAMS, dtypes: DType::FLOATS, kernels, variants: &[] }
}

pub(super) static FORWARD: OpInfo = facts(
    ["entropy", "loss.entropy_fwd", "entropy of the softmax of rows of logits", "H = −Σ p·ln p, p = softmax(x / T)"],
    &[LOGITS, ArgInfo::output("entropies", "the outer dimensions of logits, contiguous").of(&[DType::F32])],
    &[gk::ENTROPY],
);

pub(super) static BACKWARD: OpInfo = facts(
    ["entropy_backward", "loss.entropy_bwd", "gradient of entropy by row", "gradient = −p · (ln p + H) / T · dentropy"],
    &[
        LOGITS,
        ArgInfo::input("dentropies", "the outer dimensions of logits, contiguous").of(&[DType::F32]),
        ArgInfo::output("gradient", "the shape of logits, rows may be padded"),
    ],
    &[gk::ENTROPY, gk::ENTROPY_CLUSTER],
);

/// A form of the operator in the registry.
pub struct EntropyOf {
    info: &'static OpInfo,
}

/// [`entropy`](super::entropy()) in the registry.
pub static ENTROPY: EntropyOf = EntropyOf { info: &FORWARD };
/// [`entropy_backward`](super::entropy_backward) in the registry.
pub static ENTROPY_BACKWARD: EntropyOf = EntropyOf { info: &BACKWARD };

impl EntropyOf {
    fn is_backward(&self) -> bool {
        self.info.name == BACKWARD.name
    }
}

impl Operator for EntropyOf {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let info = self.info;
        let production = |d| Case::production(info, format!("tokens=8192 vocab={d} bf16"), DType::BF16, dims(8192, d));
        let mut cases: Vec<_> = [32_768, 131_072].into_iter().map(production).collect();
        for &dtype in info.dtypes {
            let of_teams = rows::cases(info, dtype, rows::LIMITS, &["dentropies", "entropies"]);
            cases.extend(of_teams.into_iter().filter(|case| case.dims.get("d") != Some(0)));
            cases.extend([
                Case::odd(info, dtype, dims(11, 88)).param("temperature", 2.0),
                Case::odd(info, dtype, dims(5, 16)).param("temperature", 0.25),
                // A reciprocal near the limit, times exponents beyond it.
                Case::odd(info, dtype, dims(5, 16)).param("temperature", 1e-38),
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
            specs.push(InputSpec::normal("dentropies", DType::F32, [rows]));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let logits = inputs.get("logits")?;
        require_classes(self.info, "logits", logits.shape())?;
        let outer = &logits.shape()[..logits.shape().len() - 1];
        params.f32("temperature")?;
        if self.is_backward() {
            inputs.get("dentropies")?.has_shape(outer)?;
            return Ok(vec![TensorMeta::new("gradient", logits.dtype(), logits.shape())]);
        }
        Ok(vec![TensorMeta::new("entropies", DType::F32, outer)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (temperature, info) = (params.f32("temperature")?, self.info);
        dispatch!(info, args.dtype("logits")?, float => |T| {
            let call = Call::<T>::new(info, args.input("logits")?.into(), temperature)?;
            match self.is_backward() {
                true => call.launch(stream, None, Some((args.input("dentropies")?, Some(args.output("gradient")?)))),
                false => call.launch(stream, Some(args.output("entropies")?), None),
            }
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (logits, temperature) = (inputs.get("logits")?, params.f64("temperature")?);
        let of_row = |row: usize| Exact::new(&reference::row(logits, row), temperature);
        if output == "entropies" {
            return Ok(rows.iter().map(|row| of_row(*row).entropy()).collect());
        }
        let dentropies = inputs.get("dentropies")?.to_f64();
        Ok(reference::by_row(rows, |row| of_row(row).gradient(dentropies[row])))
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
            of_outputs: &[("dentropies", "entropies")],
            of_inputs: &[("gradient", "logits")],
        })
    }
}
