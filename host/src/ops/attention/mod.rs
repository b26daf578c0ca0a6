//! Attention: softmax(Q·Kᵀ)·V over tokens, forward and backward, and decoding over a cache.
//!
//! Queries, keys and values are `[batch, heads, tokens, d]` with any strides: a tensor stored as `[batch, tokens, heads, d]` is
//! passed as `x.view().permute([0, 2, 1, 3])?`. An [`Attention`] sets which keys a query sees and how scores are formed.
//! Decoding takes `[batch, tokens, heads, d]`, as caches are stored, and a [`Decoding`].

pub mod backward;
pub mod decode;
mod exact;
pub mod forward;
pub mod fp8;
mod maps;
mod options;
mod problem;

pub use backward::{
    AttentionGradients, AttentionGradientsMut, Saved, attention_backward, attention_backward_into,
    attention_backward_with_sinks_into,
};
pub use decode::{
    CacheElement, Decoding, KvCache, KvCacheMut, attention_decode, attention_decode_append,
    attention_decode_append_into, attention_decode_into,
};
pub use forward::{attention, attention_into, attention_with_lse};
pub use fp8::{Fp8Heads, attention_fp8, attention_fp8_into, attention_fp8_with_lse};
pub use options::Attention;
use options::checked_scale;
pub(in crate::ops) use options::checked_softcap;

use super::model::{
    Arrangement, Case, CaseClass, InputSpec, MetaArg, Metas, OpInfo, ParamInfo, Params, Tolerance, Values, roundoff,
};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// The numeric options of forward and backward.
const PARAMS: &[ParamInfo] = &[
    ParamInfo::bool("causal", false, "hide keys past the diagonal"),
    ParamInfo::int("left", -1, "keys before the diagonal that a query sees, all if negative"),
    ParamInfo::int("right", -1, "keys past the diagonal that a query sees, all if negative"),
    ParamInfo::float("scale", 0.0, "factor of the scores, 1/√d if 0"),
    ParamInfo::float("softcap", 0.0, "scores x become softcap·tanh(x / softcap), as they are if 0"),
];

/// The shapes that are timed for other libraries too.
fn production(info: &'static OpInfo) -> Vec<Case> {
    let mut cases = Vec::new();
    for (d, h) in [(64, 32), (128, 16)] {
        for s in [2048, 8192, 16384] {
            for causal in [false, true] {
                let b = 16384 / s;
                let name = format!("b={b} h={h} s={s} d={d} {} bf16", if causal { "causal" } else { "full" });
                let case = Case::production(info, name, DType::BF16, dims([b, h, h, s, s, d]));
                cases.push(case.only(&[]).param("causal", causal));
            }
        }
    }
    cases
}

