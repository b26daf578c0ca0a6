//! A user's formula over rows, fused into a kernel.

use std::array;

use gpu_kernels::fuse::row::{RowFormula, packs};
use gpu_kernels::fuse::{MAX_INPUTS, Strides};
use gpu_kernels::ops::norm::row as gk;

use crate::dispatch;
use crate::ops::model::*;
use crate::ops::rows::{self, Rows, Team};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Reductions over every row, and a formula of each element and of these reductions, in a single kernel for your own formula.
///
/// The formula comes from `row!` of the package `warpsmith-kernels`, in the same way as for [`map`](crate::ops::map()). The
/// inputs have the same shape, `[rows, d]` or more dimensions, the last of which is `d`; the elements of a row are contiguous,
/// and rows may be padded. To use one row for all rows, pass a view that was [`broadcast`](View::broadcast). Arithmetic is in
/// f32 and rounded once. Rows whose packs of 16 bytes are aligned are read from memory once, up to 4096 packs with one or two
/// inputs and 2048 with more; on GPUs with clusters, with kernels compiled for `sm_90a`, up to eight times as many. Others are
/// read once for each reduction and once more. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// They name the formula and its inputs. [`Error::MissingKernel`](crate::Error::MissingKernel) if its kernels were not added,
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ or have fewer than two dimensions, [`Error::Layout`](crate::Error::Layout) if the
/// elements of a row are not adjacent or rows not equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// With a formula that comes with the operators, gelu of rms_norm:
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// use gpu_kernels::ops::norm::row::rms_norm_gelu;
///
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [2, 2], &[3.0f32, -3.0, 0.0, 9.0])?;
/// let weight = Tensor::from_slice(&stream, [2], &[10.0f32, 20.0])?;
/// let y = ops::row(&stream, [x.view(), weight.view().broadcast([2, 2])?], rms_norm_gelu(0.0))?;
/// assert_eq!(y.to_vec(&stream)?[..3], [10.0, 0.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub fn row<'a, T: Float, const K: usize>(
    stream: &Stream,
    inputs: [impl Into<View<'a, T>>; K],
    formula: impl RowFormula<K>,
) -> Result<Tensor<T>> {
    const { assert!(K >= 1, "a formula has an input") };
    let inputs = inputs.map(Into::into);
    let mut y = Tensor::result(stream, inputs[0].shape())?;
    row_into(stream, inputs, formula, &mut y)?;
    Ok(y)
}

