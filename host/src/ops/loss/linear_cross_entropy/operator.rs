//! What the loss says of itself.

use cuda_std::launch::Instance;
use gpu_kernels::ops::loss::cross_entropy::{self as gk, targets as batch};
use half::{bf16, f16};

use super::LinearCrossEntropy;
use super::call::Call;
use crate::dispatch;
use crate::ops::gemm::with_products;
use crate::ops::loss::cross_entropy::{self, Exact, Results};
use crate::ops::loss::linear::{self, Gradients};
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const HIDDEN: ArgInfo = ArgInfo::input("hidden", "[rows, d], any strides");
const WEIGHT: ArgInfo = ArgInfo::input("weight", "[classes, d], any strides");
const TARGETS: ArgInfo = ArgInfo::input("targets", "[rows], contiguous: the right classes").of(&[DType::I32]);
const CLASS_WEIGHTS: ArgInfo = ArgInfo::input("class_weights", "[classes], contiguous").of(&[DType::F32]).optional();
const LOSSES: ArgInfo = ArgInfo::output("losses", "[rows], contiguous").of(&[DType::F32]);
const LSE: ArgInfo = ArgInfo::output("lse", "[rows], contiguous: logsumexp of the logits").of(&[DType::F32]);
const TOTAL: ArgInfo = ArgInfo::output("total", "[1], mean or sum of the losses").of(&[DType::F32]);
const DHIDDEN: ArgInfo = ArgInfo::output("dhidden", "[rows, d], rows may be padded");
const DWEIGHT: ArgInfo = ArgInfo::output("dweight", "[classes, d], rows may be padded").of(&[DType::F32]);

const PARAMS: &[ParamInfo] = {
    let [ignore, smoothing, z, softcap, sum] = cross_entropy::PARAMS;
    &[ignore, smoothing, z, softcap, sum, ParamInfo::int("memory", 1 << 30, "bytes of logits at a time")]
};

const KERNELS: &[&[Instance]] = with_products![
    gk::CROSS_ENTROPY,
    gk::CROSS_ENTROPY_CLUSTER,
    gk::CROSS_ENTROPY_GENERAL,
    gk::CROSS_ENTROPY_GENERAL_CLUSTER,
    batch::WEIGH_TARGETS,
    batch::TOTAL_LOSS,
];

