//! Decoding in the registry.

use gpu_kernels::ops::attention::decode::{combine, mma, simple};

use super::call::Call;
use super::exact::Exact;
use super::tokens::{Tokens, lengths_name};
use super::{CacheElement, Decoding, fits_d, scaled};
use crate::dispatch;
use crate::f8e4m3;
use crate::ops::attention;
use crate::ops::kv_cache::CacheShape;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// A decoding operator in the registry.
pub struct Decode {
    pub(super) info: &'static OpInfo,
}

/// [`attention_decode`](super::attention_decode) in the registry.
pub static ATTENTION_DECODE: Decode = Decode { info: &READ };

/// [`attention_decode_append`](super::attention_decode_append) in the registry.
pub static ATTENTION_DECODE_APPEND: Decode = Decode { info: &APPEND };

const Q: ArgInfo = ArgInfo::input("q", "[batch, q_len, heads, d], d contiguous");
const LENGTHS: ArgInfo =
    ArgInfo::input("lengths", "[batch], contiguous: each sequence's keys with the queries' own").of(&[DType::I32]);
const LENGTHS_AFTER: ArgInfo =
    ArgInfo::input("lengths_after", "[batch], contiguous: each sequence's keys with the new ones").of(&[DType::I32]);
const PAGE_TABLE: ArgInfo = ArgInfo::input("page_table", "[batch, max_pages], contiguous").of(&[DType::I32]).optional();
const SINKS: ArgInfo = ArgInfo::input("sinks", "[heads], scores without values").of(&[DType::F32]).optional();
const O: ArgInfo = ArgInfo::output("o", "[batch, q_len, heads, d], d contiguous");
const LSE: ArgInfo = ArgInfo::output("lse", "[batch, heads, q_len], logsumexp of the scores").of(&[DType::F32]);
const K_CACHE: &str = "[batch, max_len, kv_heads, d] or [pages, page_size, kv_heads, d], d contiguous";

/// The element types of a cache: the type of the queries, or one of 8 bits with scales.
const CACHES: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::F8E4M3];
/// The parameter's value for a cache of the queries' type.
const AS_QUERIES: &str = "as q";

const PARAMS: &[ParamInfo] = &[
    ParamInfo::choice("cache", AS_QUERIES, &[AS_QUERIES, "int8", "float8_e4m3fn"], "the type of the cache"),
    ParamInfo::int("left", -1, "keys before its own that a query sees, all if negative"),
    ParamInfo::float("scale", 0.0, "factor of the scores, 1/√d if 0"),
    ParamInfo::float("softcap", 0.0, "scores x become softcap·tanh(x / softcap), as they are if 0"),
    ParamInfo::int("splits", 0, "pieces that keys are divided into at most, as many as keep memory busy if 0"),
];

/// Runs a block with the call that a launch's tensors describe, whatever their types.
macro_rules! by_types {
    ($info:expr, $args:expr, $params:expr, |$call:ident| $body:expr) => {{
        let cache = $args.dtype("k_cache")?;
        dispatch!($info, $args.dtype("q")?, float => |T| {
            macro_rules! with {
                ($C:ty) => {{
                    let $call = call::<T, $C>($info, $args, $params)?;
                    $body
                }};
            }
            match cache {
                DType::I8 => with!(i8),
                DType::F8E4M3 => with!(f8e4m3),
                _ => with!(T),
            }
        })
    }};
}

static READ: OpInfo = OpInfo {
    name: "attention_decode",
    bench_name: "attn.decode",
    summary: "attention of new queries over a cache",
    math: "o = softmax(q·kᵀ·scale)·v over the keys in a cache",
    args: &[
        Q,
        ArgInfo::input("k_cache", K_CACHE).of(CACHES),
        ArgInfo::input("v_cache", "the shape of k_cache, d contiguous").of(CACHES),
        ArgInfo::input("k_scales", "the shape of k_cache without d, of 8-bit elements").of(&[DType::F32]).optional(),
        ArgInfo::input("v_scales", "the shape of k_scales").of(&[DType::F32]).optional(),
        LENGTHS,
        PAGE_TABLE,
        SINKS,
        O,
        LSE,
    ],
    params: PARAMS,
    dtypes: DType::FLOATS,
    kernels: &[simple::ATTENTION_DECODE_SIMPLE, mma::ATTENTION_DECODE, combine::ATTENTION_DECODE_COMBINE],
    variants: &[
        Variant {
            name: "simple",
            doc: "a warp a query, any type and alignment: the one to read first, and what is picked where the other does not fit",
            applies: |_, case| case.class != CaseClass::Production,
            launch: |stream, args, params| by_types!(&READ, args, params, |call| call.launch_simple(stream)),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, keys split: f16 and bf16 with rows at multiples of 16 bytes",
            applies: |_, case| fits_tensor_cores(case),
            launch: |stream, args, params| by_types!(&READ, args, params, |call| call.launch_mma(stream)),
        },
    ],
};

