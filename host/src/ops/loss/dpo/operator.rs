//! What the loss says of itself.

use gpu_kernels::ops::loss::cross_entropy::targets as batch;
use gpu_kernels::ops::loss::dpo as gk;
use gpu_kernels::ops::loss::grpo::sequences;

use super::call::{Call, Dpo, Results, pairs_of};
use super::exact::Exact;
use crate::ops::loss::batch::RowResults;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

pub(in crate::ops::loss) const PARAMS: [ParamInfo; 3] = [
    ParamInfo::float("beta", 0.1, "how much the margin between the answers counts, above zero"),
    ParamInfo::float("label_smoothing", 0.0, "chance that a preference is the wrong way round, below 0.5"),
    ParamInfo::bool("sum", false, "the total is the sum, not the mean over the pairs"),
];

pub(super) static INFO: OpInfo = OpInfo {
    name: "dpo",
    bench_name: "loss.dpo",
    summary: "direct preference optimisation over log-probabilities, with its gradient",
    math: "loss = −ln σ(β · ((π_c − π_r) − (ρ_c − ρ_r))), π = Σ log_probs of a sequence",
    args: &[
        ArgInfo::input("log_probs", "[tokens], contiguous"),
        ArgInfo::input("offsets", "[2 pairs + 1], contiguous: where sequences start, the chosen ones first")
            .of(&[DType::I32]),
        ArgInfo::input("reference", "[2 pairs], contiguous: ρ").optional(),
        ArgInfo::output("losses", "[pairs], contiguous"),
        ArgInfo::output("sums", "[2 pairs], contiguous: π"),
        ArgInfo::output("total", "[1], mean or sum of the losses"),
        ArgInfo::output("gradient", "[tokens], contiguous"),
    ],
    params: &PARAMS,
    dtypes: &[DType::F32],
    kernels: &[gk::DPO, sequences::CHECK_OFFSETS, batch::TOTAL_LOSS],
    variants: &[],
};

/// [`dpo`](super::dpo()) in the registry.
pub struct DpoOf;

/// [`dpo`](super::dpo()) in the registry.
pub static DPO: DpoOf = DpoOf;

pub(in crate::ops::loss) fn options<'a>(args: &Arguments<'a>, params: &Params) -> Result<Dpo<'a>> {
    let options = Dpo::new(params.f32("beta")?).label_smoothing(params.f32("label_smoothing")?);
    let options = if params.bool("sum")? { options.sum() } else { options };
    Ok(match args.optional_input::<f32>("reference")? {
        Some(reference) => options.reference(reference),
        None => options,
    })
}

impl Operator for DpoOf {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |tokens, pairs| [("tokens", tokens), ("pairs", pairs)];
        let case = |class, tokens, pairs| Case::new(&INFO, class, DType::F32, dims(tokens, pairs));
        let name = "tokens=131072 pairs=64 f32";
        vec![
            Case::production(&INFO, name, DType::F32, dims(131_072, 64)),
            case(CaseClass::Odd, 2500, 3).param("label_smoothing", 0.1),
            case(CaseClass::Odd, 300, 140).only(&[]).arrange("log_probs", Arrangement::DENSE.row_pad(8)),
            case(CaseClass::Odd, 77, 5).param("sum", true).param("beta", 0.5).offset(1),
            case(CaseClass::Odd, 20, 4).values("offsets", Values::Hostile { bound: 20 }),
            case(CaseClass::Tiny, 4, 1).param("sum", true).param("beta", 2.0),
            case(CaseClass::Empty, 0, 2),
            case(CaseClass::Empty, 0, 0),
            case(CaseClass::Boundary, 9, 2).values("log_probs", Values::Constant(f64::NEG_INFINITY)),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [tokens, pairs] = case.dims(["tokens", "pairs"])?;
        let offsets = Values::Offsets { total: tokens as i64 };
        let mut specs = vec![
            InputSpec::new("log_probs", DType::F32, [tokens], Values::Uniform { low: -4.0, high: 0.0 }),
            InputSpec::new("offsets", DType::I32, [2 * pairs + 1], offsets),
        ];
        if case.has("reference") {
            // About those of the policy, so that margins are moderate.
            let low = -4.0 * tokens as f64 / (2 * pairs).max(1) as f64;
            specs.push(InputSpec::new("reference", DType::F32, [2 * pairs], Values::Uniform { low, high: 0.0 }));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let [tokens] = inputs.get("log_probs")?.dims()?;
        let offsets = inputs.get("offsets")?;
        let [ends] = offsets.dims()?;
        let sequences = pairs_of(&INFO, offsets.shape(), ends, tokens)? * 2;
        inputs.optional("reference").map_or(Ok(()), |reference| reference.has_shape(&[sequences]))?;
        params.f32("beta")?;
        let of = |name, n: usize| TensorMeta::new(name, DType::F32, [n]);
        Ok(vec![of("losses", sequences / 2), of("sums", sequences), of("total", 1), of("gradient", tokens)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (options, log_probs) = (options(args, params)?, args.input::<f32>("log_probs")?);
        let [tokens] = log_probs.dims(INFO.name, "log_probs")?;
        log_probs.require_contiguous(INFO.name, "log_probs")?;
        let call = Call::new(&INFO, tokens, args.input("offsets")?, &options)?;
        let per_row = args.output("losses")?;
        let rows = RowResults { per_row, total: args.output("total")?, bad: None, offsets: None };
        let results = Results { rows, sums: args.output("sums")? };
        call.launch(stream, (log_probs, 1.0), results, Some((args.output("gradient")?, call.share())))
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let exact = Exact::new(inputs, params, inputs.get("log_probs")?.to_f64())?;
        let rows = rows.iter().copied();
        Ok(match output {
            "losses" => rows.map(|pair| exact.loss(pair)).collect(),
            "sums" => rows.map(|sequence| exact.sum(sequence)).collect(),
            "total" => vec![exact.total()],
            _ => rows.map(|token| exact.gradient(token)).collect(),
        })
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [tokens, pairs] = case.dims(["tokens", "pairs"])?;
        let beta = case.params.f64("beta")?;
        let rel = 8.0 * roundoff(DType::F32);
        // Sums of up to all tokens of up to 4.
        let sums = 4.0 * (tokens as f64).max(1.0).sqrt() * (tokens as f64).max(1.0) * roundoff(DType::F32);
        let terms = if case.params.bool("sum")? { pairs as f64 } else { 1.0 };
        Ok(match output {
            "sums" => Tolerance::new(sums, rel, "√n·2⁻²⁴ of the sum of a sequence's n terms of up to 4"),
            "losses" => Tolerance::new(4.0 * beta * sums + 1e-6, rel, "β times four sums' errors; softplus' few ulp"),
            "total" => {
                Tolerance::new(terms * (4.0 * beta * sums + 1e-6), 4.0 * rel, "the losses' errors, and of their sum")
            }
            _ => Tolerance::new(beta * (beta * sums + 1e-6), rel, "β times the margin's error in a sigmoid of slope ¼"),
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, pairs] = case.dims(["tokens", "pairs"])?;
        Ok(Cost::memory((8 * tokens + 28 * pairs + 8) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient { forward: &DPO, of_outputs: &[("", "total")], of_inputs: &[("gradient", "log_probs")] })
    }
}
