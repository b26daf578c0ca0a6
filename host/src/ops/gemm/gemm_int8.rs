//! Product of matrices of 8-bit integers on the tensor cores, with scales.

use gpu_kernels::ops::gemm::gemm_int8 as gk;

use super::sizes;
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::ops::quant::quantize_rows_int8;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// c\[i, j\] = a_scales\[i\] · b_scales\[j\] · Σ a\[i, k\] · b\[j, k\] for `a` of `[m, k]` and `b` of `[n, k]` in 8-bit integers.
///
/// `a_scales` is `[m]`, or `[1]` for all of `a`; `b_scales` is `[n]`, a scale for each column of the result, or `[1]`. Rows of `a` and `b` may be padded;
/// those at multiples of 16 bytes are read fastest. Sums are exact in 32 bits; k = 0 gives zeros. The result, `[m, n]` of any float type, is a new
/// dense tensor; the work is queued on `stream`.
///
/// Dettmers et al., "LLM.int8()" (arXiv:2208.07339).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if rows are not contiguous and equally far apart, [`Error::TooLarge`] if m or n exceeds
/// 2³¹ − 1 or k 2¹⁷ − 1, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [2, 2], &[1i8, 2, 3, -4])?;
/// let b = Tensor::from_slice(&stream, [1, 2], &[10i8, 1])?;
/// let rows = Tensor::from_slice(&stream, [2], &[0.5f32, 2.0])?;
/// let all = Tensor::from_slice(&stream, [1], &[1.0f32])?;
/// assert_eq!(ops::gemm_int8::<f32>(&stream, &a, &rows, &b, &all)?.to_vec(&stream)?, [6.0, 52.0]);
/// # Ok(())
/// # }
/// ```
pub fn gemm_int8<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, i8>>,
    a_scales: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, i8>>,
    b_scales: impl Into<View<'a, f32>>,
) -> Result<Tensor<T>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::uninit(stream, [m, n])?;
    gemm_int8_into(stream, a, a_scales.into(), b, b_scales.into(), &mut c)?;
    Ok(c)
}

/// [`gemm_int8`] into `c`, whose rows may be padded.
///
/// # Errors
/// As of [`gemm_int8`].
pub fn gemm_int8_into<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, i8>>,
    a_scales: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, i8>>,
    b_scales: impl Into<View<'a, f32>>,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (a, a_scales, b, b_scales, mut c) = (a.into(), a_scales.into(), b.into(), b_scales.into(), c.into());
    let op = INFO.name;
    let [m, k]: [usize; 2] = a.dims(op, "a")?;
    let [n, _]: [usize; 2] = b.dims(op, "b")?;
    b.require_shape(op, "b", &[n, k])?;
    c.require_shape(op, "c", &[m, n])?;
    let a_step = step("a_scales", &a_scales, m)?;
    let b_step = step("b_scales", &b_scales, n)?;
    let lda = a.require_row_stride(op, "a")? as u64;
    let ldb = b.require_row_stride(op, "b")? as u64;
    let ldc = c.require_row_stride(op, "c")? as u64;
    if k > gk::MAX_K as usize {
        return Err(Error::too_large(op, "a", format!("k is {k}, sums of 32 bits take at most {}", gk::MAX_K)));
    }
    let [m, n, k] = sizes(&INFO, [("a", m), ("b", n), ("a", k)])?;
    let tiles = m.div_ceil(gk::BLOCK) as usize * n.div_ceil(gk::BLOCK) as usize;
    let Some(grid) = grid(&INFO, "c", tiles, 1)? else { return Ok(()) };
    let packed = a.rows_aligned(16) && b.rows_aligned(16);
    let (a, a_scales) = (a.ptr(stream)?, a_scales.ptr(stream)?);
    let (b, b_scales) = (b.ptr(stream)?, b_scales.ptr(stream)?);
    let args = (a, a_scales, b, b_scales, c.ptr_mut(stream)?, m, n, k, a_step, b_step, lda, ldb, ldc);
    // SAFETY: the tensors are live and hold these rows at these strides, there is a scale for each row or one for all, c is borrowed mutably, and
    // packs are taken only of rows at multiples of 16 bytes.
    unsafe {
        if packed {
            stream.launch::<gk::GemmInt8<T, 16>>(grid, args)
        } else {
            stream.launch::<gk::GemmInt8<T, 1>>(grid, args)
        }
    }
}

/// C = A·Bᵀ in 8-bit integers, for `a` of `[m, k]` and `b` of `[n, k]` in floats: both are [quantized by row](quantize_rows_int8()) and multiplied by
/// [`gemm_int8`].
///
/// What that costs in accuracy: each factor is off by at most half a step, 1/254 of the greatest magnitude in its row. A weight that is
/// used again is better quantized once. The result, `[m, n]`, is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// As of [`quantize_rows_int8`](quantize_rows_int8()) and [`gemm_int8`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [1, 2], &[127.0f32, -1.0])?;
/// let b = Tensor::from_slice(&stream, [2, 2], &[1.27f32, 0.0, 0.0, -254.0])?;
/// let c = ops::matmul_int8(&stream, &a, &b)?.to_vec(&stream)?;
/// assert!((c[0] - 161.29).abs() < 1e-4 && (c[1] - 254.0).abs() < 1e-4);
/// # Ok(())
/// # }
/// ```
pub fn matmul_int8<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
) -> Result<Tensor<T>> {
    let (a, a_scales) = quantize_rows_int8(stream, a)?;
    let (b, b_scales) = quantize_rows_int8(stream, b)?;
    gemm_int8(stream, &a, &a_scales, &b, &b_scales)
}

