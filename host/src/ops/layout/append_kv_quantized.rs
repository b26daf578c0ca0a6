//! Appends new keys and values, quantized, to a cache, contiguous or paged.

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::layout::append_kv_quantized as gk;

use super::append_kv::{self, LENGTHS_BEFORE, MAX_PAGES, Sizes, lengths, tokens_of};
use crate::dispatch;
use crate::f8e4m3;
use crate::ops::elementwise::grid;
use crate::ops::kv_cache::CacheShape;
use crate::ops::model::*;
use crate::ops::quant::{TINY, max_nan, nearest, rounded, scale_of, scale_of_block};
use crate::runtime::dtype::{DType, Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// A cache with 8-bit elements to which new keys and values are written: `Q` is `i8` or [`struct@f8e4m3`].
///
/// `k` and `v` are `[batch, max_len, kv_heads, d]` or, with a page table, `[batch, max_pages]`,
/// `[pages, page_size, kv_heads, d]`. Their scales have the same shape without d, with any strides. The last dimension of `k`
/// and `v` is contiguous, the others may have any strides; `lengths_before`, `[batch]`, and the page table are contiguous.
#[derive(Debug)]
pub struct QuantizedCacheMut<'a, Q> {
    /// Keys.
    pub k: ViewMut<'a, Q>,
    /// Values.
    pub v: ViewMut<'a, Q>,
    /// The scales of keys and of values, by which elements are multiplied.
    pub scales: [ViewMut<'a, f32>; 2],
    /// The number of keys of each sequence without the new ones.
    pub lengths_before: View<'a, i32>,
    /// The page table of a paged cache.
    pub page_table: Option<View<'a, i32>>,
}

/// An element of a [`QuantizedCacheMut`].
pub trait QuantizedElement: Dtype + gk::AppendKvQuantizedQDtype {}

impl QuantizedElement for i8 {}
impl QuantizedElement for f8e4m3 {}

/// Writes `k` and `v`, `[batch, new, kv_heads, d]`, in 8 bits to the positions from lengths_before\[b\] on of `cache`, with a scale
/// for each token and head: for `i8` scale = max |x| / 127 and q = ⌊x / scale⌉, for [`struct@f8e4m3`] the same with 448.
///
/// `lengths_before` counts the keys of each sequence without the new ones, and is not changed. The lengths
/// of [`attention_decode`](fn@crate::ops::attention_decode) include the new ones.
///
/// Arithmetic is in f32, rounded to nearest, ties to even. A scale is at least the smallest normal number, which is the scale
/// of a vector of zeros; the scale of a vector with NaN or an infinity is NaN or infinite. Tokens without a position in the
/// cache are not written: all tokens of a sequence with a negative length, tokens beyond its last page, and those whose page
/// number is not a page of the cache. No two sequences may write to the same page. The last dimension of `k` and `v` is
/// contiguous. The work is queued on `stream`; [`attention_decode`](fn@crate::ops::attention_decode) reads the resulting cache.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if a last dimension, `lengths_before` or
/// the page table are not contiguous, [`Error::TooLarge`](crate::Error::TooLarge) if a size is 2³² or more.
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, QuantizedCacheMut}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let new = Tensor::from_slice(&stream, [1, 1, 1, 2], &[254.0f32, -100.0])?;
/// let lengths_before = Tensor::from_slice(&stream, [1], &[1])?;
/// let [mut k, mut v] = [Tensor::<i8>::zeros(&stream, [1, 3, 1, 2])?, Tensor::zeros(&stream, [1, 3, 1, 2])?];
/// let [mut of_k, mut of_v] = [Tensor::zeros(&stream, [1, 3, 1])?, Tensor::zeros(&stream, [1, 3, 1])?];
/// let cache = QuantizedCacheMut {
///     k: k.view_mut(),
///     v: v.view_mut(),
///     scales: [of_k.view_mut(), of_v.view_mut()],
///     lengths_before: lengths_before.view(),
///     page_table: None,
/// };
/// ops::append_kv_quantized(&stream, &new, &new, cache)?;
/// assert_eq!(k.to_vec(&stream)?, [0, 0, 127, -50, 0, 0]);
/// assert_eq!(of_k.to_vec(&stream)?, [0.0, 2.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub fn append_kv_quantized<'a, T: Float, Q: QuantizedElement>(
    stream: &Stream,
    k: impl Into<View<'a, T>>,
    v: impl Into<View<'a, T>>,
    cache: QuantizedCacheMut<'_, Q>,
) -> Result<()> {
    let (k, v): (View<'a, T>, View<'a, T>) = (k.into(), v.into());
    let QuantizedCacheMut { k: k_cache, v: v_cache, scales: [k_scales, v_scales], lengths_before, page_table } = &cache;
    stream.require_devices(
        INFO.name,
        &[
            ("k", &k),
            ("v", &v),
            ("lengths_before", lengths_before),
            ("page_table", page_table),
            ("k_cache", k_cache),
            ("v_cache", v_cache),
            ("k_scales", k_scales),
            ("v_scales", v_scales),
        ],
    )?;
    let shape = append_kv::check(&INFO, [k, v], [k_cache.as_view(), v_cache.as_view()], *lengths_before, *page_table)?;
    shape.require_scales(&INFO, [k_scales.as_view(), v_scales.as_view()])?;
    let vectors = append_kv::vectors(k, shape);
    let Some(blocks) = grid(&INFO, "k", vectors, gk::VECTORS as usize)? else { return Ok(()) };
    let sizes = kernel_sizes([k, v], &cache, Sizes::of(&INFO, k, k_cache.as_view(), shape)?);
    launch(stream, blocks, [k, v], cache, sizes)
}

