//! The k largest elements of rows.

use gpu_kernels::ops::reduce::top_k as gk;
use gpu_kernels::rows::CLUSTER;

use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::ops::rows;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The maximum `k` of [`top_k`].
pub const MAX_K: usize = gk::MAX_K as usize;

/// The `k` largest elements of every row of `x`, the largest first, and their indices.
///
/// Of equal elements the first comes first; NaN is greater than everything, and −0 equals +0. `x` is `[rows, d]`, or has more
/// dimensions, the last of which is `d`; the elements of a row are contiguous, and rows may be padded. The results are new
/// tensors of the outer dimensions and `k`; the work is queued on `stream`.
///
/// # Errors
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if `k` is above [`MAX_K`], [`Error::Shape`](crate::Error::Shape) if `x` has fewer
/// than two dimensions, fewer than `k` columns or 2³¹ or more, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and
/// equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 5], &[1.0f32, 4.0, 2.0, 4.0, 3.0])?;
/// let (values, indices) = ops::top_k(&stream, &x, 3)?;
/// assert_eq!(values.to_vec(&stream)?, [4.0, 4.0, 3.0]);
/// assert_eq!(indices.to_vec(&stream)?, [1, 3, 4]);
/// # Ok(())
/// # }
/// ```
pub fn top_k<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, k: usize) -> Result<(Tensor<T>, Tensor<i32>)> {
    let x = x.into();
    let shape = shape(x.shape(), k)?;
    let mut values = Tensor::result_as(INFO.name, "values", stream, &shape)?;
    let mut indices = Tensor::result(stream, &shape)?;
    top_k_into(stream, x, k, &mut values, &mut indices)?;
    Ok((values, indices))
}

/// [`top_k`] into `values` and `indices`, which have the outer dimensions of `x` and `k`; their rows may be padded.
///
/// # Errors
/// Same as [`top_k`].
pub fn top_k_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    k: usize,
    values: impl Into<ViewMut<'a, T>>,
    indices: impl Into<ViewMut<'a, i32>>,
) -> Result<()> {
    let (x, mut values, mut indices) = (x.into(), values.into(), indices.into());
    stream.require_devices(INFO.name, &[("x", &x), ("values", &values), ("indices", &indices)])?;
    let shape = shape(x.shape(), k)?;
    values.require_shape(INFO.name, "values", &shape)?;
    indices.require_shape(INFO.name, "indices", &shape)?;
    let strides = [
        x.require_row_stride(INFO.name, "x")?,
        values.require_row_stride(INFO.name, "values")?,
        indices.require_row_stride(INFO.name, "indices")?,
    ];
    let (rows, d) = (x.rows(), x.cols());
    let few = k <= gk::FEW as usize && d <= 256;
    let of_block = if few { gk::WARPS as usize } else { 1 };
    let Some(grid) = grid(&INFO, "x", if k == 0 { 0 } else { rows }, of_block)? else { return Ok(()) };
    let is_few = stream.device().supports_hopper() && d >= CLUSTER_FROM && rows <= CLUSTERS;
    let clusters = is_few.then(|| rows as u32 * CLUSTER);
    let [x_stride, values_stride, indices_stride] = strides.map(|stride| stride as u64);
    let (x, values, indices) = (x.ptr(stream)?, values.ptr_mut(stream)?, indices.ptr_mut(stream)?);
    // SAFETY: the tensors are live and have rows, of a block or a warp, at these strides, of d and k elements, and those that are written are
    // borrowed mutably; k is at most d and what the kernel finds, and d what it holds, or below 2³¹.
    unsafe {
        if few {
            let args = (x, values, indices, rows as u64, d as u32, k as u32, x_stride, values_stride, indices_stride);
            return if d <= 128 {
                stream.launch::<gk::TopFew<T, 4>>(grid, args)
            } else {
                stream.launch::<gk::TopFew<T, 8>>(grid, args)
            };
        }
        if let Some(grid) = clusters {
            let part = part(d);
            let args = (x, values, indices, d as u32, part as u32, k as u32, x_stride, values_stride, indices_stride);
            return stream.launch_with::<gk::cluster::TopKCluster<T>>(grid, gk::threads(part), args);
        }
        let args = (x, values, indices, d as u32, k as u32, x_stride, values_stride, indices_stride);
        stream.launch_with::<gk::TopK<T>>(grid, gk::threads(d), args)
    }
}

/// The least elements of a row that a cluster shares, and the most rows: each block of a cluster sorts as often as a block that has the row alone.
const CLUSTER_FROM: usize = 65_536;
const CLUSTERS: usize = 16;

/// The number of elements of a row of `d` that each block of a cluster examines, in whole packs; the last block
/// takes the remainder.
fn part(d: usize) -> usize {
    d.div_ceil(CLUSTER as usize).next_multiple_of(8)
}

/// The shape of the results.
fn shape(x: &[usize], k: usize) -> Result<Vec<usize>> {
    rows::require(&INFO, "x", x)?;
    if k > MAX_K {
        return Err(INFO.param_error("k", k, format!("at most {MAX_K}")));
    }
    let (d, outer) = (reference::row_len(x), &x[..x.len() - 1]);
    if !(k..=i32::MAX as usize).contains(&d) {
        return Err(INFO.shape_error("x", x, format!("{k}, which is k, to 2^31 - 1 columns")));
    }
    Ok([outer, &[k]].concat())
}

/// The operator's entry in the registry.
pub struct TopK;

