//! The loss in the registry.

use cuda_std::launch::Instance;
use gpu_kernels::ops::loss::cross_entropy::{self as gk, targets as batch};

use super::CrossEntropy;
use super::call::{Call, Results};
use super::exact::Exact;
use crate::dispatch;
use crate::ops::loss::logits::require_classes;
use crate::ops::model::*;
use crate::ops::rows;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const LOGITS: &str = "[rows, classes] or more dimensions, rows may be padded";

const TARGETS: ArgInfo =
    ArgInfo::input("targets", "the outer dimensions of logits, contiguous: the right classes").of(&[DType::I32]);
const WEIGHTS: ArgInfo = ArgInfo::input("class_weights", "[classes], contiguous").of(&[DType::F32]).optional();
const LOSSES: ArgInfo = ArgInfo::output("losses", "the shape of targets, contiguous").of(&[DType::F32]);
const LSE: ArgInfo =
    ArgInfo::output("lse", "the shape of targets, contiguous: logsumexp of the logits").of(&[DType::F32]);
const TOTAL: ArgInfo = ArgInfo::output("total", "[1], mean or sum of the losses").of(&[DType::F32]);

pub(in crate::ops::loss) const PARAMS: [ParamInfo; 5] = [
    ParamInfo::int("ignore_index", -100, "target of rows that do not count"),
    ParamInfo::float("label_smoothing", 0.0, "share of the target's probability that all classes get"),
    ParamInfo::float("z_loss", 0.0, "factor of the squared logsumexp that is added"),
    ParamInfo::float("softcap", 0.0, "logits x become softcap·tanh(x / softcap), as they are if 0"),
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
    gk::CROSS_ENTROPY,
    gk::CROSS_ENTROPY_CLUSTER,
    gk::CROSS_ENTROPY_GENERAL,
    gk::CROSS_ENTROPY_GENERAL_CLUSTER,
    batch::WEIGH_TARGETS,
    batch::TOTAL_LOSS,
];

pub(super) static FORWARD: OpInfo = facts(
    ["cross_entropy", "loss.ce_fwd", "cross-entropy of rows of logits", "loss = ln Σ e^x − x[target]"],
    &[ArgInfo::input("logits", LOGITS), TARGETS, WEIGHTS, LOSSES, LSE, TOTAL],
    KERNELS,
);

pub(super) static WITH_GRADIENT: OpInfo = facts(
    [
        "cross_entropy_with_gradient",
        "loss.ce_fwd_bwd",
        "cross-entropy and its gradient in one pass",
        "loss = ln Σ e^x − x[target], gradient = (softmax(x) − onehot(target)) / rows",
    ],
    &[
        ArgInfo::input("logits", LOGITS),
        TARGETS,
        WEIGHTS,
        LOSSES,
        LSE,
        TOTAL,
        ArgInfo::output("gradient", "the shape of logits, rows may be padded"),
    ],
    KERNELS,
);

pub(super) static IN_PLACE: OpInfo = facts(
    [
        "cross_entropy_in_place",
        "loss.ce_fwd_bwd_in_place",
        "cross-entropy, its gradient in place of the logits",
        "loss = ln Σ e^x − x[target], x ← (softmax(x) − onehot(target)) / rows",
    ],
    &[
        ArgInfo::in_out("logits", "[rows, classes] or more dimensions, rows may be padded; their gradient at the end"),
        TARGETS,
        WEIGHTS,
        LOSSES,
        LSE,
        TOTAL,
    ],
    KERNELS,
);

pub(super) static BACKWARD: OpInfo = facts(
    [
        "cross_entropy_backward",
        "loss.ce_bwd",
        "gradient of cross_entropy by row",
        "gradient = (softmax(x) − onehot(target)) · dloss",
    ],
    &[
        ArgInfo::input("logits", LOGITS),
        TARGETS,
        WEIGHTS,
        ArgInfo::input("dlosses", "the shape of targets, contiguous").of(&[DType::F32]),
        ArgInfo::output("gradient", "the shape of logits, rows may be padded"),
    ],
    KERNELS.split_at(4).0,
);

