//! Two branches, each taken by half of the threads.

use gpu_kernels::lessons::branches::{self as gk, Split};

use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// y = one of two recurrences applied to x, selected by the element's index.
pub(super) struct Branches;

const SPLITS: &[&str] = &["threads", "warps"];

static INFO: OpInfo = OpInfo {
    name: "branches",
    bench_name: "lesson.branches",
    summary: "a lesson's two ways to go, for every other thread or every other warp",
    math: "v ← 1 ± 0.5·v, rounds times",
    args: &[ArgInfo::input("x", "[n], dense"), ArgInfo::output("y", "[n], dense")],
    params: &[
        ParamInfo::choice("split", "threads", SPLITS, "what alternates"),
        ParamInfo::int("rounds", 8, "multiply-adds of a thread, 0 to 2³¹ − 1"),
    ],
    dtypes: &[DType::F32],
    kernels: &[gk::BRANCHES],
    variants: &[],
};

fn by_threads(params: &Params) -> Result<bool> {
    Ok(params.choice("split")? == SPLITS[0])
}

fn rounds(params: &Params) -> Result<u32> {
    let rounds = params.i64("rounds")?;
    let fits = u32::try_from(rounds).ok().filter(|rounds| *rounds < 1 << 31);
    fits.ok_or_else(|| INFO.param_error("rounds", rounds, "0 to 2³¹ − 1"))
}

impl Operator for Branches {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |n| [("n", n)];
        let warps = ParamValue::Choice(SPLITS[1]);
        vec![
            Case::odd(&INFO, DType::F32, dims(1001)),
            Case::odd(&INFO, DType::F32, dims(1001)).param("split", warps),
            Case::tiny(&INFO, DType::F32, dims(2)).param("rounds", 1),
            Case::empty(&INFO, DType::F32, dims(0)),
            Case::boundary(&INFO, DType::F32, dims(256)).param("rounds", 0),
            Case::boundary(&INFO, DType::F32, dims(257)).param("split", warps).param("rounds", 3),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["n"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [n] = x.dims()?;
        by_threads(params)?;
        rounds(params)?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [n])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (x, mut y) = (args.input::<f32>("x")?, args.output::<f32>("y")?);
        let [n] = x.dims(INFO.name, "x")?;
        x.require_contiguous(INFO.name, "x")?;
        y.require_shape(INFO.name, "y", &[n])?;
        y.require_contiguous(INFO.name, "y")?;
        let Some(grid) = grid(&INFO, "y", n, gk::BLOCK as usize)? else { return Ok(()) };
        let args = (x.ptr(stream)?, y.ptr_mut(stream)?, n as u64, rounds(params)?);
        // SAFETY: x and y hold n elements, and y is borrowed mutably.
        unsafe {
            match by_threads(params)? {
                true => stream.launch::<gk::Branches<gk::Threads>>(grid, args),
                false => stream.launch::<gk::Branches<gk::Warps>>(grid, args),
            }
        }
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let together = if by_threads(params)? { gk::Threads::TOGETHER } else { gk::Warps::TOGETHER } as usize;
        let rounds = rounds(params)?;
        let x = reference::select(inputs.get("x")?, rows);
        let one = |(row, x): (&usize, f64)| {
            let factor = if (row / together).is_multiple_of(2) { 0.5 } else { -0.5 };
            (0..rounds).fold(x, |v, _| factor * v + 1.0)
        };
        Ok(rows.iter().zip(x).map(one).collect())
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        // v is below 8, and each round halves the present error and adds half a unit in v's last place.
        Ok(Tolerance::new(
            16.0 * roundoff(DType::F32),
            0.0,
            "roundings of values below 8, each halved by the next round",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n] = case.dims(["n"])?;
        let operations = 2 * n as u64 * u64::from(rounds(&case.params)?);
        Ok(Cost::compute((2 * n * size_of::<f32>()) as u64, operations, Bound::Fp32))
    }
}
