//! What the operators say of themselves.

use cuda_std::launch::Instance;
use gpu_kernels::ops::loss::entropy as gk;
use half::{bf16, f16};

use super::Entropy;
use super::call::Call;
use crate::dispatch;
use crate::ops::gemm::with_products;
use crate::ops::loss::entropy::Exact;
use crate::ops::loss::linear::{self, Gradients, Linear};
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const HIDDEN: ArgInfo = ArgInfo::input("hidden", "[rows, d], any strides");
const WEIGHT: ArgInfo = ArgInfo::input("weight", "[classes, d], any strides");
const DENTROPIES: ArgInfo = ArgInfo::input("dentropies", "[rows], contiguous").of(&[DType::F32]);
const ENTROPIES: ArgInfo = ArgInfo::output("entropies", "[rows], contiguous").of(&[DType::F32]);
const DHIDDEN: ArgInfo = ArgInfo::output("dhidden", "[rows, d], rows may be padded");
const DWEIGHT: ArgInfo = ArgInfo::output("dweight", "[classes, d], rows may be padded").of(&[DType::F32]);

const TEMPERATURE: ParamInfo = ParamInfo::float("temperature", 1.0, "what the logits are divided by");
const MEMORY: ParamInfo = ParamInfo::int("memory", 1 << 30, "bytes of logits at a time");
const FACTOR: ParamInfo = ParamInfo::float("factor", 1.0, "what gradients are multiplied by");

const KERNELS: &[&[Instance]] = with_products![gk::ENTROPY, gk::ENTROPY_CLUSTER];

pub(super) static FORWARD: OpInfo = OpInfo {
    name: "linear_entropy",
    bench_name: "loss.linear_entropy_fwd",
    summary: "entropy of a linear layer's logits, in chunks",
    math: "entropy(hidden · weightᵀ)",
    args: &[HIDDEN, WEIGHT, ENTROPIES],
    params: &[TEMPERATURE, MEMORY],
    dtypes: &[DType::F16, DType::BF16],
    kernels: KERNELS,
    variants: &[],
};

pub(super) static WITH_GRADIENT: OpInfo = OpInfo {
    name: "linear_entropy_with_gradient",
    bench_name: "loss.linear_entropy_fwd_bwd",
    summary: "linear_entropy and its gradients by row",
    math: "with G = ∂(Σ dentropy · entropy)/∂logits: dhidden = factor · G · weight, dweight = factor · Gᵀ · hidden",
    args: &[HIDDEN, WEIGHT, DENTROPIES, ENTROPIES, DHIDDEN, DWEIGHT],
    params: &[TEMPERATURE, MEMORY, FACTOR],
    ..FORWARD
};

/// A form of the operator in the registry.
pub struct LinearEntropyOf {
    info: &'static OpInfo,
}

/// [`linear_entropy`](super::linear_entropy()) in the registry.
pub static LINEAR_ENTROPY: LinearEntropyOf = LinearEntropyOf { info: &FORWARD };
/// [`linear_entropy_with_gradient`](super::linear_entropy_with_gradient) in the registry.
pub static LINEAR_ENTROPY_WITH_GRADIENT: LinearEntropyOf = LinearEntropyOf { info: &WITH_GRADIENT };

impl LinearEntropyOf {
    fn has_gradient(&self) -> bool {
        self.info.name == WITH_GRADIENT.name
    }
}

