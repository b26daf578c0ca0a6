//! What the loss says of itself.

use cuda_std::launch::Instance;
use gpu_kernels::ops::loss::cross_entropy::{self as ce, targets as batch};
use gpu_kernels::ops::loss::grpo::{self as gk, sequences};
use half::{bf16, f16};

use super::call::{Answers, Call};
use crate::dispatch;
use crate::ops::gemm::with_products;
use crate::ops::loss::batch::RowResults;
use crate::ops::loss::grpo::{self, DIVISOR, Exact, NORMALISED};
use crate::ops::loss::linear::{self, ExactTokens, Gradients, Linear, Tokens};
use crate::ops::loss::sequences::count;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const HIDDEN: ArgInfo = ArgInfo::input("hidden", "[tokens, d], any strides");
const WEIGHT: ArgInfo = ArgInfo::input("weight", "[classes, d], any strides");
const TARGETS: ArgInfo = ArgInfo::input("targets", "[tokens], contiguous: the next tokens").of(&[DType::I32]);
const ADVANTAGES: ArgInfo = ArgInfo::input("advantages", "[sequences], contiguous").of(&[DType::F32]);
const OFFSETS: ArgInfo =
    ArgInfo::input("offsets", "[sequences + 1], contiguous: where sequences start").of(&[DType::I32]);
const OLD: ArgInfo =
    ArgInfo::input("old", "[tokens], contiguous: log-probabilities under the policy that drew the tokens")
        .of(&[DType::F32])
        .optional();
const REFERENCE: ArgInfo =
    ArgInfo::input("reference", "[tokens], contiguous: log-probabilities under a reference model")
        .of(&[DType::F32])
        .optional();
const LOSSES: ArgInfo = ArgInfo::output("losses", "[tokens], contiguous: what each adds").of(&[DType::F32]);
const TOTAL: ArgInfo = ArgInfo::output("total", "[1], their sum").of(&[DType::F32]);
const DHIDDEN: ArgInfo = ArgInfo::output("dhidden", "[tokens, d], rows may be padded");
const DWEIGHT: ArgInfo = ArgInfo::output("dweight", "[classes, d], rows may be padded").of(&[DType::F32]);

const PARAMS: &[ParamInfo] = {
    let [low, high, beta, normalised, divisor, ignore] = grpo::PARAMS;
    let memory = ParamInfo::int("memory", 1 << 30, "bytes of logits at a time");
    &[low, high, beta, normalised, divisor, ignore, memory]
};

const KERNELS: &[&[Instance]] = with_products![
    ce::CROSS_ENTROPY,
    ce::CROSS_ENTROPY_CLUSTER,
    batch::WEIGH_TARGETS,
    batch::TOTAL_LOSS,
    sequences::CHECK_OFFSETS,
    sequences::WEIGH_SEQUENCES,
    gk::GRPO,
];

