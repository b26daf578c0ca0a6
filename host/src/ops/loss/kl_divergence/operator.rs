//! What the divergence says of itself.

use cuda_std::launch::Instance;
use gpu_kernels::ops::loss::cross_entropy::targets as batch;
use gpu_kernels::ops::loss::kl_divergence as gk;

use super::call::Call;
use super::exact::Exact;
use super::{Divergence, KlDivergence};
use crate::dispatch;
use crate::ops::loss::batch::RowResults;
use crate::ops::loss::logits::require_classes;
use crate::ops::model::*;
use crate::ops::rows;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const STUDENT: ArgInfo = ArgInfo::input("student", "[rows, classes] or more dimensions, rows may be padded");
const TEACHER: ArgInfo = ArgInfo::input("teacher", "the shape of student, rows may be padded");
const TARGETS: ArgInfo = ArgInfo::input("targets", "the outer dimensions of student, contiguous: which rows count")
    .of(&[DType::I32])
    .optional();
const LOSSES: ArgInfo = ArgInfo::output("losses", "the outer dimensions of student, contiguous").of(&[DType::F32]);
const TOTAL: ArgInfo = ArgInfo::output("total", "[1], mean or sum of the losses").of(&[DType::F32]);
const GRADIENT: ArgInfo = ArgInfo::output("gradient", "the shape of student, rows may be padded");

const FORWARDS: ParamValue = ParamValue::Choice("forward");
pub(in crate::ops::loss) const REVERSE: ParamValue = ParamValue::Choice("reverse");
pub(in crate::ops::loss) const JENSEN_SHANNON: ParamValue = ParamValue::Choice("jensen_shannon");

pub(in crate::ops::loss) const PARAMS: [ParamInfo; 5] = [
    ParamInfo::choice(
        "divergence",
        "forward",
        &["forward", "reverse", "jensen_shannon"],
        "KL(teacher‖student), KL(student‖teacher), or of both from their mixture",
    ),
    ParamInfo::float("beta", 0.5, "weight of the teacher in the mixture, from 0 to 1"),
    ParamInfo::float("temperature", 1.0, "what the logits are divided by"),
    ParamInfo::int("ignore_index", -100, "target of rows that do not count"),
    ParamInfo::bool("sum", false, "the total is the sum, not the mean over the rows that count"),
];

const fn facts(
    [name, bench_name, summary, math]: [&'static str; 4],
    args: &'static [ArgInfo],
    kernels: &'static [&'static [Instance]],
) -> OpInfo {
    OpInfo { name, bench_name, summary, math, args, params: &PARAMS, dtypes: DType::FLOATS, kernels, variants: &[] }
}

const KERNELS: &[&[Instance]] = &[
    gk::KL_DIVERGENCE,
    gk::KL_DIVERGENCE_CLUSTER,
    gk::ring::KL_DIVERGENCE_RING,
    batch::WEIGH_TARGETS,
    batch::TOTAL_LOSS,
];
const FORWARD_KERNELS: &[&[Instance]] =
    &[gk::KL_DIVERGENCE, gk::KL_DIVERGENCE_CLUSTER, gk::KL_DIVERGENCE_LOSS, batch::WEIGH_TARGETS, batch::TOTAL_LOSS];

pub(super) static FORWARD: OpInfo = facts(
    [
        "kl_divergence",
        "loss.kl_fwd",
        "divergence of the softmaxes of rows of logits, forward, reverse or Jensen–Shannon",
        "loss = Σ p·ln(p / q), p = softmax(teacher / T), q = softmax(student / T)",
    ],
    &[STUDENT, TEACHER, TARGETS, LOSSES, TOTAL],
    FORWARD_KERNELS,
);

pub(super) static WITH_GRADIENT: OpInfo = facts(
    [
        "kl_divergence_with_gradient",
        "loss.kl_fwd_bwd",
        "kl_divergence and its gradient by the student in one pass",
        "loss = Σ p·ln(p / q), gradient = (q − p) / (T · rows)",
    ],
    &[STUDENT, TEACHER, TARGETS, LOSSES, TOTAL, GRADIENT],
    KERNELS,
);

pub(super) static BACKWARD: OpInfo = facts(
    ["kl_divergence_backward", "loss.kl_bwd", "gradient of kl_divergence by row", "gradient = (q − p) / T · dloss"],
    &[
        STUDENT,
        TEACHER,
        TARGETS,
        ArgInfo::input("dlosses", "the outer dimensions of student, contiguous").of(&[DType::F32]),
        GRADIENT,
    ],
    KERNELS.split_at(3).0,
);

/// A form of the operator in the registry.
pub struct KlDivergenceOf {
    info: &'static OpInfo,
}

/// [`kl_divergence`](super::kl_divergence()) in the registry.
pub static KL_DIVERGENCE: KlDivergenceOf = KlDivergenceOf { info: &FORWARD };
/// [`kl_divergence_backward`](super::kl_divergence_backward) in the registry.
pub static KL_DIVERGENCE_BACKWARD: KlDivergenceOf = KlDivergenceOf { info: &BACKWARD };
/// [`kl_divergence_with_gradient`](super::kl_divergence_with_gradient) in the registry.
pub static KL_DIVERGENCE_WITH_GRADIENT: KlDivergenceOf = KlDivergenceOf { info: &WITH_GRADIENT };

