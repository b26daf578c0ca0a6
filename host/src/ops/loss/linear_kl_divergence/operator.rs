//! What the loss says of itself.

use cuda_std::launch::Instance;
use gpu_kernels::ops::loss::cross_entropy::targets as batch;
use gpu_kernels::ops::loss::kl_divergence as gk;
use half::{bf16, f16};

use super::call::Call;
use crate::dispatch;
use crate::ops::gemm::with_products;
use crate::ops::loss::batch::RowResults;
use crate::ops::loss::kl_divergence::{self, Exact, JENSEN_SHANNON, REVERSE};
use crate::ops::loss::linear::{self, Gradients, Linear};
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const HIDDEN: ArgInfo = ArgInfo::input("hidden", "[rows, d], any strides");
const WEIGHT: ArgInfo = ArgInfo::input("weight", "[classes, d], any strides");
const TEACHER_HIDDEN: ArgInfo = ArgInfo::input("teacher_hidden", "[rows, teacher_d], any strides");
const TEACHER_WEIGHT: ArgInfo = ArgInfo::input("teacher_weight", "[classes, teacher_d], any strides");
const TARGETS: ArgInfo = ArgInfo::input("targets", "[rows], contiguous: which rows count").of(&[DType::I32]).optional();
const LOSSES: ArgInfo = ArgInfo::output("losses", "[rows], contiguous").of(&[DType::F32]);
const TOTAL: ArgInfo = ArgInfo::output("total", "[1], mean or sum of the losses").of(&[DType::F32]);
const DHIDDEN: ArgInfo = ArgInfo::output("dhidden", "[rows, d], rows may be padded");
const DWEIGHT: ArgInfo = ArgInfo::output("dweight", "[classes, d], rows may be padded").of(&[DType::F32]);

const PARAMS: &[ParamInfo] = {
    let [divergence, beta, temperature, ignore, sum] = kl_divergence::PARAMS;
    let memory = ParamInfo::int("memory", 1 << 30, "bytes of logits at a time");
    &[divergence, beta, temperature, ignore, sum, memory]
};

const KERNELS: &[&[Instance]] = with_products![
    gk::KL_DIVERGENCE,
    gk::KL_DIVERGENCE_CLUSTER,
    gk::ring::KL_DIVERGENCE_RING,
    batch::WEIGH_TARGETS,
    batch::TOTAL_LOSS,
];
const FORWARD_KERNELS: &[&[Instance]] =
    with_products![gk::KL_DIVERGENCE, gk::KL_DIVERGENCE_LOSS, batch::WEIGH_TARGETS, batch::TOTAL_LOSS,];

const fn facts(
    [name, bench_name, summary, math]: [&'static str; 4],
    args: &'static [ArgInfo],
    kernels: &'static [&'static [Instance]],
) -> OpInfo {
    let dtypes = &[DType::F16, DType::BF16];
    OpInfo { name, bench_name, summary, math, args, params: PARAMS, dtypes, kernels, variants: &[] }
}

pub(super) static FORWARD: OpInfo = facts(
    [
        "linear_kl_divergence",
        "loss.linear_kl_fwd",
        "divergence of a linear layer's logits from a teacher's, in chunks",
        "kl_divergence(hidden · weightᵀ, teacher_hidden · teacher_weightᵀ)",
    ],
    &[HIDDEN, WEIGHT, TEACHER_HIDDEN, TEACHER_WEIGHT, TARGETS, LOSSES, TOTAL],
    FORWARD_KERNELS,
);

pub(super) static WITH_GRADIENT: OpInfo = facts(
    [
        "linear_kl_divergence_with_gradient",
        "loss.linear_kl_fwd_bwd",
        "linear_kl_divergence and its gradients",
        "with G = ∂loss/∂logits: dhidden = G · weight, dweight = Gᵀ · hidden",
    ],
    &[HIDDEN, WEIGHT, TEACHER_HIDDEN, TEACHER_WEIGHT, TARGETS, LOSSES, TOTAL, DHIDDEN, DWEIGHT],
    KERNELS,
);

pub(super) static BACKWARD: OpInfo = facts(
    [
        "linear_kl_divergence_backward",
        "loss.linear_kl_bwd",
        "gradients of linear_kl_divergence by row",
        "with G = ∂(Σ dloss · loss)/∂logits: dhidden = G · weight, dweight = Gᵀ · hidden",
    ],
    &[
        HIDDEN,
        WEIGHT,
        TEACHER_HIDDEN,
        TEACHER_WEIGHT,
        TARGETS,
        ArgInfo::input("dlosses", "[rows], contiguous").of(&[DType::F32]),
        DHIDDEN,
        DWEIGHT,
    ],
    KERNELS,
);

/// A form of the operator in the registry.
pub struct LinearKlDivergenceOf {
    info: &'static OpInfo,
}

