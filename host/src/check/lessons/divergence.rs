//! Control divergence.

use super::plan::Plan;
use super::quantity::MULTIPLY_ADDS;
use super::run::{Run, part, with};
use super::{Lesson, text};
use crate::ops::model::{Bound, ParamValue};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "divergence",
    title: "two ways to go, taken by every other thread and by every other warp",
    claim: [
        "The 32 threads of a warp share one instruction: where they part at a branch, the warp goes both ways, one after the other.",
        "Half of the threads each way costs double when they are of one warp, and nothing when whole warps go together.",
    ],
    plan,
};

const WARP: usize = 32;
/// Elements, and multiply-adds of each, that are counted and that are timed.
const COUNTED: [usize; 2] = [2048, 64];
const TIMED: [usize; 2] = [1 << 22, 1024];

/// The multiply-adds that warps execute.
fn executed([n, rounds]: [usize; 2], ways: usize) -> usize {
    n / WARP * rounds * ways
}

/// A run whose warps take this many different paths.
fn run(info: &DeviceInfo, split: &'static str, ways: usize) -> Result<Run> {
    let of = |[n, rounds]: [usize; 2]| -> Result<_> {
        let part = part("branches", DType::F32, [("n", n)])?;
        Ok(with(with(part, "split", ParamValue::Choice(split)), "rounds", rounds as i64))
    };
    // An idle thread still occupies its lane.
    let operations = 2 * WARP * executed(TIMED, ways);
    Ok(Run::new(format!("split by {split}"))
        .count(of(COUNTED)?)
        .expect(&MULTIPLY_ADDS, executed(COUNTED, ways))
        .time(of(TIMED)?)
        .at_least(info.peak_flops(Bound::Fp32).map(|rate| operations as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let plan = Plan::new(|results| {
        let [apart, together] = ["split by threads", "split by warps"];
        let (both, one) = (results.count(apart, &MULTIPLY_ADDS)?, results.count(together, &MULTIPLY_ADDS)?);
        let longer = |apart: f64, together: f64| format!("{} times as long", text::times(apart, together));
        Ok(format!(
            "Where threads of one warp part, the same arithmetic takes {} times the instructions that it takes where warps part{}.",
            text::times(both, one),
            results.timed(apart, together, longer)
        ))
    });
    Ok(plan.runs([run(info, "threads", 2)?, run(info, "warps", 1)?]))
}
