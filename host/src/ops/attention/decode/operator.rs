//! Decoding in the registry.

use gpu_kernels::ops::attention::decode::{combine, mma, simple};

use super::Decoding;
use super::call::{Call, Tokens};
use super::exact::Exact;
use crate::dispatch;
use crate::ops::attention;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// A decoding operator in the registry.
pub struct Decode {
    info: &'static OpInfo,
}

/// [`attention_decode`](super::attention_decode) in the registry.
pub static ATTENTION_DECODE: Decode = Decode { info: &READ };

/// [`attention_decode_append`](super::attention_decode_append) in the registry.
pub static ATTENTION_DECODE_APPEND: Decode = Decode { info: &APPEND };

const Q: ArgInfo = ArgInfo::input("q", "[batch, q_len, heads, d], d contiguous");
const LENGTHS: ArgInfo = ArgInfo::input("lengths", "[batch], keys of each sequence").of(&[DType::I32]);
const PAGE_TABLE: ArgInfo = ArgInfo::input("page_table", "[batch, max_pages], contiguous").of(&[DType::I32]).optional();
const O: ArgInfo = ArgInfo::output("o", "[batch, q_len, heads, d], d contiguous");
const LSE: ArgInfo = ArgInfo::output("lse", "[batch, heads, q_len], logsumexp of the scores").of(&[DType::F32]);
const K_CACHE: &str = "[batch, max_len, kv_heads, d] or [pages, page_size, kv_heads, d], d contiguous";

static READ: OpInfo = OpInfo {
    name: "attention_decode",
    bench_name: "attn.decode",
    summary: "attention of new queries over a cache",
    math: "o = softmax(q·kᵀ·scale)·v over the keys in a cache",
    args: &[
        Q,
        ArgInfo::input("k_cache", K_CACHE),
        ArgInfo::input("v_cache", "the shape of k_cache, d contiguous"),
        LENGTHS,
        PAGE_TABLE,
        O,
        LSE,
    ],
    params: &[
        ParamInfo::int("left", -1, "keys before its own that a query sees, all if negative"),
        ParamInfo::float("scale", 0.0, "factor of the scores, 1/√d if 0"),
        ParamInfo::float("softcap", 0.0, "scores x become softcap·tanh(x / softcap), as they are if 0"),
        ParamInfo::int("splits", 0, "pieces that keys are divided into at most, as many as fill the device if 0"),
    ],
    dtypes: DType::FLOATS,
    kernels: &[simple::ATTENTION_DECODE_SIMPLE, mma::ATTENTION_DECODE, combine::ATTENTION_DECODE_COMBINE],
    variants: &[
        Variant {
            name: "simple",
            doc: "a warp a query, any type and alignment: the one to read first, and what is picked where the other does not fit",
            applies: |_, case| case.class != CaseClass::Production,
            launch: |stream, args, params| dispatch!(READ, args.dtype("q")?, float => |T| call::<T>(&READ, args, params)?.launch_simple(stream)),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, keys split: f16 and bf16 with rows at multiples of 16 bytes",
            applies: |_, case| attention::aligned(case, TENSORS),
            launch: |stream, args, params| dispatch!(READ, args.dtype("q")?, float => |T| call::<T>(&READ, args, params)?.launch_mma(stream)),
        },
    ],
};

static APPEND: OpInfo = OpInfo {
    name: "attention_decode_append",
    bench_name: "attn.decode_append",
    summary: "new keys and values into a cache, and attention over it",
    math: "cache[b, lengths[b] − q_len + n] = k[b, n], v[b, n]; o = softmax(q·kᵀ·scale)·v",
    args: &[
        Q,
        ArgInfo::input("k", "[batch, q_len, kv_heads, d], d contiguous"),
        ArgInfo::input("v", "the shape of k, d contiguous"),
        LENGTHS,
        PAGE_TABLE,
        ArgInfo::in_out("k_cache", K_CACHE),
        ArgInfo::in_out("v_cache", "the shape of k_cache, d contiguous"),
        O,
        LSE,
    ],
    variants: &[],
    ..READ
};

