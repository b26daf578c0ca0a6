//! Appends new keys and values to a cache, contiguous or paged.

use std::collections::HashMap;

use cuda_std::launch::{DevicePtr, Dim3};
use gpu_kernels::ops::layout::append_kv as gk;

use super::{Runs, by_word};
use crate::dispatch;
use crate::ops::kv_cache::CacheShape;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Writes `k` and `v`, `[batch, new, kv_heads, d]`, to the positions from lengths_before\[b\] on of `k_cache` and
/// `v_cache`, `[batch, max_len, kv_heads, d]`.
///
/// `lengths_before` counts the keys of each sequence without the new ones, and is not changed. The lengths of
/// [`attention_decode`](fn@crate::ops::attention_decode) and the `lengths_after` of
/// [`attention_decode_append`](fn@crate::ops::attention_decode_append) include the new ones. Tokens without a position in the
/// cache are not written: all tokens of a sequence with a negative length, and tokens at max_len and beyond. The last
/// dimensions are contiguous, the others may have any strides. The work is queued on `stream`.
///
/// Pope et al., "Efficiently Scaling Transformer Inference" (arXiv:2211.05102).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if a last dimension is not contiguous, [`Error::TooLarge`] if a
/// size is 2³² or more.
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let new = Tensor::from_slice(&stream, [2, 1, 1, 1], &[1.0f32, 2.0])?;
/// let lengths_before = Tensor::from_slice(&stream, [2], &[0, 2])?;
/// let mut k_cache = Tensor::zeros(&stream, [2, 3, 1, 1])?;
/// let mut v_cache = Tensor::zeros(&stream, [2, 3, 1, 1])?;
/// ops::append_kv(&stream, &new, &new, &lengths_before, &mut k_cache, &mut v_cache)?;
/// assert_eq!(k_cache.to_vec(&stream)?, [1.0, 0.0, 0.0, 0.0, 0.0, 2.0]);
/// # Ok(())
/// # }
/// ```
pub fn append_kv<'a, T: Float>(
    stream: &Stream,
    k: impl Into<View<'a, T>>,
    v: impl Into<View<'a, T>>,
    lengths_before: impl Into<View<'a, i32>>,
    k_cache: impl Into<ViewMut<'a, T>>,
    v_cache: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let caches = [k_cache.into(), v_cache.into()];
    append(&CONTIGUOUS, stream, [k.into(), v.into()], lengths_before.into(), None, caches)
}

/// [`append_kv`] for a paged cache: `k_cache` and `v_cache` are `[pages, page_size, kv_heads, d]`, and `page_table`,
/// `[batch, max_pages]`, names the page that holds the positions from i · page_size on of each sequence.
///
/// `lengths_before` counts the keys of each sequence without the new ones, and is not changed.
///
/// Tokens without a position in the cache are not written: those that [`append_kv`] omits, and those whose page lies beyond the
/// table, or whose page number is negative or not a page of the cache. No two sequences may write to the same page; otherwise a
/// position that both write holds the token of either one.
///
/// Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention" (arXiv:2309.06180).
///
/// # Errors
/// Same as [`append_kv`]; [`Error::Layout`] also if `page_table` is not contiguous.
pub fn append_kv_paged<'a, T: Float>(
    stream: &Stream,
    k: impl Into<View<'a, T>>,
    v: impl Into<View<'a, T>>,
    lengths_before: impl Into<View<'a, i32>>,
    page_table: impl Into<View<'a, i32>>,
    k_cache: impl Into<ViewMut<'a, T>>,
    v_cache: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let caches = [k_cache.into(), v_cache.into()];
    append(&PAGED, stream, [k.into(), v.into()], lengths_before.into(), Some(page_table.into()), caches)
}

