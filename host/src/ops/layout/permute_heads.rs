//! Swaps the sequence and the heads.

use gpu_kernels::ops::layout::permute_heads as gk;

use super::{Runs, by_word};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Swaps the two middle dimensions of `x`: `[batch, seq, heads, d]` becomes `[batch, heads, seq, d]`, and vice versa.
///
/// The last dimension of `x` is contiguous, the others may have any strides: `x` may be part of a fused projection. The result
/// is a new dense tensor with bitwise copies; the work is queued on `stream`. Runs of d elements at multiples of 16 bytes are
/// moved fastest.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has other than four dimensions, [`Error::Layout`](crate::Error::Layout) if its last
/// is not contiguous, [`Error::TooLarge`](crate::Error::TooLarge) beyond 2³² − 1 runs,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// // Two tokens of three heads of one element.
/// let x = Tensor::from_slice(&stream, [1, 2, 3, 1], &[1i32, 2, 3, 4, 5, 6])?;
/// assert_eq!(ops::permute_heads(&stream, &x)?.to_vec(&stream)?, [1, 4, 2, 5, 3, 6]);
/// # Ok(())
/// # }
/// ```
pub fn permute_heads<'a, T: Dtype>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Tensor<T>> {
    let x = x.into();
    let [batch, seq, heads, d]: [usize; 4] = x.dims(INFO.name, "x")?;
    let mut y = Tensor::result(stream, [batch, heads, seq, d])?;
    permute_heads_into(stream, x, &mut y)?;
    Ok(y)
}

/// [`permute_heads`] into `y`, whose last dimension is contiguous and whose others may have any strides.
///
/// # Errors
/// Same as [`permute_heads`], and [`Error::Shape`](crate::Error::Shape) if `y` has another shape.
pub fn permute_heads_into<'a, T: Dtype>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, mut y) = (x.into(), y.into());
    stream.require_devices(INFO.name, &[("x", &x), ("y", &y)])?;
    let [batch, seq, heads, d]: [usize; 4] = x.dims(INFO.name, "x")?;
    y.require_shape(INFO.name, "y", &[batch, heads, seq, d])?;
    x.require_inner_contiguous(INFO.name, "x")?;
    y.require_inner_contiguous(INFO.name, "y")?;
    let aligned = x.rows_aligned(16) && y.rows_aligned(16);
    let Some(runs) = Runs::new(&INFO, "x", [batch * seq * heads, d], size_of::<T>(), aligned)? else {
        return Ok(());
    };
    let strides = |strides: &[usize]| [0, 1, 2].map(|i| runs.words(strides[i]));
    let ([x_batch, x_seq, x_heads, ..], [y_batch, y_heads, y_seq, ..]) = (strides(x.strides()), strides(y.strides()));
    let (x, y) = (x.ptr(stream)?, y.ptr_mut(stream)?);
    by_word!(runs, size_of::<T>(), [1: u8, 2: u16, 4: u32, 8: u64] => |W, V| {
        let sizes = (runs.count, runs.width, seq as u32, heads as u32);
        let args = (
            x.cast::<W>(), y.cast::<W>(), sizes.0, sizes.1, sizes.2, sizes.3, x_batch, x_seq, x_heads, y_batch, y_heads, y_seq,
        );
        // SAFETY: both tensors are live and hold these runs at these strides, words are as large as elements or, where all runs
        // are multiples of 16 bytes at such multiples, parts of packs, and y is borrowed mutably.
        unsafe { stream.launch::<gk::PermuteHeads<W, V>>(runs.grid, args) }
    })
}

/// The operator's entry in the registry.
pub struct PermuteHeads;

static INFO: OpInfo = OpInfo {
    name: "permute_heads",
    bench_name: "layout.permute_heads",
    summary: "sequence and heads exchanged, BSHD ↔ BHSD",
    math: "y[b, h, s, :] = x[b, s, h, :]",
    args: &[
        ArgInfo::input("x", "[batch, seq, heads, d], the last dimension contiguous"),
        ArgInfo::output("y", "[batch, heads, seq, d], the last dimension contiguous"),
    ],
    params: &[],
    dtypes: DType::ALL,
    kernels: &[gk::PERMUTE_HEADS],
    variants: &[],
};

impl Operator for PermuteHeads {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |batch, seq, heads, d| [("batch", batch), ("seq", seq), ("heads", heads), ("d", d)];
        let mut cases = vec![
            Case::production(&INFO, "bshd 8x4096x32x128 bfloat16", DType::BF16, dims(8, 4096, 32, 128)),
            Case::production(&INFO, "bhsd 8x32x4096x128 bfloat16", DType::BF16, dims(8, 32, 4096, 128)),
        ];
        for &dtype in DType::ALL {
            let pad = |case: Case, x, y| {
                case.arrange("x", Arrangement::DENSE.row_pad(x)).arrange("y", Arrangement::DENSE.row_pad(y))
            };
            cases.extend([
                Case::odd(&INFO, dtype, dims(2, 17, 5, 64)),
                Case::odd(&INFO, dtype, dims(2, 7, 3, 13)),
                pad(Case::odd(&INFO, dtype, dims(3, 5, 3, 48)), 16, 32),
                Case::tiny(&INFO, dtype, dims(1, 1, 1, 1)),
            ]);
        }
        let f32 = DType::F32;
        cases.extend([
            // Heads outside tokens in memory, as in a part of a fused projection.
            Case::odd(&INFO, f32, dims(2, 9, 4, 32)).arrange("x", Arrangement::DENSE.order(&[1, 0, 2, 3])),
            Case::odd(&INFO, f32, dims(2, 9, 4, 32)).offset(1),
            Case::boundary(&INFO, f32, dims(1, 2, 2, 4 * 128)),
            Case::boundary(&INFO, f32, dims(1, 2, 2, 4 * 129)),
            Case::boundary(&INFO, f32, dims(1, 2, 1, 4 * 513)),
            Case::empty(&INFO, f32, dims(2, 0, 3, 8)),
            Case::empty(&INFO, f32, dims(2, 3, 3, 0)),
        ]);
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let values = if case.dtype.is_float() { Values::NORMAL } else { Values::Integers { low: 0, high: 127 } };
        let shape = case.dims(["batch", "seq", "heads", "d"])?;
        Ok(vec![InputSpec::new("x", case.dtype, shape, values).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [batch, seq, heads, d] = x.dims()?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [batch, heads, seq, d])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, all => |T| {
            permute_heads_into::<T>(stream, args.input("x")?, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let (seq, heads) = (x.shape()[1], x.shape()[2]);
        Ok(reference::by_row(rows, |row| {
            let (batch, head, token) = (row / seq / heads, row / seq % heads, row % seq);
            reference::row(x, (batch * seq + token) * heads + head)
        }))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let shape = case.dims(["batch", "seq", "heads", "d"])?;
        Ok(Cost::memory((2 * shape.iter().product::<usize>() * case.dtype.size()) as u64))
    }
}