static INFO: OpInfo = OpInfo {
    name: "top_k",
    bench_name: "reduce.top_k",
    summary: "k largest elements of rows, and their indices",
    math: "values[r, j] = x[r, indices[r, j]], the j-th largest of x[r, :], the first of equals first",
    args: &[
        ArgInfo::input("x", "[rows, d] or more dimensions, rows may be padded"),
        ArgInfo::output("values", "the outer dimensions of x and k, rows may be padded"),
        ArgInfo::output("indices", "the outer dimensions of x and k, rows may be padded").of(&[DType::I32]),
    ],
    params: &[ParamInfo::int("k", 8, "elements of a row, up to 256")],
    dtypes: DType::FLOATS,
    kernels: &[gk::TOP_K, gk::TOP_FEW, gk::cluster::TOP_K_CLUSTER],
    variants: &[],
};

fn k(params: &Params) -> Result<usize> {
    let k = params.i64("k")?;
    usize::try_from(k).map_err(|_| INFO.param_error("k", k, format!("from 0 to {MAX_K}")))
}

impl Operator for TopK {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let of = |rows, d, k: i32| {
            Case::production(&INFO, format!("rows={rows} d={d} k={k}"), DType::BF16, dims(rows, d)).param("k", k)
        };
        // The experts of a token, and the best of a vocabulary.
        let mut cases = vec![
            of(16384, 128, 8),
            of(1, 128_256, 50),
            of(16, 128_256, 50),
            of(128, 128_256, 50),
            of(128, 262_144, 256),
        ];
        for &dtype in INFO.dtypes {
            let padded = |case: Case, pads: [usize; 3]| {
                let args = INFO.args.iter().zip(pads);
                args.fold(case, |case, (arg, pad)| case.arrange(arg.name, Arrangement::DENSE.row_pad(pad)))
            };
            let few = Values::Integers { low: -3, high: 3 };
            cases.extend([
                Case::odd(&INFO, dtype, dims(3, 1000)).param("k", 50),
                Case::odd(&INFO, dtype, dims(2, 20_003)).param("k", 100),
                Case::odd(&INFO, dtype, dims(2, 2048)).offset(1).param("k", 64),
                padded(Case::odd(&INFO, dtype, dims(3, 3001)), [7, 3, 5]),
                padded(Case::odd(&INFO, dtype, dims(37, 64)), [8, 1, 2]),
                // As many equals as there are, and more of them than a list holds.
                Case::odd(&INFO, dtype, dims(2, 9000)).values("x", few).param("k", 200),
                Case::odd(&INFO, dtype, dims(2, 5000)).values("x", Values::Constant(-1.0)).param("k", 256),
                Case::tiny(&INFO, dtype, dims(1, 1)).param("k", 1),
                Case::tiny(&INFO, dtype, dims(3, 9)),
                Case::tiny(&INFO, dtype, dims(2, 64)).values("x", Values::Constant(f64::NEG_INFINITY)),
                Case::empty(&INFO, dtype, dims(0, 64)),
                Case::boundary(&INFO, dtype, dims(3, 64)).param("k", 0),
                Case::empty(&INFO, dtype, dims(3, 0)).param("k", 0),
                Case::odd(&INFO, dtype, dims(11, 129)).values("x", few).param("k", 32),
                Case::boundary(&INFO, dtype, dims(2, 33)).param("k", 33),
                Case::boundary(&INFO, dtype, dims(9, 256)).fill(Values::Specials).param("k", 32),
                Case::boundary(&INFO, dtype, dims(1, 257)),
                Case::boundary(&INFO, dtype, dims(1, 256)).param("k", 256),
                Case::boundary(&INFO, dtype, dims(1, 1024)),
                Case::boundary(&INFO, dtype, dims(1, 1025)).param("k", 256),
                Case::boundary(&INFO, dtype, dims(1, 8193)).param("k", 256),
                Case::boundary(&INFO, dtype, dims(5, 520)).fill(Values::Specials),
                Case::boundary(&INFO, dtype, dims(1, 5000)).fill(Values::Specials).param("k", 256),
                Case::boundary(&INFO, dtype, dims(1, 3000)).values("x", Values::Constant(f64::NAN)),
            ]);
        }
        for &dtype in INFO.dtypes {
            let few = Values::Integers { low: -3, high: 3 };
            cases.extend([
                Case::odd(&INFO, dtype, dims(2, 70_003)).param("k", 77),
                Case::odd(&INFO, dtype, dims(2, 66_000)).offset(1).values("x", few).param("k", 256),
                Case::boundary(&INFO, dtype, dims(1, CLUSTER_FROM)).fill(Values::Specials).param("k", 256),
            ]);
        }
        // The list fills several times.
        cases.push(Case::boundary(&INFO, DType::F32, dims(1, 100_003)).param("k", 256));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [rows, d]).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let shape = shape(x.shape(), k(params)?)?;
        Ok(vec![TensorMeta::new("values", x.dtype(), shape.clone()), TensorMeta::new("indices", DType::I32, shape)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let k = k(params)?;
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            top_k_into::<T>(stream, args.input("x")?, k, args.output("values")?, args.output("indices")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, k) = (inputs.get("x")?, k(params)?);
        Ok(reference::by_row(rows, |r| {
            let x = reference::row(x, r);
            let mut places: Vec<usize> = (0..x.len()).collect();
            // Stable: of equal elements the first stays first. NaN is not less than anything.
            places.sort_by(|&a, &b| match (x[a].is_nan(), x[b].is_nan()) {
                (false, false) => x[b].partial_cmp(&x[a]).unwrap_or(std::cmp::Ordering::Equal),
                (a, b) => b.cmp(&a),
            });
            places.into_iter().take(k).map(|i| if output == "values" { x[i] } else { i as f64 }).collect()
        }))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let (size, k) = (case.dtype.size(), k(&case.params)?);
        Ok(Cost::memory((rows * (d * size + k * (size + size_of::<i32>()))) as u64))
    }
}
