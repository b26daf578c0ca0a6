//! A ring of places, followed by one thread.

use gpu_kernels::lessons::pointer_chase as gk;

use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// y = the element of x at the place where this number of hops ends; with places in registers, the first one.
pub(super) struct PointerChase;

/// Where the ring is stored.
pub(in crate::check::lessons) const PLACES: &[&str; 3] = &["global", "shared", "registers"];

static INFO: OpInfo = OpInfo {
    name: "pointer_chase",
    bench_name: "lesson.pointer_chase",
    summary: "a lesson's loads, each of which waits for the one before",
    math: "y[0] = x[steps · hop mod n]",
    args: &[
        ArgInfo::input("x", "[n], dense, n < 2²⁶, in shared memory at most 4096"),
        ArgInfo::output("y", "[min(n, 1)]"),
    ],
    params: &[
        ParamInfo::choice("place", "global", PLACES, "where the ring lies"),
        ParamInfo::int("steps", 8, "hops, 0 to 2³¹ − 1"),
    ],
    dtypes: &[DType::F32],
    kernels: &[gk::CHASE_GLOBAL, gk::CHASE_SHARED, gk::CHASE_REGISTERS],
    variants: &[],
};

fn steps(params: &Params) -> Result<u32> {
    let steps = params.i64("steps")?;
    let fits = u32::try_from(steps).ok().filter(|steps| *steps < 1 << 31);
    fits.ok_or_else(|| INFO.param_error("steps", steps, "0 to 2³¹ − 1"))
}

/// The distance from one place to the next: about 0.618 of the ring, and odd, so that the hops visit every place of a ring of 2ⁱ.
fn hop(n: usize) -> usize {
    ((n * 79 / 128) | 1) % n.max(1)
}

impl Operator for PointerChase {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |n| [("n", n)];
        let [_, shared, registers] = [0, 1, 2].map(|i| ParamValue::Choice(PLACES[i]));
        vec![
            Case::odd(&INFO, DType::F32, dims(301)),
            Case::odd(&INFO, DType::F32, dims(301)).param("place", shared),
            Case::odd(&INFO, DType::F32, dims(301)).param("place", registers),
            Case::tiny(&INFO, DType::F32, dims(1)).param("steps", 1),
            Case::empty(&INFO, DType::F32, dims(0)),
            Case::boundary(&INFO, DType::F32, dims(256)).param("steps", 0),
            Case::boundary(&INFO, DType::F32, dims(4096)).param("place", shared).param("steps", 100),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["n"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [n] = x.dims()?;
        steps(params)?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [n.min(1)])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (x, mut y) = (args.input::<f32>("x")?, args.output::<f32>("y")?);
        let [n] = x.dims(INFO.name, "x")?;
        let place = params.choice("place")?;
        let most = if place == PLACES[1] { gk::MOST_SHARED as usize } else { (1 << 26) - 1 };
        if n > most {
            return Err(INFO.param_error("n", n, format!("at most {most} in {place}")));
        }
        x.require_contiguous(INFO.name, "x")?;
        y.require_shape(INFO.name, "y", &[n.min(1)])?;
        let steps = steps(params)?;
        if n == 0 {
            return Ok(());
        }
        let (count, hop) = (n as u32, hop(n) as u32);
        let (x, y) = (x.ptr(stream)?, y.ptr_mut(stream)?);
        // SAFETY: x holds n elements, y one, which is borrowed mutably, and the ring n lines; n and hop were checked.
        unsafe {
            match place {
                "registers" => stream.launch::<gk::ChaseRegisters>(1, (x, y, 1.0, 0.0, steps)),
                "shared" => stream.launch::<gk::ChaseShared>(1, (x, y, count, hop, steps)),
                _ => {
                    let ring = stream.scratch::<u32>(n * gk::LINE as usize)?;
                    stream.launch::<gk::ChaseGlobal>(1, (x, ring.ptr_mut(), y, count, hop, steps))
                }
            }
        }
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let n = x.shape().iter().product::<usize>();
        let in_registers = params.choice("place")? == PLACES[2];
        let end = if in_registers || n == 0 { 0 } else { (steps(params)? as usize % n) * hop(n) % n };
        Ok(reference::select(x, &vec![end; rows.len()]))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n] = case.dims(["n"])?;
        Ok(Cost::memory((2 * n.min(1) * size_of::<f32>()) as u64))
    }
}