fn dims(sizes: [usize; 6]) -> [(&'static str, usize); 6] {
    let [b, h, kv, q, k, d] = sizes;
    [("b", b), ("h", h), ("kv", kv), ("q", q), ("k", k), ("d", d)]
}

/// Small cases: every d that a kernel is built for, every option, both sides of each limit. `tensors` are those whose rows have
/// d elements.
fn small(info: &'static OpInfo, tensors: &[&'static str]) -> Vec<Case> {
    let (f16, bf16) = (DType::F16, DType::BF16);
    let odd = |dtype, sizes| Case::odd(info, dtype, dims(sizes));
    let boundary = |dtype, sizes| Case::boundary(info, dtype, dims(sizes));
    let packed = |dtype, sizes, sequences| {
        let [b, h, kv, q, k, d] = dims(sizes);
        Case::odd(info, dtype, [b, h, kv, q, k, d, ("sequences", sequences)]).only(&["cu_q", "cu_k"])
    };
    let tokens_first =
        |case: Case| tensors.iter().fold(case, |case, x| case.arrange(x, Arrangement::DENSE.order(&[0, 2, 1, 3])));
    let padded = |case: Case, unit: usize| {
        let rows = tensors.iter().zip(1..);
        rows.fold(case, |case, (x, i)| case.arrange(x, Arrangement::DENSE.row_pad(i * unit)))
    };
    let mut cases = vec![
        odd(DType::F32, [1, 2, 2, 9, 14, 5]).only(&[]),
        odd(DType::F32, [2, 2, 1, 11, 9, 6]).only(&["slopes"]).param("causal", true).param("softcap", 2.0),
        odd(bf16, [1, 4, 2, 130, 157, 128]).only(&[]).param("causal", true),
        odd(bf16, [2, 2, 2, 129, 66, 64]).only(&[]).param("causal", true),
        odd(bf16, [1, 2, 1, 70, 100, 72]).only(&["slopes"]).param("softcap", 1.5),
        // Caps that no score comes near.
        odd(DType::F32, [1, 1, 1, 5, 9, 6]).only(&[]).param("softcap", 1e6),
        odd(bf16, [1, 2, 1, 20, 30, 64]).only(&[]).param("softcap", 1e30),
        odd(bf16, [1, 1, 1, 65, 80, 192]).only(&[]),
        odd(bf16, [1, 1, 1, 66, 70, 256]).only(&[]).param("causal", true),
        odd(bf16, [1, 2, 1, 150, 140, 32]).only(&[]).param("left", 30).param("right", 5),
        odd(bf16, [3, 1, 1, 20, 90, 40]).only(&["key_lengths"]).param("causal", true),
        odd(bf16, [4, 1, 1, 7, 70, 64]).only(&["key_lengths"]).values("key_lengths", Values::Hostile { bound: 71 }),
        packed(bf16, [1, 2, 1, 200, 170, 64], 4).param("causal", true),
        packed(f16, [1, 1, 1, 40, 150, 32], 5)
            .values("cu_q", Values::Hostile { bound: 41 })
            .values("cu_k", Values::Hostile { bound: 151 }),
        odd(f16, [1, 2, 1, 100, 130, 96]).only(&[]).param("scale", 0.125),
        tokens_first(odd(f16, [2, 2, 1, 33, 40, 16]).only(&[])),
        padded(odd(bf16, [1, 2, 2, 20, 30, 24]).only(&[]), 8),
        padded(odd(bf16, [1, 2, 2, 20, 30, 24]).only(&[]), 1),
        odd(bf16, [1, 2, 1, 20, 30, 24]).only(&[]).offset(1),
        odd(bf16, [1, 1, 1, 10, 20, 20]).only(&[]),
        boundary(bf16, [1, 1, 1, 128, 64, 128]).only(&[]).param("causal", true),
        boundary(bf16, [1, 1, 1, 129, 65, 136]).only(&[]),
        boundary(f16, [1, 1, 1, 3, 1, 256]).only(&[]),
        // Pairs of blocks with TMA: more pairs than fit on the simulated device at a time, for both types; then windows that
        // leave out tiles at both ends, strides of every kind, and padding.
        odd(f16, [1, 5, 1, 300, 340, 64]).only(&[]).param("causal", true),
        odd(f16, [1, 3, 3, 270, 280, 128]).only(&[]).param("causal", true),
        odd(bf16, [5, 1, 1, 20, 10, 64]).only(&["key_lengths"]).param("causal", true),
        // Three turns per pair, with queries that do not fill it: the last turn loads into the buffer from which the
        // first stored its result.
        odd(bf16, [2, 6, 2, 20, 30, 64]).only(&[]),
        odd(bf16, [2, 6, 2, 20, 30, 128]).only(&[]),
        // Blocks that take separate heads at the end: of sequences that differ, and an odd number of them.
        odd(bf16, [1, 5, 1, 390, 150, 64]).only(&[]),
        odd(f16, [5, 1, 1, 70, 140, 64]).only(&["key_lengths"]),
        odd(bf16, [1, 12, 2, 100, 30, 128]).only(&[]).param("causal", true),
        odd(bf16, [1, 1, 1, 300, 680, 128]).only(&[]).param("left", 200).param("right", 20),
        odd(bf16, [1, 1, 1, 400, 700, 64]).only(&[]).param("left", 200).param("right", 150),
        tokens_first(odd(bf16, [3, 2, 1, 70, 150, 64]).only(&[])),
        padded(odd(bf16, [2, 2, 1, 70, 90, 128]).only(&[]), 8),
        odd(bf16, [3, 1, 1, 20, 290, 128]).only(&["key_lengths"]),
        // Padding does not move the diagonal: queries before the last key and past it, and windows that end before
        // the query's position.
        odd(DType::F32, [4, 1, 1, 9, 14, 5]).only(&["key_lengths"]).param("causal", true),
        odd(bf16, [3, 1, 1, 140, 140, 64]).only(&["key_lengths"]).param("causal", true),
        odd(f16, [3, 1, 1, 140, 140, 128]).only(&["key_lengths"]).param("causal", true).param("left", 50),
        odd(bf16, [3, 1, 1, 40, 70, 64]).only(&["key_lengths", "slopes"]).param("causal", true),
    ];
    // Sinks in every kernel: where a query sees nothing else, and where the sinks count for nothing.
    for (dtype, d) in [(DType::F32, 6), (f16, 64), (bf16, 128), (bf16, 72)] {
        cases.push(odd(dtype, [2, 4, 2, 20, 15, d]).only(&["sinks"]).param("causal", true));
    }
    cases.extend([
        odd(bf16, [1, 2, 1, 20, 15, 64]).only(&["sinks", "slopes"]).param("softcap", 2.0),
        odd(f16, [1, 2, 1, 20, 15, 64]).only(&["sinks"]).values("sinks", Values::Constant(f64::NEG_INFINITY)),
    ]);
    // Several tiles of tokens with biased scores.
    cases.push(odd(bf16, [1, 1, 1, 18, 70, 64]).only(&["slopes"]));
    for dtype in [f16, bf16] {
        cases.push(odd(dtype, [1, 1, 1, 66, 70, 96]).only(&[]));
        cases.push(odd(dtype, [1, 1, 1, 66, 70, 256]).only(&["slopes"]));
        // Each d that kernels are built for, with plain scores and with biased ones.
        for d in [32, 64, 96, 128, 192, 256] {
            cases.push(odd(dtype, [1, 1, 1, 18, 20, d]).only(&[]));
            cases.push(odd(dtype, [1, 1, 1, 18, 20, d]).only(&["slopes"]));
        }
    }
    for &dtype in info.dtypes {
        cases.extend([
            Case::tiny(info, dtype, dims([1, 1, 1, 1, 1, 8])).only(&[]),
            Case::empty(info, dtype, dims([1, 2, 1, 0, 8, 8])).only(&[]),
            Case::empty(info, dtype, dims([1, 2, 2, 3, 0, 8])).only(&[]),
        ]);
    }
    cases
}

