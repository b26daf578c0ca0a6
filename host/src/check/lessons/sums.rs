//! The accumulation half of the precision lesson: sums kept in 16 bits and in 32.

use super::experiments::{KEPT, sum};
use super::quantity::LOADED;
use super::run::{Run, part, with};
use super::text::{Facts, digits};
use crate::check::{Operands, random, registry};
use crate::ops::model::{InputSpec, ParamValue, Params, Values, roundoff};
use crate::runtime::device::{Device, DeviceInfo};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

const OP: &str = "narrow_sums";
/// Elements of a sum, and how many sums are counted.
const LONG: usize = 4096;
const COUNTED: usize = 64;
/// Sums that are timed.
const TIMED: usize = 1 << 17;
pub(super) const ONES: &str = "sum of 4096 ones";
pub(super) const ERROR: &str = "error of sums of 4096 in [0, 1), %";
/// The type of the elements, and the type of their accumulator.
pub(super) const WAYS: [(DType, &str, DType); 3] =
    [(DType::BF16, KEPT[1], DType::BF16), (DType::F16, KEPT[1], DType::F16), (DType::BF16, KEPT[0], DType::F32)];

pub(super) fn label(elements: DType, kept: DType) -> String {
    format!("sums of {elements} kept in {kept}")
}

/// What one of the ways makes of the columns of `x` on a device.
fn sums(device: &Device, x: &HostTensor, kept: &'static str) -> Result<Vec<f64>> {
    let (stream, op) = (device.stream()?, registry::find(OP)?);
    let params = Params::new(op.info()).with("sums", ParamValue::Choice(kept))?;
    let mut operands = Operands::new(&stream, op, &[("x", x)], &params)?;
    operands.launch(&stream, op, &params)?;
    Ok(operands.outputs(&stream)?.swap_remove(0).1.to_f64())
}

fn ones(device: &Device, elements: DType, kept: &'static str) -> Result<f64> {
    let x = HostTensor::from_f64(elements, [LONG, 1], &[1.0; LONG])?;
    Ok(sums(device, &x, kept)?[0])
}

/// In p bits 1 is half the distance from 2^p to its neighbour, and such a tie goes to the even one: where it was.
fn predicted_ones(kept: DType) -> f64 {
    roundoff(kept).recip().min(LONG as f64)
}

/// Columns of values in [0, 1), which are the same on every machine.
fn random(elements: DType, n: usize) -> Result<HostTensor> {
    random::tensor(&InputSpec::new("x", elements, [n, COUNTED], Values::Uniform { low: 0.0, high: 1.0 }), 0)
}

/// The root mean square of the relative errors against sums in f64.
fn off(x: &HostTensor, found: &[f64]) -> f64 {
    let x = x.to_f64();
    let exact = |j: usize| x.iter().skip(j).step_by(COUNTED).sum::<f64>();
    let squares = found.iter().enumerate().map(|(j, found)| (found / exact(j) - 1.0).powi(2));
    (squares.sum::<f64>() / COUNTED as f64).sqrt()
}

fn error(device: &Device, elements: DType, kept: &'static str) -> Result<f64> {
    let x = random(elements, LONG)?;
    Ok(100.0 * off(&x, &sums(device, &x, kept)?))
}

/// The same by additions on the host, each rounded.
fn on_the_host(elements: DType, n: usize, kept: DType) -> Result<f64> {
    let x = random(elements, n)?;
    let values = x.to_f64();
    let column = |j: usize| values.iter().skip(j).step_by(COUNTED).map(|value| *value as f32);
    let found: Vec<_> = (0..COUNTED).map(|j| f64::from(sum(column(j), kept))).collect();
    Ok(off(&x, &found))
}

type Observe = fn(&Device) -> Result<f64>;

/// What is observed of a way: its ones, and its errors. A function each, because an observation has no other place to keep its type.
const OBSERVED: [[Observe; 2]; 3] = [
    [|device| ones(device, WAYS[0].0, WAYS[0].1), |device| error(device, WAYS[0].0, WAYS[0].1)],
    [|device| ones(device, WAYS[1].0, WAYS[1].1), |device| error(device, WAYS[1].0, WAYS[1].1)],
    [|device| ones(device, WAYS[2].0, WAYS[2].1), |device| error(device, WAYS[2].0, WAYS[2].1)],
];

/// The three ways, as runs.
pub(super) fn runs(info: &DeviceInfo) -> Result<Vec<Run>> {
    let run = |way: usize| {
        let ((elements, how, kept), [ones, error]) = (WAYS[way], OBSERVED[way]);
        let of = |columns| {
            let part = part(OP, elements, [("n", LONG), ("columns", columns)])?;
            Ok::<_, crate::Error>(with(part, "sums", ParamValue::Choice(how)))
        };
        let bytes = |columns: usize| LONG * columns * elements.size();
        Ok(Run::new(label(elements, kept))
            .count(of(COUNTED)?)
            .expect(&LOADED, bytes(COUNTED))
            .observe(ONES, predicted_ones(kept), ones)
            .observe(ERROR, 100.0 * on_the_host(elements, LONG, kept)?, error)
            .time(of(TIMED)?)
            .at_least(info.peak_bandwidth().map(|rate| bytes(TIMED) as f64 / rate)))
    };
    (0..WAYS.len()).map(run).collect()
}

/// How errors grow with the length, between the theoretical growth of errors that cancel and of errors that add up.
pub(super) fn growth() -> Result<Facts> {
    let mut rows = Vec::new();
    for (elements, _, kept) in WAYS {
        for n in [64, 512, LONG] {
            let u = roundoff(kept);
            let shares = [(n as f64).sqrt() * u, on_the_host(elements, n, kept)?, n as f64 * u];
            let shares = shares.map(|share| format!("{:.1e}", share));
            rows.push([&[label(elements, kept), n.to_string()], &shares[..]].concat());
        }
    }
    Ok(Facts {
        title: format!(
            "Error of {COUNTED} sums of n values in [0, 1) against f64, u half a distance of neighbours at 1"
        ),
        headings: vec!["sums", ">n", ">√n·u", ">found", ">n·u"],
        rows,
    })
}

/// What the lesson's sentence says of a count.
pub(super) fn said(bf16: f64, f16: f64, f32: f64) -> String {
    format!("{LONG} ones add up to {} in bf16, to {} in f16, and to {} in f32.", digits(bf16), digits(f16), digits(f32))
}
