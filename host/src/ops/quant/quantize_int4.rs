//! Quantization to 4-bit integers with a scale and, optionally, a zero point for each group of 128 in a row.

use cuda_std::launch::DevicePtrMut;
use gpu_kernels::ops::quant::quantize_int4 as gk;

use super::{Zero, max_nan};
use crate::dispatch;
use crate::ops::elementwise::grid_of_rows;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Rows in 4-bit integers with a scale for each group of 128: x ≈ (q − zero) · scale.
#[derive(Debug)]
pub struct QuantizedInt4 {
    /// The integers, from 0 to 15, two per byte, `[rows, ⌈d/2⌉]`.
    pub q: Tensor<u8>,
    /// The scales, by which the differences are multiplied, `[rows, ⌈d/128⌉]`.
    pub scales: Tensor<f32>,
    /// The zero points, from 0 to 15, which are subtracted from the integers first, `[rows, ⌈d/128⌉]`; `None` if all are 8.
    pub zeros: Option<Tensor<u8>>,
}

/// Quantizes the rows of `x`, `[rows, d]`, to 4-bit integers, two per byte, with a scale and, if requested, a zero point for
/// each group of 128 in a row.
///
/// Symmetric: scale = max |x| / 7, q = ⌊x / scale⌉ + 8. Asymmetric, over the range \[low, high\] of a group and 0: scale =
/// (high − low) / 15, zero = −⌊low / scale⌉, q = min(⌊x / scale⌉ + zero, 15). x · (7 / max), with the factor in f32, is rounded
/// once, to the nearest integer, ties to even. The lower half of byte i of a row is q of element 2i, the upper half that of
/// element 2i + 1, or the zero point if there is no such element: the format of [`gemm_w4a16`](crate::ops::gemm_w4a16()).
/// Scales are at least the smallest normal number, which is the scale of a group of zeros. In a group with NaN or an infinity,
/// or with a range beyond the greatest f32 number, every q is the zero point, 8 or 0, and the scale is NaN or infinite. Rows
/// may be padded. The results are new dense tensors; the work is queued on `stream`.
///
/// Frantar et al., "GPTQ" (arXiv:2210.17323), for groups; Lin et al., "AWQ" (arXiv:2306.00978), for their zero points. Their
/// choices beyond rounding to the nearest integer are not implemented here.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has other than two dimensions, [`Error::Layout`](crate::Error::Layout) if its rows are not
/// contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, Zero}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 3], &[7.0f32, -3.4, 0.5])?;
/// let symmetric = ops::quantize_int4(&stream, &x, Zero::Symmetric)?;
/// assert_eq!(symmetric.q.to_vec(&stream)?, [0x5f, 0x88]); // 7 and −3, then 0
/// assert_eq!(symmetric.scales.to_vec(&stream)?, [1.0]);
/// let x = Tensor::from_slice(&stream, [1, 3], &[26.0f32, -4.0, 1.0])?;
/// let asymmetric = ops::quantize_int4(&stream, &x, Zero::Asymmetric)?;
/// assert_eq!(asymmetric.q.to_vec(&stream)?, [0x0f, 0x22]); // 13 and −2, then 0: a half, ties to even
/// assert_eq!(asymmetric.scales.to_vec(&stream)?, [2.0]);
/// assert_eq!(asymmetric.zeros.unwrap().to_vec(&stream)?, [2]);
/// # Ok(())
/// # }
/// ```
pub fn quantize_int4<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, zero: Zero) -> Result<QuantizedInt4> {
    let x = x.into();
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    let groups = groups(rows, d);
    let mut quantized = QuantizedInt4 {
        q: Tensor::result(stream, [rows, d.div_ceil(2)])?,
        scales: Tensor::result(stream, groups)?,
        zeros: if zero == Zero::Asymmetric { Some(Tensor::result(stream, groups)?) } else { None },
    };
    let QuantizedInt4 { q, scales, zeros } = &mut quantized;
    quantize_int4_into(stream, x, q, scales, zeros.as_mut().map(Tensor::view_mut))?;
    Ok(quantized)
}