/// Checks that new keys and values match each other and the cache.
pub(super) fn check<T, C>(
    info: &OpInfo,
    [k, v]: [View<'_, T>; 2],
    caches: [View<'_, C>; 2],
    lengths_before: View<'_, i32>,
    page_table: Option<View<'_, i32>>,
) -> Result<CacheShape> {
    let op = info.name;
    let [batch, _, heads, d]: [usize; 4] = k.dims(op, "k")?;
    v.require_shape(op, "v", k.shape())?;
    k.require_inner_contiguous(op, "k")?;
    v.require_inner_contiguous(op, "v")?;
    CacheShape::check(info, [batch, heads, d], caches, (LENGTHS_BEFORE.name, lengths_before), page_table)
}

/// The number of vectors of `k` to be written: none if the cache has no positions.
pub(super) fn vectors<T>(k: View<'_, T>, cache: CacheShape) -> usize {
    let is_empty = [cache.pages, cache.page_size, cache.max_pages].contains(&0);
    // If d is 0, the other sizes may be anything.
    let all = || k.shape()[..3].iter().fold(1usize, |all, size| all.saturating_mul(*size));
    if is_empty { 0 } else { all() }
}

/// The sizes of an append, in the form that kernels take.
pub(super) struct Sizes {
    pub(super) vectors: u32,
    pub(super) tokens: u32,
    pub(super) heads: u32,
    pub(super) d: u32,
    pub(super) pages: u32,
    pub(super) page_size: u32,
    pub(super) max_pages: u32,
}

impl Sizes {
    /// The sizes for `k`, which is written to a `k_cache` of that shape.
    pub(super) fn of<T, C>(
        info: &OpInfo,
        k: View<'_, T>,
        k_cache: View<'_, C>,
        cache @ CacheShape { pages, page_size, max_pages, .. }: CacheShape,
    ) -> Result<Self> {
        let [_, tokens, heads, d]: [usize; 4] = k.dims(info.name, "k")?;
        let sizes = [vectors(k, cache), tokens, heads, d, pages, page_size, max_pages].map(u32::try_from);
        let [Ok(vectors), Ok(tokens), Ok(heads), Ok(d), Ok(pages), Ok(page_size), Ok(max_pages)] = sizes else {
            let reason = format!("{}: sizes are below 2^32", k_cache.shape());
            return Err(Error::too_large(info.name, "k_cache", reason));
        };
        if tokens > i32::MAX as u32 {
            let reason = format!("{tokens} new tokens, at most 2^31 − 1 are supported");
            return Err(Error::too_large(info.name, "k", reason));
        }
        Ok(Self { vectors, tokens, heads, d, pages, page_size, max_pages })
    }
}

fn append<T: Float>(
    info: &'static OpInfo,
    stream: &Stream,
    new @ [k, v]: [View<'_, T>; 2],
    lengths_before: View<'_, i32>,
    page_table: Option<View<'_, i32>>,
    caches: [ViewMut<'_, T>; 2],
) -> Result<()> {
    let [k_cache, v_cache] = &caches;
    stream.require_devices(
        info.name,
        &[
            ("k", &k),
            ("v", &v),
            ("lengths_before", &lengths_before),
            ("page_table", &page_table),
            ("k_cache", k_cache),
            ("v_cache", v_cache),
        ],
    )?;
    let cache = check(info, new, [k_cache.as_view(), v_cache.as_view()], lengths_before, page_table)?;
    let aligned = [k, v, k_cache.as_view(), v_cache.as_view()].iter().all(|x| x.rows_aligned(16));
    let runs = [vectors(k, cache), k.cols()];
    let Some(runs) = Runs::new(info, "k", runs, size_of::<T>(), aligned)? else { return Ok(()) };
    let sizes = Sizes::of(info, k, k_cache.as_view(), cache)?;
    launch(stream, (runs, sizes), new, lengths_before, page_table, caches)
}

/// Launches a checked call: keys and values at once if they have the same layout, else one after the other.
fn launch<T: Float>(
    stream: &Stream,
    (runs, sizes): (Runs, Sizes),
    [k, v]: [View<'_, T>; 2],
    lengths_before: View<'_, i32>,
    page_table: Option<View<'_, i32>>,
    [mut k_cache, mut v_cache]: [ViewMut<'_, T>; 2],
) -> Result<()> {
    let Sizes { tokens, heads, pages, page_size, max_pages, .. } = sizes;
    let strides = |strides: &[usize]| [0, 1, 2].map(|i| runs.words(strides[i]));
    let of_k = (strides(k.strides()), strides(k_cache.strides()));
    let of_v = (strides(v.strides()), strides(v_cache.strides()));
    let table = page_table.map_or(Ok(DevicePtr::null()), |table| table.ptr(stream))?;
    let lengths_before = lengths_before.ptr(stream)?;
    let [k, v] = [k.ptr(stream)?, v.ptr(stream)?];
    let [k_cache, v_cache] = [k_cache.ptr_mut(stream)?, v_cache.ptr_mut(stream)?];
    by_word!(runs, size_of::<T>(), [2: u16, 4: u32] => |W, V| {
        let launch = |[x, y]: [_; 2], [x_cache, y_cache]: [_; 2], strides: ([u64; 3], [u64; 3]), tensors: u32| {
            let ([sequence, token, head], [page, place, cache_head]) = strides;
            let args = (
                x, y, x_cache, y_cache, lengths_before, table, runs.count, runs.width, tokens, heads, page_size, pages, max_pages,
                sequence, token, head, page, place, cache_head,
            );
            let grid = Dim3::new(runs.grid.x, runs.grid.y, tensors);
            // SAFETY: the tensors are live and hold these sizes at these strides, the caches are borrowed mutably, the kernel bounds
            // lengths and pages, and packs are taken only where they are aligned and whole.
            unsafe { stream.launch::<gk::AppendKv<W, V>>(grid, args) }
        };
        let (k, v, k_cache, v_cache) = (k.cast::<W>(), v.cast::<W>(), k_cache.cast::<W>(), v_cache.cast::<W>());
        if of_k == of_v {
            launch([k, v], [k_cache, v_cache], of_k, 2)
        } else {
            launch([k, k], [k_cache, k_cache], of_k, 1)?;
            launch([v, v], [v_cache, v_cache], of_v, 1)
        }
    })
}

/// An append in the registry.
pub struct Append {
    info: &'static OpInfo,
}

/// [`append_kv`] in the registry.
pub static APPEND_KV: Append = Append { info: &CONTIGUOUS };

/// [`append_kv_paged`] in the registry.
pub static APPEND_KV_PAGED: Append = Append { info: &PAGED };

/// The argument of every append.
pub(super) const LENGTHS_BEFORE: ArgInfo =
    ArgInfo::input("lengths_before", "[batch], contiguous: each sequence's keys without the new ones")
        .of(&[DType::I32]);

static CONTIGUOUS: OpInfo = OpInfo {
    name: "append_kv",
    bench_name: "cache.append_kv",
    summary: "new keys and values behind those in a contiguous cache",
    math: "cache[b, lengths_before[b] + n] = new[b, n]",
    args: &[
        ArgInfo::input("k", "[batch, new, kv_heads, d], the last dimension contiguous"),
        ArgInfo::input("v", "the shape of k, the last dimension contiguous"),
        LENGTHS_BEFORE,
        ArgInfo::in_out("k_cache", "[batch, max_len, kv_heads, d], the last dimension contiguous"),
        ArgInfo::in_out("v_cache", "the shape of k_cache, the last dimension contiguous"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::APPEND_KV],
    variants: &[],
};

static PAGED: OpInfo = OpInfo {
    name: "append_kv_paged",
    bench_name: "cache.append_kv_paged",
    summary: "new keys and values behind those in a paged cache",
    math: "cache[table[b, p / page_size], p mod page_size] = new[b, n], p = lengths_before[b] + n",
    args: &[
        ArgInfo::input("k", "[batch, new, kv_heads, d], the last dimension contiguous"),
        ArgInfo::input("v", "the shape of k, the last dimension contiguous"),
        LENGTHS_BEFORE,
        ArgInfo::input("page_table", "[batch, max_pages], contiguous").of(&[DType::I32]),
        ArgInfo::in_out("k_cache", "[pages, page_size, kv_heads, d], the last dimension contiguous"),
        ArgInfo::in_out("v_cache", "the shape of k_cache, the last dimension contiguous"),
    ],
    ..CONTIGUOUS
};

/// The number of pages of a sequence in a paged case.
pub(super) const MAX_PAGES: usize = 3;

impl Append {
    fn is_paged(&self) -> bool {
        std::ptr::eq(self.info, &PAGED)
    }

    /// The number of positions of a sequence in a case, and the shape of its caches.
    fn caches(&self, case: &Case) -> Result<(usize, [usize; 4])> {
        let [batch, heads, d, size] = case.dims(["batch", "kv_heads", "d", "size"])?;
        let pages = if self.is_paged() { MAX_PAGES } else { 1 };
        Ok((pages * size, [pages * batch, size, heads, d]))
    }
}

/// Lengths with which all new tokens are written in timed cases, while in others some tokens of some sequences do not fit.
pub(super) fn lengths(case: &Case, positions: usize, new: usize) -> Values {
    let most = if case.class == CaseClass::Production { positions.saturating_sub(new) } else { positions };
    Values::Integers { low: 0, high: most as i64 }
}

impl Operator for Append {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |batch, new, heads, d, size| {
            [("batch", batch), ("new", new), ("kv_heads", heads), ("d", d), ("size", size)]
        };
        let info = self.info;
        let mut cases = vec![if self.is_paged() {
            Case::production(info, "prefill 8x2048 of pages of 1024 bfloat16", DType::BF16, dims(8, 2048, 8, 128, 1024))
        } else {
            Case::production(info, "prefill 8x2048 of 4096 bfloat16", DType::BF16, dims(8, 2048, 8, 128, 4096))
        }];
        for &dtype in info.dtypes {
            let pads = |case: Case| {
                let pad = |name| (name, Arrangement::DENSE.row_pad(if name == "k" { 16 } else { 8 }));
                let padded = ["k", "v", "k_cache", "v_cache"].map(pad);
                padded.into_iter().fold(case, |case, (name, pad)| case.arrange(name, pad))
            };
            cases.extend([
                Case::odd(info, dtype, dims(3, 5, 3, 32, 16)),
                Case::odd(info, dtype, dims(3, 4, 2, 13, 5)),
                pads(Case::odd(info, dtype, dims(2, 4, 2, 16, 7))),
                Case::tiny(info, dtype, dims(1, 1, 1, 1, 1)),
                Case::boundary(info, dtype, dims(40, 2, 1, 16, 9))
                    .values("lengths_before", Values::Hostile { bound: 9 }),
                Case::boundary(info, dtype, dims(2, 2, 1, 16, 9)).arrange("v", Arrangement::DENSE.order(&[1, 0, 2, 3])),
                Case::boundary(info, dtype, dims(2, 2, 1, 16, 9)).arrange("v_cache", Arrangement::DENSE.offset(1)),
                Case::empty(info, dtype, dims(2, 0, 1, 8, 4)),
                Case::empty(info, dtype, dims(2, 1, 1, 8, 0)),
            ]);
            if self.is_paged() {
                // Fewer tokens than a page has, so that a page that is named twice gets no position twice.
                let hostile = Values::Hostile { bound: 3 };
                for length in [0.0, 5.0, 11.0] {
                    let case = Case::boundary(info, dtype, dims(1, 8, 2, 16, 8)).values("page_table", hostile);
                    let mut case = case.values("lengths_before", Values::Constant(length));
                    case.name = format!("{} {length}", case.name);
                    cases.push(case);
                }
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [batch, new, heads, d] = case.dims(["batch", "new", "kv_heads", "d"])?;
        let (positions, cache) = self.caches(case)?;
        let lengths = lengths(case, positions, new);
        let mut specs = vec![
            InputSpec::normal("k", case.dtype, [batch, new, heads, d]),
            InputSpec::normal("v", case.dtype, [batch, new, heads, d]),
            InputSpec::new("lengths_before", DType::I32, [batch], lengths),
        ];
        if self.is_paged() {
            specs.push(InputSpec::new("page_table", DType::I32, [batch, MAX_PAGES], Values::Permutation));
        }
        specs.extend(["k_cache", "v_cache"].map(|name| InputSpec::normal(name, case.dtype, cache)));
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let k = inputs.get("k")?;
        let [batch, _, heads, d] = k.dims()?;
        inputs.get("v")?.has_shape(k.shape())?;
        CacheShape::check_metas(inputs, [batch, heads, d], LENGTHS_BEFORE.name)?;
        Ok(Vec::new())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(self.info, args.dtype("k")?, float => |T| {
            let table = if self.is_paged() { Some(args.input("page_table")?) } else { None };
            let (new, lengths_before) = ([args.input("k")?, args.input("v")?], args.input("lengths_before")?);
            append::<T>(self.info, stream, new, lengths_before, table, [args.output("k_cache")?, args.output("v_cache")?])
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let new = inputs.get(if output == "k_cache" { "k" } else { "v" })?;
        let cache = inputs.get(output)?;
        let (tokens, heads) = (new.shape()[1], new.shape()[2]);
        let tokens_of = tokens_of(inputs, [tokens, cache.shape()[0], cache.shape()[1]])?;
        Ok(reference::by_row(rows, |row| match tokens_of.get(&(row / heads)) {
            Some(token) => reference::row(new, token * heads + row % heads),
            None => reference::row(cache, row),
        }))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [batch, new, kv_heads, d] = case.dims(["batch", "new", "kv_heads", "d"])?;
        // Twice what is new, for K and V, and the lengths.
        Ok(Cost::memory((4 * batch * (new * kv_heads * d * case.dtype.size() + 1)) as u64))
    }
}

/// The new token, counted over all sequences, that each position of a cache gets, with `tokens` per sequence and `pages` pages
/// of `size` positions.
pub(super) fn tokens_of(inputs: &Tensors<'_>, [tokens, pages, size]: [usize; 3]) -> Result<HashMap<usize, usize>> {
    let table = inputs.optional("page_table").map(|table| (table.shape()[1], table.to_f64()));
    let mut tokens_of = HashMap::new();
    for (b, length) in inputs.get("lengths_before")?.to_f64().into_iter().enumerate() {
        for n in 0..tokens {
            let position = length + n as f64;
            let logical = (position / size as f64).floor();
            let page = match &table {
                Some((max_pages, table)) if logical >= 0.0 && logical < *max_pages as f64 => {
                    table[b * max_pages + logical as usize]
                }
                None if logical == 0.0 => b as f64,
                _ => continue,
            };
            if length >= 0.0 && page >= 0.0 && page < pages as f64 {
                let place = page as usize * size + (position as usize % size);
                tokens_of.insert(place, b * tokens + n);
            }
        }
    }
    Ok(tokens_of)
}
