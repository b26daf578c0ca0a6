//! Low precision.

use super::plan::Plan;
use super::quantity::{LEAST, MOVED};
use super::run::{Run, part};
use super::text::Facts;
use super::{Lesson, anatomy, sums, text};
use crate::ops;
use crate::ops::model::Bound;
use crate::runtime::device::{Device, DeviceInfo};
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::{f8e4m3, f8e8m0};

pub(super) static LESSON: Lesson = Lesson {
    name: "precision",
    title: "the same elements in 4, 2 and 1 bytes, how many survive 8 bits, and what sums in 16 bits lose",
    claim: [
        "Where memory is the limit, time goes with the bytes of an element: half the width, half the time.",
        "8 bits reach less far than data with outliers: with a scale for each 32 elements one costs its neighbours only. And 16 bits are too few for sums, which stop growing.",
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

/// Side of the square that is quantized: a scale for 128 × 128 is one for all of it.
const SIDE: usize = 128;
const TIMED_SIDE: usize = 1 << 14;
/// Bytes that memory moves at least.
const SECTOR: usize = 32;
/// Neighbours with a scale of their own in MXFP8.
const NEIGHBOURS: usize = 32;
const LOST: &str = "elements lost to an outlier";
const BY_TENSOR: &str = "f8e4m3, a scale for all";
const BY_NEIGHBOURS: &str = "f8e4m3, a scale for 32";

/// Elements that become 0, of a square of ones with 2²⁰ as its last: where that sets the scale a one is 448 · 2⁻²⁰, less than half of
/// what is the least above 0 in e4m3, 2⁻⁹.
fn lost(device: &Device, there_and_back: fn(&Stream, &Tensor<f32>) -> Result<Tensor<f32>>) -> Result<f64> {
    let stream = device.stream()?;
    let mut x = vec![1.0f32; SIDE * SIDE];
    x[SIDE * SIDE - 1] = 20f32.exp2();
    let y = there_and_back(&stream, &Tensor::from_slice(&stream, [SIDE, SIDE], &x)?)?;
    Ok(y.to_vec(&stream)?.iter().filter(|y| **y == 0.0).count() as f64)
}

fn lost_by_tensor(device: &Device) -> Result<f64> {
    lost(device, |stream, x| {
        let (q, scales) = ops::quantize_fp8_128x128::<f32, f8e4m3>(stream, x)?;
        ops::dequantize_fp8(stream, &q, &scales)
    })
}

fn lost_by_neighbours(device: &Device) -> Result<f64> {
    lost(device, |stream, x| {
        let (q, scales) = ops::quantize_mxfp8_1x32::<f32, f8e4m3>(stream, x)?;
        ops::dequantize_mxfp8(stream, &q, &scales)
    })
}

/// Quantization of 16-bit floats with scales of `scale` bytes, one for each `block` elements; all but the outlier of the `losing` that
/// share its scale are lost.
fn quantized(
    info: &DeviceInfo,
    (label, op): (&str, &str),
    (scale, block): (usize, usize),
    (losing, lost): (usize, fn(&Device) -> Result<f64>),
) -> Result<Run> {
    let of = |side| part(op, DType::BF16, [("rows", side), ("d", side)]);
    let bytes =
        |side: usize| side * side * (DType::BF16.size() + 1) + (side * side / block * scale).next_multiple_of(SECTOR);
    Ok(Run::new(label)
        .count(of(SIDE)?)
        .expect(&LEAST, bytes(SIDE))
        .observe(LOST, losing - 1, lost)
        .time(of(TIMED_SIDE)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes(TIMED_SIDE) as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let [wide, half, narrow] = [("relu", DType::F32), ("relu", DType::F16), ("copy", DType::I8)];
    let label = |(op, dtype): (&str, DType)| format!("{op} {dtype}");
    let labels = [wide, half, narrow].map(label);
    let plan = Plan::new(move |results| {
        let [wide, half, narrow] = &labels;
        let moved = |label: &str| results.count(label, &MOVED);
        let faster = |wide: f64, half: f64| format!("16 bits {} times as fast", text::times(wide, half));
        let lost = |label| Ok::<_, Error>(text::digits(results.named(label, LOST)?));
        let ones = |way: usize| {
            let (elements, _, kept) = sums::WAYS[way];
            results.named(&sums::label(elements, kept), sums::ONES)
        };
        Ok(format!(
            "As many elements are {} times fewer bytes in 16 bits than in 32, and {} times fewer in 8{}. An outlier of 2²⁰ among \
             ones costs {} of {} elements with one scale for all in 8 bits, {} with one for each 32. {}",
            text::times(moved(wide)?, moved(half)?),
            text::times(moved(wide)?, moved(narrow)?),
            results.timed(wide, half, faster),
            lost(BY_TENSOR)?,
            SIDE * SIDE,
            lost(BY_NEIGHBOURS)?,
            sums::said(ones(0)?, ones(1)?, ones(2)?),
        ))
    });
    let row = |dtype: DType| {
        let bound = Bound::Tensor(dtype);
        vec![
            if dtype == DType::F32 { "tf32, stored as f32".to_owned() } else { dtype.to_string() },
            dtype.size().to_string(),
            text::or_dash(info.peak_flops(bound), ""),
            text::or_dash(anatomy::ridge(info, bound), ""),
        ]
    };
    let facts = Facts {
        title: "Tensor cores by the type of their operands".to_owned(),
        headings: vec!["type", ">bytes", ">operations a second", ">operations a byte of memory's time"],
        rows: [DType::F32, DType::BF16, DType::I8].map(row).into(),
    };
    let runs = [wide, half, narrow].map(|(op, dtype)| run(info, op, dtype));
    let squares = SIDE * SIDE;
    let scaled = [
        quantized(info, (BY_TENSOR, "quantize_fp8_128x128"), (size_of::<f32>(), squares), (squares, lost_by_tensor)),
        quantized(
            info,
            (BY_NEIGHBOURS, "quantize_mxfp8_1x32"),
            (size_of::<f8e8m0>(), NEIGHBOURS),
            (NEIGHBOURS, lost_by_neighbours),
        ),
    ];
    let runs = runs.into_iter().chain(scaled).collect::<Result<Vec<_>>>()?;
    Ok(plan.facts(facts).facts(sums::growth()?).runs(runs).runs(sums::runs(info)?))
}
