//! The gradient of an embedding's table.

use cuda_std::launch::Instance;
use cuda_std::{bf16, f16};
use gpu_kernels::ops::elementwise::cast::Cast;
use gpu_kernels::ops::layout::embedding_backward as gk;
use gpu_kernels::ops::random::fill::Fill;

use super::Runs;
use super::embedding::{Embedding, cases, rows};
use crate::dispatch;
use crate::ops::elementwise::{cast_into, grid};
use crate::ops::model::*;
use crate::ops::random::fill_into;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradient of [`embedding`](fn@crate::ops::embedding) with respect to its table: dtable\[r\] = Σ dy\[i\] over the tokens i
/// whose id is r, zeros if there are none.
///
/// `ids` is `[tokens]`, contiguous, as in the forward, and `dy`, the gradient of its result, is `[tokens, d]`, whose rows may be
/// padded. `vocab` is the number of the table's rows: the result is `[vocab, d]`. An id outside the table, negative or `vocab`
/// and above, adds nothing, just as it got zeros. Sums are f32, in the order of the tokens, and rounded once: results are
/// reproducible bit by bit. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if rows of `dy` are not contiguous and equally far apart or `ids` is not
/// contiguous, [`Error::TooLarge`] beyond 2³² − 1 tokens or 2³¹ rows, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let ids = Tensor::from_slice(&stream, [4], &[2, 0, 2, -1])?;
/// let dy = Tensor::from_slice(&stream, [4, 2], &[1.0f32, 2.0, 3.0, 4.0, 10.0, 20.0, 5.0, 5.0])?;
/// let dtable = ops::embedding_backward(&stream, &ids, &dy, 3)?;
/// assert_eq!(dtable.to_vec(&stream)?, [3.0, 4.0, 0.0, 0.0, 11.0, 22.0]);
/// # Ok(())
/// # }
/// ```
pub fn embedding_backward<'a, T: Float>(
    stream: &Stream,
    ids: impl Into<View<'a, i32>>,
    dy: impl Into<View<'a, T>>,
    vocab: usize,
) -> Result<Tensor<T>> {
    let dy = dy.into();
    let [_, d]: [usize; 2] = dy.dims(BACKWARD.name, "dy")?;
    let mut dtable = Tensor::result_as(BACKWARD.name, "dtable", stream, [vocab, d])?;
    embedding_backward_into(stream, ids.into(), dy, &mut dtable)?;
    Ok(dtable)
}

/// [`embedding_backward`] into `dtable`, `[vocab, d]`, whose rows may be padded.
///
/// # Errors
/// Same as [`embedding_backward`].
pub fn embedding_backward_into<'a, T: Float>(
    stream: &Stream,
    ids: impl Into<View<'a, i32>>,
    dy: impl Into<View<'a, T>>,
    dtable: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (ids, dy, mut dtable) = (ids.into(), dy.into(), dtable.into());
    let Lookups { tokens, vocab, d, dy_stride, dtable_stride } = Lookups::of(stream, &ids, &dy, &dtable)?;
    let lanes = gpu_kernels::lanes::<T>();
    let packed = d.is_multiple_of(lanes) && dy.rows_aligned(16) && dtable.rows_aligned(16);
    let columns = gk::BLOCK as usize * if packed { lanes } else { 1 };
    let (groups, hot_blocks, parts) = (vocab.div_ceil(gk::ROWS), gk::HOT.min(vocab), d.div_ceil(columns));
    let blocks = parts.saturating_mul((hot_blocks + groups) as usize);
    let Some(grid) = grid(&BACKWARD, "dtable", blocks, 1)? else { return Ok(()) };
    let tokens = u32::try_from(tokens).map_err(|_| {
        Error::too_large(BACKWARD.name, "dy", format!("{}: at most 2^32 − 1 rows are supported", dy.shape()))
    })?;
    let (ids, dy, dtable) = (ids.ptr(stream)?, dy.ptr(stream)?, dtable.ptr_mut(stream)?);
    // The lists, followed by the indices of the ids that did not fit in their list, half a word each.
    let words = groups as usize * gk::LIST as usize;
    let scratch = stream.workspace::<u64>(BACKWARD.name, words + (1 + groups as usize).div_ceil(2))?;
    scratch.clear()?;
    let lists = scratch.ptr_mut();
    let hot = lists.add(words as u64).cast::<u32>();
    let [d, dy_rows, dtable_rows] = [d, dy_stride, dtable_stride].map(|size| size as u64);
    let args =
        (ids, lists.into(), hot.into(), dy, dtable, hot_blocks, parts as u32, tokens, vocab, d, dy_rows, dtable_rows);
    // SAFETY: the tensors are live and hold these rows at these strides, dtable is borrowed mutably, each group has a list, and packs are aligned.
    unsafe {
        if tokens > 0 {
            stream.launch::<gk::EmbeddingLists>(tokens.div_ceil(gk::BLOCK), (ids, lists, hot, tokens, vocab))?;
        }
        if packed {
            stream.launch::<gk::EmbeddingBackward<T, true>>(grid, args)
        } else {
            stream.launch::<gk::EmbeddingBackward<T, false>>(grid, args)
        }
    }
}

