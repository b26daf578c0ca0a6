//! The operator in the registry.

use gpu_kernels::ops::attention::fp8::hopper::ATTENTION_FP8_HOPPER;
use gpu_kernels::ops::attention::fp8::prepare::ATTENTION_FP8_PREPARE;
use gpu_kernels::ops::attention::fp8::simple::ATTENTION_FP8_SIMPLE;
use half::{bf16, f16};

use super::super::exact::Exact;
use super::super::{PARAMS as OPTIONS, check_metas, dims, fits_simple, flops};
use super::call::Call;
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// The operator's entry in the registry.
pub struct AttentionFp8;

const TO: ParamInfo = ParamInfo::choice("to", "bfloat16", &["float16", "bfloat16"], "the type of o");
const PARAMS: [ParamInfo; 6] = [TO, OPTIONS[0], OPTIONS[1], OPTIONS[2], OPTIONS[3], OPTIONS[4]];

/// The tensors whose rows have d elements.
const TENSORS: [&str; 4] = ["q", "k", "v", "o"];

/// Runs a block with the call that a launch's tensors describe, whatever the type of its result.
macro_rules! call {
    ($stream:expr, $args:expr, $params:expr, |$call:ident| $body:expr) => {{
        let to = target($params)?;
        dispatch!(INFO, to, [f16, bf16] => |T| {
            let $call = Call::<T>::of($stream, $args, $params)?;
            $body
        })
    }};
}

