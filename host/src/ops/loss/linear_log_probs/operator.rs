//! What the operator says of itself.

use gpu_kernels::ops::loss::cross_entropy::{self as ce, targets as batch};
use gpu_kernels::ops::loss::linear_log_probs as gk;
use half::{bf16, f16};

use super::LogProbs;
use super::call::Call;
use crate::dispatch;
use crate::ops::gemm::with_products;
use crate::ops::loss::batch::RowResults;
use crate::ops::loss::linear::{self, ExactTokens, Linear, Tokens};
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

pub(super) static INFO: OpInfo = OpInfo {
    name: "linear_log_probs",
    bench_name: "loss.linear_log_probs",
    summary: "log-probabilities of chosen tokens under a linear layer's logits, in chunks",
    math: "log_softmax(hidden · weightᵀ)[targets]",
    args: &[
        ArgInfo::input("hidden", "[tokens, d], any strides"),
        ArgInfo::input("weight", "[classes, d], any strides"),
        ArgInfo::input("targets", "[tokens], contiguous: the next tokens").of(&[DType::I32]),
        ArgInfo::output("log_probs", "[tokens], contiguous").of(&[DType::F32]),
    ],
    params: &[
        ParamInfo::int("ignore_index", -100, "target of tokens that do not count"),
        ParamInfo::int("memory", 1 << 30, "bytes of logits at a time"),
    ],
    dtypes: &[DType::F16, DType::BF16],
    kernels: with_products![
        ce::CROSS_ENTROPY,
        ce::CROSS_ENTROPY_CLUSTER,
        batch::WEIGH_TARGETS,
        batch::TOTAL_LOSS,
        gk::NEGATE_LOSSES,
    ],
    variants: &[],
};

/// [`linear_log_probs`](super::linear_log_probs()) in the registry.
pub struct LinearLogProbsOf;

/// [`linear_log_probs`](super::linear_log_probs()) in the registry.
pub static LINEAR_LOG_PROBS: LinearLogProbsOf = LinearLogProbsOf;

impl Operator for LinearLogProbsOf {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |tokens, d, classes| [("tokens", tokens), ("d", d), ("classes", classes)];
        let name = "tokens=8192 hidden=4096 vocab=128256 bf16";
        let llama = Case::production(&INFO, name, DType::BF16, dims(8192, 4096, 128_256)).timed_only();
        let small =
            Case::production(&INFO, "tokens=1024 hidden=512 vocab=4096 bf16", DType::BF16, dims(1024, 512, 4096));
        let mut cases = vec![llama, small.param("memory", 4i64 << 20)];
        let padded = |pad| Arrangement::DENSE.row_pad(pad);
        for &dtype in INFO.dtypes {
            cases.extend([
                // Chunks of 16 tokens, the last of 8.
                Case::odd(&INFO, dtype, dims(40, 8, 72)).param("memory", 16 * 72 * 2i64),
                Case::odd(&INFO, dtype, dims(9, 13, 20)).arrange("hidden", padded(3)).arrange("weight", padded(5)),
                Case::odd(&INFO, dtype, dims(20, 8, 16)).values("targets", Values::Hostile { bound: 16 }),
                Case::odd(&INFO, dtype, dims(8, 8, 4)).param("ignore_index", 2i64),
                Case::tiny(&INFO, dtype, dims(1, 1, 1)),
                Case::empty(&INFO, dtype, dims(0, 8, 16)),
                Case::empty(&INFO, dtype, dims(4, 0, 8)),
                // More tokens than a block negates.
                Case::boundary(&INFO, dtype, dims(257, 1, 8)),
                Case::boundary(&INFO, dtype, dims(3, 8, 8)).values("hidden", Values::Specials),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [tokens, d, classes] = case.dims(["tokens", "d", "classes"])?;
        let specs = Tokens { tokens, d, classes }.specs(case);
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        Tokens::outputs(&INFO, inputs)?;
        let [tokens] = inputs.get("targets")?.dims()?;
        Ok(vec![TensorMeta::new("log_probs", DType::F32, [tokens])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let ignored = params.i64("ignore_index")?;
        let ignored =
            i32::try_from(ignored).map_err(|_| INFO.param_error("ignore_index", ignored, "a 32-bit number"))?;
        let options = Linear::new(LogProbs::new().ignore(ignored)).memory(linear::memory(params)?);
        let targets = args.input("targets")?;
        let mut total = Tensor::result(stream, [1])?;
        dispatch!(INFO, args.dtype("hidden")?, [f16, bf16] => |T| {
            let call = Call::<T>::new(&INFO, [args.input("hidden")?, args.input("weight")?], targets, &options)?;
            let (per_row, total) = (args.output("log_probs")?, total.view_mut());
            call.launch(stream, RowResults { per_row, total, bad: None, offsets: None })
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let log_probs = ExactTokens::new(inputs, params.i64("ignore_index")?)?.log_probs();
        Ok(rows.iter().map(|token| log_probs[*token]).collect())
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [tokens, d, classes] = case.dims(["tokens", "d", "classes"])?;
        // Whole numbers are exact logits; of normal values, up to six standard deviations are rounded.
        let logits = if case.class == CaseClass::Production { 6.0 * roundoff(case.dtype) } else { 0.0 };
        let of_token = Tokens { tokens, d, classes }.error() + 2.0 * logits;
        Ok(Tolerance::new(
            of_token,
            8.0 * roundoff(DType::F32),
            "roundings of the logits, and the sum's relative error",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, d, classes] = case.dims(["tokens", "d", "classes"])?;
        Ok(Tokens { tokens, d, classes }.cost(case, 1))
    }
}