/// The tensors with rows of d.
const TENSORS: &[&str] = &["q", "k", "v", "k_cache", "v_cache", "o"];

/// The call that the tensors of a launch amount to.
fn call<'a, T: Float>(info: &'static OpInfo, args: &mut Arguments<'a>, params: &Params) -> Result<Call<'a, T>> {
    let positive = |name| params.f32(name).map(|value| (value != 0.0).then_some(value));
    let splits = params.i64("splits")?;
    let options = Decoding {
        left: usize::try_from(params.i64("left")?).ok(),
        scale: positive("scale")?,
        softcap: positive("softcap")?,
        splits: match u32::try_from(splits) {
            Ok(splits) => (splits != 0).then_some(splits),
            Err(_) => return Err(info.param_error("splits", splits, "0 or more")),
        },
    };
    let tokens = if args.has("k") {
        let new = [args.input("k")?, args.input("v")?];
        Tokens::Append { caches: [args.output("k_cache")?, args.output("v_cache")?], new }
    } else {
        Tokens::Read([args.input("k_cache")?, args.input("v_cache")?])
    };
    let (q, lengths, page_table) = (args.input("q")?, args.input("lengths")?, args.optional_input("page_table")?);
    Call::new(info, q, tokens, lengths, page_table, &options, args.output("o")?, args.output("lse")?)
}

/// Sequences, heads of q, heads of the cache, queries, d, and positions of a page; pages of a sequence where there are any.
fn dims(sizes: [usize; 6], pages: usize) -> Dims {
    let [b, hq, hkv, q, d, size] = sizes;
    let mut dims = Dims::from([("b", b), ("hq", hq), ("hkv", hkv), ("q", q), ("d", d), ("size", size)]);
    if pages > 0 {
        dims.push("pages", pages);
    }
    dims
}