pub(super) static INFO: OpInfo = OpInfo {
    name: "attention_fp8",
    bench_name: "attn.fwd_fp8",
    summary: "fused attention of 8-bit floats with scales",
    math: "o = softmax(q_scales·k_scales·q·kᵀ·scale)·v·v_scales",
    args: &[
        ArgInfo::input("q", "[batch, heads, q_len, d], d contiguous").of(&[DType::F8E4M3]),
        ArgInfo::input("k", "[batch, kv_heads, k_len, d], d contiguous").of(&[DType::F8E4M3]),
        ArgInfo::input("v", "[batch, kv_heads, k_len, d], d contiguous").of(&[DType::F8E4M3]),
        ArgInfo::input("q_scales", "[batch, kv_heads] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::input("k_scales", "[batch, kv_heads] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::input("v_scales", "[batch, kv_heads] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::input("key_lengths", "[batch], keys of each sequence").of(&[DType::I32]).optional(),
        ArgInfo::input("cu_q", "[sequences + 1], where packed queries start").of(&[DType::I32]).optional(),
        ArgInfo::input("cu_k", "[sequences + 1], where packed keys start").of(&[DType::I32]).optional(),
        ArgInfo::input("slopes", "[heads], ALiBi's").of(&[DType::F32]).optional(),
        ArgInfo::input("sinks", "[heads], scores without values").of(&[DType::F32]).optional(),
        ArgInfo::output("o", "[batch, heads, q_len, d], of the type `to`, d contiguous").of(&[DType::F16, DType::BF16]),
        ArgInfo::output("lse", "[batch, heads, q_len], logsumexp of the scores").of(&[DType::F32]),
    ],
    params: &PARAMS,
    dtypes: &[DType::F16, DType::BF16],
    kernels: &[ATTENTION_FP8_SIMPLE, ATTENTION_FP8_PREPARE, ATTENTION_FP8_HOPPER],
    variants: &[
        Variant {
            name: "simple",
            doc: "a warp a query, any alignment: the one to read first, and what is picked where the other does not fit",
            applies: |_, case| fits_simple(case),
            launch: |stream, args, params| call!(stream, args, params, |call| call.launch_simple(stream)),
        },
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0: d 64 and 128 without packing, soft cap and ALiBi",
            applies: fits_hopper,
            launch: |stream, args, params| call!(stream, args, params, |call| call.launch_hopper(stream)),
        },
    ],
};

/// The type of the result that a case or a call asks for.
fn target(params: &Params) -> Result<DType> {
    params.choice(TO.name)?.parse()
}

/// Whether the Hopper path can run the case on such a device.
fn fits_hopper(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([keys, d]) = case.dims(["k", "d"]) else { return false };
    let layout = |name: &str, bytes: usize| {
        let Arrangement { offset, row_pad, broadcast, .. } = case.arrangement(name);
        (offset * bytes).is_multiple_of(16) && (row_pad * bytes).is_multiple_of(16) && broadcast.is_empty()
    };
    device.compute_capability == (9, 0)
        && TENSORS.iter().all(|name| layout(name, if *name == "o" { 2 } else { 1 }))
        && [64, 128].contains(&d)
        && keys > 0
        && case.params.f32("softcap").is_ok_and(|cap| cap == 0.0)
        && !["slopes", "cu_q", "cu_k"].into_iter().any(|name| case.has(name))
}

/// The deviation of elements, unless a case sets another: times their scales, they are about as large as normal values.
const ELEMENTS: f64 = 70.0;
const GREATEST: f64 = 0.016;
/// The scales and their values: the scales of V differ widely, so that heads can be told apart.
const SCALES: [(&str, Values); 3] = [
    ("q_scales", Values::Uniform { low: 0.012, high: GREATEST }),
    ("k_scales", Values::Uniform { low: 0.012, high: GREATEST }),
    ("v_scales", Values::Uniform { low: 0.004, high: GREATEST }),
];

impl Operator for AttentionFp8 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = super::super::production(&INFO);
        cases.extend(small());
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [b, kv] = case.dims(["b", "kv"])?;
        let shape = match case.dims.get("scales") {
            Some(1) => vec![1],
            _ => vec![b, kv],
        };
        let mut specs = super::super::inputs(case)?;
        for spec in &mut specs[..3] {
            spec.dtype = DType::F8E4M3;
            if case.values_of(spec.name).is_none() {
                spec.values = Values::Normal { std: ELEMENTS };
            }
        }
        let scales = SCALES.map(|(name, values)| {
            let values = case.values_of(name).unwrap_or(values);
            InputSpec::new(name, DType::F32, shape.clone(), values)
        });
        specs.splice(3..3, scales);
        Ok(specs)
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let q = check_metas(inputs, params)?;
        let [batch, kv_heads, ..]: [usize; 4] = inputs.get("k")?.dims()?;
        for (name, _) in SCALES {
            let scales = inputs.get(name)?;
            if scales.shape() != [1] {
                scales.has_shape(&[batch, kv_heads])?;
            }
        }
        let o = TensorMeta::new("o", target(params)?, q.shape());
        Ok(vec![o, TensorMeta::new("lse", DType::F32, &q.shape()[..3])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        call!(stream, args, params, |call| call.launch(stream))
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let exact = Exact::new(inputs, params)?;
        Ok(if output == "o" { exact.output(rows) } else { exact.lse(rows) })
    }

    fn row_len(&self, output: &str, shape: &[usize]) -> usize {
        if output == "lse" { 1 } else { reference::row_len(shape) }
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [q, k, d] = case.dims(["q", "k", "d"])?;
        let d = (d as f64).max(1.0);
        // The deviations of scores and of values, for normal elements with the greatest scales.
        let factor = f64::from(case.params.f32("scale")?);
        let factor = if factor == 0.0 { 1.0 } else { factor * d.sqrt() };
        let scores = factor * f64::powi(ELEMENTS * GREATEST, 2);
        let values = if case.values_of("v").is_some() { 448.0 } else { ELEMENTS } * GREATEST;
        // The tensor cores sum 32 products at a time, aligned to the greatest addend and cut 13 bits below it, towards zero.
        let cut = 4.0 * 2f64.powi(-13);
        let score = (d / 32.0).max(1.0) * scores * cut;
        if output == "lse" {
            let why = "scores, whose sums are cut to 13 bits every 32 products; log₂ and its factor";
            return Ok(Tolerance::new(score + 6e-6, 4.0 * roundoff(DType::F32), why));
        }
        // For n keys with normal scores of deviation σ, Σp² is e^(σ²)/n. Roundings of weights are independent, each with a deviation of 2⁻⁴/√6 of its
        // weight: six deviations of their sum, or all of them at their greatest.
        let plain = !case.has("key_lengths") && case.params.i64("left")? < 0;
        let least = match case.params.bool("causal")? {
            _ if !plain => 1,
            true => (k + 1).saturating_sub(q).max(1),
            false => k.max(1),
        };
        let squares = (scores * scores).exp() / least as f64;
        let weights = roundoff(DType::F8E4M3) * (6.0 * (squares / 6.0).sqrt()).min(3.0);
        let why = "one rounding to storage; six deviations of the sum of the weights' roundings to E4M3, or three of values times the greatest; \
                   the scores' error as a relative one of the weights; sums of a tile cut to 13 bits every 32 keys";
        let abs = values * (weights + 3.0 * score + 4.0 * cut);
        Ok(Tolerance::rounded(target(&case.params)?, abs, 0.0, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [b, h, kv, q, k, d] = case.dims(["b", "h", "kv", "q", "k", "d"])?;
        let o = b * h * q * (d * case.dtype.size() + 4);
        let bytes = b * (h * q + 2 * kv * k) * d + o;
        Ok(Cost::compute(bytes as u64, flops(case, 4 * b * h * q * k * d)?, Bound::Tensor(DType::F8E4M3)))
    }
}

/// Small cases: both kernels' head sizes and every option, both sides of each limit.
fn small() -> Vec<Case> {
    let to = |case: Case| {
        let name = case.dtype.name();
        case.param(TO.name, ParamValue::Choice(name))
    };
    let (f16, bf16) = (DType::F16, DType::BF16);
    let odd = |dtype, sizes| to(Case::odd(&INFO, dtype, dims(sizes))).only(&[]);
    let with = |dtype, sizes, optional: &[&'static str]| to(Case::odd(&INFO, dtype, dims(sizes))).only(optional);
    let boundary = |dtype, sizes| to(Case::boundary(&INFO, dtype, dims(sizes))).only(&[]);
    let shared_scales = |[b, h, kv, q, k, d]: [usize; 6]| {
        let [b, h, kv, q, k, d] = dims([b, h, kv, q, k, d]);
        to(Case::odd(&INFO, f16, [b, h, kv, q, k, d, ("scales", 1)])).only(&[])
    };
    let packed = |[b, h, kv, q, k, d]: [usize; 6]| {
        let [b, h, kv, q, k, d] = dims([b, h, kv, q, k, d]);
        to(Case::odd(&INFO, bf16, [b, h, kv, q, k, d, ("sequences", 3)])).only(&["cu_q", "cu_k"])
    };
    let arranged = |case: Case, how: fn(usize) -> Arrangement| {
        TENSORS.iter().zip(1..).fold(case, |case, (x, i)| case.arrange(x, how(i)))
    };
    let huge = |dtype, sizes| {
        let mut case = to(Case::boundary(&INFO, dtype, dims(sizes)));
        case.name.push_str(" huge");
        // Finite inputs must have finite results.
        let case = case.only(&["sinks"]).values("sinks", Values::Constant(f64::NEG_INFINITY));
        let greatest = |case: Case, name| case.values(name, Values::Constant(448.0));
        let case = ["q", "k"].into_iter().fold(case, greatest);
        ["q_scales", "k_scales"].into_iter().fold(case, |case, name| case.values(name, Values::Constant(8.0)))
    };
    let mut cases = vec![
        // More pairs of blocks than fit on the simulated device at a time, tiles on the diagonal, rows that see nothing.
        odd(bf16, [1, 5, 1, 300, 340, 64]).param("causal", true),
        odd(f16, [1, 4, 2, 270, 280, 128]).param("causal", true),
        odd(bf16, [1, 6, 2, 270, 280, 128]).param("causal", true),
        odd(bf16, [1, 12, 2, 100, 30, 128]).param("causal", true),
        odd(f16, [2, 2, 2, 129, 66, 64]).param("causal", true),
        // Three turns per pair, with queries that do not fill it: the last turn loads into the buffer from which the
        // first stored its result.
        odd(bf16, [2, 6, 2, 50, 30, 64]),
        odd(f16, [2, 6, 2, 20, 30, 128]),
        odd(bf16, [1, 6, 2, 400, 30, 64]),
        odd(bf16, [1, 1, 1, 40, 700, 128]),
        // More tiles than a ring has stages.
        odd(bf16, [1, 1, 1, 20, 1050, 64]),
        shared_scales([2, 2, 1, 20, 90, 64]),
        odd(f16, [1, 1, 1, 200, 300, 128]).param("left", 100).param("right", 20),
        with(bf16, [3, 1, 1, 20, 150, 64], &["key_lengths"]).param("causal", true),
        with(bf16, [3, 1, 1, 7, 140, 128], &["key_lengths"]).values("key_lengths", Values::Hostile { bound: 141 }),
        with(f16, [2, 2, 1, 140, 140, 128], &["key_lengths"]).param("causal", true),
        with(f16, [2, 4, 2, 20, 15, 64], &["sinks"]).param("causal", true),
        with(f16, [1, 5, 1, 20, 15, 128], &["sinks"]),
        arranged(odd(bf16, [2, 2, 1, 30, 50, 64]), |_| Arrangement::DENSE.order(&[0, 2, 1, 3])),
        arranged(odd(f16, [2, 2, 1, 30, 50, 128]), |i| Arrangement::DENSE.row_pad(16 * i)),
        arranged(odd(bf16, [1, 2, 1, 10, 20, 64]), |i| Arrangement::DENSE.row_pad(i)),
        odd(bf16, [1, 2, 1, 9, 14, 128]).offset(1),
        // Weights of few keys, of which one is nearly all.
        odd(bf16, [1, 1, 1, 66, 200, 64]).param("scale", 0.6),
        // Cases that only the readable kernel takes.
        odd(f16, [1, 2, 1, 9, 14, 5]),
        odd(bf16, [1, 1, 1, 9, 14, 72]).param("causal", true),
        with(bf16, [1, 2, 1, 12, 17, 64], &["slopes"]).param("softcap", 1.5),
        packed([1, 2, 1, 30, 40, 64]).param("causal", true),
        // NaN in one tensor; then scales that make all scores equal.
        odd(bf16, [1, 1, 1, 5, 20, 64]).values("q", Values::Specials),
        odd(bf16, [1, 1, 1, 5, 2, 128]).values("v", Values::Specials),
        odd(f16, [1, 1, 1, 5, 20, 64]).values("k_scales", Values::Constant(0.0)),
        odd(f16, [1, 1, 1, 5, 20, 128]).values("q_scales", Values::Constant(-0.01)),
        // Scores beyond the limit.
        huge(f16, [1, 1, 1, 5, 20, 64]),
        huge(bf16, [1, 1, 1, 5, 20, 128]),
        boundary(bf16, [1, 1, 1, 256, 128, 128]).param("causal", true),
        boundary(f16, [1, 1, 1, 193, 129, 64]),
        boundary(bf16, [1, 1, 1, 3, 1, 256]),
        boundary(f16, [1, 1, 1, 3, 1, 128]),
    ];
    for dtype in [f16, bf16] {
        cases.extend([
            to(Case::tiny(&INFO, dtype, dims([1, 1, 1, 1, 1, 64]))).only(&[]),
            to(Case::empty(&INFO, dtype, dims([1, 2, 1, 0, 8, 64]))).only(&[]),
            to(Case::empty(&INFO, dtype, dims([1, 2, 2, 3, 0, 128]))).only(&[]),
        ]);
    }
    cases
}