/// Whether the rows of d of the case fit cp.async and the tensor cores.
fn aligned(case: &Case, tensors: &[&str]) -> bool {
    let aligned = |name: &&str| {
        let Arrangement { offset, row_pad, .. } = case.arrangement(name);
        offset % 8 == 0 && row_pad % 8 == 0
    };
    case.dtype != DType::F32
        && case.dims.get("d").is_some_and(|d| d > 0 && d.is_multiple_of(8))
        && tensors.iter().all(aligned)
}

/// Whether the Hopper path can run the case on such a device.
fn fits_hopper(device: &DeviceInfo, case: &Case, tensors: &[&str]) -> bool {
    let Ok([keys, d]) = case.dims(["k", "d"]) else { return false };
    let plain = |params: &Params| params.f32("softcap").is_ok_and(|cap| cap == 0.0);
    let broadcast = tensors.iter().any(|name| !case.arrangement(name).broadcast.is_empty());
    device.compute_capability == (9, 0)
        && aligned(case, tensors)
        && [64, 128].contains(&d)
        && keys > 0
        && plain(&case.params)
        && !["slopes", "cu_q", "cu_k"].into_iter().any(|name| case.has(name))
        && !broadcast
}

/// Whether the readable kernels run the case as well. They skip the cases that are large only because of the tiles of other
/// kernels: with a warp per query, these take seconds in the simulator.
fn fits_simple(case: &Case) -> bool {
    let scores = |[b, h, q, k]: [usize; 4]| b * h * q * k;
    case.class != CaseClass::Production && case.dims(["b", "h", "q", "k"]).is_ok_and(|dims| scores(dims) <= 30_000)
}

/// The standard deviation of a case's random values.
fn size_of_values(case: &Case) -> f64 {
    match case.fill_of_floats() {
        Some(Values::Normal { std }) => std,
        _ => 1.0,
    }
}

