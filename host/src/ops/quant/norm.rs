//! Fused normalisation and quantization in the registry.

use super::blocks::{Block, least_subnormal, scale};
use super::{TINY, max_nan};
use crate::ops::model::*;
use crate::ops::norm;
use crate::runtime::dtype::{DType, Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// The blocks of 8-bit floats.
pub(super) const BLOCK: Block = Block::new(1, 128);

/// The strides of `x` and `q`, once everything fits.
pub(super) fn check<T: Float, Q: Dtype>(
    info: &OpInfo,
    x: &View<'_, T>,
    weight: &View<'_, T>,
    eps: f32,
    q: &ViewMut<'_, Q>,
    scales: (&ViewMut<'_, f32>, &[usize]),
) -> Result<[u64; 2]> {
    norm::require_weight(info, "weight", weight, x.cols())?;
    norm::require_eps(info, eps)?;
    q.require_shape(info.name, "q", x.shape())?;
    scales.0.require_shape(info.name, "scales", scales.1)?;
    scales.0.require_contiguous(info.name, "scales")?;
    Ok([x.require_row_stride(info.name, "x")? as u64, q.require_row_stride(info.name, "q")? as u64])
}

/// Root-mean-square normalisation with quantization of its result.
pub struct NormQuantization {
    pub(super) info: &'static OpInfo,
    /// Whether to quantize to 8-bit integers with a scale for each row, instead of 8-bit floats with one for each 128
    /// adjacent elements.
    pub(super) integers: bool,
    pub(super) launch: fn(&Stream, &mut Arguments<'_>, f32) -> Result<()>,
}

impl NormQuantization {
    /// The type of q.
    fn target(&self, params: &Params) -> Result<DType> {
        if self.integers { Ok(DType::I8) } else { params.choice("to")?.parse() }
    }

    fn scales(&self, rows: usize, d: usize) -> Vec<usize> {
        if self.integers { vec![rows] } else { BLOCK.scales(rows, d).to_vec() }
    }
}

impl Operator for NormQuantization {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let info = self.info;
        let mut cases = vec![Case::production(info, "16384x8192 bfloat16", DType::BF16, dims(16384, 8192))];
        for &dtype in info.dtypes {
            let pads = |case: Case, x, q| {
                case.arrange("x", Arrangement::DENSE.row_pad(x)).arrange("q", Arrangement::DENSE.row_pad(q))
            };
            let of_type = [
                Case::odd(info, dtype, dims(3, 1024)),
                // More than the threads hold.
                Case::odd(info, dtype, dims(2, 9 * 4096 / dtype.size() + 72)),
                Case::odd(info, dtype, dims(5, 203)).param("eps", 0.25),
                pads(Case::odd(info, dtype, dims(4, 264)), 8, 16),
                pads(Case::odd(info, dtype, dims(3, 96)), 3, 5),
                Case::tiny(info, dtype, dims(1, 1)),
                Case::tiny(info, dtype, dims(2, 40)).fill(Values::Constant(0.0)),
                Case::boundary(info, dtype, dims(2, 136)).offset(1),
                Case::empty(info, dtype, dims(0, 8)),
                Case::empty(info, dtype, dims(3, 0)),
            ];
            // Of the other types squares overflow in f32 on the way. Few elements, so that some rows have neither NaN nor an infinity.
            if dtype == DType::F16 {
                cases.push(Case::boundary(info, dtype, dims(70, 3)).values("x", Values::Specials));
                cases.push(Case::boundary(info, dtype, dims(2, 264)).values("weight", Values::Specials));
            }
            if self.integers {
                // An infinite 1 / rms.
                cases.push(Case::tiny(info, dtype, dims(1, 72)).fill(Values::Constant(0.0)).param("eps", 0.0));
                if dtype != DType::F16 {
                    // Scales below the normal numbers: of what is normalised, and before that.
                    let tiny = Case::boundary(info, dtype, dims(2, 72)).values("weight", Values::Normal { std: TINY });
                    cases.push(tiny.clone());
                    cases.push(tiny.values("x", Values::Normal { std: 1e-5 }).param("eps", 0.0));
                }
            } else {
                // Rows of packs, and others.
                let to = |case: &Case| case.clone().param("to", ParamValue::Choice("float8_e5m2"));
                cases.extend([to(&of_type[0]), to(&of_type[2])]);
            }
            cases.extend(of_type);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let specs = [InputSpec::normal("x", case.dtype, [rows, d]), InputSpec::normal("weight", case.dtype, [d])];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let [rows, d] = inputs.get("x")?.dims()?;
        inputs.get("weight")?.has_shape(&[d])?;
        let q = TensorMeta::new("q", self.target(params)?, [rows, d]);
        Ok(vec![q, TensorMeta::new("scales", DType::F32, self.scales(rows, d))])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        (self.launch)(stream, args, params.f32("eps")?)
    }

    /// Of q, what is rounded to it.
    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight, to) = (inputs.get("x")?, inputs.get("weight")?.to_f64(), self.target(params)?);
        let eps = f64::from(params.f32("eps")?);
        let d = x.shape()[1];
        let width = if self.integers { d.max(1) } else { BLOCK.columns };
        let stored = |q: f64| if self.integers && q.is_nan() { 0.0 } else { q };
        Ok(reference::by_row(rows, |r| {
            let x = x.range_f64(r * d..(r + 1) * d).unwrap_or_default();
            let mean = x.iter().map(|x| x * x).sum::<f64>() / d as f64;
            let rms = (mean + eps).sqrt();
            // The scale of integers is found before 1 / rms, which may be infinite, is looked at.
            let is_zero = self.integers && x.iter().zip(&weight).all(|(x, w)| x * w == 0.0);
            let normalize = |(x, w): (&f64, &f64)| if is_zero { 0.0 } else { x / rms * w };
            let normalized: Vec<f64> = x.iter().zip(&weight).map(normalize).collect();
            let block = |y: &[f64]| {
                let max = y.iter().map(|y| y.abs()).fold(0.0, max_nan);
                // x · weight has a scale of its own.
                let least = f64::from(f32::MIN_POSITIVE) * if max > 0.0 { rms.recip().max(1.0) } else { 1.0 };
                let scale = if self.integers { max_nan(max / 127.0, least) } else { scale(DType::F32, to, max).0 };
                match output {
                    "scales" => vec![scale],
                    _ => y.iter().map(|y| stored(y / scale)).collect(),
                }
            };
            match normalized.len() {
                0 if self.integers && output == "scales" => vec![f64::from(f32::MIN_POSITIVE)],
                _ => normalized.chunks(width).flat_map(block).collect(),
            }
        }))
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [d] = case.dims(["d"])?;
        // Of y: approximate root, and the sum of squares as of rms_norm.
        let rel = 1e-6 + (d as f64).sqrt() * roundoff(DType::F32);
        let to = self.target(&case.params)?;
        Ok(match output {
            "scales" => Tolerance::new(1e-45, rel, "2⁻²⁰ and √d·2⁻²⁴ of the normalised row, and one division"),
            _ if self.integers => Tolerance::new(0.5 + 254.0 * rel, 0.0, "one rounding, and what y and scale err"),
            _ => {
                let why = "one rounding, and what y and scale err";
                Tolerance::new(least_subnormal(to) / 2.0, roundoff(to) + 2.0 * rel, why)
            }
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let scales: usize = self.scales(rows, d).iter().product();
        Ok(Cost::memory((rows * d * (case.dtype.size() + 1) + d * case.dtype.size() + 4 * scales) as u64))
    }
}