/// From a scale to the next: 0 for one that all rows share.
fn step(arg: &'static str, scales: &View<'_, f32>, rows: usize) -> Result<u32> {
    if *scales.shape().dims() == [1] {
        return Ok(0);
    }
    scales.require_shape(INFO.name, arg, &[rows])?;
    scales.require_contiguous(INFO.name, arg)?;
    Ok(1)
}

/// The operator's entry in the registry.
pub struct GemmInt8;

static INFO: OpInfo = OpInfo {
    name: "gemm_int8",
    bench_name: "gemm.int8",
    summary: "product of matrices of 8-bit integers on the tensor cores, with scales",
    math: "C = diag(a_scales)·(A·Bᵀ)·diag(b_scales)",
    args: &[
        ArgInfo::input("a", "[m, k], rows may be padded").of(&[DType::I8]),
        ArgInfo::input("a_scales", "[m] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::input("b", "[n, k], rows may be padded").of(&[DType::I8]),
        ArgInfo::input("b_scales", "[n] or [1], contiguous").of(&[DType::F32]),
        ArgInfo::output("c", "[m, n], of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[ParamInfo::choice("to", "bfloat16", &["float32", "float16", "bfloat16"], "the type of c")],
    dtypes: DType::FLOATS,
    kernels: &[gk::GEMM_INT8],
    variants: &[],
};

/// The type that a case or a call asks for.
fn target(params: &Params) -> Result<DType> {
    params.choice("to")?.parse()
}

impl Operator for GemmInt8 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        // Scales of `a`: one for each row, or one.
        let dims = |m, n, k, scales| [("m", m), ("n", n), ("k", k), ("scales", scales)];
        let mut cases: Vec<_> = [(4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 8192)]
            .map(|(m, n, k)| Case::production(&INFO, format!("m={m} n={n} k={k} bf16"), DType::BF16, dims(m, n, k, m)))
            .into();
        for &dtype in INFO.dtypes {
            cases.extend(
                [
                    Case::odd(&INFO, dtype, dims(136, 144, 272, 136)),
                    Case::odd(&INFO, dtype, dims(133, 35, 203, 1)),
                    Case::odd(&INFO, dtype, dims(21, 19, 150, 21)).arrange("a", Arrangement::DENSE.row_pad(10)),
                    Case::odd(&INFO, dtype, dims(21, 19, 150, 1)).row_pad(10),
                    Case::odd(&INFO, dtype, dims(40, 24, 64, 40)).offset(1),
                    Case::tiny(&INFO, dtype, dims(1, 1, 1, 1)),
                    Case::empty(&INFO, dtype, dims(0, 8, 8, 1)),
                    Case::empty(&INFO, dtype, dims(8, 0, 8, 8)),
                    Case::empty(&INFO, dtype, dims(8, 12, 0, 8)),
                    Case::boundary(&INFO, dtype, dims(128, 128, 64, 128)),
                    Case::boundary(&INFO, dtype, dims(1, 136, 80, 1)),
                    Case::boundary(&INFO, dtype, dims(16, 8, 4096, 1))
                        .values("a", Values::Constant(-128.0))
                        .values("b", Values::Constant(-128.0)),
                ]
                .map(|case| case.param("to", ParamValue::Choice(dtype.name()))),
            );
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [m, n, k, scales] = case.dims(["m", "n", "k", "scales"])?;
        let integers = Values::Integers { low: -128, high: 127 };
        let small = Values::Uniform { low: 0.0, high: 1.0 / 128.0 };
        let specs = [
            InputSpec::new("a", DType::I8, [m, k], integers),
            InputSpec::new("a_scales", DType::F32, [scales], small),
            InputSpec::new("b", DType::I8, [n, k], integers),
            InputSpec::new("b_scales", DType::F32, [n], small),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let (a, b) = (inputs.get("a")?, inputs.get("b")?);
        let [m, k] = a.dims()?;
        let [n, _] = b.dims()?;
        b.has_shape(&[n, k])?;
        for (scales, rows) in [("a_scales", m), ("b_scales", n)] {
            let scales = inputs.get(scales)?;
            if scales.shape() != [1] {
                scales.has_shape(&[rows])?;
            }
        }
        Ok(vec![TensorMeta::new("c", target(params)?, [m, n])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("c")?, float => |T| {
            let (a, a_scales) = (args.input("a")?, args.input("a_scales")?);
            let (b, b_scales) = (args.input("b")?, args.input("b_scales")?);
            gemm_int8_into::<T>(stream, a, a_scales, b, b_scales, args.output("c")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (a, b) = (inputs.get("a")?, inputs.get("b")?);
        let [a_scales, b_scales] = [inputs.get("a_scales")?.to_f64(), inputs.get("b_scales")?.to_f64()];
        let scale = |scales: &[f64], row: usize| if scales.len() == 1 { scales[0] } else { scales[row] };
        let n = b.shape()[0];
        let mut sums = reference::matmul_nt(a, b, rows);
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum *= scale(&a_scales, rows[at / n]) * scale(&b_scales, at % n);
        }
        Ok(sums)
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let why = "the sum rounded to f32, two products, and one rounding to storage";
        Ok(Tolerance::rounded(target(&case.params)?, 0.0, 3.0 * roundoff(DType::F32), why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [m, n, k, scales] = case.dims(["m", "n", "k", "scales"])?;
        let bytes = m * k + n * k + 4 * (scales + n) + m * n * target(&case.params)?.size();
        Ok(Cost::compute(bytes as u64, 2 * (m * n * k) as u64, Bound::Tensor(DType::I8)))
    }
}
