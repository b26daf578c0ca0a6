//! Operator fusion.

use super::experiments::GELU_OPERANDS;
use super::plan::Plan;
use super::quantity::{LAUNCHES, MOVED};
use super::run::{Run, part, variant};
use super::{Lesson, text};
use crate::check::bench::Timing;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "fusion",
    title: "sin²(x) + cos²(x) in five kernels and in one, gelu in eight and in one",
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

/// Runs of gelu: by hand, fused with an element a thread, and the operator, which moves 16 bytes at a time.
const GELU: [&str; 3] = ["gelu, eight kernels", "gelu, an element a thread", "gelu, the operator"];

fn run(info: &DeviceInfo, label: &str, kernels: &[usize], of: impl Fn(usize) -> Result<Timing>) -> Result<Run> {
    let bytes = |n: usize| n * size_of::<f32>() * kernels.iter().sum::<usize>();
    Ok(Run::new(label)
        .count(of(COUNTED)?)
        .expect(&LAUNCHES, kernels.len())
        .expect(&MOVED, bytes(COUNTED))
        .time(of(TIMED)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes(TIMED) as f64 / rate)))
}

fn sin2_cos2(info: &DeviceInfo, name: &str, kernels: &[usize]) -> Result<Run> {
    run(info, name, kernels, |n| variant("sin2_cos2", name, DType::F32, [("rows", 1), ("d", n)]))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let plan = Plan::new(|results| {
        let (more, less) = (results.count("unfused", &MOVED)?, results.count("fused", &MOVED)?);
        let [eight, naive, operator] = GELU;
        let gelu = text::times(results.count(eight, &MOVED)?, results.count(operator, &MOVED)?);
        let faster = |unfused: f64, fused: f64| format!("{} times as fast", text::times(unfused, fused));
        let wider = |naive: f64, wide: f64| format!(", of which 16 bytes a load give {}", text::times(naive, wide));
        Ok(format!(
            "Fused it moves {} bytes instead of {}, {} times fewer{}; gelu {gelu} times fewer{}{}.",
            text::count(less),
            text::count(more),
            text::times(more, less),
            results.timed("unfused", "fused", faster),
            results.timed(eight, operator, faster),
            results.ms(naive).zip(results.ms(operator)).map_or(String::new(), |(naive, wide)| wider(naive, wide)),
        ))
    });
    let by_hand = |name| move |n| variant("gelu_by_hand", name, DType::F32, [("n", n)]);
    let operator = |n| part("gelu", DType::F32, [("rows", 1), ("d", n)]);
    Ok(plan.runs([
        sin2_cos2(info, "unfused", &UNFUSED)?,
        sin2_cos2(info, "fused", &FUSED)?,
        run(info, GELU[0], &GELU_OPERANDS, by_hand("eight"))?,
        run(info, GELU[1], &FUSED, by_hand("naive"))?,
        run(info, GELU[2], &FUSED, operator)?,
    ]))
}
