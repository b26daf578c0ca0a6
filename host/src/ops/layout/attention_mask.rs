//! Masking of attention scores.

use cuda_std::launch::{DevicePtr, Dim3};
use gpu_kernels::ops::layout::attention_mask as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Selects the keys that a query sees: those that satisfy all of these conditions.
#[derive(Clone, Copy, Debug)]
pub struct AttentionMask<'a> {
    /// Keys up to the query's own position. The last query has the position of the last key, even if that is padding.
    pub causal: bool,
    /// At most this many keys before the query's own position, or any number for `None`: with 0 and causal, only its own.
    pub left: Option<usize>,
    /// Keys below the length of the batch entry, `[batch]`: the rest is padding. Lengths are clamped to 0 to keys.
    pub key_lengths: Option<View<'a, i32>>,
    /// Keys in the query's own sequence, of several packed into one, from offsets\[s\] to offsets[s + 1]: `[sequences + 1]`,
    /// ascending.
    pub offsets: Option<View<'a, i32>>,
    /// The value that replaces scores of hidden keys. For rows in which no key is seen, −∞ gives zeros in
    /// [`softmax`](crate::ops::softmax()), and NaN in a softmax that subtracts it from itself; a large negative number gives
    /// equal weights.
    pub fill: f32,
}

impl AttentionMask<'_> {
    /// Causal, with hidden scores set to −∞.
    pub const CAUSAL: Self =
        Self { causal: true, left: None, key_lengths: None, offsets: None, fill: f32::NEG_INFINITY };
}

/// Returns `scores`, `[batch, heads, queries, keys]`, where the query may see the key, else [`AttentionMask::fill`].
///
/// Rows may be padded. `fill` is rounded to `T`. The result is a new dense tensor; the work is queued on `stream`.
///
/// Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762), section 3.2.3.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, or if there are offsets and not as many queries as keys, [`Error::Layout`] if rows are not
/// contiguous and equally far apart or `key_lengths` or `offsets` not contiguous, [`Error::InvalidParam`] if `fill` is NaN,
/// [`Error::TooLarge`] beyond 2³² − 1 rows or 2³¹ − 1 queries or keys, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, AttentionMask}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let scores = Tensor::from_slice(&stream, [1, 1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// let masked = ops::attention_mask(&stream, &scores, &AttentionMask { fill: -1e4, ..AttentionMask::CAUSAL })?;
/// assert_eq!(masked.to_vec(&stream)?, [1.0, -1e4, 3.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub fn attention_mask<'a, T: Float>(
    stream: &Stream,
    scores: impl Into<View<'a, T>>,
    mask: &AttentionMask<'_>,
) -> Result<Tensor<T>> {
    let scores = scores.into();
    let mut y = Tensor::result(stream, scores.shape())?;
    attention_mask_into(stream, scores, mask, &mut y)?;
    Ok(y)
}

/// [`attention_mask`] into `y`, which has the shape of `scores`; its rows may be padded.
///
/// # Errors
/// Same as [`attention_mask`].
pub fn attention_mask_into<'a, T: Float>(
    stream: &Stream,
    scores: impl Into<View<'a, T>>,
    mask: &AttentionMask<'_>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (scores, mut y) = (scores.into(), y.into());
    let op = INFO.name;
    stream.require_devices(
        op,
        &[("scores", &scores), ("key_lengths", &mask.key_lengths), ("offsets", &mask.offsets), ("y", &y)],
    )?;
    let [batch, heads, queries, keys]: [usize; 4] = scores.dims(op, "scores")?;
    y.require_shape(op, "y", scores.shape())?;
    if let Some(lengths) = &mask.key_lengths {
        lengths.require_shape(op, "key_lengths", &[batch])?;
        lengths.require_contiguous(op, "key_lengths")?;
    }
    if let Some(offsets) = &mask.offsets {
        let [_]: [usize; 1] = offsets.dims(op, "offsets")?;
        offsets.require_contiguous(op, "offsets")?;
        if queries != keys {
            return Err(INFO.shape_error("scores", scores.shape(), "as many queries as keys, where there are offsets"));
        }
    }
    if mask.fill.is_nan() {
        return Err(INFO.param_error("fill", mask.fill, "a number"));
    }
    let too_large = |what: String| Error::too_large(op, "scores", what);
    if scores.is_empty() {
        return Ok(());
    }
    let x_stride = scores.require_row_stride(op, "scores")?;
    let y_stride = y.require_row_stride(op, "y")?;
    let sizes = [batch * heads * queries, heads * queries, queries, keys].map(u32::try_from);
    let ([Ok(rows), Ok(per_batch), Ok(queries), Ok(keys)], true) = (sizes, queries.max(keys) < 1 << 31) else {
        let reason = format!("{}: at most 2^32 − 1 rows of 2^31 − 1 are supported", scores.shape());
        return Err(too_large(reason));
    };
    // The kernel counts the query's own key too, and takes 0 for no window; a window beyond every key hides none.
    let window = mask.left.map_or(0, |left| u32::try_from(left).map_or(u32::MAX, |left| left.saturating_add(1)));
    let (offsets, count) = match &mask.offsets {
        Some(offsets) => {
            let count = u32::try_from(offsets.len());
            let large = |_| Error::too_large(op, "offsets", format!("{} offsets", offsets.len()));
            (offsets.ptr(stream)?, count.map_err(large)?)
        }
        None => (DevicePtr::null(), 0),
    };
    let lengths = mask.key_lengths.map_or(Ok(DevicePtr::null()), |lengths| lengths.ptr(stream))?;
    let lanes = gpu_kernels::lanes::<T>() as u32;
    let packed = keys.is_multiple_of(lanes) && scores.rows_aligned(16) && y.rows_aligned(16);
    let packs = if packed { keys / lanes } else { keys };
    let grid = Dim3::new(packs.div_ceil(gk::PACKS * gk::BLOCK), rows.min(65_535), rows.div_ceil(65_535));
    if grid.z > 65_535 {
        return Err(too_large(format!("{rows} rows, at most {} are supported", 65_535u64 * 65_535)));
    }
    let args = (
        scores.ptr(stream)?,
        lengths,
        offsets,
        y.ptr_mut(stream)?,
        rows,
        per_batch,
        queries,
        keys,
        count,
        u32::from(mask.causal),
        window,
        mask.fill,
        x_stride as u64,
        y_stride as u64,
    );
    // SAFETY: the tensors are live and hold these rows at these strides, the kernel bounds lengths and offsets, y is borrowed mutably, and
    // packs are taken only where they are aligned and whole.
    unsafe {
        if packed {
            stream.launch::<gk::AttentionMask<T, true>>(grid, args)
        } else {
            stream.launch::<gk::AttentionMask<T, false>>(grid, args)
        }
    }
}

