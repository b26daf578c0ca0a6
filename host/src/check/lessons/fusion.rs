//! Operator fusion.

use super::plan::{Plan, Run, variant};
use super::quantity::{LAUNCHES, MOVED};
use super::{Lesson, text};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "fusion",
    title: "sin²(x) + cos²(x) in five kernels and in one",
    claim: [
        "An elementwise kernel takes as long as its traffic, and arithmetic in between is free.",
        "A kernel for each operation sends every intermediate result to memory and back; one kernel for all of them reads x and writes y.",
    ],
    plan,
};

/// Elements that are counted.
const COUNTED: usize = 1 << 13;
/// And that are timed.
const TIMED: usize = 1 << 26;

/// Operands that each kernel reads and writes: sine, cosine, two squares, a sum; and all at once.
const UNFUSED: [usize; 5] = [2, 2, 2, 2, 3];
const FUSED: [usize; 1] = [2];

fn run(info: &DeviceInfo, name: &str, kernels: &[usize]) -> Result<Run> {
    let of = |n| variant("sin2_cos2", name, DType::F32, [("rows", 1), ("d", n)]);
    let bytes = |n: usize| n * size_of::<f32>() * kernels.iter().sum::<usize>();
    Ok(Run::new(name)
        .count(of(COUNTED)?)
        .expect(&LAUNCHES, kernels.len())
        .expect(&MOVED, bytes(COUNTED))
        .time(of(TIMED)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes(TIMED) as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let plan = Plan::new(|results| {
        let (more, less) = (results.count("unfused", &MOVED)?, results.count("fused", &MOVED)?);
        let faster = |unfused: f64, fused: f64| format!("{} times as fast", text::times(unfused, fused));
        Ok(format!(
            "Fused it moves {} bytes instead of {}, {} times fewer{}.",
            text::count(less),
            text::count(more),
            text::times(more, less),
            results.timed("unfused", "fused", faster)
        ))
    });
    Ok(plan.runs([run(info, "unfused", &UNFUSED)?, run(info, "fused", &FUSED)?]))
}