/// [`embedding_backward_into`] by atomic additions to an f32 table: `dtable` itself or, for other types, a table that is
/// rounded into it.
fn add_atomically<'a, T: Float>(
    stream: &Stream,
    ids: View<'a, i32>,
    dy: View<'a, T>,
    mut dtable: ViewMut<'a, T>,
) -> Result<()> {
    let Lookups { tokens, vocab, d, dy_stride, dtable_stride } = Lookups::of(stream, &ids, &dy, &dtable)?;
    let in_place = T::DTYPE == DType::F32;
    let mut sums = Tensor::<f32>::zeros(stream, if in_place { [0, 0] } else { [vocab as usize, d] })?;
    let aligned = dy.rows_aligned(16) && (!in_place || dtable.rows_aligned(16));
    let (to, stride) = if in_place {
        fill_into(stream, 0.0, &mut dtable)?;
        (dtable.ptr_mut(stream)?.cast::<f32>(), dtable_stride)
    } else {
        (sums.view_mut().ptr_mut(stream)?, d)
    };
    if let Some(runs) = Runs::new(&BACKWARD, "dy", [tokens, d], size_of::<T>(), aligned)? {
        let (ids, dy) = (ids.ptr(stream)?, dy.ptr(stream)?);
        let args = (ids, dy, to, runs.count, runs.width, vocab, dy_stride as u64, stride as u64);
        // SAFETY: the tensors are live and hold these rows at these strides, of elements that are f32 where it is dtable, the kernel bounds ids by
        // the table's rows, dtable is borrowed mutably, and packs are taken only where they are aligned and whole.
        unsafe {
            if runs.packed {
                stream.launch::<gk::EmbeddingBackwardAtomic<T, true>>(runs.grid, args)?;
            } else {
                stream.launch::<gk::EmbeddingBackwardAtomic<T, false>>(runs.grid, args)?;
            }
        }
    }
    if in_place { Ok(()) } else { cast_into::<f32, T>(stream, &sums, dtable) }
}

/// Checked sizes and strides of the lookups and their gradient.
struct Lookups {
    tokens: usize,
    vocab: u32,
    d: usize,
    dy_stride: usize,
    dtable_stride: usize,
}

impl Lookups {
    fn of<T: Float>(stream: &Stream, ids: &View<'_, i32>, dy: &View<'_, T>, dtable: &ViewMut<'_, T>) -> Result<Self> {
        let op = BACKWARD.name;
        stream.require_devices(op, &[("ids", ids), ("dy", dy), ("dtable", dtable)])?;
        let [tokens]: [usize; 1] = ids.dims(op, "ids")?;
        let [vocab, d]: [usize; 2] = dtable.dims(op, "dtable")?;
        ids.require_contiguous(op, "ids")?;
        dy.require_shape(op, "dy", &[tokens, d])?;
        let [dy_stride, dtable_stride] = [dy.require_row_stride(op, "dy")?, dtable.require_row_stride(op, "dtable")?];
        let vocab = rows(&BACKWARD, "dtable", vocab)?;
        Ok(Lookups { tokens, vocab, d, dy_stride, dtable_stride })
    }
}

/// [`embedding_backward`] in the registry.
pub struct EmbeddingBackward;

/// The variant that adds in no fixed order.
const ATOMIC: &str = "atomic";

