//! What the objective says of itself.

use gpu_kernels::ops::loss::cross_entropy::targets as batch;
use gpu_kernels::ops::loss::grpo::{self as gk, sequences};

use super::call::Objective;
use super::exact::Exact;
use super::options::{DIVISOR, Grpo, NORMALISED, Normalisation};
use crate::ops::loss::batch::RowResults;
use crate::ops::loss::sequences::count;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

pub(in crate::ops::loss) const PARAMS: [ParamInfo; 6] = [
    ParamInfo::float("clip_low", 0.2, "how far below 1 the ratio counts, up to 1"),
    ParamInfo::float("clip_high", 0.2, "how far above 1 the ratio counts"),
    ParamInfo::float("beta", 0.04, "factor of the penalty, where there is a reference"),
    ParamInfo::choice(
        NORMALISED,
        "sequences",
        &["sequences", "tokens", "constant"],
        "by the tokens of each sequence and by sequences, by all tokens, or by the divisor",
    ),
    ParamInfo::float(DIVISOR, 1.0, "what the sum is divided by if by a constant"),
    ParamInfo::int("ignore_index", -100, "target of tokens that do not count"),
];

pub(super) static INFO: OpInfo = OpInfo {
    name: "grpo",
    bench_name: "loss.grpo",
    summary: "group relative policy optimisation over log-probabilities, with its gradient",
    math: "loss = −min(r·A, clip(r)·A) + β · (e^d − d − 1), r = e^(log_probs − old), d = reference − log_probs",
    args: &[
        ArgInfo::input("log_probs", "[tokens], contiguous"),
        ArgInfo::input("targets", "[tokens], contiguous: the tokens, or which of them count").of(&[DType::I32]),
        ArgInfo::input("advantages", "[sequences], contiguous"),
        ArgInfo::input("offsets", "[sequences + 1], contiguous: where sequences start").of(&[DType::I32]),
        ArgInfo::input("old", "[tokens], contiguous: log_probs of the policy that drew the tokens").optional(),
        ArgInfo::input("reference", "[tokens], contiguous: log_probs of a reference model").optional(),
        ArgInfo::output("losses", "[tokens], contiguous: what each adds"),
        ArgInfo::output("total", "[1], their sum"),
        ArgInfo::output("gradient", "[tokens], contiguous"),
    ],
    params: &PARAMS,
    dtypes: &[DType::F32],
    kernels: &[gk::GRPO, sequences::CHECK_OFFSETS, sequences::WEIGH_SEQUENCES, batch::WEIGH_TARGETS, batch::TOTAL_LOSS],
    variants: &[],
};

/// [`grpo`](super::grpo()) in the registry.
pub struct GrpoOf;

/// [`grpo`](super::grpo()) in the registry.
pub static GRPO: GrpoOf = GrpoOf;

pub(in crate::ops::loss) fn options<'a>(args: &Arguments<'a>, params: &Params) -> Result<Grpo<'a>> {
    let ignored = params.i64("ignore_index")?;
    let ignored =
        i32::try_from(ignored).map_err(|_| params.info().param_error("ignore_index", ignored, "a 32-bit number"))?;
    let beta = params.f32("beta")?;
    let reference = args.optional_input("reference")?;
    Ok(Grpo {
        clip: [params.f32("clip_low")?, params.f32("clip_high")?],
        normalisation: Normalisation::of(params)?,
        ignored,
        old: args.optional_input("old")?,
        penalty: reference.map(|reference| (beta, reference)),
    })
}