static APPEND: OpInfo = OpInfo {
    name: "attention_decode_append",
    bench_name: "attn.decode_append",
    summary: "new keys and values into a cache, and attention over it",
    math: "cache[b, lengths_after[b] − q_len + n] = k[b, n], v[b, n]; o = softmax(q·kᵀ·scale)·v",
    args: &[
        Q,
        ArgInfo::input("k", "[batch, q_len, kv_heads, d], d contiguous"),
        ArgInfo::input("v", "the shape of k, d contiguous"),
        LENGTHS_AFTER,
        PAGE_TABLE,
        SINKS,
        ArgInfo::in_out("k_cache", K_CACHE),
        ArgInfo::in_out("v_cache", "the shape of k_cache, d contiguous"),
        O,
        LSE,
    ],
    params: match PARAMS {
        [_, options @ ..] => options,
        [] => &[],
    },
    variants: &[],
    ..READ
};

/// The tensors whose rows have d elements.
pub(super) const TENSORS: &[&str] = &["q", "k", "v", "k_cache", "v_cache", "o"];

/// The type of a case's cache.
fn cache_dtype(params: &Params, queries: DType) -> Result<DType> {
    match params.get("cache") {
        Ok(ParamValue::Choice(name)) if name != AS_QUERIES => name.parse(),
        _ => Ok(queries),
    }
}

/// Whether the tensor cores' kernels can run the case.
fn fits_tensor_cores(case: &Case) -> bool {
    let bytes_aligned = |name: &&str| {
        let Arrangement { offset, row_pad, .. } = case.arrangement(name);
        offset % 16 == 0 && row_pad % 16 == 0
    };
    let d = case.dims.get("d").unwrap_or(0);
    cache_dtype(&case.params, case.dtype).is_ok_and(|cache| {
        attention::aligned(case, TENSORS)
            && fits_d(cache, d)
            && (!scaled(cache) || ["k_cache", "v_cache"].iter().all(bytes_aligned))
    })
}

/// The call that a launch's tensors describe.
fn call<'a, T: Float, C: CacheElement<T>>(
    info: &'static OpInfo,
    args: &mut Arguments<'a>,
    params: &Params,
) -> Result<Call<'a, T, C>> {
    let positive = |name| params.f32(name).map(|value| (value != 0.0).then_some(value));
    let splits = params.i64("splits")?;
    let options = Decoding {
        left: usize::try_from(params.i64("left")?).ok(),
        scale: positive("scale")?,
        softcap: positive("softcap")?,
        splits: match u32::try_from(splits) {
            Ok(splits) => (splits != 0).then_some(splits),
            Err(_) => return Err(info.param_error("splits", splits, "from 0 to 2^32 - 1")),
        },
        sinks: args.optional_input("sinks")?,
    };
    let tokens = if args.has("k") {
        let new = [args.input("k")?, args.input("v")?];
        Tokens::Append { caches: [args.output("k_cache")?, args.output("v_cache")?], new }
    } else {
        let scales = match (args.optional_input("k_scales")?, args.optional_input("v_scales")?) {
            (Some(k), Some(v)) => Some([k, v]),
            (None, None) => None,
            _ => return Err(info.param_error("k_scales", "one of `k_scales` and `v_scales`", "both or none")),
        };
        let wanted = cache_dtype(params, T::DTYPE)?;
        if wanted != C::DTYPE {
            return Err(info.dtype_error("k_cache", C::DTYPE, &[wanted]));
        }
        Tokens::Read([args.input("k_cache")?, args.input("v_cache")?], scales)
    };
    let (q, lengths, page_table) =
        (args.input("q")?, args.input(tokens.lengths_name())?, args.optional_input("page_table")?);
    Call::new(info, q, tokens, lengths, page_table, &options, args.output("o")?, args.output("lse")?)
}

impl Decode {
    pub(super) fn facts(&self) -> &'static OpInfo {
        self.info
    }

    pub(super) fn name(&self) -> &'static str {
        self.info.name
    }

    pub(super) fn appends(&self) -> bool {
        std::ptr::eq(self.info, &APPEND)
    }

    pub(super) fn lengths(&self) -> &'static str {
        lengths_name(self.appends())
    }
}

