//! Coalescing.

use super::plan::Plan;
use super::quantity::{SECTORS_A_LOAD, SECTORS_A_STORE};
use super::run::{Run, part, variant};
use super::{Lesson, text};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "coalescing",
    title: "what the places that a warp reads from cost",
    claim: [
        "Memory moves sectors of 32 bytes, whatever a warp wants of them: 32 neighbouring floats are 4 sectors, 32 scattered ones are 32.",
        "So threads that are neighbours have to touch neighbouring bytes; a stride multiplies the traffic until every value costs a sector.",
    ],
    plan,
};

const STRIDES: [usize; 6] = [1, 2, 4, 8, 16, 32];
const WARP: usize = 32;
const SECTOR: usize = 32;
/// Elements that are counted.
const COUNTED: usize = 4096;
/// And that are timed.
const TIMED: usize = 1 << 22;
/// Rows and columns of the matrices, likewise.
const SIDES: [usize; 2] = [64, 8192];

/// The sectors touched by 4-byte accesses of a warp that are a stride of elements apart.
fn sectors(stride: usize) -> usize {
    (WARP * stride * size_of::<f32>()).div_ceil(SECTOR).min(WARP)
}

fn strided(info: &DeviceInfo, stride: usize) -> Result<Run> {
    let copy = |n| part("strided_copy", DType::F32, [("n", n), ("stride", stride)]);
    let bytes = TIMED / WARP * sectors(stride) * SECTOR + TIMED * size_of::<f32>();
    Ok(Run::new(label(stride))
        .count(copy(COUNTED)?)
        .expect(&SECTORS_A_LOAD, sectors(stride))
        .expect(&SECTORS_A_STORE, sectors(1))
        .time(copy(TIMED)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes as f64 / rate)))
}

fn label(stride: usize) -> String {
    format!("stride {stride}")
}

/// A transpose reads rows; `stride` is the distance between the stores of a warp.
fn transpose(info: &DeviceInfo, name: &str, stride: impl Fn(usize) -> usize) -> Result<Run> {
    let of = |side| variant("transpose", name, DType::F32, [("batch", 1), ("rows", side), ("columns", side)]);
    let [counted, timed] = SIDES;
    let bytes = 2 * timed * timed * size_of::<f32>();
    Ok(Run::new(format!("transpose, {name}"))
        .count(of(counted)?)
        .expect(&SECTORS_A_LOAD, sectors(1))
        .expect(&SECTORS_A_STORE, sectors(stride(counted)))
        .time(of(timed)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let plan = Plan::new(|results| {
        let [first, last] = [label(1), label(32)];
        let (few, many) = (results.count(&first, &SECTORS_A_LOAD)?, results.count(&last, &SECTORS_A_LOAD)?);
        let slower = |few: f64, many: f64| format!("{} times as long", text::times(many, few));
        Ok(format!(
            "As many values from every 32nd place take {} times the sectors{}; a column written by a warp is the same mistake.",
            text::times(many, few),
            results.timed(&first, &last, slower)
        ))
    });
    let strides = STRIDES.map(|stride| strided(info, stride)).into_iter().collect::<Result<Vec<_>>>()?;
    let matrices = [transpose(info, "naive", |side| side)?, transpose(info, "padded", |_| 1)?];
    Ok(plan.runs(strides).runs(matrices))
}
