//! Sums of columns, accumulated in f32 or in the elements' 16-bit type.

use gpu_kernels::lessons::narrow_sums::{self as gk, Narrow, Wide};
use half::{bf16, f16};

use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// y = Σ x over rows, where each partial sum is rounded to the accumulator type.
pub(super) struct NarrowSums;

/// The accumulator type, by the parameter `sums`.
pub(in crate::check::lessons) const KEPT: &[&str] = &["f32", "16 bits"];

static INFO: OpInfo = OpInfo {
    name: "narrow_sums",
    bench_name: "lesson.narrow_sums",
    summary: "a lesson's sums of columns, kept in f32 or in 16 bits",
    math: "s ← round(s + x[i, j]) over i",
    args: &[ArgInfo::input("x", "[n, columns], dense"), ArgInfo::output("y", "[columns], dense").of(&[DType::F32])],
    params: &[ParamInfo::choice("sums", "f32", KEPT, "what they are kept in")],
    dtypes: &[DType::F16, DType::BF16],
    kernels: &[gk::NARROW_SUMS],
    variants: &[],
};

fn is_narrow(params: &Params) -> Result<bool> {
    Ok(params.choice("sums")? == KEPT[1])
}

/// A sum accumulated in `dtype`, if that is a narrow type.
pub(in crate::check::lessons) fn sum(values: impl IntoIterator<Item = f32>, kept: DType) -> f32 {
    values.into_iter().fold(0.0, |sum, value| match kept {
        DType::F16 => f16::from_f32(sum + value).to_f32(),
        DType::BF16 => bf16::from_f32(sum + value).to_f32(),
        _ => sum + value,
    })
}

impl Operator for NarrowSums {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |n, columns| [("n", n), ("columns", columns)];
        let narrow = |case: Case| case.param("sums", ParamValue::Choice(KEPT[1]));
        let of = |dtype| {
            vec![
                Case::odd(&INFO, dtype, dims(37, 65)),
                narrow(Case::odd(&INFO, dtype, dims(37, 65))),
                narrow(Case::tiny(&INFO, dtype, dims(1, 1))),
                Case::empty(&INFO, dtype, dims(0, 9)),
                Case::empty(&INFO, dtype, dims(9, 0)),
                Case::boundary(&INFO, dtype, dims(gk::AHEAD, 256)),
                narrow(Case::boundary(&INFO, dtype, dims(gk::AHEAD + 1, 257))),
            ]
        };
        INFO.dtypes.iter().flat_map(|dtype| of(*dtype)).collect()
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["n", "columns"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let [_, columns] = inputs.get("x")?.dims()?;
        is_narrow(params)?;
        Ok(vec![TensorMeta::new("y", DType::F32, [columns])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let narrow = is_narrow(params)?;
        dispatch!(INFO, args.dtype("x")?, [f16, bf16] => |T| {
            let (x, mut y) = (args.input::<T>("x")?, args.output::<f32>("y")?);
            let [n, columns]: [usize; 2] = x.dims(INFO.name, "x")?;
            x.require_contiguous(INFO.name, "x")?;
            y.require_shape(INFO.name, "y", &[columns])?;
            y.require_contiguous(INFO.name, "y")?;
            let Some(grid) = grid(&INFO, "y", columns, gk::BLOCK as usize)? else { return Ok(()) };
            let args = (x.ptr(stream)?, y.ptr_mut(stream)?, n as u64, columns as u64);
            // SAFETY: x holds n · columns elements and y columns, and y is borrowed mutably.
            unsafe {
                match narrow {
                    true => stream.launch::<gk::NarrowSums<T, Narrow>>(grid, args),
                    false => stream.launch::<gk::NarrowSums<T, Wide>>(grid, args),
                }
            }
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let (all, columns) = (x.to_f64(), x.shape()[1]);
        let kept = if is_narrow(params)? { x.dtype() } else { DType::F32 };
        let column = |j: &usize| all.iter().skip(*j).step_by(columns.max(1)).map(|value| *value as f32);
        Ok(rows.iter().map(|j| f64::from(sum(column(j), kept))).collect())
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::new(0.0, 0.0, "exact: the reference rounds after the same additions"))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n, columns] = case.dims(["n", "columns"])?;
        Ok(Cost::memory((n * columns * case.dtype.size() + columns * size_of::<f32>()) as u64))
    }
}
