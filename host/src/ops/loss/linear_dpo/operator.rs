//! What the loss says of itself.

use cuda_std::launch::Instance;
use gpu_kernels::ops::loss::cross_entropy::{self as ce, targets as batch};
use gpu_kernels::ops::loss::dpo as gk;
use gpu_kernels::ops::loss::grpo::sequences;
use half::{bf16, f16};

use super::call::{Call, Layer};
use crate::dispatch;
use crate::ops::gemm::with_products;
use crate::ops::loss::batch::RowResults;
use crate::ops::loss::dpo::{self, Exact, Results};
use crate::ops::loss::linear::{self, ExactTokens, Gradients, Linear, Tokens};
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const HIDDEN: ArgInfo = ArgInfo::input("hidden", "[tokens, d], any strides");
const WEIGHT: ArgInfo = ArgInfo::input("weight", "[classes, d], any strides");
const TARGETS: ArgInfo = ArgInfo::input("targets", "[tokens], contiguous: the next tokens").of(&[DType::I32]);
const OFFSETS: ArgInfo =
    ArgInfo::input("offsets", "[2 pairs + 1], contiguous: where sequences start, the chosen ones first")
        .of(&[DType::I32]);
const REFERENCE: ArgInfo = ArgInfo::input("reference", "[2 pairs], contiguous: ρ").of(&[DType::F32]).optional();
const LOSSES: ArgInfo = ArgInfo::output("losses", "[pairs], contiguous").of(&[DType::F32]);
const SUMS: ArgInfo = ArgInfo::output("sums", "[2 pairs], contiguous: π").of(&[DType::F32]);
const TOTAL: ArgInfo = ArgInfo::output("total", "[1], mean or sum of the losses").of(&[DType::F32]);
const DHIDDEN: ArgInfo = ArgInfo::output("dhidden", "[tokens, d], rows may be padded");
const DWEIGHT: ArgInfo = ArgInfo::output("dweight", "[classes, d], rows may be padded").of(&[DType::F32]);

const PARAMS: &[ParamInfo] = {
    let [beta, smoothing, sum] = dpo::PARAMS;
    let ignore = ParamInfo::int("ignore_index", -100, "target of tokens that do not count");
    &[beta, smoothing, sum, ignore, ParamInfo::int("memory", 1 << 30, "bytes of logits at a time")]
};

const KERNELS: &[&[Instance]] = with_products![
    ce::CROSS_ENTROPY,
    ce::CROSS_ENTROPY_CLUSTER,
    batch::WEIGH_TARGETS,
    batch::TOTAL_LOSS,
    sequences::CHECK_OFFSETS,
    gk::DPO,
];