/// The operator's entry in the registry.
pub struct MaskScores;

static INFO: OpInfo = OpInfo {
    name: "attention_mask",
    bench_name: "attention.mask",
    summary: "attention scores masked: causal, window, padding, packed sequences",
    math: "y[b, h, i, j] = scores[b, h, i, j] where i sees j, else fill",
    args: &[
        ArgInfo::input("scores", "[batch, heads, queries, keys], rows may be padded"),
        ArgInfo::input("key_lengths", "[batch], contiguous: keys that are there").of(&[DType::I32]).optional(),
        ArgInfo::input("offsets", "[sequences + 1], contiguous: where packed sequences start")
            .of(&[DType::I32])
            .optional(),
        ArgInfo::output("y", "the shape of scores, rows may be padded"),
    ],
    params: &[
        ParamInfo::bool("causal", true, "a query sees keys up to its own position"),
        ParamInfo::int("left", -1, "keys before its own position that a query sees, all if negative"),
        ParamInfo::float("fill", -30_000.0, "what scores become that are not seen"),
    ],
    dtypes: DType::FLOATS,
    kernels: &[gk::ATTENTION_MASK],
    variants: &[],
};

/// Sequences of a packed case.
const SEQUENCES: usize = 3;

/// The parameter in the form of the mask's field.
fn left(params: &Params) -> Result<Option<usize>> {
    Ok(usize::try_from(params.i64("left")?).ok())
}

/// The packed sequence of a query: from the last offset that is not above it to the next. The binary search gives the kernel's
/// mask for descending offsets too.
fn sequence_of(query: f64, offsets: &[f64]) -> [f64; 2] {
    let (mut low, mut high) = (0, offsets.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if offsets[middle] <= query { low = middle + 1 } else { high = middle }
    }
    if low == 0 || low == offsets.len() { [0.0, 0.0] } else { [offsets[low - 1], offsets[low]] }
}

