//! Low precision.

use super::plan::{Facts, Plan, Run, part};
use super::quantity::MOVED;
use super::{Lesson, anatomy, text};
use crate::check::bench::peak_flops;
use crate::ops::model::Bound;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "precision",
    title: "the same elements in 4, 2 and 1 bytes",
    claim: [
        "Where memory is the limit, time goes with the bytes of an element: half the width, half the time.",
        "Tensor cores multiply twice as fast at half the width too, so the operations that a byte has to be worth rise with it.",
    ],
    plan,
};

/// Elements that are counted.
const COUNTED: usize = 1 << 14;
/// And that are timed.
const TIMED: usize = 1 << 28;

fn run(info: &DeviceInfo, op: &str, dtype: DType) -> Result<Run> {
    let of = |n| part(op, dtype, [("rows", 1), ("d", n)]);
    let bytes = |n: usize| 2 * n * dtype.size();
    Ok(Run::new(format!("{op} {dtype}"))
        .count(of(COUNTED)?)
        .expect(&MOVED, bytes(COUNTED))
        .time(of(TIMED)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes(TIMED) as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let [wide, half, narrow] = [("relu", DType::F32), ("relu", DType::F16), ("copy", DType::I8)];
    let label = |(op, dtype): (&str, DType)| format!("{op} {dtype}");
    let labels = [wide, half, narrow].map(label);
    let plan = Plan::new(move |results| {
        let [wide, half, narrow] = &labels;
        let moved = |label: &str| results.count(label, &MOVED);
        let faster = |wide: f64, half: f64| format!("16 bits {} times as fast", text::times(wide, half));
        Ok(format!(
            "As many elements are {} times fewer bytes in 16 bits than in 32, and {} times fewer in 8{}.",
            text::times(moved(wide)?, moved(half)?),
            text::times(moved(wide)?, moved(narrow)?),
            results.timed(wide, half, faster)
        ))
    });
    let row = |dtype: DType| {
        let bound = Bound::Tensor(dtype);
        vec![
            if dtype == DType::F32 { "tf32, stored as f32".to_owned() } else { dtype.to_string() },
            dtype.size().to_string(),
            text::or_dash(peak_flops(info, bound), ""),
            text::or_dash(anatomy::ridge(info, bound), ""),
        ]
    };
    let facts = Facts {
        title: "Tensor cores by the type of their operands".to_owned(),
        headings: vec!["type", ">bytes", ">operations a second", ">operations a byte of memory's time"],
        rows: [DType::F32, DType::BF16, DType::I8].map(row).into(),
    };
    let runs = [wide, half, narrow].map(|(op, dtype)| run(info, op, dtype));
    Ok(plan.facts(facts).runs(runs.into_iter().collect::<Result<Vec<_>>>()?))
}