/// [`quantize_int4`] into `q`, `[rows, ⌈d/2⌉]`, whose rows may be padded, and `scales`, `[rows, ⌈d/128⌉]`, contiguous;
/// asymmetric if `zeros`, of the shape of `scales` and contiguous, are given.
///
/// # Errors
/// Same as [`quantize_int4`].
pub fn quantize_int4_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    q: impl Into<ViewMut<'a, u8>>,
    scales: impl Into<ViewMut<'a, f32>>,
    zeros: Option<ViewMut<'a, u8>>,
) -> Result<()> {
    let (x, mut q, mut scales) = (x.into(), q.into(), scales.into());
    stream.require_devices(INFO.name, &[("x", &x), ("q", &q), ("scales", &scales), ("zeros", &zeros)])?;
    let op = INFO.name;
    let [rows, d]: [usize; 2] = x.dims(op, "x")?;
    q.require_shape(op, "q", &[rows, d.div_ceil(2)])?;
    scales.require_shape(op, "scales", &groups(rows, d))?;
    scales.require_contiguous(op, "scales")?;
    if let Some(zeros) = &zeros {
        zeros.require_shape(op, "zeros", &groups(rows, d))?;
        zeros.require_contiguous(op, "zeros")?;
    }
    let x_stride = x.require_row_stride(op, "x")? as u64;
    let q_stride = q.require_row_stride(op, "q")? as u64;
    let Some(grid) = grid_of_rows(&INFO, "x", rows, d, gk::PER_BLOCK)? else { return Ok(()) };
    let asymmetric = zeros.is_some();
    let zeros = zeros.map_or(Ok(DevicePtrMut::null()), |mut zeros| zeros.ptr_mut(stream))?;
    let (x, q, scales) = (x.ptr(stream)?, q.ptr_mut(stream)?, scales.ptr_mut(stream)?);
    let args = (x, q, scales, zeros, rows as u64, d as u64, x_stride, q_stride);
    // SAFETY: the tensors are live and hold these rows at these strides, there is a scale and, if asked for, a zero point for each group, and what is written is
    // borrowed mutably.
    unsafe {
        if asymmetric {
            stream.launch::<gk::QuantizeInt4<T, true>>(grid, args)
        } else {
            stream.launch::<gk::QuantizeInt4<T, false>>(grid, args)
        }
    }
}

/// The shape of scales and zero points.
pub(super) fn groups(rows: usize, d: usize) -> [usize; 2] {
    [rows, d.div_ceil(gk::GROUP)]
}

/// The operator's entry in the registry.
pub struct QuantizeInt4;

static INFO: OpInfo = OpInfo {
    name: "quantize_int4",
    bench_name: "quant.int4",
    summary: "4-bit integers, two a byte, with a scale for each 128 of a row, symmetric or with a zero point",
    math: "q = ⌊x / scale⌉ + zero, for each 1×128",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::output("q", "[rows, ⌈d/2⌉], rows may be padded").of(&[DType::U8]),
        ArgInfo::output("scales", "[rows, ⌈d/128⌉], contiguous").of(&[DType::F32]),
        ArgInfo::output("zeros", "[rows, ⌈d/128⌉], contiguous, if asymmetric").of(&[DType::U8]).optional(),
    ],
    params: &[ParamInfo::bool(
        "asymmetric",
        false,
        "with zero points, so that all integers cover the range of a group and 0",
    )],
    dtypes: DType::FLOATS,
    kernels: &[gk::QUANTIZE_INT4],
    variants: &[],
};

