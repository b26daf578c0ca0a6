//! Keys or values repeated for the query heads that share them.

use gpu_kernels::ops::layout::repeat_kv as gk;

use super::{Runs, by_word};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Repeats every head of `x`, `[batch, kv_heads, seq, d]`, `repeat` times in a row: `[batch, kv_heads · repeat, seq, d]`.
///
/// For attention without support of grouped heads. The last dimension of `x` is contiguous, the others may have any strides.
/// The result is a new dense tensor with bitwise copies; the work is queued on `stream`.
///
/// Ainslie et al., "GQA" (arXiv:2305.13245).
///
/// # Errors
/// [`Error::Shape`] if `x` has other than four dimensions, [`Error::Layout`] if its last is not contiguous, [`Error::TooLarge`] beyond
/// 2³² − 1 runs, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 2, 1, 1], &[1.0f32, 2.0])?;
/// assert_eq!(ops::repeat_kv(&stream, &x, 2)?.to_vec(&stream)?, [1.0, 1.0, 2.0, 2.0]);
/// # Ok(())
/// # }
/// ```
pub fn repeat_kv<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, repeat: usize) -> Result<Tensor<T>> {
    let x = x.into();
    let [batch, heads, seq, d]: [usize; 4] = x.dims(INFO.name, "x")?;
    let mut y = Tensor::result_as(INFO.name, "y", stream, [batch, times(heads, repeat)?, seq, d])?;
    repeat_kv_into(stream, x, repeat, &mut y)?;
    Ok(y)
}

/// [`repeat_kv`] into `y`, whose last dimension is contiguous and whose others may have any strides.
///
/// # Errors
/// Same as [`repeat_kv`], and [`Error::Shape`] if `y` has another shape.
pub fn repeat_kv_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    repeat: usize,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, mut y) = (x.into(), y.into());
    stream.require_devices(INFO.name, &[("x", &x), ("y", &y)])?;
    let [batch, heads, seq, d]: [usize; 4] = x.dims(INFO.name, "x")?;
    y.require_shape(INFO.name, "y", &[batch, times(heads, repeat)?, seq, d])?;
    x.require_inner_contiguous(INFO.name, "x")?;
    y.require_inner_contiguous(INFO.name, "y")?;
    let aligned = x.rows_aligned(16) && y.rows_aligned(16);
    let count = if repeat == 0 { 0 } else { batch * heads * seq };
    let Some(runs) = Runs::new(&INFO, "x", [count, d], size_of::<T>(), aligned)? else { return Ok(()) };
    let Ok(repeat) = u32::try_from(repeat) else {
        return Err(Error::too_large(INFO.name, "y", format!("{repeat} repetitions, at most {}", u32::MAX)));
    };
    let strides = |strides: &[usize]| [0, 1, 2].map(|i| runs.words(strides[i]));
    let ([x_batch, x_head, x_token], [y_batch, y_head, y_token]) = (strides(x.strides()), strides(y.strides()));
    let (x, y) = (x.ptr(stream)?, y.ptr_mut(stream)?);
    by_word!(runs, size_of::<T>(), [2: u16, 4: u32] => |W, V| {
        let (x, y, heads, seq) = (x.cast::<W>(), y.cast::<W>(), heads as u32, seq as u32);
        let args = (
            x, y, runs.count, runs.width, heads, seq, repeat, x_batch, x_head, x_token, y_batch, y_head, y_token,
        );
        // SAFETY: both tensors are live and hold these runs at these strides, words are as large as elements or, where all runs
        // are multiples of 16 bytes at such multiples, parts of packs, and y is borrowed mutably.
        unsafe { stream.launch::<gk::RepeatKv<W, V>>(runs.grid, args) }
    })
}

/// The number of heads of `y`.
fn times(heads: usize, repeat: usize) -> Result<usize> {
    let all = heads.checked_mul(repeat);
    all.ok_or_else(|| Error::too_large(INFO.name, "y", format!("{heads} heads {repeat} times")))
}

/// The operator's entry in the registry.
pub struct RepeatKv;

static INFO: OpInfo = OpInfo {
    name: "repeat_kv",
    bench_name: "layout.repeat_kv",
    summary: "heads of keys or values repeated for the query heads that share them",
    math: "y[b, h, s, :] = x[b, ⌊h / repeat⌋, s, :]",
    args: &[
        ArgInfo::input("x", "[batch, kv_heads, seq, d], the last dimension contiguous"),
        ArgInfo::output("y", "[batch, kv_heads · repeat, seq, d], the last dimension contiguous"),
    ],
    params: &[ParamInfo::int("repeat", 4, "query heads for each head of x")],
    dtypes: DType::FLOATS,
    kernels: &[gk::REPEAT_KV],
    variants: &[],
};

/// The parameter, as a size.
fn repeat(params: &Params) -> Result<usize> {
    let repeat = params.i64("repeat")?;
    usize::try_from(repeat).map_err(|_| INFO.param_error("repeat", repeat, "zero or more"))
}

impl Operator for RepeatKv {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |batch, heads, seq, d| [("batch", batch), ("heads", heads), ("seq", seq), ("d", d)];
        let name = "8x8x4096x128 to 32 heads bfloat16";
        let mut cases = vec![Case::production(&INFO, name, DType::BF16, dims(8, 8, 4096, 128))];
        for &dtype in INFO.dtypes {
            let pad = |case: Case, x, y| {
                case.arrange("x", Arrangement::DENSE.row_pad(x)).arrange("y", Arrangement::DENSE.row_pad(y))
            };
            cases.extend([
                Case::odd(&INFO, dtype, dims(2, 3, 17, 64)),
                Case::odd(&INFO, dtype, dims(2, 3, 5, 13)).param("repeat", 3),
                pad(Case::odd(&INFO, dtype, dims(2, 3, 5, 16)), 16, 8),
                Case::odd(&INFO, dtype, dims(2, 3, 5, 16)).arrange("x", Arrangement::DENSE.order(&[0, 2, 1, 3])),
                Case::tiny(&INFO, dtype, dims(1, 1, 1, 1)).param("repeat", 1),
                Case::boundary(&INFO, dtype, dims(1, 1, 2, 8)).offset(1),
                Case::empty(&INFO, dtype, dims(1, 2, 0, 8)),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let shape = case.dims(["batch", "heads", "seq", "d"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, shape).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [batch, heads, seq, d] = x.dims()?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [batch, times(heads, repeat(params)?)?, seq, d])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let repeat = repeat(params)?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            repeat_kv_into::<T>(stream, args.input("x")?, repeat, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, repeat) = (inputs.get("x")?, repeat(params)?);
        let seq = x.shape()[2];
        // Heads of one batch entry follow those of the one before, in x as in y.
        Ok(reference::by_row(rows, |row| reference::row(x, row / seq / repeat * seq + row % seq)))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let elements: usize = case.dims(["batch", "heads", "seq", "d"])?.iter().product();
        Ok(Cost::memory((elements * (1 + repeat(&case.params)?) * case.dtype.size()) as u64))
    }
}