static BACKWARD: OpInfo = OpInfo {
    name: "embedding_backward",
    bench_name: "embedding.backward",
    summary: "gradient of an embedding's table, reproducible",
    math: "dtable[r, :] = Σ dy[i, :] over i with ids[i] = r",
    args: &[
        ArgInfo::input("ids", "[tokens], contiguous; what is no row adds to nothing").of(&[DType::I32]),
        ArgInfo::input("dy", "[tokens, d], rows may be padded"),
        ArgInfo::output("dtable", "[vocab, d], rows may be padded"),
    ],
    params: &[ParamInfo::int("vocab", 20, "rows of the table")],
    dtypes: DType::FLOATS,
    kernels: &[
        gk::EMBEDDING_BACKWARD,
        gk::EMBEDDING_LISTS,
        gk::EMBEDDING_BACKWARD_ATOMIC,
        &[Instance::of::<Fill<f32>>(), Instance::of::<Cast<f32, f16>>(), Instance::of::<Cast<f32, bf16>>()],
    ],
    variants: &[Variant {
        name: ATOMIC,
        doc: "every token adds its row to a table of f32, in any order: not reproducible",
        applies: |_, _| true,
        launch: |stream, args, _| {
            dispatch!(BACKWARD, args.dtype("dy")?, float => |T| {
                add_atomically::<T>(stream, args.input("ids")?, args.input("dy")?, args.output("dtable")?)
            })
        },
    }],
};

/// The parameter, as a size.
fn vocab(params: &Params) -> Result<usize> {
    let vocab = params.i64("vocab")?;
    usize::try_from(vocab).map_err(|_| BACKWARD.param_error("vocab", vocab, "zero or more"))
}

impl Operator for EmbeddingBackward {
    fn info(&self) -> &'static OpInfo {
        &BACKWARD
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = cases(&BACKWARD, ["dy", "dtable"], |case, vocab| case.param("vocab", vocab as i64));
        // Rows whose list has room and rows whose list has not, and more of the latter than there are blocks for them.
        let named = |tokens: usize, d: usize, vocab: i64| {
            Case::boundary(&BACKWARD, DType::F32, [("tokens", tokens), ("d", d)]).param("vocab", vocab)
        };
        cases.extend([named(300, 2056, 20).values("ids", Values::Zipf { count: 20 }), named(4000, 4, 520)]);
        // More tokens than are marked at a time, most of them for one row.
        for &dtype in BACKWARD.dtypes {
            for d in [3, 16 / dtype.size()] {
                let many = Case::boundary(&BACKWARD, dtype, [("tokens", 2060), ("d", d)]).param("vocab", 2i64);
                cases.push(many.values("ids", Values::Bernoulli { p: 0.01 }));
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [tokens, d] = case.dims(["tokens", "d"])?;
        let ids = Values::Integers { low: 0, high: vocab(&case.params)? as i64 - 1 };
        let specs =
            [InputSpec::new("ids", DType::I32, [tokens], ids), InputSpec::normal("dy", case.dtype, [tokens, d])];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let [tokens] = inputs.get("ids")?.dims()?;
        let dy = inputs.get("dy")?;
        let [_, d] = dy.dims()?;
        dy.has_shape(&[tokens, d])?;
        Ok(vec![TensorMeta::new("dtable", dy.dtype(), [vocab(params)?, d])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(BACKWARD, args.dtype("dy")?, float => |T| {
            embedding_backward_into::<T>(stream, args.input("ids")?, args.input("dy")?, args.output("dtable")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (ids, dy) = (inputs.get("ids")?.to_f64(), inputs.get("dy")?);
        Ok(reference::by_row(rows, |r| {
            let mut sum = vec![0.0; dy.shape()[1]];
            for (i, _) in ids.iter().enumerate().filter(|(_, id)| **id == r as f64) {
                sum.iter_mut().zip(reference::row(dy, i)).for_each(|(sum, value)| *sum += value);
            }
            sum
        }))
    }

    fn reproducible(&self, _: &str, variant: Option<&str>) -> bool {
        variant != Some(ATOMIC)
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [tokens] = case.dims(["tokens"])?;
        // A row has n = tokens/vocab tokens on average, at most four times as many and 8 more; its sum stays below 6·√n.
        let n = (4 * tokens / vocab(&case.params)?.max(1) + 8).min(tokens) as f64;
        let why = "storage rounding, and n f32 roundings of a sum of n normal values, which is below 6·√n";
        Ok(Tolerance::rounded(case.dtype, 6.0 * n * n.sqrt() * roundoff(DType::F32), 0.0, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, d] = case.dims(["tokens", "d"])?;
        Ok(Cost::memory(((tokens + vocab(&case.params)?) * d * case.dtype.size() + 4 * tokens) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient { forward: &Embedding, of_outputs: &[("dy", "y")], of_inputs: &[("dtable", "table")] })
    }
}
