//! The roofline.

use super::Lesson;
use super::anatomy::ridge;
use super::plan::Plan;
use super::quantity::{FLOPS, LEAST};
use super::run::{Run, part};
use super::text::{Facts, digits, or_dash};
use crate::check::bench::Timing;
use crate::check::registry::OPERATORS;
use crate::ops::model::{Bound, CaseClass, Cost, Dims, Operator};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::roof::Work;

pub(super) static LESSON: Lesson = Lesson {
    name: "roofline",
    title: "every operator's operations a byte against the machine's",
    claim: [
        "An operator takes at least its bytes over the peak of memory and its operations over the peak of arithmetic, whichever is longer.",
        "Operations a byte decide: left of the ridge, where both take as long, a faster kernel is one that moves less.",
    ],
    plan,
};

/// The position of an operator on the roofline. For most operators that memory limits, the cost counts bytes only.
fn place(info: &DeviceInfo, op: &dyn Operator) -> Result<Option<Place>> {
    let production = op.cases().into_iter().filter(|case| case.class == CaseClass::Production);
    let mut costs = Vec::new();
    for case in production {
        costs.push((op.cost(&case)?, case.name));
    }
    let Some((cost, case)) = costs.into_iter().max_by_key(|(cost, _)| cost.flops.max(cost.bytes)) else {
        return Ok(None);
    };
    let intensity = cost.flops as f64 / cost.bytes as f64;
    let ridge = ridge(info, cost.bound);
    let by_memory = ridge.is_none_or(|ridge| intensity < ridge);
    let row = vec![
        op.info().name.to_owned(),
        case,
        if cost.flops == 0 { "-".to_owned() } else { digits(intensity) },
        roof(cost.bound).to_owned(),
        or_dash(ridge, ""),
        if by_memory { "memory" } else { "arithmetic" }.to_owned(),
        or_dash(seconds(info, cost).map(|seconds| seconds * 1e6), ""),
    ];
    Ok(Some(Place { by_memory, row }))
}

struct Place {
    by_memory: bool,
    row: Vec<String>,
}

/// The unit that an operator's arithmetic runs on, if arithmetic counts.
fn roof(bound: Bound) -> &'static str {
    match bound {
        Bound::Memory => "-",
        Bound::Fp32 => "f32",
        Bound::Tensor(_) => "tensor cores",
    }
}

/// The longer of the two times.
pub(super) fn seconds(info: &DeviceInfo, cost: Cost) -> Option<f64> {
    info.least_seconds(cost.bytes, Work { flops: cost.flops, bound: cost.bound })
}

/// An operator whose minimum traffic is counted on a small problem, and which is timed on a large one.
fn run<const N: usize>(
    info: &DeviceInfo,
    label: &str,
    op: &str,
    dtype: DType,
    counted: [(&'static str, usize); N],
    timed: [(&'static str, usize); N],
) -> Result<Run> {
    let of = |dims: [(&'static str, usize); N]| part(op, dtype, Dims::from(dims));
    let cost = |part: &Timing| part.job.op.cost(&part.job.case);
    let (counted, timed) = (of(counted)?, of(timed)?);
    let run = Run::new(label).expect(&LEAST, cost(&counted)?.bytes as f64);
    let seconds = seconds(info, cost(&timed)?);
    Ok(run.count(counted).time(timed).at_least(seconds))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let places = OPERATORS.iter().map(|op| place(info, *op)).collect::<Result<Vec<_>>>()?;
    let places: Vec<_> = places.into_iter().flatten().collect();
    let (by_memory, all) = (places.iter().filter(|place| place.by_memory).count(), places.len());
    let ridge = or_dash(ridge(info, Bound::Tensor(DType::BF16)), "");
    let plan = Plan::new(move |_| {
        Ok(format!("Up to {ridge} operations a byte memory limits a 16-bit product, and from there on its arithmetic."))
    });
    let facts = Facts {
        title: format!(
            "{all} operators on their largest production shape, of which memory limits {by_memory}; without operations where their cost counts bytes alone"
        ),
        headings: vec!["operator", "case", ">operations a byte", "on", ">ridge", "limited by", ">µs at least"],
        rows: places.into_iter().map(|place| place.row).collect(),
    };
    let vector = |n| [("rows", 1), ("d", n)];
    let product = |m, n, k| [("m", m), ("n", n), ("k", k)];
    let bf16 = DType::BF16;
    Ok(plan.facts(facts).runs([
        run(info, "relu", "relu", bf16, vector(1 << 13), vector(1 << 28))?,
        run(info, "f32 product", "sgemm", DType::F32, product(128, 128, 16), product(4096, 4096, 4096))?
            .expect(&FLOPS, 2 * 128 * 128 * 16),
        run(info, "16-bit product", "gemm_bf16", bf16, product(256, 256, 64), product(8192, 8192, 8192))?
            .expect(&FLOPS, 2 * 256 * 256 * 64),
        // Whole tiles are computed, but not loaded: many of the operations are on padding.
        run(info, "16-bit product of 64 rows", "gemm_bf16", bf16, product(64, 256, 64), product(64, 8192, 8192))?,
    ]))
}