impl KlDivergenceOf {
    fn is(&self, info: &OpInfo) -> bool {
        self.info.name == info.name
    }
}

pub(in crate::ops::loss) fn options<'a>(args: &Arguments<'a>, params: &Params) -> Result<KlDivergence<'a>> {
    let ignored = params.i64("ignore_index")?;
    let ignored =
        i32::try_from(ignored).map_err(|_| params.info().param_error("ignore_index", ignored, "a 32-bit number"))?;
    Ok(KlDivergence {
        divergence: Divergence::of(params)?,
        temperature: params.f32("temperature")?,
        is_mean: !params.bool("sum")?,
        ignored,
        targets: args.optional_input("targets")?,
    })
}

/// Relative error of a probability, and absolute of a divergence in units of its ratios' size: √d·2⁻²⁴ of sums, 2⁻²² of exponentials, 2⁻²³ of
/// exponents up to 16, at a low temperature of larger ones.
pub(in crate::ops::loss) fn statistics(case: &Case, classes: usize) -> Result<f64> {
    let largest = case.params.f64("temperature")?.recip().max(1.0);
    Ok(((classes as f64).sqrt() * roundoff(DType::F32) + 4e-6) * largest)
}

impl Operator for KlDivergenceOf {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let info = self.info;
        let production =
            |d| Case::production(info, format!("tokens=8192 vocab={d} bf16"), DType::BF16, dims(8192, d)).only(&[]);
        let mut cases: Vec<_> = [32_768, 131_072].into_iter().map(production).collect();
        let padded = |case: Case| {
            let gradient = if self.is(&FORWARD) { "losses" } else { "gradient" };
            let case = case.arrange("student", Arrangement::DENSE.row_pad(8));
            let case = case.arrange("teacher", Arrangement::DENSE.row_pad(16));
            case.arrange(gradient, Arrangement::DENSE.row_pad(24))
        };
        for &dtype in info.dtypes {
            let lanes = 16 / dtype.size();
            let mut small = Vec::new();
            if self.is(&WITH_GRADIENT) {
                let own = ["targets", "losses", "total"];
                let of_teams = rows::cases(info, dtype, rows::LIMITS, &own);
                small.extend(of_teams.into_iter().filter(|case| case.dims.get("d") != Some(0)));
            }
            // Every team takes the steps of them all.
            let teams = [11 * lanes, 100 * lanes, 200 * lanes, 1030 * lanes, 4100 * lanes, 203];
            let mixed = |case: Case| case.param("divergence", JENSEN_SHANNON);
            let kept = if self.is(&BACKWARD) { &teams[..2] } else { &teams[..] };
            small.extend(kept.iter().map(|d| mixed(Case::odd(info, dtype, dims(2, *d))).param("beta", 0.25)));
            small.extend(kept.iter().map(|d| Case::odd(info, dtype, dims(2, *d)).param("divergence", REVERSE)));
            small.extend([
                padded(Case::odd(info, dtype, dims(9, 64))),
                Case::tiny(info, dtype, dims(2, 1)),
                mixed(Case::tiny(info, dtype, dims(2, 8))),
                Case::empty(info, dtype, dims(0, 16)),
                Case::odd(info, dtype, dims(9, 40)).offset(1),
                Case::odd(info, dtype, dims(6, 64)).param("temperature", 2.0).param("sum", true),
                mixed(Case::odd(info, dtype, dims(6, 24)).param("temperature", 0.5)).param("beta", 0.9),
                // The ends of β are the other two.
                mixed(Case::odd(info, dtype, dims(3, 16))).param("beta", 1.0),
            ]);
            for divergence in [FORWARDS, REVERSE, JENSEN_SHANNON] {
                let case = |d| Case::boundary(info, dtype, dims(70, d)).param("divergence", divergence);
                small.push(case(3).values("student", Values::Specials).values("teacher", Values::Specials));
                small.push(case(2).values("student", Values::Constant(f64::NEG_INFINITY)));
            }
            cases.extend(small.into_iter().map(|case| case.only(&[])));
            cases.extend([
                Case::odd(info, dtype, dims(40, 8)).values("targets", Values::Hostile { bound: 8 }),
                Case::odd(info, dtype, dims(40, 4)).param("ignore_index", 2i64),
                mixed(Case::odd(info, dtype, dims(5, 64))).values("targets", Values::Constant(-100.0)),
            ]);
            if !self.is(&FORWARD) {
                // Clusters that take several rows: of stretches that differ, and some without a pack.
                for (divergence, packs) in [(FORWARDS, 4100), (REVERSE, 4224)] {
                    let case = Case::odd(info, dtype, dims(13, packs * lanes)).param("divergence", divergence);
                    cases.push(case.values("targets", Values::Hostile { bound: 8 }));
                }
                let special = Case::boundary(info, dtype, dims(9, 4097 * lanes)).values("student", Values::Specials);
                cases.push(special.only(&[]));
                let wide = Case::boundary(info, dtype, dims(4, 19_072 * lanes));
                cases.extend((dtype == DType::BF16).then(|| wide.only(&[])));
            }
            if self.is(&BACKWARD) {
                // Rows that do not count leave nothing of what stands upstream.
                for divergence in [FORWARDS, REVERSE, JENSEN_SHANNON] {
                    let some = Case::boundary(info, dtype, dims(40, 8)).param("divergence", divergence);
                    let some = some.values("targets", Values::Hostile { bound: 8 });
                    cases.push(some.values("dlosses", Values::Constant(f64::NAN)));
                }
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let mut specs = vec![
            InputSpec::normal("student", case.dtype, [rows, d]),
            InputSpec::normal("teacher", case.dtype, [rows, d]),
        ];
        if case.has("targets") {
            let high = (d as i64 - 1).max(0);
            specs.push(InputSpec::new("targets", DType::I32, [rows], Values::Integers { low: 0, high }));
        }
        if self.is(&BACKWARD) {
            specs.push(InputSpec::normal("dlosses", DType::F32, [rows]));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let student = inputs.get("student")?;
        require_classes(self.info, "student", student.shape())?;
        let outer = &student.shape()[..student.shape().len() - 1];
        inputs.get("teacher")?.has_shape(student.shape())?;
        inputs.optional("targets").map_or(Ok(()), |targets| targets.has_shape(outer))?;
        params.f32("temperature")?;
        let gradient = TensorMeta::new("gradient", student.dtype(), student.shape());
        if self.is(&BACKWARD) {
            inputs.get("dlosses")?.has_shape(outer)?;
            return Ok(vec![gradient]);
        }
        let mut written = vec![TensorMeta::new("losses", DType::F32, outer), TensorMeta::new("total", DType::F32, [1])];
        if self.is(&WITH_GRADIENT) {
            written.push(gradient);
        }
        Ok(written)
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (options, info) = (options(args, params)?, self.info);
        dispatch!(info, args.dtype("student")?, float => |T| {
            let call = Call::<T>::new(info, args.input("student")?.into(), args.input("teacher")?, &options)?;
            if self.is(&BACKWARD) {
                return call.launch_backward(stream, args.input("dlosses")?, args.output("gradient")?);
            }
            let results = RowResults { per_row: args.output("losses")?, total: args.output("total")?, bad: None, offsets: None };
            let gradient = self.is(&WITH_GRADIENT).then(|| args.output("gradient")).transpose()?;
            call.launch(stream, results, gradient)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (student, teacher) = (inputs.get("student")?, inputs.get("teacher")?);
        let shape = [reference::row_count(student.shape()), reference::row_len(student.shape())];
        let logits = [student, teacher].map(|logits| move |row| reference::row(logits, row));
        let [student, teacher] = logits;
        let exact = Exact::new(inputs, params, shape, student, teacher)?;
        let dlosses = inputs.optional("dlosses").map(|dlosses| dlosses.to_f64());
        Ok(match output {
            "losses" => rows.iter().map(|row| exact.loss(*row)).collect(),
            "total" => vec![exact.total()],
            _ => {
                let factor = |row: usize| dlosses.as_ref().map_or_else(|| exact.share(), |dlosses| dlosses[row]);
                reference::by_row(rows, |row| exact.gradient(row, factor(row)))
            }
        })
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let statistics = statistics(case, d)?;
        let temperature = case.params.f64("temperature")?;
        Ok(match output {
            "losses" => {
                let why =
                    "ratios of up to six, of weights with the error of probabilities; that of the sums' logarithms";
                Tolerance::new(6.0 * statistics, 2.0 * statistics, why)
            }
            "total" => {
                let terms = if case.params.bool("sum")? { rows as f64 } else { 1.0 };
                let why = "the losses' errors, and roundings of their sum";
                let rel = 2.0 * statistics + (rows as f64).sqrt() * roundoff(DType::F32);
                Tolerance::new(terms * 6.0 * statistics, rel, why)
            }
            _ => {
                let size = if self.is(&BACKWARD) { 4.0 } else { 1.0 };
                // Of normal logits no class has more than e⁵ times its share.
                let greatest = if temperature < 1.0 { 1.0 } else { (128.0 / d.max(1) as f64).min(1.0) };
                let abs = size * greatest * 8.0 * statistics / temperature;
                let why = "one rounding to storage; the statistics' error in probabilities that may cancel, times dlosses of up to 4";
                Tolerance::rounded(case.dtype, abs, 4.0 * statistics, why)
            }
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let passes = if self.is(&FORWARD) { 2 } else { 3 };
        Ok(Cost::memory((passes * rows * d * case.dtype.size() + 4 * rows) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.is(&BACKWARD).then_some(Gradient {
            forward: &KL_DIVERGENCE,
            of_outputs: &[("dlosses", "losses")],
            of_inputs: &[("gradient", "student")],
        })
    }
}