impl Operator for Decode {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = self.production();
        cases.extend(self.small());
        if !self.appends() {
            cases.extend(self.quantized());
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [b, hq, hkv, q, d, size] = case.dims(["b", "hq", "hkv", "q", "d", "size"])?;
        let pages = case.dims.get("pages").unwrap_or(1);
        let lengths = Values::Integers { low: 0, high: (pages * size) as i64 };
        let cache = cache_dtype(&case.params, case.dtype)?;
        let values = match cache {
            DType::I8 => Values::Integers { low: -127, high: 127 },
            DType::F8E4M3 => Values::Normal { std: 70.0 },
            _ => Values::NORMAL,
        };
        let caches = ["k_cache", "v_cache"].map(|name| InputSpec::new(name, cache, [b * pages, size, hkv, d], values));
        // With these scales, the dequantized 8-bit elements have a deviation of about one.
        let scales = ["k_scales", "v_scales"].map(|name| {
            InputSpec::new(name, DType::F32, [b * pages, size, hkv], Values::Uniform { low: 0.005, high: 0.02 })
        });
        let new = ["k", "v"].map(|name| InputSpec::normal(name, case.dtype, [b, q, hkv, d]));
        let numbers = [
            InputSpec::new(self.lengths(), DType::I32, [b], lengths),
            InputSpec::new("page_table", DType::I32, [b, pages], Values::Permutation),
            InputSpec::new("sinks", DType::F32, [hq], Values::Uniform { low: 0.0, high: 4.0 }),
        ];
        let numbers = numbers.into_iter().filter(|spec| case.has(spec.name));
        let mut specs = vec![InputSpec::normal("q", case.dtype, [b, q, hq, d])];
        if self.appends() {
            specs.extend(new.into_iter().chain(numbers).chain(caches));
        } else {
            let scales = scales.into_iter().filter(|_| scaled(cache));
            specs.extend(caches.into_iter().chain(scales).chain(numbers));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let (q, cache) = (inputs.get("q")?, inputs.get("k_cache")?);
        let [batch, q_len, heads, d] = q.dims()?;
        let [_, _, kv_heads, _] = cache.dims()?;
        if (heads == 0) != (kv_heads == 0) || !heads.is_multiple_of(kv_heads.max(1)) {
            let wanted = format!("a number of heads that divides the {heads} of `q`");
            return Err(self.info.shape_error("k_cache", cache.shape(), wanted));
        }
        CacheShape::check_metas(inputs, [batch, kv_heads, d], self.lengths())?;
        let wanted = cache_dtype(params, q.dtype())?;
        for name in ["k_cache", "v_cache"] {
            let found = inputs.get(name)?.dtype();
            if found != wanted {
                return Err(self.info.dtype_error(name, found, &[wanted]));
            }
        }
        inputs.optional("sinks").map_or(Ok(()), |sinks| sinks.has_shape(&[heads]))?;
        for new in ["k", "v"].into_iter().filter_map(|name| inputs.optional(name)) {
            new.has_shape(&[batch, q_len, kv_heads, d])?;
        }
        Ok(vec![TensorMeta::new("o", q.dtype(), q.shape()), TensorMeta::new("lse", DType::F32, [batch, heads, q_len])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        by_types!(self.info, args, params, |call| call.launch(stream))
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let exact = Exact::new(inputs, params)?;
        Ok(match output {
            "k_cache" => exact.cache(0, rows),
            "v_cache" => exact.cache(1, rows),
            "lse" => rows.iter().map(|row| exact.lse(*row)).collect(),
            _ => reference::by_row(rows, |row| exact.output(row)),
        })
    }

    fn row_len(&self, output: &str, shape: &[usize]) -> usize {
        if output == "lse" { 1 } else { reference::row_len(shape) }
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        if output.ends_with("cache") {
            return Ok(Tolerance::EXACT);
        }
        // Logsumexps of warps, and then of pieces, are rounded before they serve as exponents: at most four times the deviation of scores
        // and the logarithm of 2¹⁷ keys.
        let size = attention::size_of_values(case);
        // The scale of a value makes its weight a bf16 number, whatever the type of the queries.
        let of_bf16 = case.dtype != DType::F32 && scaled(cache_dtype(&case.params, case.dtype)?);
        let weights = if of_bf16 { DType::BF16 } else { case.dtype };
        let merging = 4.0 * roundoff(DType::F32) * (4.0 * size * size + 12.0);
        let tolerance = attention::tolerance(case, output, weights, merging)?;
        // Where the scales of values may have any magnitude, a query sees a single key, and the rounding of its weight is
        // relative to the result.
        let rel = if case.values_of("v_scales").is_some() { roundoff(weights) } else { 0.0 };
        Ok(Tolerance { rel: tolerance.rel + rel, ..tolerance })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [b, hq, hkv, q, d, size] = case.dims(["b", "hq", "hkv", "q", "d", "size"])?;
        let keys = b * case.dims.get("pages").unwrap_or(1) * size * hkv;
        let cache = cache_dtype(&case.params, case.dtype)?;
        let key = d * cache.size() + if scaled(cache) { size_of::<f32>() } else { 0 };
        // q and o are four orders of magnitude smaller: the rows of other libraries count K and V alone.
        let queries = if case.class == CaseClass::Production { 0 } else { b * q * hq };
        Ok(Cost::memory((2 * (keys * key + queries * d * case.dtype.size())) as u64))
    }
}