/// [`linear_kl_divergence`](super::linear_kl_divergence()) in the registry.
pub static LINEAR_KL_DIVERGENCE: LinearKlDivergenceOf = LinearKlDivergenceOf { info: &FORWARD };
/// [`linear_kl_divergence_backward`](super::linear_kl_divergence_backward) in the registry.
pub static LINEAR_KL_DIVERGENCE_BACKWARD: LinearKlDivergenceOf = LinearKlDivergenceOf { info: &BACKWARD };
/// [`linear_kl_divergence_with_gradient`](super::linear_kl_divergence_with_gradient) in the registry.
pub static LINEAR_KL_DIVERGENCE_WITH_GRADIENT: LinearKlDivergenceOf = LinearKlDivergenceOf { info: &WITH_GRADIENT };

impl LinearKlDivergenceOf {
    fn is(&self, info: &OpInfo) -> bool {
        self.info.name == info.name
    }
}

impl Operator for LinearKlDivergenceOf {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let info = self.info;
        let dims =
            |rows, d, teacher_d, classes| [("rows", rows), ("d", d), ("teacher_d", teacher_d), ("classes", classes)];
        let name = "tokens=8192 hidden=2048 teacher=4096 vocab=128256 bf16";
        let llama = Case::production(info, name, DType::BF16, dims(8192, 2048, 4096, 128_256)).timed_only();
        let name = "tokens=1024 hidden=256 teacher=512 vocab=4096 bf16";
        let small = Case::production(info, name, DType::BF16, dims(1024, 256, 512, 4096)).param("memory", 8i64 << 20);
        let mut cases = vec![llama.only(&[]), small.only(&[])];
        let padded = |pad| Arrangement::DENSE.row_pad(pad);
        for &dtype in info.dtypes {
            let without = [
                // Chunks of 16 rows, the last of 8; then rows that are padded, and those of no whole packs.
                Case::odd(info, dtype, dims(40, 8, 24, 72)).param("memory", 2 * 16 * 72 * 2i64).param("sum", true),
                Case::odd(info, dtype, dims(10, 8, 16, 37)).param("divergence", REVERSE).param("memory", 800i64),
                Case::odd(info, dtype, dims(9, 13, 7, 20))
                    .arrange("hidden", padded(3))
                    .arrange("weight", padded(5))
                    .arrange("teacher_hidden", padded(1))
                    .arrange("teacher_weight", padded(2))
                    .offset(1),
                Case::odd(info, dtype, dims(6, 16, 8, 24))
                    .arrange("teacher_hidden", Arrangement::DENSE.order(&[1, 0]))
                    .param("divergence", JENSEN_SHANNON)
                    .param("temperature", 2.0),
                Case::tiny(info, dtype, dims(1, 1, 1, 1)),
                Case::tiny(info, dtype, dims(3, 2, 4, 5)),
                Case::empty(info, dtype, dims(0, 8, 8, 16)),
                Case::empty(info, dtype, dims(4, 0, 0, 8)),
                Case::boundary(info, dtype, dims(3, 8, 8, 8)).values("hidden", Values::Specials),
            ];
            cases.extend(without.into_iter().map(|case| case.only(&[])));
            let targets = Values::Hostile { bound: 16 };
            cases.push(Case::odd(info, dtype, dims(33, 4, 8, 16)).values("targets", targets).param("memory", 1i64));
            if self.is(&BACKWARD) {
                // Rows that do not count leave nothing of what stands upstream in the weight's gradient.
                let none = Case::boundary(info, dtype, dims(5, 4, 8, 16)).values("targets", Values::Constant(-100.0));
                cases.push(none.values("dlosses", Values::Constant(f64::NAN)));
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d, teacher_d, classes] = case.dims(["rows", "d", "teacher_d", "classes"])?;
        let mut specs = linear::specs(case, ["hidden", "weight"], [rows, d, classes]);
        specs.extend(linear::specs(case, ["teacher_hidden", "teacher_weight"], [rows, teacher_d, classes]));
        if case.has("targets") {
            let high = (classes as i64 - 1).max(0);
            specs.push(InputSpec::new("targets", DType::I32, [rows], Values::Integers { low: 0, high }));
        }
        if self.is(&BACKWARD) {
            specs.push(InputSpec::new("dlosses", DType::F32, [rows], Values::Uniform { low: -1.0, high: 1.0 }));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let gradients = linear::outputs(self.info, inputs)?;
        let ([rows, _], [classes, _]) = (inputs.get("hidden")?.dims()?, inputs.get("weight")?.dims()?);
        let teacher = inputs.get("teacher_hidden")?;
        let [_, teacher_d] = teacher.dims()?;
        teacher.has_shape(&[rows, teacher_d])?;
        inputs.get("teacher_weight")?.has_shape(&[classes, teacher_d])?;
        inputs.optional("targets").map_or(Ok(()), |targets| targets.has_shape(&[rows]))?;
        params.f32("temperature")?;
        let of = |name, shape: &[usize]| TensorMeta::new(name, DType::F32, shape);
        let losses = [of("losses", &[rows]), of("total", &[1])];
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
        let (loss, info) = (kl_divergence::options(args, params)?, self.info);
        let options = Linear::new(loss).memory(linear::memory(params)?);
        dispatch!(info, args.dtype("hidden")?, [f16, bf16] => |T| {
            let student = [args.input("hidden")?, args.input("weight")?];
            let teacher = [args.input("teacher_hidden")?, args.input("teacher_weight")?];
            let call = Call::<T>::new(info, [student, teacher], &options)?;
            let gradients = match self.is(&FORWARD) {
                true => None,
                false => Some(Gradients { dhidden: args.output("dhidden")?, dweight: args.output("dweight")? }),
            };
            match gradients {
                Some(gradients) if self.is(&BACKWARD) => call.launch_backward(stream, args.input("dlosses")?, gradients),
                gradients => {
                    let results = RowResults { per_row: args.output("losses")?, total: args.output("total")?, bad: None, offsets: None };
                    call.launch(stream, results, gradients)
                }
            }
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (hidden, weight) = (inputs.get("hidden")?, inputs.get("weight")?);
        let student = linear::exact_logits(hidden, weight);
        let teacher = linear::exact_logits(inputs.get("teacher_hidden")?, inputs.get("teacher_weight")?);
        let shape = [hidden.shape()[0], weight.shape()[0]];
        let exact = Exact::new(inputs, params, shape, student, teacher)?;
        let dlosses = inputs.optional("dlosses").map(|dlosses| dlosses.to_f64());
        let factor = |row: usize| dlosses.as_ref().map_or_else(|| exact.share(), |dlosses| dlosses[row]);
        Ok(match output {
            "losses" => rows.iter().map(|row| exact.loss(*row)).collect(),
            "total" => vec![exact.total()],
            _ => linear::exact_gradient(output, rows, [hidden, weight], |row| exact.gradient(row, factor(row))),
        })
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [rows, d, teacher_d, classes] = case.dims(["rows", "d", "teacher_d", "classes"])?;
        let is_production = case.class == CaseClass::Production;
        let is_sum = case.params.bool("sum")? || self.is(&BACKWARD);
        let statistics = kl_divergence::statistics(case, classes)?;
        // Whole numbers are exact logits; of normal values, up to six standard deviations are rounded.
        let (logits, greatest, largest) = match is_production {
            true => (6.0 * roundoff(case.dtype), 6.0, 6.0 / (d as f64).sqrt()),
            false => (0.0, 1.0, 1.0),
        };
        // Between two classes logits are up to four standard deviations apart, of a student and of its teacher.
        let apart = if is_production { 12.0 } else { 4.0 * ((d as f64).sqrt() + (teacher_d as f64).sqrt()) };
        let of_loss = apart * statistics + 4.0 * logits;
        // The ratio is a factor of G but in the forward divergence.
        let size = match case.params.choice("divergence")? {
            "forward" => 1.0,
            _ => apart,
        };
        let share = if is_sum { 1.0 } else { (rows.max(1) as f64).recip() };
        // A row of whole numbers may be the only one that counts.
        let share = if case.has("targets") { 1.0 } else { share };
        // Of an element of G: its rounding, and the errors of its probabilities.
        let of_g = size * (roundoff(case.dtype) + 4.0 * (statistics + logits) + 2e-7);
        let f32_sums = 4.0 * roundoff(DType::F32);
        Ok(match output {
            "losses" => Tolerance::new(of_loss, f32_sums, "roundings of the logits, errors of weights times ratios"),
            "total" => {
                let terms = if is_sum { rows as f64 } else { 1.0 };
                Tolerance::new(terms * of_loss, 2.0 * f32_sums, "the losses' errors, and roundings of their sum")
            }
            "dhidden" => {
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
        let [rows, d, teacher_d, classes] = case.dims(["rows", "d", "teacher_d", "classes"])?;
        let operands = case.dtype.size() * (rows + classes) * (d + teacher_d);
        let products = if self.is(&FORWARD) { 1 } else { 3 };
        let gradients = if self.is(&FORWARD) { 0 } else { case.dtype.size() * rows * d + 4 * classes * d };
        let flops = 2 * (rows * classes) as u64 * (products * d + teacher_d) as u64;
        Ok(Cost::compute((operands + gradients + 4 * rows) as u64, flops, Bound::Tensor(case.dtype)))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.is(&BACKWARD).then_some(Gradient {
            forward: &LINEAR_KL_DIVERGENCE,
            of_outputs: &[("dlosses", "losses")],
            of_inputs: &[("dhidden", "hidden"), ("dweight", "weight")],
        })
    }
}
