//! The matrix mystery: a product's speed against its size.

use super::ladder::{ALIGNMENTS, Ladder, Path, Product, Rung};
use super::plan::Plan;
use super::quantity::{LAUNCHES, TENSOR_FLOPS};
use super::results::Results;
use super::run::Run;
use super::{Lesson, text};
use crate::runtime::device::DeviceInfo;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "matrix",
    title: "the matrix mystery: TFLOP/s of a product against its size, and the fan of sizes that 1, 2, 8 and 32 divide",
    claim: [
        "A product's speed is no smooth curve of its size. Whole tiles in whole waves give it teeth, and what divides the size makes a fan.",
        "Rows of 16-bit elements begin at packs of 16 bytes where 8 divides them. Others are copied to where they do, or are loaded element by element.",
    ],
    plan,
};

/// The first size, how many lie between it and its double, and how often it is doubled.
const FIRST: f64 = 256.0;
const BETWEEN: i32 = 4;
const DOUBLINGS: i32 = 5;
/// What is counted: just enough for copies to be worth it.
const COUNTED: usize = 672;
/// How far a prediction may be off.
const CLOSE: f64 = 0.15;

/// A multiple of 32, or just below it a size that 8, 2 or 1 divide and not more: in as many tiles.
fn beside(size: usize, alignment: usize) -> usize {
    if alignment == ALIGNMENTS[0] { size } else { size - alignment }
}

fn sizes() -> impl Iterator<Item = usize> {
    let near = |i: i32| FIRST * (f64::from(i) / f64::from(BETWEEN)).exp2();
    let whole = |size: f64| (size / ALIGNMENTS[0] as f64).round() as usize * ALIGNMENTS[0];
    (0..=BETWEEN * DOUBLINGS).map(move |i| whole(near(i))).flat_map(|size| ALIGNMENTS.map(|by| beside(size, by)))
}

/// One that is small enough for the simulator. The others are the ladder.
fn run(info: &DeviceInfo, alignment: usize) -> Result<Run> {
    let product = Product::of(beside(COUNTED, alignment));
    let launches = if product.path() == Path::Copied { 2 } else { 1 };
    Ok(Run::new(format!("divisible by {alignment}"))
        .count(product.part()?)
        .expect(&LAUNCHES, launches)
        .expect(&TENSOR_FLOPS, product.operations(info))
        .time(product.part()?)
        .at_least(product.least(info)))
}

/// The middle of what is left of a multiple of 32's rate, for sizes of that alignment.
fn left(rungs: &[Rung], alignment: usize, ms: impl Fn(&Rung) -> Option<f64>) -> Option<f64> {
    let rate = |rung: &Rung| Some(Rung::rate(rung.flops, ms(rung)?));
    let whole = rungs.iter().filter(|rung| rung.alignment == ALIGNMENTS[0]);
    let mut shares: Vec<_> = whole
        .filter_map(|of| {
            let like = rungs.iter().find(|rung| rung.n == beside(of.n, alignment))?;
            Some(rate(like)? / rate(of)?)
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied()
}

fn conclusion(results: &Results<'_>) -> Result<String> {
    let rungs = results.ladder();
    let fan = |ms: fn(&Rung) -> Option<f64>| {
        let others = ALIGNMENTS[1..].iter();
        let share = |by: &usize| Some(format!("{:.0}% with {by}", 100.0 * left(rungs, *by, ms)?));
        others.map(share).collect::<Option<Vec<_>>>().map(|shares| shares.join(", "))
    };
    let [largest, least] = [f64::max, f64::min].map(|of: fn(f64, f64) -> f64| {
        let rates = rungs.iter().filter_map(|rung| Some(Rung::rate(rung.flops, rung.at_least_ms?)));
        rates.reduce(of).unwrap_or(0.0)
    });
    let mut said = format!(
        "On {} sizes whole waves at the peak leave {} to {} TFLOP/s, and where copies are worth it a size that 8 does not divide takes a launch more.",
        rungs.len(),
        text::digits(least),
        text::digits(largest),
    );
    let off: Vec<_> = rungs.iter().filter_map(|rung| Some((rung.ms? / rung.expected_ms? - 1.0).abs())).collect();
    if let Some(fan) = fan(|rung| rung.ms) {
        let close = off.iter().filter(|off| **off <= CLOSE).count();
        said += &format!(
            " Of a multiple of 32's speed half of the sizes keep at least {fan}. {close} of {} times are within {:.0}% of what was predicted.",
            off.len(),
            100.0 * CLOSE
        );
    }
    if let Some(fan) = fan(|rung| rung.cublas_ms) {
        said += &format!(" In cuBLAS they keep {fan}.");
    }
    Ok(said)
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let ladder = Ladder::new(info, sizes());
    let runs = ALIGNMENTS.into_iter().map(|by| run(info, by)).collect::<Result<Vec<_>>>()?;
    Ok(Plan::new(conclusion).facts(ladder.facts()).runs(runs).ladder(ladder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alignment_occurs_all_along() {
        let all: Vec<_> = sizes().collect();
        assert_eq!((all.len(), all.first(), all.last()), (84, Some(&256), Some(&8191)));
        for (i, size) in all.iter().enumerate() {
            let alignment = 1 << size.trailing_zeros().min(5);
            assert_eq!(alignment, ALIGNMENTS[i % 4], "{size}");
            assert_eq!(Product::of(*size).alignment(), alignment);
        }
    }
}
