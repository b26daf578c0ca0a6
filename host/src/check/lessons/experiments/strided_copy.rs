//! A copy of every `stride`-th element.

use gpu_kernels::lessons::strided_copy as gk;

use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// y = the first column of a dense matrix, whose width is the stride.
pub(super) struct StridedCopy;

static INFO: OpInfo = OpInfo {
    name: "strided_copy",
    bench_name: "lesson.strided_copy",
    summary: "a lesson's copy of every n-th element",
    math: "y[i] = x[i, 0]",
    args: &[ArgInfo::input("x", "[n, stride], dense"), ArgInfo::output("y", "[n], dense")],
    params: &[],
    dtypes: &[DType::F32],
    kernels: &[gk::STRIDED_COPY],
    variants: &[],
};

impl Operator for StridedCopy {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |n, stride| [("n", n), ("stride", stride)];
        vec![
            Case::odd(&INFO, DType::F32, dims(1000, 3)),
            Case::tiny(&INFO, DType::F32, dims(1, 1)),
            Case::empty(&INFO, DType::F32, dims(0, 4)),
            Case::boundary(&INFO, DType::F32, dims(256, 8)),
            Case::boundary(&INFO, DType::F32, dims(257, 32)),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["n", "stride"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [n, _] = x.dims()?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [n])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        let (x, mut y) = (args.input::<f32>("x")?, args.output::<f32>("y")?);
        let [n, stride] = x.dims(INFO.name, "x")?;
        x.require_contiguous(INFO.name, "x")?;
        y.require_shape(INFO.name, "y", &[n])?;
        y.require_contiguous(INFO.name, "y")?;
        let Some(grid) = grid(&INFO, "y", n, gk::BLOCK as usize)?.filter(|_| stride > 0) else { return Ok(()) };
        let args = (x.ptr(stream)?, y.ptr_mut(stream)?, n as u64, stride as u64);
        // SAFETY: x holds n elements that far apart, y holds n and is borrowed mutably.
        unsafe { stream.launch::<gk::StridedCopy>(grid, args) }
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        Ok(rows.iter().filter_map(|r| reference::row(x, *r).first().copied()).collect())
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n] = case.dims(["n"])?;
        Ok(Cost::memory((2 * n * size_of::<f32>()) as u64))
    }
}