impl Decode {
    pub(super) fn facts(&self) -> &'static OpInfo {
        self.info
    }

    pub(super) fn name(&self) -> &'static str {
        self.info.name
    }

    fn appends(&self) -> bool {
        std::ptr::eq(self.info, &APPEND)
    }

    fn production(&self) -> Vec<Case> {
        let case = |name: String, sizes, pages: usize, keys: usize| {
            let case = Case::production(self.info, name, DType::BF16, dims(sizes, pages));
            let case = case.only(if pages > 0 { &["page_table"] } else { &[] });
            case.values("lengths", Values::Constant(keys as f64))
        };
        let name = |b, keys, more: &str| format!("b={b} hq=32 hkv=8 ctx={keys} d=128{more} bf16");
        let mut cases: Vec<_> = [(16, 8192), (64, 4096), (1, 131_072)]
            .into_iter()
            .map(|(b, keys)| case(name(b, keys, ""), [b, 32, 8, 1, 128, keys], 0, keys))
            .collect();
        if !self.appends() {
            cases.push(case(name(16, 8192, " q=4"), [16, 32, 8, 4, 128, 8192], 0, 8192));
            cases.push(case(name(16, 8192, " pages of 16"), [16, 32, 8, 1, 128, 16], 512, 8192));
        }
        cases
    }

    /// Small cases: every kernel, every option, both sides of each limit.
    fn small(&self) -> Vec<Case> {
        let (f16, bf16, f32) = (DType::F16, DType::BF16, DType::F32);
        let odd = |dtype, sizes| Case::odd(self.info, dtype, dims(sizes, 0)).only(&[]);
        let paged = |dtype, sizes, pages| Case::odd(self.info, dtype, dims(sizes, pages)).only(&["page_table"]);
        let length = |case: Case, keys: usize| case.values("lengths", Values::Constant(keys as f64));
        let tensors = &TENSORS[if self.appends() { 0 } else { 3 }..];
        let padded = |case: Case, unit: usize| {
            let rows = ["q"].iter().chain(tensors).zip(1..);
            rows.fold(case, |case, (x, i)| case.arrange(x, Arrangement::DENSE.row_pad(i * unit)))
        };
        let mut cases = vec![
            // Groups of 4, 1, 8 and 16 queries; one, two and three products of rows; pieces of the keys.
            odd(bf16, [3, 8, 2, 1, 128, 150]),
            odd(bf16, [2, 3, 3, 1, 64, 140]),
            odd(f16, [2, 8, 1, 3, 128, 70]),
            odd(bf16, [1, 3, 1, 16, 64, 100]),
            length(odd(bf16, [1, 4, 1, 1, 64, 600]), 577),
            length(odd(f16, [1, 4, 1, 2, 128, 300]).param("splits", 2), 290),
            length(odd(f16, [1, 2, 1, 1, 64, 300]).param("splits", 1), 300),
            odd(bf16, [1, 2, 1, 2, 256, 150]),
            odd(f16, [1, 18, 1, 1, 64, 40]),
            // d between what kernels are built for.
            odd(f16, [1, 2, 1, 1, 40, 60]),
            odd(bf16, [1, 2, 2, 2, 96, 150]),
            odd(f16, [1, 2, 1, 1, 136, 70]),
            // Options.
            odd(bf16, [2, 2, 1, 3, 64, 260]).param("left", 40),
            length(odd(f16, [1, 1, 1, 5, 64, 400]).param("left", 150).param("splits", 2), 390),
            odd(f16, [2, 2, 2, 2, 64, 30]).param("left", 0),
            odd(bf16, [2, 2, 1, 1, 64, 70]).param("softcap", 2.0).param("scale", 0.3),
            // Pages.
            paged(bf16, [3, 4, 2, 2, 64, 16], 6),
            length(paged(f16, [1, 2, 1, 1, 128, 10], 40).param("splits", 3), 385),
            paged(f32, [2, 2, 1, 2, 12, 5], 3),
            // Lengths and pages that are none; fewer keys than queries; none.
            odd(bf16, [9, 1, 1, 2, 64, 20]).values("lengths", Values::Hostile { bound: 21 }),
            odd(f32, [9, 1, 1, 2, 8, 6]).values("lengths", Values::Hostile { bound: 7 }),
            length(odd(f16, [1, 2, 1, 5, 64, 20]), 3),
            length(odd(f16, [2, 2, 1, 1, 64, 300]).param("splits", 2), 0),
            // Memory.
            odd(f32, [2, 4, 2, 3, 20, 30]),
            odd(f32, [1, 2, 1, 1, 8, 20]).param("softcap", 1.5).param("left", 7),
            padded(odd(bf16, [2, 4, 2, 2, 64, 30]), 8),
            padded(odd(bf16, [2, 4, 2, 2, 24, 20]), 1),
            odd(bf16, [1, 2, 1, 1, 24, 20]).offset(1),
            odd(f16, [1, 2, 1, 1, 20, 10]),
            odd(bf16, [2, 4, 2, 2, 64, 30]).arrange("k_cache", Arrangement::DENSE.order(&[0, 2, 1, 3])),
            odd(f16, [1, 1, 1, 2, 48, 70]).fill(Values::Normal { std: 8.0 }),
            Case::boundary(self.info, bf16, dims([1, 4, 1, 4, 128, 128], 0)).only(&[]),
            Case::boundary(self.info, bf16, dims([1, 17, 1, 1, 128, 64], 0)).only(&[]),
        ];
        // A page that is named twice must not get two tokens: those of one sequence, fewer than a page has.
        let hostile = |sizes, keys| {
            let case = paged(bf16, sizes, 20).values("page_table", Values::Hostile { bound: 20 });
            length(case, keys)
        };
        if self.appends() {
            // Only the last page is written to: nobody reads a key there before it is new.
            cases.extend([length(
                paged(bf16, [1, 2, 1, 8, 64, 8], 1).values("page_table", Values::Hostile { bound: 1 }),
                8,
            )]);
        } else {
            cases.extend([hostile([2, 2, 1, 2, 64, 8], 155), hostile([1, 2, 1, 1, 20, 8], 60)]);
        }
        // Every kernel of the tensor cores goes round its ring.
        for (d, heads) in [(64, 2), (64, 20), (128, 3), (256, 1)] {
            let case = |dtype| length(odd(dtype, [1, heads, 1, 1, d, 330]).param("splits", 1), 325);
            cases.extend([f16, bf16].map(case));
        }
        for &dtype in self.info.dtypes {
            cases.extend([
                Case::tiny(self.info, dtype, dims([1, 1, 1, 1, 8, 1], 0)).only(&[]),
                Case::empty(self.info, dtype, dims([2, 2, 1, 0, 8, 4], 0)).only(&[]),
                Case::empty(self.info, dtype, dims([2, 2, 1, 2, 8, 0], 0)).only(&[]),
            ]);
        }
        cases
    }
}

