//! Softmax of rows, with causal and padding masks.

use gpu_kernels::ops::softmax::softmax as gk;

use super::{Causal, SoftmaxMask};
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = e^(scale · x) / Σ e^(scale · x), for every row of `x`.
///
/// `x` is `[rows, d]`, or has more dimensions, the last of which is `d`; the elements of a row are contiguous, and rows may be
/// padded. Statistics are in f32 whatever `T` is, relative to the row's maximum, and the result is rounded once. −∞ gives 0,
/// and a row that is all −∞ gives zeros; +∞ or NaN makes its row NaN. Rows whose packs of 16 bytes are aligned are read from
/// memory once, up to 4096 packs, or 32,768 on GPUs with clusters; others are read twice. The result is a new dense tensor; the
/// work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has fewer than two dimensions, [`Error::Layout`](crate::Error::Layout) if rows are
/// not contiguous and equally far apart, [`Error::InvalidParam`](crate::Error::InvalidParam) if `scale` is not positive and below 2¹²⁷,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 4], &[2.0f32; 4])?;
/// let y = ops::softmax(&stream, &x, 1.0)?;
/// assert_eq!(y.to_vec(&stream)?, [0.25; 4]);
/// # Ok(())
/// # }
/// ```
pub fn softmax<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, scale: f32) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    softmax_into(stream, x, scale, &mut y)?;
    Ok(y)
}

/// [`softmax`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// Same as [`softmax`].
pub fn softmax_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    scale: f32,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(&INFO, stream, x.into(), SoftmaxMask::default(), scale, y.into())
}

/// [`softmax`] over the columns that `mask` lets a row see; the results of other columns are 0, whatever they contain. A row
/// that sees no column gives zeros, and one that sees +∞ or NaN is NaN throughout.
///
/// # Errors
/// Same as [`softmax`]; [`Error::Shape`](crate::Error::Shape) if the number of lengths does not divide the rows,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if `q_len` is 0 or `offset` 2³² or more either way.
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [2, 2], &[1.0f32; 4])?;
/// let causal = Some(ops::Causal { q_len: 2, offset: 0 });
/// let y = ops::softmax_masked(&stream, &x, ops::SoftmaxMask { causal, ..Default::default() }, 1.0)?;
/// assert_eq!(y.to_vec(&stream)?, [1.0, 0.0, 0.5, 0.5]);
/// # Ok(())
/// # }
/// ```
pub fn softmax_masked<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    mask: SoftmaxMask<'a>,
    scale: f32,
) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    softmax_masked_into(stream, x, mask, scale, &mut y)?;
    Ok(y)
}

/// [`softmax_masked`] into `y`, which has the shape of `x`; its rows may be padded.
///
/// # Errors
/// Same as [`softmax_masked`].
pub fn softmax_masked_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    mask: SoftmaxMask<'_>,
    scale: f32,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(&MASKED, stream, x.into(), mask, scale, y.into())
}

fn launch<T: Float>(
    info: &OpInfo,
    stream: &Stream,
    x: View<'_, T>,
    mask: SoftmaxMask<'_>,
    scale: f32,
    mut y: ViewMut<'_, T>,
) -> Result<()> {
    stream.require_devices(info.name, &[("x", &x), ("y", &y), ("key_lengths", &mask.key_lengths)])?;
    let rows = Rows::of(info, "x", &x)?.and_mut(&y);
    y.require_shape(info.name, "y", x.shape())?;
    let x_stride = x.require_row_stride(info.name, "x")?;
    let y_stride = y.require_row_stride(info.name, "y")?;
    super::require_scale(info, scale)?;
    let mask = mask.args(info, stream, x.rows())?;
    let Some(plan) = rows.plan_clustered::<T>(info, stream.device())? else { return Ok(()) };
    let args = (
        x.ptr(stream)?,
        mask.lengths,
        y.ptr_mut(stream)?,
        x_stride as u64,
        y_stride as u64,
        scale * std::f32::consts::LOG2_E,
        mask.q_len,
        mask.offset,
        mask.rows_per_length,
        plan.rows,
        plan.d,
    );
    // SAFETY: the tensors are live; every row holds d elements at its stride, there is a length for each row's part, and y is
    // borrowed mutably. The plan names a team that holds such rows.
    unsafe { launch_rows!(stream, plan, gk::Softmax / SoftmaxCluster, T, args) }
}

/// The operator's entry in the registry.
pub struct Softmax;

static INFO: OpInfo = OpInfo {
    name: "softmax",
    bench_name: "row.softmax",
    summary: "softmax of rows, with causal and padding masks",
    math: "y = e^(scale · x) / Σ e^(scale · x) over the columns that a row sees, 0 elsewhere",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::input("key_lengths", "[n], n dividing the rows: how many columns each n-th of them sees")
            .of(&[DType::I32])
            .optional(),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[
        ParamInfo::float("scale", 1.0, "factor of x, positive"),
        ParamInfo::int(
            "q_len",
            0,
            "queries of a head, whose row r sees column offset + r mod q_len and those before; 0: all",
        ),
        ParamInfo::int("offset", 0, "the first query's position"),
    ],
    dtypes: DType::FLOATS,
    kernels: &[gk::SOFTMAX, gk::SOFTMAX_CLUSTER],
    variants: &[],
};