const fn facts([name, bench_name, summary, math]: [&'static str; 4], args: &'static [ArgInfo]) -> OpInfo {
    let dtypes = &[DType::F16, DType::BF16];
    OpInfo { name, bench_name, summary, math, args, params: PARAMS, dtypes, kernels: KERNELS, variants: &[] }
}

pub(super) static FORWARD: OpInfo = facts(
    [
        "linear_grpo",
        "loss.linear_grpo_fwd",
        "group relative policy optimisation of a linear layer's logits, in chunks",
        "grpo(log_softmax(hidden · weightᵀ)[targets])",
    ],
    &[HIDDEN, WEIGHT, TARGETS, ADVANTAGES, OFFSETS, OLD, REFERENCE, LOSSES, TOTAL],
);

pub(super) static WITH_GRADIENT: OpInfo = facts(
    [
        "linear_grpo_with_gradient",
        "loss.linear_grpo_fwd_bwd",
        "linear_grpo and its gradients",
        "with G = ∂loss/∂logits: dhidden = G · weight, dweight = Gᵀ · hidden",
    ],
    &[HIDDEN, WEIGHT, TARGETS, ADVANTAGES, OFFSETS, OLD, REFERENCE, LOSSES, TOTAL, DHIDDEN, DWEIGHT],
);

/// A form of the operator in the registry.
pub struct LinearGrpoOf {
    info: &'static OpInfo,
}

/// [`linear_grpo`](super::linear_grpo()) in the registry.
pub static LINEAR_GRPO: LinearGrpoOf = LinearGrpoOf { info: &FORWARD };
/// [`linear_grpo_with_gradient`](super::linear_grpo_with_gradient) in the registry.
pub static LINEAR_GRPO_WITH_GRADIENT: LinearGrpoOf = LinearGrpoOf { info: &WITH_GRADIENT };

impl LinearGrpoOf {
    fn has_gradient(&self) -> bool {
        self.info.name == WITH_GRADIENT.name
    }
}

impl Operator for LinearGrpoOf {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let info = self.info;
        let dims = |sequences, tokens, d, classes| {
            [("sequences", sequences), ("tokens", tokens), ("d", d), ("classes", classes)]
        };
        let name = "tokens=8192 sequences=8 hidden=4096 vocab=128256 bf16";
        let mut cases = vec![Case::production(info, name, DType::BF16, dims(8, 8192, 4096, 128_256)).timed_only()];
        let padded = |pad| Arrangement::DENSE.row_pad(pad);
        let by = |case: Case, normalised| case.param(NORMALISED, ParamValue::Choice(normalised));
        for &dtype in info.dtypes {
            cases.extend([
                // Chunks that end within sequences.
                by(Case::odd(info, dtype, dims(3, 40, 8, 72)), "tokens").param("memory", 16 * 72 * 2i64),
                Case::odd(info, dtype, dims(2, 9, 13, 20))
                    .only(&["old"])
                    .arrange("hidden", padded(3))
                    .arrange("weight", padded(5)),
                Case::odd(info, dtype, dims(4, 20, 8, 16)).values("targets", Values::Hostile { bound: 16 }),
                Case::odd(info, dtype, dims(4, 12, 8, 16)).values("offsets", Values::Hostile { bound: 12 }),
                by(Case::odd(info, dtype, dims(2, 8, 8, 4)).param("ignore_index", 2i64), "constant")
                    .param(DIVISOR, 2.0),
                by(Case::tiny(info, dtype, dims(1, 2, 2, 3)), "constant"),
                Case::empty(info, dtype, dims(0, 0, 4, 8)),
                Case::empty(info, dtype, dims(2, 0, 8, 16)),
                // Without the policy that drew the tokens the ratio is 1 but for its derivative.
                Case::boundary(info, dtype, dims(2, 9, 8, 16)).only(&["reference"]),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [sequences, tokens, d, classes] = case.dims(["sequences", "tokens", "d", "classes"])?;
        let mut specs = Tokens { tokens, d, classes }.specs(case);
        let other = |name, low| InputSpec::new(name, DType::F32, [tokens], Values::Uniform { low, high: low + 2.0 });
        // An improbable token's penalty would outgrow all else.
        let others = [other("old", -3.0), other("reference", -20.0)];
        specs.push(InputSpec::new("advantages", DType::F32, [sequences], Values::Uniform { low: -1.0, high: 1.0 }));
        specs.push(InputSpec::new("offsets", DType::I32, [sequences + 1], Values::Offsets { total: tokens as i64 }));
        specs.extend(others.into_iter().filter(|spec| case.has(spec.name)));
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let gradients = Tokens::outputs(self.info, inputs)?;
        let [tokens] = inputs.get("targets")?.dims()?;
        let offsets = inputs.get("offsets")?;
        let [ends] = offsets.dims()?;
        let sequences = count(self.info, offsets.shape(), ends, tokens)?;
        inputs.get("advantages")?.has_shape(&[sequences])?;
        for name in ["old", "reference"] {
            inputs.optional(name).map_or(Ok(()), |of_tokens| of_tokens.has_shape(&[tokens]))?;
        }
        params.f32("beta")?;
        let losses = ["losses", "total"]
            .map(|name| TensorMeta::new(name, DType::F32, [if name == "total" { 1 } else { tokens }]));
        Ok(losses.into_iter().chain(gradients.into_iter().filter(|_| self.has_gradient())).collect())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let info = self.info;
        let options = Linear::new(grpo::options(args, params)?).memory(linear::memory(params)?);
        let (advantages, offsets) = (args.input("advantages")?, args.input("offsets")?);
        let answers = Answers { targets: args.input("targets")?, advantages, offsets };
        dispatch!(info, args.dtype("hidden")?, [f16, bf16] => |T| {
            let layer = [args.input::<T>("hidden")?, args.input("weight")?];
            let call = Call::new(info, layer, answers, &options)?;
            let (per_row, total) = (args.output("losses")?, args.output("total")?);
            let results = RowResults { per_row, total, bad: None, offsets: None };
            let gradients = match self.has_gradient() {
                true => Some(Gradients { dhidden: args.output("dhidden")?, dweight: args.output("dweight")? }),
                false => None,
            };
            call.launch(stream, results, gradients)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let exact = ExactTokens::new(inputs, params.i64("ignore_index")?)?;
        let loss = Exact::new(inputs, params, exact.log_probs(), inputs.get("weight")?.shape()[0])?;
        Ok(match output {
            "losses" => rows.iter().map(|token| loss.token(*token).0).collect(),
            "total" => vec![loss.total()],
            _ => exact.gradient(output, rows, |token| loss.token(token).1),
        })
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [sequences, tokens, d, classes] = case.dims(["sequences", "tokens", "d", "classes"])?;
        let beta = case.params.f64("beta")?;
        let sizes = Tokens { tokens, d, classes };
        // No log-probability is 3 above what it was; the penalty's exponent is small.
        let largest = 3f64.exp() + 8.0 * beta;
        let rel = 16.0 * sizes.error();
        // A sequence may have one token.
        let weight = match case.params.choice(NORMALISED)? {
            "constant" => case.params.f64(DIVISOR)?.recip(),
            "tokens" => (tokens.max(1) as f64).recip(),
            _ => (sequences.max(1) as f64).recip(),
        };
        let of_token = weight * largest * sizes.error();
        Ok(match output {
            "losses" => Tolerance::new(of_token, rel, "a log-probability's error in ratios and penalties"),
            "total" => Tolerance::new(tokens as f64 * of_token, rel, "the losses' errors, and roundings of their sum"),
            _ => {
                let of_g = weight * largest * (roundoff(case.dtype) + 4.0 * sizes.error());
                sizes.gradient_tolerance(case, output, of_g)
            }
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, d, classes] = case.dims(["tokens", "d", "classes"])?;
        Ok(Tokens { tokens, d, classes }.cost(case, if self.has_gradient() { 3 } else { 1 }))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.has_gradient().then_some(Gradient {
            forward: &LINEAR_GRPO,
            of_outputs: &[("", "total")],
            of_inputs: &[("dhidden", "hidden"), ("dweight", "weight")],
        })
    }
}