impl Operator for Decode {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = self.production();
        cases.extend(self.small());
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [b, hq, hkv, q, d, size] = case.dims(["b", "hq", "hkv", "q", "d", "size"])?;
        let pages = case.dims.get("pages").unwrap_or(1);
        let lengths = Values::Integers { low: 0, high: (pages * size) as i64 };
        let caches = ["k_cache", "v_cache"].map(|name| InputSpec::normal(name, case.dtype, [b * pages, size, hkv, d]));
        let new = ["k", "v"].map(|name| InputSpec::normal(name, case.dtype, [b, q, hkv, d]));
        let numbers = [
            InputSpec::new("lengths", DType::I32, [b], lengths),
            InputSpec::new("page_table", DType::I32, [b, pages], Values::Permutation),
        ];
        let numbers = numbers.into_iter().filter(|spec| case.has(spec.name));
        let mut specs = vec![InputSpec::normal("q", case.dtype, [b, q, hq, d])];
        if self.appends() {
            specs.extend(new.into_iter().chain(numbers).chain(caches));
        } else {
            specs.extend(caches.into_iter().chain(numbers));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (q, cache) = (inputs.get("q")?, inputs.get("k_cache")?);
        let [batch, q_len, heads, d] = q.dims()?;
        let [pages, size, kv_heads, _] = cache.dims()?;
        if (heads == 0) != (kv_heads == 0) || !heads.is_multiple_of(kv_heads.max(1)) {
            let wanted = format!("a number of heads that divides the {heads} of `q`");
            return Err(self.info.shape_error("k_cache", cache.shape(), wanted));
        }
        let rows = match inputs.optional("page_table") {
            Some(table) => {
                let [_, max_pages] = table.dims()?;
                table.has_shape(&[batch, max_pages])?;
                pages
            }
            None => batch,
        };
        cache.has_shape(&[rows, size, kv_heads, d])?;
        inputs.get("v_cache")?.has_shape(cache.shape())?;
        inputs.get("lengths")?.has_shape(&[batch])?;
        for new in ["k", "v"].into_iter().filter_map(|name| inputs.optional(name)) {
            new.has_shape(&[batch, q_len, kv_heads, d])?;
        }
        Ok(vec![TensorMeta::new("o", q.dtype(), q.shape()), TensorMeta::new("lse", DType::F32, [batch, heads, q_len])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        dispatch!(self.info, args.dtype("q")?, float => |T| call::<T>(self.info, args, params)?.launch(stream))
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
        attention::tolerance(case, output, 4.0 * roundoff(DType::F32) * (4.0 * size * size + 12.0))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [b, hq, hkv, q, d, size] = case.dims(["b", "hq", "hkv", "q", "d", "size"])?;
        let keys = b * case.dims.get("pages").unwrap_or(1) * size * hkv;
        // q and o are four orders of magnitude less: other libraries' rows count K and V alone.
        let queries = if case.class == CaseClass::Production { 0 } else { b * q * hq };
        Ok(Cost::memory((2 * (keys + queries) * d * case.dtype.size()) as u64))
    }
}