const fn facts([name, bench_name, summary, math]: [&'static str; 4], args: &'static [ArgInfo]) -> OpInfo {
    let dtypes = &[DType::F16, DType::BF16];
    OpInfo { name, bench_name, summary, math, args, params: PARAMS, dtypes, kernels: KERNELS, variants: &[] }
}

pub(super) static FORWARD: OpInfo = facts(
    [
        "linear_cross_entropy",
        "loss.linear_ce_fwd",
        "cross-entropy of a linear layer, logits in chunks",
        "cross_entropy(hidden · weightᵀ)",
    ],
    &[HIDDEN, WEIGHT, TARGETS, CLASS_WEIGHTS, LOSSES, LSE, TOTAL],
);

pub(super) static WITH_GRADIENT: OpInfo = facts(
    [
        "linear_cross_entropy_with_gradient",
        "loss.linear_ce_fwd_bwd",
        "linear_cross_entropy and its gradients",
        "with G = ∂loss/∂logits: dhidden = G · weight, dweight = Gᵀ · hidden",
    ],
    &[HIDDEN, WEIGHT, TARGETS, CLASS_WEIGHTS, LOSSES, LSE, TOTAL, DHIDDEN, DWEIGHT],
);

pub(super) static BACKWARD: OpInfo = facts(
    [
        "linear_cross_entropy_backward",
        "loss.linear_ce_bwd",
        "gradients of linear_cross_entropy by row",
        "with G = ∂(Σ dloss · loss)/∂logits: dhidden = G · weight, dweight = Gᵀ · hidden",
    ],
    &[
        HIDDEN,
        WEIGHT,
        TARGETS,
        CLASS_WEIGHTS,
        ArgInfo::input("dlosses", "[rows], contiguous").of(&[DType::F32]),
        DHIDDEN,
        DWEIGHT,
    ],
);

/// A form of the operator in the registry.
pub struct LinearCrossEntropyOf {
    info: &'static OpInfo,
}

/// [`linear_cross_entropy`](super::linear_cross_entropy()) in the registry.
pub static LINEAR_CROSS_ENTROPY: LinearCrossEntropyOf = LinearCrossEntropyOf { info: &FORWARD };
/// [`linear_cross_entropy_backward`](super::linear_cross_entropy_backward) in the registry.
pub static LINEAR_CROSS_ENTROPY_BACKWARD: LinearCrossEntropyOf = LinearCrossEntropyOf { info: &BACKWARD };
/// [`linear_cross_entropy_with_gradient`](super::linear_cross_entropy_with_gradient) in the registry.
pub static LINEAR_CROSS_ENTROPY_WITH_GRADIENT: LinearCrossEntropyOf = LinearCrossEntropyOf { info: &WITH_GRADIENT };

impl LinearCrossEntropyOf {
    fn is(&self, info: &OpInfo) -> bool {
        self.info.name == info.name
    }
}

impl Operator for LinearCrossEntropyOf {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let info = self.info;
        let dims = |rows, d, classes| [("rows", rows), ("d", d), ("classes", classes)];
        let name = "tokens=8192 hidden=4096 vocab=128256 bf16";
        let llama = Case::production(info, name, DType::BF16, dims(8192, 4096, 128_256)).timed_only();
        let small =
            Case::production(info, "tokens=1024 hidden=512 vocab=4096 bf16", DType::BF16, dims(1024, 512, 4096));
        let mut cases = vec![llama, small.param("memory", 4i64 << 20)];
        let padded = |pad| Arrangement::DENSE.row_pad(pad);
        for &dtype in info.dtypes {
            cases.extend([
                // Chunks of 16 rows, the last of 8; then rows that are padded, and those of no whole packs.
                Case::odd(info, dtype, dims(40, 24, 72)).param("memory", 16 * 72 * 2i64).param("sum", true),
                Case::odd(info, dtype, dims(10, 16, 37)).param("memory", 400i64),
                Case::odd(info, dtype, dims(9, 13, 20))
                    .arrange("hidden", padded(3))
                    .arrange("weight", padded(5))
                    .offset(1),
                Case::odd(info, dtype, dims(33, 8, 16))
                    .values("targets", Values::Hostile { bound: 16 })
                    .param("sum", true)
                    .param("memory", 1i64),
                Case::odd(info, dtype, dims(5, 16, 24)).values("targets", Values::Constant(-100.0)),
                Case::tiny(info, dtype, dims(1, 1, 1)),
                Case::tiny(info, dtype, dims(3, 2, 5)),
                // The weight has a gradient all the same: zeros.
                Case::empty(info, dtype, dims(0, 8, 16)).row_pad(3),
                Case::empty(info, dtype, dims(4, 0, 8)),
                Case::boundary(info, dtype, dims(3, 8, 8)).values("hidden", Values::Specials),
            ]);
        }
        let mut cases: Vec<_> = cases.into_iter().map(|case| case.only(&[])).collect();
        if self.is(&BACKWARD) {
            // Rows that do not count leave nothing of what stands upstream in the weight's gradient.
            let none = |dtype| Case::boundary(info, dtype, dims(5, 16, 24)).values("targets", Values::Constant(-100.0));
            cases.extend(
                info.dtypes.iter().map(|dtype| none(*dtype).only(&[]).values("dlosses", Values::Constant(f64::NAN))),
            );
        }
        let turned = Arrangement::DENSE.order(&[1, 0]);
        for &dtype in info.dtypes {
            cases.push(
                Case::odd(info, dtype, dims(24, 16, 40))
                    .arrange("hidden", turned)
                    .arrange("weight", turned)
                    .param("label_smoothing", 0.1)
                    .param("z_loss", 0.01)
                    .param("softcap", 4.0)
                    .param("memory", 8 * 40 * 2i64),
            );
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d, classes] = case.dims(["rows", "d", "classes"])?;
        let high = (classes as i64 - 1).max(0);
        let mut specs = linear::specs(case, ["hidden", "weight"], [rows, d, classes]);
        specs.push(InputSpec::new("targets", DType::I32, [rows], Values::Integers { low: 0, high }));
        if case.has("class_weights") {
            let values = Values::Uniform { low: 0.5, high: 2.0 };
            specs.push(InputSpec::new("class_weights", DType::F32, [classes], values));
        }
        if self.is(&BACKWARD) {
            specs.push(InputSpec::new("dlosses", DType::F32, [rows], Values::Uniform { low: -1.0, high: 1.0 }));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let gradients = linear::outputs(self.info, inputs)?;
        let ([rows, _], [classes, _]) = (inputs.get("hidden")?.dims()?, inputs.get("weight")?.dims()?);
        inputs.get("targets")?.has_shape(&[rows])?;
        inputs.optional("class_weights").map_or(Ok(()), |weights| weights.has_shape(&[classes]))?;
        params.f32("label_smoothing")?;
        let of = |name, shape: &[usize]| TensorMeta::new(name, DType::F32, shape);
        let losses = [of("losses", &[rows]), of("lse", &[rows]), of("total", &[1])];
        Ok(if self.is(&BACKWARD) {
            inputs.get("dlosses")?.has_shape(&[rows])?;
            gradients.into()
        } else if self.is(&WITH_GRADIENT) {
            losses.into_iter().chain(gradients).collect()
        } else {
            losses.into()
        })
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (loss, info) = (cross_entropy::options(args, params)?, self.info);
        let (options, targets) =
            (LinearCrossEntropy::new(loss).memory(linear::memory(params)?), args.input("targets")?);
        dispatch!(info, args.dtype("hidden")?, [f16, bf16] => |T| {
            let call = Call::<T>::new(info, args.input("hidden")?, args.input("weight")?, targets, &options)?;
            let gradients = match self.is(&FORWARD) {
                true => None,
                false => Some(Gradients { dhidden: args.output("dhidden")?, dweight: args.output("dweight")? }),
            };
            match gradients {
                Some(gradients) if self.is(&BACKWARD) => call.launch_backward(stream, args.input("dlosses")?, gradients, 1.0),
                gradients => {
                    let (per_row, lse, total) = (args.output("losses")?, args.output("lse")?, args.output("total")?);
                    call.launch(stream, Results { per_row, lse, total, bad: None }, gradients)
                }
            }
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (hidden, weight) = (inputs.get("hidden")?, inputs.get("weight")?);
        let exact = Exact::new(inputs, params, weight.shape()[0], linear::exact_logits(hidden, weight))?;
        let dlosses = inputs.optional("dlosses").map(|dlosses| dlosses.to_f64());
        let factor = |row: usize| dlosses.as_ref().map_or_else(|| exact.share(), |dlosses| dlosses[row]);
        Ok(match output {
            "losses" => rows.iter().map(|row| exact.loss(*row)).collect(),
            "lse" => rows.iter().map(|row| exact.lse(*row)).collect(),
            "total" => vec![exact.total()],
            _ => linear::exact_gradient(output, rows, [hidden, weight], |row| exact.gradient(row, factor(row))),
        })
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [rows, d, classes] = case.dims(["rows", "d", "classes"])?;
        let is_sum = case.params.bool("sum")? || self.is(&BACKWARD);
        let softcap = case.params.f64("softcap")?;
        // As in cross_entropy: √classes·2⁻²⁴ of the sum, 2⁻²² of exponentials and the logarithm's argument, 2⁻²³ of exponents, a cap's tanh.
        let statistics = (classes as f64).sqrt() * roundoff(DType::F32) + 8e-6 + softcap.min(8.0) * f64::powi(2.0, -21);
        // Whole numbers are exact logits; of normal values, up to six standard deviations are rounded.
        let (logits, greatest) = match case.class {
            CaseClass::Production => (6.0 * roundoff(case.dtype), 6.0),
            _ => (0.0, 1.0),
        };
        let of_loss = 3.0 * statistics + 2.0 * logits;
        // What a row's loss is multiplied by; class weights are up to 2, and a weighted mean divides by no less than half a row each.
        let share = if is_sum { 2.0 } else { 4.0 / rows.max(1) as f64 };
        // Of an element of G: its rounding, and the errors of its probability.
        let of_g = roundoff(case.dtype) + 2.0 * (statistics + logits) + 2e-7;
        let f32_sums = 4.0 * roundoff(DType::F32);
        Ok(match output {
            "losses" | "lse" => Tolerance::new(
                of_loss,
                8.0 * roundoff(DType::F32),
                "roundings of the logits, and the sum's relative error",
            ),
            "total" => {
                let terms = if is_sum { rows as f64 } else { 1.0 };
                Tolerance::new(
                    terms * of_loss,
                    8.0 * roundoff(DType::F32),
                    "the losses' errors, and roundings of their sum",
                )
            }
            "dhidden" => {
                let largest = if case.class == CaseClass::Production { 6.0 / (d as f64).sqrt() } else { 1.0 };
                let why = "G sums to 2 in magnitude: its error times the greatest weight; one rounding to storage";
                Tolerance::rounded(case.dtype, share * 2.0 * (of_g + f32_sums) * largest, f32_sums, why)
            }
            _ => {
                let why = "a column of G has at most 1 from each row: its error times the greatest hidden state";
                Tolerance::new(share * rows as f64 * (of_g + f32_sums) * greatest + 1e-7, f32_sums, why)
            }
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d, classes] = case.dims(["rows", "d", "classes"])?;
        let operands = case.dtype.size() * (rows * d + classes * d);
        let products = if self.is(&FORWARD) { 1 } else { 3 };
        let gradients = if self.is(&FORWARD) { 0 } else { case.dtype.size() * rows * d + 4 * classes * d };
        let flops = 2 * products * (rows * d * classes) as u64;
        Ok(Cost::compute((operands + gradients + 12 * rows) as u64, flops, Bound::Tensor(case.dtype)))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.is(&BACKWARD).then_some(Gradient {
            forward: &LINEAR_CROSS_ENTROPY,
            of_outputs: &[("dlosses", "losses")],
            of_inputs: &[("dhidden", "hidden"), ("dweight", "weight")],
        })
    }
}