/// The sizes and strides in the form that the kernel takes.
fn kernel_sizes<T: Float, Q>(new: [View<'_, T>; 2], cache: &QuantizedCacheMut<'_, Q>, sizes: Sizes) -> gk::Sizes {
    let Sizes { vectors, tokens, heads, d, pages, page_size, max_pages } = sizes;
    let caches = [&cache.k, &cache.v];
    let lanes = gpu_kernels::lanes::<T>();
    let packed = d > 0
        && (d as usize).is_multiple_of(lanes)
        && new.iter().all(|x| x.rows_aligned(16))
        && caches.iter().all(|x| x.rows_aligned(lanes));
    let strides = |strides: &[usize]| [0, 1, 2].map(|i: usize| strides[i] as u64);
    gk::Sizes {
        new: new.map(|x| strides(x.strides())),
        caches: caches.map(|x| strides(x.strides())),
        scales: [0, 1].map(|i: usize| strides(cache.scales[i].strides())),
        vectors,
        tokens,
        heads,
        d,
        pages: [page_size, pages, max_pages],
        packed: u32::from(packed),
    }
}

/// Launches a checked call.
fn launch<T: Float, Q: QuantizedElement>(
    stream: &Stream,
    blocks: u32,
    [k, v]: [View<'_, T>; 2],
    cache: QuantizedCacheMut<'_, Q>,
    sizes: gk::Sizes,
) -> Result<()> {
    let QuantizedCacheMut { k: mut k_cache, v: mut v_cache, scales, lengths_before, page_table } = cache;
    let [mut k_scales, mut v_scales] = scales;
    let args = (
        k.ptr(stream)?,
        v.ptr(stream)?,
        k_cache.ptr_mut(stream)?,
        v_cache.ptr_mut(stream)?,
        k_scales.ptr_mut(stream)?,
        v_scales.ptr_mut(stream)?,
        lengths_before.ptr(stream)?,
        page_table.map_or(Ok(DevicePtr::null()), |table| table.ptr(stream))?,
        sizes,
    );
    // SAFETY: the tensors are live and hold these sizes at these strides, what is written is borrowed mutably, the kernel bounds lengths and pages,
    // and packs are taken only where they are aligned and whole.
    unsafe { stream.launch::<gk::AppendKvQuantized<T, Q>>(blocks, args) }
}

/// The operator's entry in the registry.
pub struct AppendKvQuantized;

/// The element types of a cache.
const CACHES: &[DType] = &[DType::I8, DType::F8E4M3];

static INFO: OpInfo = OpInfo {
    name: "append_kv_quantized",
    bench_name: "cache.append_kv_quantized",
    summary: "new keys and values in 8 bits behind those in a cache, contiguous or paged",
    math: "cache[page, p mod page_size] = ⌊new[b, n] / scale⌉, scale = max |new[b, n]| / 127 or 448, page = b or table[b, p / page_size], p = lengths_before[b] + n",
    args: &[
        ArgInfo::input("k", "[batch, new, kv_heads, d], the last dimension contiguous"),
        ArgInfo::input("v", "the shape of k, the last dimension contiguous"),
        LENGTHS_BEFORE,
        ArgInfo::input("page_table", "[batch, max_pages], contiguous").of(&[DType::I32]).optional(),
        ArgInfo::in_out("k_cache", "[batch, max_len, kv_heads, d] or [pages, page_size, kv_heads, d], d contiguous")
            .of(CACHES),
        ArgInfo::in_out("v_cache", "the shape of k_cache, d contiguous").of(CACHES),
        ArgInfo::in_out("k_scales", "the shape of k_cache without d").of(&[DType::F32]),
        ArgInfo::in_out("v_scales", "the shape of k_scales").of(&[DType::F32]),
    ],
    params: &[ParamInfo::choice("cache", "int8", &["int8", "float8_e4m3fn"], "the type of the cache")],
    dtypes: DType::FLOATS,
    kernels: &[gk::APPEND_KV_QUANTIZED],
    variants: &[],
};

/// The type of the cache.
fn cache_dtype(params: &Params) -> Result<DType> {
    params.choice("cache")?.parse()
}

impl Operator for AppendKvQuantized {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    /// The case's `pages` are the pages of a sequence.
    fn cases(&self) -> Vec<Case> {
        let dims = |batch, new, heads, d, size, pages| {
            [("batch", batch), ("new", new), ("kv_heads", heads), ("d", d), ("size", size), ("pages", pages)]
        };
        let mut cases = Vec::new();
        for cache in ["int8", "float8_e4m3fn"] {
            let with = |case: Case| {
                let paged = case.dims.get("pages").is_some_and(|pages| pages > 1);
                let case = case.param("cache", ParamValue::Choice(cache));
                case.only(if paged { &["page_table"] } else { &[] })
            };
            let name = format!("prefill 8x2048 of 4096 bfloat16 to {cache}");
            cases.push(with(Case::production(&INFO, name, DType::BF16, dims(8, 2048, 8, 128, 4096, 1))));
            for &dtype in INFO.dtypes {
                let pads = |case: Case| {
                    case.arrange("k", Arrangement::DENSE.row_pad(16))
                        .arrange("v", Arrangement::DENSE.row_pad(8))
                        .arrange("k_cache", Arrangement::DENSE.row_pad(8))
                        .arrange("v_cache", Arrangement::DENSE.row_pad(24))
                        .arrange("k_scales", Arrangement::DENSE.row_pad(1))
                        .arrange("v_scales", Arrangement::DENSE.order(&[0, 2, 1]).row_pad(2))
                };
                let odd = |sizes| with(Case::odd(&INFO, dtype, sizes));
                let boundary = |sizes| with(Case::boundary(&INFO, dtype, sizes));
                cases.extend([
                    odd(dims(3, 5, 3, 32, 16, 1)),
                    odd(dims(3, 4, 2, 13, 5, MAX_PAGES)),
                    odd(dims(1, 3, 2, 200, 3, 1)),
                    pads(odd(dims(2, 4, 2, 16, 7, MAX_PAGES))),
                    with(Case::tiny(&INFO, dtype, dims(1, 1, 1, 1, 1, 1))),
                    with(Case::tiny(&INFO, dtype, dims(1, 2, 1, 8, 3, 1))).fill(Values::Constant(0.0)),
                    boundary(dims(40, 2, 1, 16, 9, 1)).values("lengths_before", Values::Hostile { bound: 9 }),
                    boundary(dims(9, 2, 1, 3, 9, 1)).values("k", Values::Specials).values("v", Values::Specials),
                    boundary(dims(2, 3, 1, 16, 9, 1)).values("k", Values::Normal { std: TINY }),
                    boundary(dims(2, 2, 1, 16, 9, 1)).arrange("v", Arrangement::DENSE.order(&[1, 0, 2, 3])),
                    boundary(dims(2, 2, 1, 16, 9, 1)).arrange("v_cache", Arrangement::DENSE.offset(1)),
                    with(Case::empty(&INFO, dtype, dims(2, 0, 1, 8, 4, 1))),
                    with(Case::empty(&INFO, dtype, dims(2, 1, 1, 8, 0, 1))),
                    with(Case::empty(&INFO, dtype, dims(2, 1, 1, 0, 4, 1))),
                ]);
                // Fewer tokens than a page has, so that a page that is named twice gets no position twice.
                for length in [0.0, 11.0] {
                    let hostile = Values::Hostile { bound: MAX_PAGES as i64 };
                    let case = boundary(dims(1, 8, 2, 16, 8, MAX_PAGES)).values("page_table", hostile);
                    let mut case = case.values("lengths_before", Values::Constant(length));
                    case.name = format!("{} {length}", case.name);
                    cases.push(case);
                }
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [batch, new, heads, d, size, pages] = case.dims(["batch", "new", "kv_heads", "d", "size", "pages"])?;
        let lengths = lengths(case, pages * size, new);
        let cache = cache_dtype(&case.params)?;
        let rows = [pages * batch, size, heads];
        let mut specs = vec![
            InputSpec::normal("k", case.dtype, [batch, new, heads, d]),
            InputSpec::normal("v", case.dtype, [batch, new, heads, d]),
            InputSpec::new("lengths_before", DType::I32, [batch], lengths),
        ];
        if case.has("page_table") {
            specs.push(InputSpec::new("page_table", DType::I32, [batch, pages], Values::Permutation));
        }
        let values = Values::Integers { low: -100, high: 100 };
        let [a, b, c] = rows;
        specs.extend(["k_cache", "v_cache"].map(|name| InputSpec::new(name, cache, [a, b, c, d], values)));
        specs.extend(["k_scales", "v_scales"].map(|name| InputSpec::normal(name, DType::F32, rows)));
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let k = inputs.get("k")?;
        let [batch, _, heads, d] = k.dims()?;
        inputs.get("v")?.has_shape(k.shape())?;
        CacheShape::check_metas(inputs, [batch, heads, d], LENGTHS_BEFORE.name)?;
        let wanted = cache_dtype(params)?;
        for name in ["k_cache", "v_cache"] {
            let found = inputs.get(name)?.dtype();
            if found != wanted {
                return Err(INFO.dtype_error(name, found, &[wanted]));
            }
        }
        Ok(Vec::new())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (found, wanted) = (args.dtype("k_cache")?, cache_dtype(params)?);
        if found != wanted {
            return Err(INFO.dtype_error("k_cache", found, &[wanted]));
        }
        dispatch!(INFO, args.dtype("k")?, float => |T| {
            dispatch!(INFO, found, [i8, f8e4m3] => |Q| {
                let cache = QuantizedCacheMut::<Q> {
                    k: args.output("k_cache")?,
                    v: args.output("v_cache")?,
                    scales: [args.output("k_scales")?, args.output("v_scales")?],
                    lengths_before: args.input("lengths_before")?,
                    page_table: args.optional_input("page_table")?,
                };
                append_kv_quantized::<T, Q>(stream, args.input("k")?, args.input("v")?, cache)
            })
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let new = inputs.get(if output.starts_with('k') { "k" } else { "v" })?;
        let old = inputs.get(output)?;
        let [pages, size, heads]: [usize; 3] = [0, 1, 2].map(|i| inputs.get("k_scales").map_or(0, |s| s.shape()[i]));
        let tokens_of = tokens_of(inputs, [new.shape()[1], pages, size])?;
        let cache = cache_dtype(params)?;
        // The scale of a vector, and its elements.
        let quantized = |row: usize| {
            let vector = reference::row(new, row);
            let max = vector.iter().map(|x| x.abs()).fold(0.0, max_nan);
            if cache == DType::I8 {
                let (scale, inverse) = scale_of(max as f32, 127.0);
                let elements = vector.iter().map(|x| rounded(*x, inverse, 0.0)).collect();
                return (f64::from(scale), elements);
            }
            let (scale, inverse) = scale_of_block(DType::F32, cache, max);
            let elements: Vec<f64> = vector.iter().map(|x| nearest(cache, f64::from(*x as f32 * inverse))).collect();
            (scale, elements)
        };
        let of_scales = output.ends_with("scales");
        Ok(rows
            .iter()
            .flat_map(|row| {
                // Scales have a row for each position, elements one for each position and head.
                let place = if of_scales { *row } else { row / heads };
                match tokens_of.get(&place) {
                    None => reference::row(old, *row),
                    Some(token) if of_scales => (0..heads).map(|head| quantized(token * heads + head).0).collect(),
                    Some(token) => quantized(token * heads + row % heads).1,
                }
            })
            .collect())
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [batch, new, kv_heads, d] = case.dims(["batch", "new", "kv_heads", "d"])?;
        // The new tokens, once in their own type and once in 8 bits, for K and V, with the scales and the lengths.
        let vector = d * (case.dtype.size() + 1) + size_of::<f32>();
        Ok(Cost::memory((batch * (2 * new * kv_heads * vector + 4)) as u64))
    }
}