impl Operator for MaskScores {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |b, h, q, k| [("batch", b), ("heads", h), ("queries", q), ("keys", k)];
        let plain = |case: Case| case.without("key_lengths").without("offsets");
        let padded = |case: Case| case.without("offsets");
        let packed = |case: Case| case.without("key_lengths");
        let mut cases = vec![
            plain(Case::production(&INFO, "causal 4x32x4096x4096 bfloat16", DType::BF16, dims(4, 32, 4096, 4096))),
            plain(Case::production(&INFO, "left=1023 4x32x4096x4096 bfloat16", DType::BF16, dims(4, 32, 4096, 4096)))
                .param("left", 1023),
        ];
        for &dtype in INFO.dtypes {
            let pads = |case: Case| {
                case.arrange("scores", Arrangement::DENSE.row_pad(16)).arrange("y", Arrangement::DENSE.row_pad(8))
            };
            let hostile = Values::Hostile { bound: 40 };
            cases.extend([
                plain(Case::odd(&INFO, dtype, dims(2, 3, 9, 40))),
                plain(Case::odd(&INFO, dtype, dims(2, 3, 13, 13))).param("left", 3),
                plain(pads(Case::odd(&INFO, dtype, dims(1, 2, 5, 24)))).param("causal", false).param("left", 2),
                padded(Case::odd(&INFO, dtype, dims(5, 2, 7, 40))),
                padded(Case::odd(&INFO, dtype, dims(5, 1, 40, 40))).param("left", 7),
                padded(Case::odd(&INFO, dtype, dims(3, 2, 7, 21))).param("causal", false).param("fill", -1.5),
                packed(Case::odd(&INFO, dtype, dims(1, 2, 40, 40))).param("left", 7),
                packed(Case::odd(&INFO, dtype, dims(1, 2, 19, 19))).param("causal", false),
                plain(Case::tiny(&INFO, dtype, dims(1, 1, 1, 1))),
                plain(Case::boundary(&INFO, dtype, dims(1, 1, 9, 11))).param("left", 0),
                plain(Case::boundary(&INFO, dtype, dims(1, 1, 9, 12))).param("left", i64::from(u32::MAX)),
                padded(Case::boundary(&INFO, dtype, dims(24, 1, 3, 40))).values("key_lengths", hostile),
                packed(Case::boundary(&INFO, dtype, dims(1, 1, 40, 40))).values("offsets", hostile),
                plain(Case::boundary(&INFO, dtype, dims(1, 1, 3, 4100))),
                plain(Case::boundary(&INFO, dtype, dims(1, 1, 2, 8))).offset(1),
                plain(Case::empty(&INFO, dtype, dims(2, 0, 4, 8))),
                plain(Case::empty(&INFO, dtype, dims(2, 1, 4, 0))),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [batch, heads, queries, keys] = case.dims(["batch", "heads", "queries", "keys"])?;
        // Packed sequences need as many queries as keys.
        let queries = if case.has("offsets") { keys } else { queries };
        let specs = [
            InputSpec::normal("scores", case.dtype, [batch, heads, queries, keys]),
            InputSpec::new("key_lengths", DType::I32, [batch], Values::Integers { low: 0, high: keys as i64 }),
            InputSpec::new("offsets", DType::I32, [SEQUENCES + 1], Values::Offsets { total: keys as i64 }),
        ];
        Ok(specs.into_iter().filter(|spec| case.has(spec.name)).map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let scores = inputs.get("scores")?;
        let [batch, _, queries, keys] = scores.dims()?;
        if let Some(lengths) = inputs.optional("key_lengths") {
            lengths.has_shape(&[batch])?;
        }
        if let Some(offsets) = inputs.optional("offsets") {
            let [_] = offsets.dims()?;
            if queries != keys {
                return Err(INFO.shape_error(
                    "scores",
                    scores.shape(),
                    "as many queries as keys, where there are offsets",
                ));
            }
        }
        left(params)?;
        Ok(vec![TensorMeta::new("y", scores.dtype(), scores.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let mask = AttentionMask {
            causal: params.bool("causal")?,
            left: left(params)?,
            key_lengths: args.optional_input("key_lengths")?,
            offsets: args.optional_input("offsets")?,
            fill: params.f32("fill")?,
        };
        dispatch!(INFO, args.dtype("scores")?, float => |T| {
            attention_mask_into::<T>(stream, args.input("scores")?, &mask, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let scores = inputs.get("scores")?;
        let [_, heads, queries, keys] = *scores.shape().dims() else { return Ok(Vec::new()) };
        let lengths = inputs.optional("key_lengths").map(|lengths| lengths.to_f64());
        let offsets = inputs.optional("offsets").map(|offsets| offsets.to_f64());
        let (causal, left, fill) = (params.bool("causal")?, left(params)?, params.f64("fill")?);
        Ok(reference::by_row(rows, |row| {
            let (batch, query) = (row / queries / heads, row % queries);
            let length = lengths.as_ref().map_or(keys as f64, |lengths| lengths[batch].clamp(0.0, keys as f64));
            let position = query as f64 + keys as f64 - queries as f64;
            let sequence = offsets.as_ref().map(|offsets| sequence_of(query as f64, offsets));
            let sees = |key: f64| {
                key < length
                    && (!causal || key <= position)
                    && left.is_none_or(|left| key >= position - left as f64)
                    && sequence.is_none_or(|[start, end]| start <= key && key < end)
            };
            let row = reference::row(scores, row).into_iter().enumerate();
            row.map(|(key, score)| if sees(key as f64) { score } else { fill }).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::new(0.0, roundoff(case.dtype), "scores bit by bit, the fill rounded once"))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let elements: usize = case.dims(["batch", "heads", "queries", "keys"])?.iter().product();
        Ok(Cost::memory((2 * elements * case.dtype.size()) as u64))
    }
}