/// A form of the operator in the registry.
pub struct CrossEntropyOf {
    info: &'static OpInfo,
}

/// [`cross_entropy`](super::cross_entropy()) in the registry.
pub static CROSS_ENTROPY: CrossEntropyOf = CrossEntropyOf { info: &FORWARD };
/// [`cross_entropy_backward`](super::cross_entropy_backward) in the registry.
pub static CROSS_ENTROPY_BACKWARD: CrossEntropyOf = CrossEntropyOf { info: &BACKWARD };
/// [`cross_entropy_in_place`](super::cross_entropy_in_place) in the registry.
pub static CROSS_ENTROPY_IN_PLACE: CrossEntropyOf = CrossEntropyOf { info: &IN_PLACE };
/// [`cross_entropy_with_gradient`](super::cross_entropy_with_gradient) in the registry.
pub static CROSS_ENTROPY_WITH_GRADIENT: CrossEntropyOf = CrossEntropyOf { info: &WITH_GRADIENT };

impl CrossEntropyOf {
    fn is(&self, info: &OpInfo) -> bool {
        self.info.name == info.name
    }
}

pub(in crate::ops::loss) fn options<'a>(args: &Arguments<'a>, params: &Params) -> Result<CrossEntropy<'a>> {
    let ignored = params.i64("ignore_index")?;
    let ignored =
        i32::try_from(ignored).map_err(|_| params.info().param_error("ignore_index", ignored, "a 32-bit number"))?;
    let softcap = params.f32("softcap")?;
    Ok(CrossEntropy {
        is_mean: !params.bool("sum")?,
        ignored,
        smoothing: params.f32("label_smoothing")?,
        z: params.f32("z_loss")?,
        softcap: (softcap != 0.0).then_some(softcap),
        weights: args.optional_input("class_weights")?,
    })
}