impl Operator for LinearEntropyOf {
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
                Case::odd(info, dtype, dims(40, 24, 72)).param("memory", 16 * 72 * 2i64),
                Case::odd(info, dtype, dims(10, 16, 37)).param("memory", 400i64).param("temperature", 2.0),
                Case::odd(info, dtype, dims(9, 13, 20))
                    .arrange("hidden", padded(3))
                    .arrange("weight", padded(5))
                    .offset(1),
                Case::tiny(info, dtype, dims(1, 1, 1)),
                Case::tiny(info, dtype, dims(3, 2, 5)),
                // The weight has a gradient all the same: zeros.
                Case::empty(info, dtype, dims(0, 8, 16)).row_pad(3),
                Case::empty(info, dtype, dims(4, 0, 8)),
                Case::boundary(info, dtype, dims(3, 8, 8)).values("hidden", Values::Specials),
            ]);
            if self.has_gradient() {
                // Of which nothing would be left in f16 if it were upstream.
                cases.push(Case::boundary(info, dtype, dims(12, 8, 24)).param("factor", 1e-6));
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d, classes] = case.dims(["rows", "d", "classes"])?;
        let mut specs = linear::specs(case, ["hidden", "weight"], [rows, d, classes]);
        if self.has_gradient() {
            specs.push(InputSpec::new("dentropies", DType::F32, [rows], Values::Uniform { low: -1.0, high: 1.0 }));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let gradients = linear::outputs(self.info, inputs)?;
        let [rows, _] = inputs.get("hidden")?.dims()?;
        params.f32("temperature")?;
        let mut outputs = vec![TensorMeta::new("entropies", DType::F32, [rows])];
        if self.has_gradient() {
            inputs.get("dentropies")?.has_shape(&[rows])?;
            params.f32("factor")?;
            outputs.extend(gradients);
        }
        Ok(outputs)
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let info = self.info;
        let entropy = Entropy::new().temperature(params.f32("temperature")?);
        let entropy = if self.has_gradient() { entropy.factor(params.f32("factor")?) } else { entropy };
        let options = Linear::new(entropy).memory(linear::memory(params)?);
        dispatch!(info, args.dtype("hidden")?, [f16, bf16] => |T| {
            let call = Call::<T>::new(info, args.input("hidden")?, args.input("weight")?, &options)?;
            let gradients = match self.has_gradient() {
                true => {
                    let (dhidden, dweight) = (args.output("dhidden")?, args.output("dweight")?);
                    Some((args.input("dentropies")?, Gradients { dhidden, dweight }))
                }
                false => None,
            };
            call.launch(stream, args.output("entropies")?, gradients)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (hidden, weight) = (inputs.get("hidden")?, inputs.get("weight")?);
        let (logits, temperature) = (linear::exact_logits(hidden, weight), params.f64("temperature")?);
        let of_row = |row: usize| Exact::new(&logits(row), temperature);
        if output == "entropies" {
            return Ok(rows.iter().map(|row| of_row(*row).entropy()).collect());
        }
        let (dentropies, factor) = (inputs.get("dentropies")?.to_f64(), params.f64("factor")?);
        let g = |row: usize| of_row(row).gradient(dentropies[row] * factor);
        Ok(linear::exact_gradient(output, rows, [hidden, weight], g))
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [rows, d, classes] = case.dims(["rows", "d", "classes"])?;
        let temperature = case.params.f64("temperature")?;
        // As in entropy: √classes·2⁻²⁴ of sums, 2⁻²² of exponentials, 2⁻²³ of exponents up to 16, at a low temperature of larger ones.
        let statistics = ((classes as f64).sqrt() * roundoff(DType::F32) + 4e-6) * temperature.recip().max(1.0);
        // Whole numbers are exact logits; of normal values, up to six standard deviations are rounded.
        let (logits, greatest, largest) = match case.class {
            CaseClass::Production => (6.0 * roundoff(case.dtype) / temperature, 6.0, 6.0 / (d as f64).sqrt()),
            _ => (0.0, 1.0, 1.0),
        };
        // No entropy is greater.
        let most = (classes as f64).ln() + 1.0;
        let f32_sums = 4.0 * roundoff(DType::F32);
        if output == "entropies" {
            let why = "logarithms, weighed by probabilities with the error of statistics and of the logits";
            return Ok(Tolerance::new(most * (2.0 * statistics + 4.0 * logits), f32_sums, why));
        }
        // A row of G sums to no more than 2·H / T in magnitude. Each is rounded, in f16 to no less than 2⁻²⁵, and errs with its probability and
        // its logarithm.
        let least = if case.dtype == DType::F16 { classes as f64 * f64::powi(2.0, -25) } else { 0.0 };
        let of_g = 2.0 * most / temperature * (roundoff(case.dtype) + 4.0 * (statistics + logits) + f32_sums) + least;
        let of_g = of_g * case.params.f64("factor")?.abs();
        Ok(if output == "dhidden" {
            let why = "the error of a row of G times the greatest weight; one rounding to storage";
            Tolerance::rounded(case.dtype, of_g * largest, f32_sums, why)
        } else {
            let why = "a column of G has one number from each row: its error times the greatest hidden state";
            Tolerance::new(rows as f64 * of_g * greatest + f64::MIN_POSITIVE, f32_sums, why)
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, d, classes] = case.dims(["rows", "d", "classes"])?;
        Ok(linear::Tokens { tokens, d, classes }.cost(case, if self.has_gradient() { 3 } else { 1 }))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.has_gradient().then_some(Gradient {
            forward: &LINEAR_ENTROPY,
            of_outputs: &[("dentropies", "entropies")],
            of_inputs: &[("dhidden", "hidden"), ("dweight", "weight")],
        })
    }
}
