//! Online softmax, and the attention built on it.

use super::plan::Plan;
use super::quantity::{LAUNCHES, LEAST, LOADED};
use super::run::{Run, plain_part};
use super::{Lesson, roofline, text};
use crate::check::bench::Timing;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "attention",
    title: "softmax in fewer passes, and attention that never stores its scores",
    claim: [
        "Softmax by the book reads a row for its maximum, its sum and its quotients. A sum rescaled when the maximum grows makes the first two one.",
        "Such a sum can weigh values on the way: attention goes over the keys once, and its scores, quadratic in length, never reach memory.",
    ],
    plan,
};

/// Heads, length and head dimension that are counted, and that are timed.
const COUNTED: [usize; 3] = [1, 256, 64];
const TIMED: [usize; 3] = [8, 4096, 128];
const F16: usize = 2;
const F32: usize = 4;

/// Rows and their lengths: one that a block holds in registers, and one whose rows start anywhere, which is streamed.
const ROWS: usize = 8;
const HELD: usize = 1024;
const STREAMED: usize = 1025;
/// Passes over a row in the textbook softmax.
const BY_THE_BOOK: usize = 3;

fn softmax(info: &DeviceInfo, label: &str, d: usize, passes: usize) -> Result<Run> {
    let of = |rows| plain_part("softmax", DType::F32, [("rows", rows), ("d", d)]);
    let timed = (1 << 26) / d;
    let bytes = timed * d * F32 * (passes + 1);
    Ok(Run::new(label)
        .count(of(ROWS)?)
        .expect(&LOADED, ROWS * d * F32 * passes)
        .time(of(timed)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes as f64 / rate)))
}

/// Scores, softmax, and the product with the values, as separate operators.
fn apart([heads, length, d]: [usize; 3]) -> Result<[Timing; 3]> {
    let product =
        |m: usize, n: usize, k: usize| plain_part("gemm", DType::F16, [("batch", heads), ("m", m), ("n", n), ("k", k)]);
    let softmax = plain_part("softmax", DType::F16, [("rows", heads * length), ("d", length)])?;
    Ok([product(length, length, d)?, softmax, product(length, d, length)?])
}

fn fused([heads, length, d]: [usize; 3]) -> Result<Timing> {
    let dims = [("b", 1), ("h", heads), ("kv", heads), ("q", length), ("k", length), ("d", d)];
    plain_part("attention", DType::F16, dims)
}

/// Bytes that each kernel touches: a tensor of queries, keys, values or results, and one of scores.
fn bytes_apart([heads, length, d]: [usize; 3]) -> usize {
    let (one, scores) = (heads * length * d * F16, heads * length * length * F16);
    (2 * one + scores) + 2 * scores + (scores + 2 * one)
}

/// Queries, keys, values, results, and the logarithm of each query's sum.
fn bytes_fused([heads, length, d]: [usize; 3]) -> usize {
    4 * heads * length * d * F16 + heads * length * F32
}

/// The minimum time of these operators, one after the other, by their traffic and their arithmetic.
fn seconds(info: &DeviceInfo, parts: &[Timing]) -> Result<Option<f64>> {
    let of = |part: &Timing| Ok(roofline::seconds(info, part.job.op.cost(&part.job.case)?));
    Ok(parts.iter().map(of).collect::<Result<Vec<_>>>()?.into_iter().sum())
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let [held, streamed] = ["softmax, rows in registers", "softmax, rows streamed"];
    let [three, one] = ["attention in three operators", "attention in one"];
    let plan = Plan::new(move |results| {
        let (more, less) = (results.count(three, &LEAST)?, results.count(one, &LEAST)?);
        let faster = |three: f64, one: f64| format!("{} times as fast", text::times(three, one));
        let passes = |label: &str, d: usize| Ok(results.count(label, &LOADED)? / (ROWS * d * F32) as f64);
        let [_, length, _] = COUNTED;
        Ok(format!(
            "Online, softmax reads {} times instead of {BY_THE_BOOK}, and {} where registers hold a row; fused, {length} tokens touch {} times fewer bytes, {} tokens {} times{}.",
            text::digits(passes(streamed, STREAMED)?),
            text::digits(passes(held, HELD)?),
            text::times(more, less),
            TIMED[1],
            text::times(bytes_apart(TIMED) as f64, bytes_fused(TIMED) as f64),
            results.timed(three, one, faster)
        ))
    });
    let run = Run::new(three)
        .expect(&LAUNCHES, 3)
        .expect(&LEAST, bytes_apart(COUNTED))
        .at_least(seconds(info, &apart(TIMED)?)?);
    let run = apart(COUNTED)?.into_iter().fold(run, Run::count);
    let unfused = apart(TIMED)?.into_iter().fold(run, Run::time);
    let fused = Run::new(one)
        .count(fused(COUNTED)?)
        .expect(&LAUNCHES, 1)
        .expect(&LEAST, bytes_fused(COUNTED))
        .time(fused(TIMED)?)
        .at_least(seconds(info, &[fused(TIMED)?])?);
    Ok(plan.runs([softmax(info, held, HELD, 1)?, softmax(info, streamed, STREAMED, 2)?, unfused, fused]))
}