impl Operator for CrossEntropyOf {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let info = self.info;
        let mut cases = Vec::new();
        for d in [32_768, 131_072] {
            let name = format!("tokens=8192 vocab={d} bf16");
            cases.push(Case::production(info, name, DType::BF16, dims(8192, d)).only(&[]));
        }
        if self.is(&WITH_GRADIENT) {
            for (d, dtype) in [(4096, DType::BF16), (32_768, DType::F32), (131_072, DType::F32)] {
                let name = format!("tokens=8192 vocab={d} {}", if dtype == DType::F32 { "f32" } else { "bf16" });
                cases.push(Case::production(info, name, dtype, dims(8192, d)).only(&[]));
            }
        }
        let own = ["targets", "class_weights", "dlosses", "losses", "lse", "total"];
        for &dtype in info.dtypes {
            let lanes = 16 / dtype.size();
            let mut small = Vec::new();
            if self.is(&WITH_GRADIENT) {
                small = rows::cases(info, dtype, rows::CLUSTERED_LIMITS, &own);
            }
            // Every team, in the plain form and in the general one.
            for d in [11 * lanes, 100 * lanes, 200 * lanes, 1030 * lanes, 4100 * lanes, 203] {
                small.push(Case::odd(info, dtype, dims(3, d)).param("z_loss", 0.01));
            }
            let padded = Case::odd(info, dtype, dims(9, 64)).arrange("logits", Arrangement::DENSE.row_pad(8));
            small.push(match self.is(&WITH_GRADIENT) || self.is(&BACKWARD) {
                true => padded.arrange("gradient", Arrangement::DENSE.row_pad(24)),
                false => padded,
            });
            small.extend([
                Case::tiny(info, dtype, dims(2, 1)),
                Case::tiny(info, dtype, dims(2, 8)),
                Case::empty(info, dtype, dims(0, 16)),
                Case::odd(info, dtype, dims(9, 40)).offset(1),
                Case::odd(info, dtype, dims(40, 8)).values("targets", Values::Hostile { bound: 8 }),
                Case::odd(info, dtype, dims(40, 4)).param("ignore_index", 2i64).param("sum", true),
                Case::odd(info, dtype, dims(5, 64)).values("targets", Values::Constant(-100.0)),
                Case::boundary(info, dtype, dims(3, 64)).values("logits", Values::Constant(f64::NEG_INFINITY)),
                Case::boundary(info, dtype, dims(3, 203))
                    .values("logits", Values::Constant(f64::NEG_INFINITY))
                    .param("z_loss", 0.01),
                Case::boundary(info, dtype, dims(70, 3)).values("logits", Values::Specials),
            ]);
            cases.extend(small.into_iter().filter(|case| case.dims.get("d") != Some(0)).map(|case| case.only(&[])));
            let general = |d| Case::odd(info, dtype, dims(3, d)).param("label_smoothing", 0.1);
            for d in [11 * lanes, 200 * lanes, 4100 * lanes] {
                cases.push(general(d));
            }
            for d in [100 * lanes, 1030 * lanes, 203] {
                cases.push(general(d).only(&[]).param("softcap", 2.0));
            }
            cases.push(Case::odd(info, dtype, dims(40, 4)).param("ignore_index", 2i64));
            // Weights that are negative, as is their sum, and nothing but smoothing.
            let negative = Values::Uniform { low: -2.0, high: -0.5 };
            let smooth = Case::odd(info, dtype, dims(9, 40)).param("label_smoothing", 1.0);
            cases.push(smooth.values("class_weights", negative));
            cases.push(Case::odd(info, dtype, dims(9, 40)).values("class_weights", Values::Constant(0.0)));
            // Rows whose target is ignored must not be affected by anything: class weights and upstream gradients are NaN here.
            let nan = Values::Constant(f64::NAN);
            let none = Case::boundary(info, dtype, dims(5, 24)).values("targets", Values::Constant(-100.0));
            cases.push(none.param("label_smoothing", 0.1).param("softcap", 2.0).values("class_weights", nan));
            if self.is(&BACKWARD) {
                let some = Case::boundary(info, dtype, dims(40, 8)).values("targets", Values::Hostile { bound: 8 });
                cases.push(some.clone().only(&[]).values("dlosses", nan));
                cases.push(some.param("label_smoothing", 0.1).values("dlosses", nan));
            }
            // Logits at the ends of their type: differences that f16 does not have.
            let greatest = if dtype == DType::F16 { 65_504.0 } else { 3e38 };
            let ends = Case::boundary(info, dtype, dims(9, 24)).only(&[]);
            cases.push(ends.clone().values("logits", Values::Constant(greatest)));
            let mut least = ends.values("logits", Values::Constant(-greatest));
            least.name += " least";
            cases.push(least);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let high = (d as i64 - 1).max(0);
        let mut specs = vec![
            InputSpec::normal("logits", case.dtype, [rows, d]),
            InputSpec::new("targets", DType::I32, [rows], Values::Integers { low: 0, high }),
        ];
        if case.has("class_weights") {
            let values = Values::Uniform { low: 0.5, high: 2.0 };
            specs.push(InputSpec::new("class_weights", DType::F32, [d], values));
        }
        if self.is(&BACKWARD) {
            specs.push(InputSpec::normal("dlosses", DType::F32, [rows]));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let (logits, targets) = (inputs.get("logits")?, inputs.get("targets")?);
        require_classes(self.info, "logits", logits.shape())?;
        let (outer, classes) = logits.shape().split_at(logits.shape().len() - 1);
        targets.has_shape(outer)?;
        inputs.optional("class_weights").map_or(Ok(()), |weights| weights.has_shape(classes))?;
        params.f32("label_smoothing")?;
        let gradient = TensorMeta::new("gradient", logits.dtype(), logits.shape());
        if self.is(&BACKWARD) {
            inputs.get("dlosses")?.has_shape(outer)?;
            return Ok(vec![gradient]);
        }
        let of = |name, shape: &[usize]| TensorMeta::new(name, DType::F32, shape);
        let mut written = vec![of("losses", outer), of("lse", outer), of("total", &[1])];
        if self.is(&WITH_GRADIENT) {
            written.push(gradient);
        }
        Ok(written)
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (options, info) = (options(args, params)?, self.info);
        let targets = args.input("targets")?;
        dispatch!(info, args.dtype("logits")?, float => |T| {
            if self.is(&BACKWARD) {
                let call = Call::<T>::new(info, args.input("logits")?.into(), targets, &options)?;
                return call.launch_backward(stream, args.input("dlosses")?, args.output("gradient")?);
            }
            let results =
                Results { per_row: args.output("losses")?, lse: args.output("lse")?, total: args.output("total")?, bad: None };
            let (logits, gradient) = if self.is(&IN_PLACE) {
                (args.output::<T>("logits")?.into(), None)
            } else {
                let gradient = self.is(&WITH_GRADIENT).then(|| args.output("gradient")).transpose()?;
                (args.input::<T>("logits")?.into(), gradient)
            };
            Call::new(info, logits, targets, &options)?.launch(stream, results, gradient)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let logits = inputs.get("logits")?;
        let exact = Exact::new(inputs, params, reference::row_len(logits.shape()), |row| reference::row(logits, row))?;
        let dlosses = inputs.optional("dlosses").map(|dlosses| dlosses.to_f64());
        Ok(match output {
            "losses" => rows.iter().map(|row| exact.loss(*row)).collect(),
            "lse" => rows.iter().map(|row| exact.lse(*row)).collect(),
            "total" => vec![exact.total()],
            _ => {
                let factor = |row: usize| dlosses.as_ref().map_or_else(|| exact.share(), |dlosses| dlosses[row]);
                reference::by_row(rows, |row| exact.gradient(row, factor(row)))
            }
        })
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [rows, d] = case.dims(["rows", "d"])?;
        // √d·2⁻²⁴ of the sum, 2⁻²² of exponentials and of its logarithm's argument, 2⁻²³ of exponents up to 16; of capped logits up to 8 their
        // tanh's 2⁻²¹.
        let capped = case.params.f64("softcap")?.min(8.0) * f64::powi(2.0, -21);
        let statistics = (d as f64).sqrt() * roundoff(DType::F32) + 4e-6 + capped;
        // Class weights are at most 2, the derivative of z·L² by L is below 1.
        let abs = 3.0 * statistics;
        let rel = 8.0 * roundoff(DType::F32);
        Ok(match output {
            "losses" | "lse" => {
                Tolerance::new(abs, rel, "the sum's relative error, which is absolute in its logarithm")
            }
            "total" => {
                let terms = if case.params.bool("sum")? { rows as f64 } else { 1.0 };
                let why = "the losses' errors, and roundings of their sum";
                Tolerance::new(terms * abs, rel + (rows as f64).sqrt() * roundoff(DType::F32), why)
            }
            _ => {
                let why = "one rounding to storage; the statistics' error in each probability, times upstream gradients of up to 4";
                let size = if self.is(&BACKWARD) { 4.0 } else { 1.0 };
                Tolerance::rounded(case.dtype, size * abs, 2.0 * statistics, why)
            }
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let passes = if self.is(&FORWARD) { 1 } else { 2 };
        Ok(Cost::memory((passes * rows * d * case.dtype.size() + 12 * rows) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.is(&BACKWARD).then_some(Gradient {
            forward: &CROSS_ENTROPY,
            of_outputs: &[("dlosses", "losses")],
            of_inputs: &[("gradient", "logits")],
        })
    }
}
