//! Recomputation of activations.

use super::plan::Plan;
use super::quantity::MOVED;
use super::run::{Run, part};
use super::{Lesson, text};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "recomputation",
    title: "three stacked sigmoids, with their activations stored and computed again",
    claim: [
        "The backward of σ(σ(σ(x))) needs the values in between. Storing them is traffic in the forward and again in the backward.",
        "Where memory is the limit, computing them a second time from x is faster, and it frees the memory that held them.",
    ],
    plan,
};

/// Elements that are counted.
const COUNTED: usize = 1 << 13;
/// And that are timed.
const TIMED: usize = 1 << 26;

/// A pass is one tensor read or written. Stored: x, a, b, y, then dy, a, b, y, dx. Recomputed: x, y, then x, dy, dx.
const STORED: [(&str, usize); 2] = [("sigmoid3_saved", 4), ("sigmoid3_saved_backward", 5)];
const AGAIN: [(&str, usize); 2] = [("sigmoid3", 2), ("sigmoid3_backward", 3)];

fn run(info: &DeviceInfo, label: &str, operators: [(&str, usize); 2]) -> Result<Run> {
    let passes: usize = operators.iter().map(|(_, passes)| passes).sum();
    let bytes = |n: usize| n * size_of::<f32>() * passes;
    let rate = info.peak_bandwidth();
    let run = Run::new(label).expect(&MOVED, bytes(COUNTED)).at_least(rate.map(|rate| bytes(TIMED) as f64 / rate));
    operators.into_iter().try_fold(run, |run, (op, _)| {
        let of = |n| part(op, DType::F32, [("rows", 1), ("d", n)]);
        Ok(run.count(of(COUNTED)?).time(of(TIMED)?))
    })
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let plan = Plan::new(|results| {
        let passes = |label: &str| Ok(results.count(label, &MOVED)? / (COUNTED * size_of::<f32>()) as f64);
        let (stored, again) = (passes("stored")?, passes("computed again")?);
        let faster = |stored: f64, again: f64| format!("{} times as fast", text::times(stored, again));
        Ok(format!(
            "Stored, forward and backward take {} passes over memory; computed again {}, {} times fewer{}.",
            text::digits(stored),
            text::digits(again),
            text::times(stored, again),
            results.timed("stored", "computed again", faster)
        ))
    });
    Ok(plan.runs([run(info, "stored", STORED)?, run(info, "computed again", AGAIN)?]))
}
