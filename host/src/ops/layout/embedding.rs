//! Lookup of table rows by index.

use gpu_kernels::ops::layout::embedding as gk;

use super::{Runs, by_word};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y\[i\] = table[ids\[i\]]: a row of `table`, `[vocab, d]`, for each of `ids`, `[tokens]`. An id outside the table gives
/// zeros.
///
/// Rows may be padded. The result is a new dense tensor with bitwise copies; the work is queued on `stream`.
///
/// Bengio et al., "A Neural Probabilistic Language Model" (JMLR 2003).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if the table's rows are not contiguous and equally far apart or `ids` is not
/// contiguous, [`Error::TooLarge`] beyond 2³² − 1 tokens or 2³¹ rows, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let table = Tensor::from_slice(&stream, [2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// let ids = Tensor::from_slice(&stream, [3], &[1, 0, -1])?;
/// let y = ops::embedding(&stream, &ids, &table)?;
/// assert_eq!(y.to_vec(&stream)?, [3.0, 4.0, 1.0, 2.0, 0.0, 0.0]);
/// let dtable = ops::embedding_backward(&stream, &ids, &y, 2)?;
/// assert_eq!(dtable.to_vec(&stream)?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub fn embedding<'a, T: Float>(
    stream: &Stream,
    ids: impl Into<View<'a, i32>>,
    table: impl Into<View<'a, T>>,
) -> Result<Tensor<T>> {
    let (ids, table) = (ids.into(), table.into());
    let [tokens]: [usize; 1] = ids.dims(FORWARD.name, "ids")?;
    let [_, d]: [usize; 2] = table.dims(FORWARD.name, "table")?;
    let mut y = Tensor::result_as(FORWARD.name, "y", stream, [tokens, d])?;
    embedding_into(stream, ids, table, &mut y)?;
    Ok(y)
}

/// [`embedding`] into `y`, `[tokens, d]`, whose rows may be padded.
///
/// # Errors
/// Same as [`embedding`].
pub fn embedding_into<'a, T: Float>(
    stream: &Stream,
    ids: impl Into<View<'a, i32>>,
    table: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (ids, table, mut y) = (ids.into(), table.into(), y.into());
    let op = FORWARD.name;
    stream.require_devices(op, &[("ids", &ids), ("table", &table), ("y", &y)])?;
    let [tokens]: [usize; 1] = ids.dims(op, "ids")?;
    let [vocab, d]: [usize; 2] = table.dims(op, "table")?;
    ids.require_contiguous(op, "ids")?;
    y.require_shape(op, "y", &[tokens, d])?;
    let table_stride = table.require_row_stride(op, "table")?;
    let y_stride = y.require_row_stride(op, "y")?;
    let vocab = rows(&FORWARD, "table", vocab)?;
    let aligned = table.rows_aligned(16) && y.rows_aligned(16);
    let Some(runs) = Runs::new(&FORWARD, "ids", [tokens, d], size_of::<T>(), aligned)? else { return Ok(()) };
    let (ids, table, y) = (ids.ptr(stream)?, table.ptr(stream)?, y.ptr_mut(stream)?);
    let strides = (runs.words(table_stride), runs.words(y_stride));
    by_word!(runs, size_of::<T>(), [2: u16, 4: u32] => |W, V| {
        let args = (ids, table.cast::<W>(), y.cast::<W>(), runs.count, runs.width, vocab, strides.0, strides.1);
        // SAFETY: the tensors are live and hold these rows at these strides, the kernel bounds ids by the table's rows, y is borrowed
        // mutably, and packs are taken only where they are aligned and whole.
        unsafe { stream.launch::<gk::Embedding<W, V>>(runs.grid, args) }
    })
}

/// The number of rows of a table, in the type that the kernels use.
pub(super) fn rows(info: &OpInfo, arg: &'static str, vocab: usize) -> Result<u32> {
    let fits = u32::try_from(vocab).ok().filter(|rows| *rows <= 1 << 31);
    fits.ok_or_else(|| Error::too_large(info.name, arg, format!("{vocab} rows, at most 2^31 are supported")))
}