impl Operator for GrpoOf {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |tokens, sequences| [("tokens", tokens), ("sequences", sequences)];
        let case = |class, tokens, sequences| Case::new(&INFO, class, DType::F32, dims(tokens, sequences));
        let by = |case: Case, normalised| case.param(NORMALISED, ParamValue::Choice(normalised));
        vec![
            Case::production(&INFO, "tokens=131072 sequences=64 f32", DType::F32, dims(131_072, 64)),
            case(CaseClass::Odd, 1100, 3).param("clip_high", 0.28),
            by(case(CaseClass::Odd, 300, 290), "tokens").param("ignore_index", 3i64),
            by(case(CaseClass::Odd, 77, 5), "constant").param(DIVISOR, 8.0).only(&["old"]).offset(1),
            case(CaseClass::Odd, 40, 4).arrange("log_probs", Arrangement::DENSE.row_pad(8)).param("beta", 0.5),
            case(CaseClass::Odd, 20, 4).values("offsets", Values::Hostile { bound: 20 }),
            case(CaseClass::Odd, 40, 4).values("targets", Values::Hostile { bound: 8 }),
            case(CaseClass::Odd, 40, 4).values("targets", Values::Constant(-100.0)),
            by(case(CaseClass::Tiny, 4, 2), "constant").param("beta", 2.0),
            case(CaseClass::Empty, 0, 2),
            case(CaseClass::Empty, 0, 0),
            // Without the policy that drew the tokens the ratio is 1 but for its derivative.
            case(CaseClass::Boundary, 40, 3).only(&["reference"]),
            case(CaseClass::Boundary, 40, 3).values("log_probs", Values::Constant(f64::NAN)),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [tokens, sequences] = case.dims(["tokens", "sequences"])?;
        let log_probs = Values::Uniform { low: -1.0, high: 0.0 };
        let of_tokens = |name| InputSpec::new(name, DType::F32, [tokens], log_probs);
        let mut specs = vec![
            of_tokens("log_probs"),
            InputSpec::new("targets", DType::I32, [tokens], Values::Integers { low: 0, high: 7 }),
            InputSpec::new("advantages", DType::F32, [sequences], Values::Uniform { low: -2.0, high: 2.0 }),
            InputSpec::new("offsets", DType::I32, [sequences + 1], Values::Offsets { total: tokens as i64 }),
        ];
        specs.extend(["old", "reference"].into_iter().filter(|name| case.has(name)).map(of_tokens));
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let log_probs = inputs.get("log_probs")?;
        let [tokens] = log_probs.dims()?;
        let offsets = inputs.get("offsets")?;
        let [ends] = offsets.dims()?;
        let sequences = count(&INFO, offsets.shape(), ends, tokens)?;
        inputs.get("advantages")?.has_shape(&[sequences])?;
        inputs.get("targets")?.has_shape(&[tokens])?;
        for name in ["old", "reference"] {
            inputs.optional(name).map_or(Ok(()), |of_tokens| of_tokens.has_shape(&[tokens]))?;
        }
        params.f32("beta")?;
        let of = |name, n: usize| TensorMeta::new(name, DType::F32, [n]);
        Ok(vec![of("losses", tokens), of("total", 1), of("gradient", tokens)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let options = options(args, params)?;
        let (targets, advantages) = (args.input("targets")?, args.input("advantages")?);
        let classes = i32::MAX as u32;
        let objective = Objective::new(&INFO, targets, advantages, args.input("offsets")?, &options, classes)?;
        let (per_row, total) = (args.output("losses")?, args.output("total")?);
        let results = RowResults { per_row, total, bad: None, offsets: None };
        objective.launch(stream, args.input("log_probs")?, results, args.output("gradient")?)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let exact = Exact::new(inputs, params, inputs.get("log_probs")?.to_f64(), i32::MAX as usize)?;
        let rows = rows.iter().copied();
        Ok(match output {
            "losses" => rows.map(|token| exact.token(token).0).collect(),
            "total" => vec![exact.total()],
            _ => rows.map(|token| exact.token(token).1).collect(),
        })
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [tokens, _] = case.dims(["tokens", "sequences"])?;
        // Ratios are up to e, advantages up to 2; a penalty of differences of up to 1 has 2 ulp of e^x. A weight is a share of 1, or 1.
        let abs = (8.0 + 4.0 * case.params.f64("beta")?) * 4.0 * roundoff(DType::F32);
        let rel = 8.0 * roundoff(DType::F32);
        Ok(match output {
            "total" => {
                let why = "the losses' errors, and roundings of their sum";
                Tolerance::new(tokens as f64 * abs, rel, why)
            }
            _ => Tolerance::new(abs, rel, "ratios and penalties with some ulp of their exponentials, which may cancel"),
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, sequences] = case.dims(["tokens", "sequences"])?;
        Ok(Cost::memory((24 * tokens + 12 * sequences + 8) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient { forward: &GRPO, of_outputs: &[("", "total")], of_inputs: &[("gradient", "log_probs")] })
    }
}