/// The description that errors of [`softmax_masked`] are named by.
static MASKED: OpInfo = OpInfo { name: "softmax_masked", ..INFO };

fn causal(params: &Params) -> Result<Option<Causal>> {
    let (q_len, offset) = (params.i64("q_len")?, params.i64("offset")?);
    let q_len = usize::try_from(q_len).map_err(|_| INFO.param_error("q_len", q_len, "zero or more"))?;
    Ok((q_len > 0).then_some(Causal { q_len, offset }))
}

impl Operator for Softmax {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let lengths = |rows, d, n| [("rows", rows), ("d", d), ("key_lengths", n)];
        let mut cases = Vec::new();
        for (rows, d, dtype) in [
            (32768, 4096, DType::BF16),
            (8192, 32768, DType::BF16),
            (2048, 131_072, DType::BF16),
            (32768, 4096, DType::F32),
            (8192, 32768, DType::F32),
            (4096, 131_072, DType::F32),
        ] {
            let name = format!("rows={rows} d={d} {dtype}");
            cases.push(Case::production(&INFO, name, dtype, dims(rows, d)).without("key_lengths"));
        }
        for &dtype in INFO.dtypes {
            let all = rows::cases(&INFO, dtype, rows::CLUSTERED_LIMITS, &["key_lengths"]);
            cases.extend(all.into_iter().map(|case| case.without("key_lengths")));
            let hostile = Values::Hostile { bound: 100 };
            let infinite = Values::Constant(f64::NEG_INFINITY);
            cases.extend([
                Case::odd(&INFO, dtype, dims(11, 640)).param("scale", 0.125).without("key_lengths"),
                Case::odd(&INFO, dtype, dims(34, 40)).param("q_len", 17).param("offset", -3).without("key_lengths"),
                Case::odd(&INFO, dtype, dims(9, 1601)).param("q_len", 5).param("offset", 1597).without("key_lengths"),
                Case::odd(&INFO, dtype, lengths(12, 100, 4)).values("key_lengths", hostile),
                Case::odd(&INFO, dtype, lengths(12, 104, 12)).values("key_lengths", hostile).param("q_len", 12),
                Case::tiny(&INFO, dtype, dims(2, 64)).values("x", infinite).without("key_lengths"),
                Case::boundary(&INFO, dtype, dims(70, 2)).fill(Values::Specials).without("key_lengths"),
                Case::boundary(&INFO, dtype, dims(70, 9))
                    .fill(Values::Specials)
                    .param("q_len", 7)
                    .without("key_lengths"),
            ]);
        }
        // Columns that a block of a cluster does not see.
        let long = dims(1, 40_000);
        cases.push(
            Case::boundary(&INFO, DType::BF16, long).param("q_len", 1).param("offset", 7_001).without("key_lengths"),
        );
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let mut specs = vec![InputSpec::normal("x", case.dtype, [rows, d])];
        if let Some(n) = case.dims.get("key_lengths").filter(|_| case.has("key_lengths")) {
            let values = Values::Integers { low: 0, high: d as i64 };
            specs.push(InputSpec::new("key_lengths", DType::I32, [n], values));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
        let count = reference::row_count(x.shape());
        if let Some(lengths) = inputs.optional("key_lengths") {
            let [n] = lengths.dims()?;
            if count > 0 && (n == 0 || !count.is_multiple_of(n)) {
                return Err(INFO.shape_error(
                    "key_lengths",
                    lengths.shape(),
                    format!("[n] with n dividing {count} rows"),
                ));
            }
        }
        params.f32("scale")?;
        causal(params)?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let mask = SoftmaxMask { causal: causal(params)?, key_lengths: args.optional_input("key_lengths")? };
        let scale = params.f32("scale")?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            launch::<T>(&INFO, stream, args.input("x")?, mask, scale, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let lengths = inputs.optional("key_lengths").map(|lengths| lengths.to_f64());
        let causal = causal(params)?;
        let scale = f64::from(params.f32("scale")?);
        let count = reference::row_count(x.shape());
        Ok(reference::by_row(rows, |r| {
            let x = reference::row(x, r);
            let mut visible = x.len() as i64;
            if let Some(Causal { q_len, offset }) = causal {
                visible = visible.min(offset + (r % q_len) as i64 + 1);
            }
            if let Some(lengths) = &lengths {
                visible = visible.min(lengths[r / (count / lengths.len())] as i64);
            }
            let visible = visible.max(0) as usize;
            let max = x[..visible].iter().fold(f64::NEG_INFINITY, |max, x| max.max(scale * x));
            if max == f64::NEG_INFINITY && !x[..visible].iter().any(|x| x.is_nan()) {
                return vec![0.0; x.len()];
            }
            let sum: f64 = x[..visible].iter().map(|x| (scale * x - max).exp()).sum();
            if sum.is_nan() {
                return vec![sum; x.len()];
            }
            let of = |c: usize| if c < visible { (scale * x[c] - max).exp() / sum } else { 0.0 };
            (0..x.len()).map(of).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        super::tolerance(
            case,
            0.0,
            "one rounding to storage, √d·2⁻²⁴ of the sum, 2⁻²² each of exponential and reciprocal, 2⁻²³ of exponents up to 16",
        )
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((2 * rows * d * case.dtype.size()) as u64))
    }
}
