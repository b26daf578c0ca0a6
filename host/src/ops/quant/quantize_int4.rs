//! Quantization to 4-bit integers with a scale for each 128 of a row.

use gpu_kernels::ops::quant::quantize_int4 as gk;

use super::inverse;
use crate::dispatch;
use crate::ops::elementwise::grid_of_rows;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The rows of `x`, `[rows, d]`, as 4-bit integers, two a byte, and what to multiply each 128 of a row with: scale = max |x| / 7, q = ⌊x / scale⌉ + 8.
///
/// The lower half of byte i of a row is q of element 2i, the upper half that of element 2i + 1, or 8 if there is none: what
/// [`gemm_w4a16`](crate::ops::gemm_w4a16()) multiplies with. In f32: x · (7 / max), rounded to nearest, ties to even. A group of zeros has scale 0; one with
/// NaN or an infinity has that as its scale, and eights. Rows may be padded. The results are new dense tensors, `[rows, ⌈d/2⌉]` and `[rows, ⌈d/128⌉]`; the work
/// is queued on `stream`.
///
/// Frantar et al., "GPTQ" (arXiv:2210.17323), for groups; what it chooses beyond the nearest integer is not done here.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has other than two dimensions, [`Error::Layout`](crate::Error::Layout) if its rows are not
/// contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 3], &[7.0f32, -3.4, 0.5])?;
/// let (q, scales) = ops::quantize_int4(&stream, &x)?;
/// assert_eq!(q.to_vec(&stream)?, [0x5f, 0x88]); // 7 and −3, then 0
/// assert_eq!(scales.to_vec(&stream)?, [1.0]);
/// # Ok(())
/// # }
/// ```
pub fn quantize_int4<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<(Tensor<u8>, Tensor<f32>)> {
    let x = x.into();
    let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
    let mut q = Tensor::uninit(stream, [rows, d.div_ceil(2)])?;
    let mut scales = Tensor::uninit(stream, [rows, d.div_ceil(gk::GROUP)])?;
    quantize_int4_into(stream, x, &mut q, &mut scales)?;
    Ok((q, scales))
}

/// [`quantize_int4`] into `q`, `[rows, ⌈d/2⌉]`, whose rows may be padded, and `scales`, `[rows, ⌈d/128⌉]`, contiguous.
///
/// # Errors
/// As of [`quantize_int4`].
pub fn quantize_int4_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    q: impl Into<ViewMut<'a, u8>>,
    scales: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let (x, mut q, mut scales) = (x.into(), q.into(), scales.into());
    let op = INFO.name;
    let [rows, d]: [usize; 2] = x.dims(op, "x")?;
    q.require_shape(op, "q", &[rows, d.div_ceil(2)])?;
    scales.require_shape(op, "scales", &[rows, d.div_ceil(gk::GROUP)])?;
    scales.require_contiguous(op, "scales")?;
    let x_stride = x.require_row_stride(op, "x")? as u64;
    let q_stride = q.require_row_stride(op, "q")? as u64;
    let Some(grid) = grid_of_rows(&INFO, "x", rows, d, gk::PER_BLOCK)? else { return Ok(()) };
    let args = (x.ptr(stream)?, q.ptr_mut(stream)?, scales.ptr_mut(stream)?, rows as u64, d as u64, x_stride, q_stride);
    // SAFETY: the tensors are live and hold these rows at these strides, there is a scale for each group, and q and scales are borrowed mutably.
    unsafe { stream.launch::<gk::QuantizeInt4<T>>(grid, args) }
}

/// The operator's entry in the registry.
pub struct QuantizeInt4;

static INFO: OpInfo = OpInfo {
    name: "quantize_int4",
    bench_name: "quant.int4",
    summary: "4-bit integers, two a byte, with a scale for each 128 of a row",
    math: "scale = max |x| / 7, q = ⌊x / scale⌉ + 8, for each 1×128",
    args: &[
        ArgInfo::input("x", "[rows, d], rows may be padded"),
        ArgInfo::output("q", "[rows, ⌈d/2⌉], rows may be padded").of(&[DType::U8]),
        ArgInfo::output("scales", "[rows, ⌈d/128⌉], contiguous").of(&[DType::F32]),
    ],
    params: &[],
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
        let name = "rows=32768 d=4096 bfloat16";
        let mut cases = vec![Case::production(&INFO, name, DType::BF16, dims(32768, 4096))];
        for &dtype in INFO.dtypes {
            let pads = |case: Case, x, q| {
                case.arrange("x", Arrangement::DENSE.row_pad(x)).arrange("q", Arrangement::DENSE.row_pad(q))
            };
            cases.extend([
                Case::odd(&INFO, dtype, dims(7, 1003)),
                Case::odd(&INFO, dtype, dims(3, 2184)),
                pads(Case::odd(&INFO, dtype, dims(5, 168)), 8, 12),
                pads(Case::odd(&INFO, dtype, dims(5, 96)), 1, 3),
                Case::tiny(&INFO, dtype, dims(1, 1)),
                Case::tiny(&INFO, dtype, dims(2, 16)).fill(Values::Constant(0.0)),
                // Few elements, so that some groups have neither NaN nor an infinity.
                Case::boundary(&INFO, dtype, dims(70, 3)).values("x", Values::Specials),
                Case::boundary(&INFO, dtype, dims(2, 2048)).offset(1),
                Case::empty(&INFO, dtype, dims(0, 8)),
                Case::empty(&INFO, dtype, dims(3, 0)),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["rows", "d"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let [rows, d] = inputs.get("x")?.dims()?;
        let q = TensorMeta::new("q", DType::U8, [rows, d.div_ceil(2)]);
        Ok(vec![q, TensorMeta::new("scales", DType::F32, [rows, d.div_ceil(gk::GROUP)])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, float => |T| {
            quantize_int4_into::<T>(stream, args.input("x")?, args.output("q")?, args.output("scales")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        Ok(reference::by_row(rows, |r| {
            let row = reference::row(x, r);
            let groups = row.chunks(gk::GROUP).map(|group| {
                // Not f64::max, which leaves NaN out.
                let max = group.iter().fold(0.0, |max: f64, x| if x.is_nan() || x.abs() > max { x.abs() } else { max });
                (group, max as f32)
            });
            if output == "scales" {
                return groups.map(|(_, max)| f64::from(max) / 7.0).collect();
            }
            let codes = |(group, max): (&[f64], f32)| -> Vec<f64> {
                let scaled = group.iter().map(|x| f64::from(*x as f32 * inverse(max, 7.0)));
                let nearest = scaled.map(|x| if x.is_nan() { 0.0 } else { x.round_ties_even().clamp(-8.0, 7.0) });
                nearest.map(|q| q + f64::from(gk::ZERO)).collect()
            };
            let codes: Vec<f64> = groups.flat_map(codes).collect();
            codes.chunks(2).map(|pair| pair[0] + 16.0 * pair.get(1).copied().unwrap_or(f64::from(gk::ZERO))).collect()
        }))
    }

    fn tolerance(&self, _: &Case, output: &str) -> Result<Tolerance> {
        Ok(match output {
            "q" => Tolerance::EXACT,
            _ => Tolerance::new(1e-45, roundoff(DType::F32), "one division, rounded once"),
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let bytes = rows * (d * case.dtype.size() + d.div_ceil(2) + 4 * d.div_ceil(gk::GROUP));
        Ok(Cost::memory(bytes as u64))
    }
}