/// The tolerance of O and its logsumexp with weights of that type; `merging` is the absolute error of exponents beside
/// that of scores.
fn tolerance(case: &Case, output: &str, weights: DType, merging: f64) -> Result<Tolerance> {
    let [d] = case.dims(["d"])?;
    let size = size_of_values(case);
    // d products of that size, added in f32 and truncated by the tensor cores to 2⁻²² of the sum of 16 at a time.
    let score = size * size * (d as f64 / 16.0).max(1.0).sqrt() * 4.0 * roundoff(DType::F32) + 2e-6 + merging;
    if output == "lse" {
        let why = "the scores' f32 error; log₂ and its factor";
        return Ok(Tolerance::new(score + 4e-6, 4.0 * roundoff(DType::F32), why));
    }
    let weights = if weights == DType::F32 { 0.0 } else { roundoff(weights) };
    let why = "one rounding to storage; each weight's rounding to it, times values of up to 3 standard deviations; the \
               scores' error as a relative one of the weights";
    Ok(Tolerance::rounded(case.dtype, 3.0 * size * (weights + score + 2e-6), 0.0, why))
}

fn inputs(case: &Case) -> Result<Vec<InputSpec>> {
    let [b, h, kv, q, k, d] = case.dims(["b", "h", "kv", "q", "k", "d"])?;
    let mut specs = vec![
        InputSpec::normal("q", case.dtype, [b, h, q, d]),
        InputSpec::normal("k", case.dtype, [b, kv, k, d]),
        InputSpec::normal("v", case.dtype, [b, kv, k, d]),
    ];
    let offsets = |total| Values::Offsets { total: total as i64 };
    let sequences = case.dims.get("sequences").unwrap_or(1);
    let optional = [
        InputSpec::new("key_lengths", DType::I32, [b], Values::Integers { low: 0, high: k as i64 }),
        InputSpec::new("cu_q", DType::I32, [sequences + 1], offsets(q)),
        InputSpec::new("cu_k", DType::I32, [sequences + 1], offsets(k)),
        InputSpec::new("slopes", DType::F32, [h], Values::Uniform { low: 0.0, high: 0.5 }),
        // About the same weight as all keys together.
        InputSpec::new("sinks", DType::F32, [h], Values::Uniform { low: 0.0, high: (k.max(1) as f64).ln() + 1.0 }),
    ];
    specs.extend(optional.into_iter().filter(|spec| case.has(spec.name)));
    let fixed = |spec: &InputSpec| spec.name == "slopes" || spec.name == "sinks" && case.values_of("sinks").is_none();
    Ok(specs.into_iter().map(|spec| if fixed(&spec) { spec } else { spec.in_case(case) }).collect())
}

/// Whether the inputs' shapes fit together; `q`.
fn check_metas<'a>(inputs: &Metas<'a>, params: &Params) -> Result<MetaArg<'a>> {
    let (q, k, v) = (inputs.get("q")?, inputs.get("k")?, inputs.get("v")?);
    let [batch, heads, _, d]: [usize; 4] = q.dims()?;
    let [_, kv_heads, k_len, _]: [usize; 4] = k.dims()?;
    if (heads == 0) != (kv_heads == 0) || !heads.is_multiple_of(kv_heads.max(1)) {
        let wanted = format!("a number of heads that divides the {heads} of `q`");
        return Err(params.info().shape_error("k", k.shape(), wanted));
    }
    k.has_shape(&[batch, kv_heads, k_len, d])?;
    v.has_shape(k.shape())?;
    inputs.optional("key_lengths").map_or(Ok(()), |lengths| lengths.has_shape(&[batch]))?;
    for name in ["slopes", "sinks"] {
        inputs.optional(name).map_or(Ok(()), |of_heads| of_heads.has_shape(&[heads]))?;
    }
    if let Some(cu_q) = inputs.optional("cu_q") {
        let [_]: [usize; 1] = cu_q.dims()?;
        inputs.get("cu_k")?.has_shape(cu_q.shape())?;
    }
    Ok(q)
}

/// The number of useful operations: `all`, or half of it if the case is causal.
fn flops(case: &Case, all: usize) -> Result<u64> {
    Ok(all as u64 / if case.params.bool("causal")? { 2 } else { 1 })
}