const fn facts([name, bench_name, summary, math]: [&'static str; 4], args: &'static [ArgInfo]) -> OpInfo {
    let dtypes = &[DType::F16, DType::BF16];
    OpInfo { name, bench_name, summary, math, args, params: PARAMS, dtypes, kernels: KERNELS, variants: &[] }
}

pub(super) static FORWARD: OpInfo = facts(
    [
        "linear_dpo",
        "loss.linear_dpo_fwd",
        "direct preference optimisation of a linear layer's logits, in chunks",
        "dpo(log_softmax(hidden · weightᵀ)[targets])",
    ],
    &[HIDDEN, WEIGHT, TARGETS, OFFSETS, REFERENCE, LOSSES, SUMS, TOTAL],
);

pub(super) static WITH_GRADIENT: OpInfo = facts(
    [
        "linear_dpo_with_gradient",
        "loss.linear_dpo_fwd_bwd",
        "linear_dpo and its gradients",
        "with G = ∂loss/∂logits: dhidden = G · weight, dweight = Gᵀ · hidden",
    ],
    &[HIDDEN, WEIGHT, TARGETS, OFFSETS, REFERENCE, LOSSES, SUMS, TOTAL, DHIDDEN, DWEIGHT],
);

/// A form of the operator in the registry.
pub struct LinearDpoOf {
    info: &'static OpInfo,
}

/// [`linear_dpo`](super::linear_dpo()) in the registry.
pub static LINEAR_DPO: LinearDpoOf = LinearDpoOf { info: &FORWARD };
/// [`linear_dpo_with_gradient`](super::linear_dpo_with_gradient) in the registry.
pub static LINEAR_DPO_WITH_GRADIENT: LinearDpoOf = LinearDpoOf { info: &WITH_GRADIENT };

impl LinearDpoOf {
    fn has_gradient(&self) -> bool {
        self.info.name == WITH_GRADIENT.name
    }
}

impl Operator for LinearDpoOf {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let info = self.info;
        let dims = |pairs, tokens, d, classes| [("pairs", pairs), ("tokens", tokens), ("d", d), ("classes", classes)];
        let name = "tokens=8192 pairs=4 hidden=4096 vocab=128256 bf16";
        let mut cases = vec![Case::production(info, name, DType::BF16, dims(4, 8192, 4096, 128_256)).timed_only()];
        let padded = |pad| Arrangement::DENSE.row_pad(pad);
        for &dtype in info.dtypes {
            cases.extend([
                // Chunks that end within sequences.
                Case::odd(info, dtype, dims(3, 40, 8, 72)).param("memory", 16 * 72 * 2i64).param("beta", 0.5),
                Case::odd(info, dtype, dims(2, 9, 13, 20))
                    .only(&[])
                    .arrange("hidden", padded(3))
                    .arrange("weight", padded(5))
                    .param("label_smoothing", 0.1)
                    .param("sum", true),
                // Most pairs lose their gradient, and the others keep theirs.
                Case::odd(info, dtype, dims(9, 20, 8, 16)).values("targets", Values::Hostile { bound: 16 }),
                Case::odd(info, dtype, dims(2, 12, 8, 16)).values("offsets", Values::Hostile { bound: 12 }),
                Case::odd(info, dtype, dims(1, 8, 8, 4)).param("ignore_index", 2i64).param("sum", true),
                Case::tiny(info, dtype, dims(1, 2, 2, 3)).param("beta", 1.0),
                Case::empty(info, dtype, dims(0, 0, 4, 8)),
                Case::empty(info, dtype, dims(2, 0, 8, 16)),
                Case::boundary(info, dtype, dims(1, 3, 8, 8)).values("hidden", Values::Constant(f64::NAN)),
                // A pair without a margin leaves tokens that do not count alone.
                Case::boundary(info, dtype, dims(1, 8, 8, 4))
                    .param("ignore_index", 2i64)
                    .values("reference", Values::Constant(f64::NAN)),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [pairs, tokens, d, classes] = case.dims(["pairs", "tokens", "d", "classes"])?;
        let mut specs = Tokens { tokens, d, classes }.specs(case);
        specs.push(InputSpec::new("offsets", DType::I32, [2 * pairs + 1], Values::Offsets { total: tokens as i64 }));
        if case.has("reference") {
            // About those of the policy, so that margins are moderate.
            let low = -3.0 * tokens as f64 / (2 * pairs).max(1) as f64;
            specs.push(InputSpec::new("reference", DType::F32, [2 * pairs], Values::Uniform { low, high: 0.0 }));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let gradients = Tokens::outputs(self.info, inputs)?;
        let offsets = inputs.get("offsets")?;
        let [ends] = offsets.dims()?;
        let [tokens] = inputs.get("targets")?.dims()?;
        let sequences = dpo::pairs_of(self.info, offsets.shape(), ends, tokens)? * 2;
        inputs.optional("reference").map_or(Ok(()), |reference| reference.has_shape(&[sequences]))?;
        params.f32("beta")?;
        let of = |name, n: usize| TensorMeta::new(name, DType::F32, [n]);
        let losses = [of("losses", sequences / 2), of("sums", sequences), of("total", 1)];
        Ok(losses.into_iter().chain(gradients.into_iter().filter(|_| self.has_gradient())).collect())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let info = self.info;
        let ignored = params.i64("ignore_index")?;
        let ignored =
            i32::try_from(ignored).map_err(|_| info.param_error("ignore_index", ignored, "a 32-bit number"))?;
        let options = Linear::new(dpo::options(args, params)?.ignore(ignored)).memory(linear::memory(params)?);
        let (targets, offsets) = (args.input("targets")?, args.input("offsets")?);
        dispatch!(info, args.dtype("hidden")?, [f16, bf16] => |T| {
            let layer = Layer::<T> { hidden: args.input("hidden")?, weight: args.input("weight")?, targets };
            let call = Call::new(info, layer, offsets, &options)?;
            let (per_row, total) = (args.output("losses")?, args.output("total")?);
            let rows = RowResults { per_row, total, bad: None, offsets: None };
            let results = Results { rows, sums: args.output("sums")? };
            let gradients = match self.has_gradient() {
                true => Some(Gradients { dhidden: args.output("dhidden")?, dweight: args.output("dweight")? }),
                false => None,
            };
            call.launch(stream, results, gradients)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let exact = ExactTokens::new(inputs, params.i64("ignore_index")?)?;
        let loss = Exact::new(inputs, params, exact.log_probs())?;
        let of_rows = rows.iter().copied();
        Ok(match output {
            "losses" => of_rows.map(|pair| loss.loss(pair)).collect(),
            "sums" => of_rows.map(|sequence| loss.sum(sequence)).collect(),
            "total" => vec![loss.total()],
            _ => {
                exact.gradient(output, rows, |token| match loss.pair_of(token).any(|token| exact.is_stranger(token)) {
                    true => 0.0,
                    false => loss.gradient(token),
                })
            }
        })
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [pairs, tokens, d, classes] = case.dims(["pairs", "tokens", "d", "classes"])?;
        let beta = case.params.f64("beta")?;
        let of_token = Tokens { tokens, d, classes }.error();
        let sums = tokens as f64 * of_token + 1e-6;
        let is_sum = case.params.bool("sum")?;
        let terms = if is_sum { pairs as f64 } else { 1.0 };
        let rel = 8.0 * roundoff(DType::F32);
        Ok(match output {
            "sums" => Tolerance::new(sums, rel, "the errors of all tokens' log-probabilities"),
            "losses" => Tolerance::new(4.0 * beta * sums, rel, "β times four sums' errors"),
            "total" => Tolerance::new(terms * 4.0 * beta * sums, 4.0 * rel, "the losses' errors, and of their sum"),
            _ => {
                // A token's derivative is up to β, of which the margin's error moves a quarter of it.
                let share = if is_sum { 1.0 } else { (pairs.max(1) as f64).recip() };
                let of_token = beta * share * (roundoff(case.dtype) + 4.0 * of_token + beta * sums);
                Tokens { tokens, d, classes }.gradient_tolerance(case, output, of_token)
            }
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, d, classes] = case.dims(["tokens", "d", "classes"])?;
        Ok(Tokens { tokens, d, classes }.cost(case, if self.has_gradient() { 4 } else { 1 }))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.has_gradient().then_some(Gradient {
            forward: &LINEAR_DPO,
            of_outputs: &[("", "total")],
            of_inputs: &[("dhidden", "hidden"), ("dweight", "weight")],
        })
    }
}