impl Operator for QuantizeInt4 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let production = |name| Case::production(&INFO, name, DType::BF16, dims(32768, 4096));
        let mut cases = vec![
            production("rows=32768 d=4096 bfloat16"),
            production("rows=32768 d=4096 bfloat16 asymmetric").param("asymmetric", true),
        ];
        for &dtype in INFO.dtypes {
            let pads = |case: Case, x, q| {
                case.arrange("x", Arrangement::DENSE.row_pad(x)).arrange("q", Arrangement::DENSE.row_pad(q))
            };
            let above = Values::Uniform { low: 1.0, high: 3.0 };
            let below = Values::Uniform { low: -3.0, high: -1.0 };
            let small = Values::Uniform { low: -1e-37, high: 1e-37 };
            for asymmetric in [false, true] {
                cases.extend(
                    [
                        Case::odd(&INFO, dtype, dims(7, 1003)),
                        Case::odd(&INFO, dtype, dims(3, 2184)).fill(above),
                        Case::odd(&INFO, dtype, dims(2, 267)).values("x", below),
                        pads(Case::odd(&INFO, dtype, dims(5, 168)), 8, 12),
                        pads(Case::odd(&INFO, dtype, dims(5, 96)), 1, 3),
                        Case::tiny(&INFO, dtype, dims(1, 1)),
                        Case::tiny(&INFO, dtype, dims(2, 16)).fill(Values::Constant(0.0)),
                        Case::boundary(&INFO, dtype, dims(2, 256)).values("x", small),
                        // Few elements, so that some groups have neither NaN nor an infinity.
                        Case::boundary(&INFO, dtype, dims(70, 3)).values("x", Values::Specials),
                        Case::boundary(&INFO, dtype, dims(2, 2048)).offset(1),
                        Case::boundary(&INFO, dtype, dims(2, 4096)),
                        Case::empty(&INFO, dtype, dims(0, 8)),
                        Case::empty(&INFO, dtype, dims(3, 0)),
                    ]
                    .map(|case| if asymmetric { case.param("asymmetric", true) } else { case }),
                );
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["rows", "d"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let [rows, d] = inputs.get("x")?.dims()?;
        let of_groups = |name, dtype| TensorMeta::new(name, dtype, groups(rows, d));
        let mut outputs = vec![TensorMeta::new("q", DType::U8, [rows, d.div_ceil(2)]), of_groups("scales", DType::F32)];
        if params.bool("asymmetric")? {
            outputs.push(of_groups("zeros", DType::U8));
        }
        Ok(outputs)
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let zeros = if params.bool("asymmetric")? { Some(args.output("zeros")?) } else { None };
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            quantize_int4_into::<T>(stream, args.input("x")?, args.output("q")?, args.output("scales")?, zeros)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, asymmetric) = (inputs.get("x")?, params.bool("asymmetric")?);
        Ok(reference::by_row(rows, |r| {
            let row = reference::row(x, r);
            let groups = row.chunks(gk::GROUP).map(|group| (group, Grid::of(group, asymmetric)));
            match output {
                "scales" => groups.map(|(_, grid)| grid.scale()).collect(),
                "zeros" => groups.map(|(_, grid)| grid.zero).collect(),
                _ => {
                    let codes = |(group, grid): (&[f64], Grid)| group.iter().map(|x| grid.code(*x)).collect::<Vec<_>>();
                    let last = groups.clone().next_back().map_or(0.0, |(_, grid)| grid.zero);
                    let codes: Vec<f64> = groups.flat_map(codes).collect();
                    codes.chunks(2).map(|pair| pair[0] + 16.0 * pair.get(1).copied().unwrap_or(last)).collect()
                }
            }
        }))
    }

    fn tolerance(&self, _: &Case, output: &str) -> Result<Tolerance> {
        Ok(match output {
            "scales" => Tolerance::new(0.0, roundoff(DType::F32), "one division, rounded once"),
            _ => Tolerance::EXACT,
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let of_group = if case.params.bool("asymmetric")? { 5 } else { 4 };
        let bytes = rows * (d * case.dtype.size() + d.div_ceil(2) + of_group * d.div_ceil(gk::GROUP));
        Ok(Cost::memory(bytes as u64))
    }
}

/// The numbers that the integers of a group stand for.
struct Grid {
    range: f32,
    steps: f32,
    zero: f64,
}

impl Grid {
    fn of(group: &[f64], asymmetric: bool) -> Self {
        let greatest = |sign: fn(f64) -> f64| group.iter().map(|x| sign(*x)).fold(0.0, max_nan) as f32;
        let below = greatest(|x| -x);
        let (range, steps) = if asymmetric { (greatest(|x| x) + below, 15.0) } else { (greatest(f64::abs), 7.0) };
        let least = steps * f32::MIN_POSITIVE;
        let mut grid = Self { range: if range < least { least } else { range }, steps, zero: f64::from(gk::ZERO) };
        if asymmetric {
            grid.zero = grid.steps_to(f64::from(below));
        }
        grid
    }

    fn scale(&self) -> f64 {
        f64::from(self.range) / f64::from(self.steps)
    }

    /// By a factor in f32, the product rounded once; NaN is no step away.
    fn steps_to(&self, x: f64) -> f64 {
        let product = x * f64::from(self.steps / self.range);
        if product.is_nan() { 0.0 } else { product.round_ties_even() }
    }

    fn code(&self, x: f64) -> f64 {
        (self.steps_to(x) + self.zero).min(15.0)
    }
}