/// [`embedding`] in the registry.
pub struct Embedding;

static FORWARD: OpInfo = OpInfo {
    name: "embedding",
    bench_name: "embedding.forward",
    summary: "rows of a table looked up by number",
    math: "y[i, :] = table[ids[i], :]",
    args: &[
        ArgInfo::input("ids", "[tokens], contiguous; what is no row gives zeros").of(&[DType::I32]),
        ArgInfo::input("table", "[vocab, d], rows may be padded"),
        ArgInfo::output("y", "[tokens, d], rows may be padded"),
    ],
    params: &[],
    dtypes: DType::FLOATS,
    kernels: &[gk::EMBEDDING],
    variants: &[],
};

/// The cases of the forward or backward, for the tensors whose rows may be padded.
pub(super) fn cases(
    info: &'static OpInfo,
    [first, second]: [&'static str; 2],
    sized: impl Fn(Case, usize) -> Case,
) -> Vec<Case> {
    let dims = |tokens, d| [("tokens", tokens), ("d", d)];
    let production = |name| sized(Case::production(info, name, DType::BF16, dims(16384, 4096)), 128_256);
    let mut cases = vec![
        production("tokens=16384 vocab=128256 d=4096 bfloat16"),
        production("tokens=16384 vocab=128256 d=4096 as in text bfloat16")
            .values("ids", Values::Zipf { count: 128_256 }),
    ];
    for &dtype in info.dtypes {
        let pads = |case: Case| {
            case.arrange(first, Arrangement::DENSE.row_pad(16)).arrange(second, Arrangement::DENSE.row_pad(8))
        };
        cases.extend([
            sized(Case::odd(info, dtype, dims(37, 64)), 20),
            sized(Case::odd(info, dtype, dims(37, 13)), 7),
            sized(pads(Case::odd(info, dtype, dims(5, 16))), 20),
            sized(Case::tiny(info, dtype, dims(1, 1)), 1),
            sized(Case::boundary(info, dtype, dims(99, 8)), 20).values("ids", Values::Hostile { bound: 20 }),
            sized(Case::boundary(info, dtype, dims(3, 2056)), 3),
            sized(Case::boundary(info, dtype, dims(3, 8)), 3).offset(1),
            Case::empty(info, dtype, dims(0, 8)),
            Case::empty(info, dtype, dims(3, 0)),
        ]);
    }
    cases
}

impl Operator for Embedding {
    fn info(&self) -> &'static OpInfo {
        &FORWARD
    }

    fn cases(&self) -> Vec<Case> {
        cases(&FORWARD, ["table", "y"], |case, _| case)
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [tokens, d] = case.dims(["tokens", "d"])?;
        // The table of the production case has the size of a real one; other cases set the size.
        let vocab = if case.class == CaseClass::Production { 128_256 } else { 20 };
        let ids = Values::Integers { low: 0, high: vocab as i64 - 1 };
        let specs =
            [InputSpec::new("ids", DType::I32, [tokens], ids), InputSpec::normal("table", case.dtype, [vocab, d])];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let [tokens] = inputs.get("ids")?.dims()?;
        let table = inputs.get("table")?;
        let [_, d] = table.dims()?;
        Ok(vec![TensorMeta::new("y", table.dtype(), [tokens, d])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(FORWARD, args.dtype("table")?, float => |T| {
            embedding_into::<T>(stream, args.input("ids")?, args.input("table")?, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (ids, table) = (inputs.get("ids")?.to_f64(), inputs.get("table")?);
        let (vocab, d) = (table.shape()[0] as f64, table.shape()[1]);
        let is_row = |id: f64| id >= 0.0 && id < vocab;
        let found = |i: usize| if is_row(ids[i]) { reference::row(table, ids[i] as usize) } else { vec![0.0; d] };
        Ok(reference::by_row(rows, found))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, d] = case.dims(["tokens", "d"])?;
        Ok(Cost::memory((tokens * (2 * d * case.dtype.size() + 4)) as u64))
    }
}