/// [`row`] into `y`, which has the shape of the inputs; its rows may be padded.
///
/// # Errors
/// Same as [`row`].
pub fn row_into<'a, T: Float, F: RowFormula<K>, const K: usize>(
    stream: &Stream,
    inputs: [impl Into<View<'a, T>>; K],
    formula: F,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    const { assert!(K >= 1 && K <= MAX_INPUTS, "a formula has one to four inputs") };
    let (inputs, mut y): ([View<'a, T>; K], _) = (inputs.map(Into::into), y.into());
    let info = OpInfo { name: F::NAME, bench_name: F::NAME, ..INFO };
    for (name, input) in F::INPUTS.into_iter().zip(&inputs) {
        input.require_device(F::NAME, name, stream)?;
    }
    y.require_device(F::NAME, "y", stream)?;
    let mut rows = Rows::of(&info, F::INPUTS[0], &inputs[0])?.and_mut(&y).wide_from(257);
    let mut strides = Strides { inputs: [0; K], output: 0 };
    for (i, input) in inputs.iter().enumerate() {
        if input.shape() != inputs[0].shape() {
            let expected = format!("{} as `{}`", inputs[0].shape(), F::INPUTS[0]);
            return Err(info.shape_error(F::INPUTS[i], input.shape(), expected));
        }
        strides.inputs[i] = input.require_row_stride(F::NAME, F::INPUTS[i])? as u64;
        rows = rows.and(input);
    }
    y.require_shape(F::NAME, "y", inputs[0].shape())?;
    strides.output = y.require_row_stride(F::NAME, "y")? as u64;
    let Some(mut plan) = rows.plan_by::<T>(&info, packs(K), false)? else { return Ok(()) };
    if let Some(clustered) = rows.plan_by::<T>(&info, packs(K), stream.device().supports_hopper())?
        && clustered != plan
        && stream.device().has_kernel::<F::Cluster<T>>()?
    {
        plan = clustered;
    }
    let mut pointers = Vec::with_capacity(K);
    for input in &inputs {
        pointers.push(input.ptr(stream)?);
    }
    let args = formula.args(array::from_fn(|i| pointers[i]), y.ptr_mut(stream)?, plan.rows, plan.d, strides);
    // SAFETY: the tensors are live and have these rows at these strides, and y is borrowed mutably; the plan names a team that holds such
    // rows; the formula's promise.
    unsafe {
        match plan.team {
            Team::Lanes => stream.launch::<F::Lanes<T>>(plan.grid, args),
            Team::Warp => stream.launch::<F::Warp<T>>(plan.grid, args),
            Team::Block2 => stream.launch_with::<F::ShortBlock<T>>(plan.grid, plan.block, args),
            Team::Block8 => stream.launch_with::<F::Block<T>>(plan.grid, plan.block, args),
            Team::Cluster => stream.launch_with::<F::Cluster<T>>(plan.grid, plan.block, args),
            Team::Stream => stream.launch_with::<F::Stream<T>>(plan.grid, plan.block, args),
        }
    }
}

/// The operator's entry in the registry, of rms_norm and gelu.
pub struct Row;

static INFO: OpInfo = OpInfo {
    name: "row",
    bench_name: "row.row",
    summary: "reductions of rows and a formula of them, fused: a user's own",
    math: "y = f(x₀, x₁, …, reductions of the row), here gelu(x / √(mean(x²) + eps) · weight)",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::input("weight", "the shape of x, one row for all or rows that may be padded"),
        ArgInfo::output("y", "the shape of x, rows may be padded"),
    ],
    params: &[ParamInfo::float("eps", 1e-6, "added to the mean square")],
    dtypes: DType::FLOATS,
    kernels: &[<gk::rms_norm_gelu as RowFormula<2>>::KERNELS, <gk::rms_norm_gelu as RowFormula<2>>::CLUSTERED],
    variants: &[],
};

impl Operator for Row {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        // Without rows, no row can be shared by all.
        let shared = |case: Case| match case.dims(["rows"]) {
            Ok([0]) => case,
            _ => case.arrange("weight", Arrangement::DENSE.broadcast(&[0])),
        };
        let mut cases: Vec<_> = rows::production(&INFO).into_iter().map(&shared).collect();
        for &dtype in INFO.dtypes {
            // A separate row of weights for each row.
            cases.push(Case::odd(&INFO, dtype, dims(11, 640)).param("eps", 0.25));
            cases.push(Case::odd(&INFO, dtype, dims(5, 3072)).row_pad(8));
            cases.push(Case::odd(&INFO, dtype, dims(3, 203)).row_pad(3));
            cases.push(shared(Case::tiny(&INFO, dtype, dims(2, 64)).fill(Values::Constant(0.0))));
            cases.extend(rows::cases(&INFO, dtype, rows::CLUSTERED_LIMITS, &["weight"]).into_iter().map(shared));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let specs = ["x", "weight"].map(|name| InputSpec::normal(name, case.dtype, [rows, d]));
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(&INFO, "x", x.shape())?;
        inputs.get("weight")?.has_shape(x.shape())?;
        params.f32("eps")?;
        Ok(vec![TensorMeta::new("y", x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let formula = gk::rms_norm_gelu(params.f32("eps")?);
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            row_into::<T, _, 2>(stream, [args.input::<T>("x")?, args.input::<T>("weight")?], formula, args.output::<T>("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight) = (inputs.get("x")?, inputs.get("weight")?);
        let eps = f64::from(params.f32("eps")?);
        Ok(reference::by_row(rows, |r| {
            let (x, weight) = (reference::row(x, r), reference::row(weight, r));
            let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean + eps).sqrt();
            x.iter().zip(&weight).map(|(x, w)| gelu(x * scale * w)).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [d] = case.dims(["d"])?;
        let sum = (d as f64).sqrt() * roundoff(DType::F32) + 1e-6;
        let why = "one rounding to storage; √d·2⁻²⁴ of the sum of squares and 2⁻²⁰ else of gelu's argument z, times |z·gelu'(z)|, which is at most \
                   1.2·gelu(z) and below 0 at most 0.2";
        Ok(Tolerance::rounded(case.dtype, 0.5 * sum, 2.0 * sum, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let operands = if case.arrangement("weight").broadcast.is_empty() { 3 } else { 2 };
        Ok(Cost::memory((operands * rows * d * case.dtype.size()) as u64))
    }
}

/// In its tanh form, as x·σ(2u).
fn gelu(x: f64) -> f64 {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    x / (1.0 + (-2.0 * u).exp())
}
