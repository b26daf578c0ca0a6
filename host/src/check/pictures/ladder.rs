//! A ladder of products: speed against size, and the fan of what divides the size.

use super::curves::{Curve, Curves};
use super::{Picture, Scale, Table};
use crate::check::lessons::{Rung, text};
use crate::runtime::error::Result;

/// A time of a rung, in milliseconds.
type Of = fn(&Rung) -> Option<f64>;

/// What there is of a ladder: measured or at least predicted.
pub(super) fn of_ladder(rungs: &[Rung], gpu: Option<&str>) -> Result<Vec<Picture>> {
    let least: Of = |rung| rung.at_least_ms;
    let expected: Of = |rung| rung.expected_ms;
    let measured: Of = |rung| rung.ms;
    let cublas: Of = |rung| rung.cublas_ms;
    let on = gpu.map_or(String::new(), |gpu| format!(", {gpu}"));
    let all = [
        (format!("TFLOP/s measured{on}"), measured),
        ("TFLOP/s predicted from products of one wave".to_owned(), expected),
        ("TFLOP/s of cuBLAS".to_owned(), cublas),
        ("TFLOP/s of whole waves at the peak".to_owned(), least),
    ];
    let mut pictures = Vec::new();
    for (title, of) in all {
        let curves = curves(rungs, |rung, _| rate(rung, of));
        pictures.extend(picture(title, curves)?);
    }
    let fans = [("the fan: % of a multiple of 32", measured), ("the fan of cuBLAS: % of a multiple of 32", cublas)];
    let known = fans.into_iter().filter(|(_, of)| rungs.iter().any(|rung| of(rung).is_some()));
    let fans: Vec<_> = known.collect();
    let fans = if fans.is_empty() { vec![("the fan at the peak: % of a multiple of 32", least)] } else { fans };
    for (title, of) in fans {
        let share = |rung: &Rung, whole: &Rung| Some(100.0 * rate(rung, of)? / rate(whole, of)?);
        pictures.extend(picture(title.to_owned(), curves(rungs, share))?);
    }
    Ok(pictures)
}

fn rate(rung: &Rung, of: Of) -> Option<f64> {
    Some(Rung::rate(rung.flops, of(rung)?))
}

/// A curve for each alignment. What is drawn of a rung may need the multiple of 32 that it is beside.
fn curves(rungs: &[Rung], of: impl Fn(&Rung, &Rung) -> Option<f64>) -> Vec<Curve> {
    let mut alignments: Vec<_> = rungs.iter().map(|rung| rung.alignment).collect();
    alignments.sort_unstable_by(|a, b| b.cmp(a));
    alignments.dedup();
    let most = alignments.first().copied().unwrap_or(1);
    let whole = |n: usize| rungs.iter().find(|rung| rung.alignment == most && rung.n == n.next_multiple_of(most));
    let curve = |by: usize| {
        let points = rungs.iter().filter(|rung| rung.alignment == by).filter_map(|rung| {
            let value = of(rung, whole(rung.n)?)?;
            Some((rung.n as f64, value, format!("{} at n = {}", text::digits(value), rung.n)))
        });
        Curve { name: format!("divisible by {by}"), other: false, points: points.collect() }
    };
    alignments.into_iter().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

fn picture(title: String, curves: Vec<Curve>) -> Result<Option<Picture>> {
    if curves.is_empty() {
        return Ok(None);
    }
    let of = Curves {
        title: title.clone(),
        across: "n, of products of n × n matrices".to_owned(),
        scale: Scale::Doublings,
        upwards: title,
        curves,
        rule: None,
        edge: None,
    };
    of.picture("", Table::default()).map(Some)
}

/// What was drawn.
pub(super) fn rows(rungs: &[Rung], gpu: Option<&str>) -> Vec<Vec<String>> {
    let row = |rung: &Rung, what: &str, [predicted, found]: [Option<f64>; 2], place: String| {
        let [predicted, found] =
            [predicted, found].map(|ms| text::or_dash(ms.map(|ms| Rung::rate(rung.flops, ms) * 1e12), ""));
        vec![format!("n = {}", rung.n), what.to_owned(), predicted, found, place]
    };
    let mut rows = Vec::new();
    for rung in rungs {
        let place = gpu.map_or("not timed".to_owned(), |gpu| format!("timed, {gpu}"));
        let predicted = rung.expected_ms.or(rung.at_least_ms);
        rows.push(row(rung, "FLOP/s", [predicted, rung.ms], place.clone()));
        if rung.cublas_ms.is_some() {
            rows.push(row(rung, "FLOP/s of cuBLAS", [None, rung.cublas_ms], place));
        }
    }
    rows
}
