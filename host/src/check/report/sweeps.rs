//! Rates against sizes, where an operator was timed on several.

use std::collections::BTreeMap;

use super::figure::{Figure, cells, percent, rate, time};
use super::timings::{Timings, common, shape, sizes};
use crate::check::bench::Row;
use crate::check::pictures::{Curve, Curves, Scale, Table, bytes};
use crate::check::verify::AUTO;
use crate::runtime::error::Result;

/// Sizes that make a curve.
const FEWEST: usize = 3;

/// The curves of one picture: names, and rows in the order of their sizes.
type Series<'a> = BTreeMap<(bool, String), Vec<Point<'a>>>;

#[derive(Clone, Copy)]
struct Point<'a> {
    row: &'a Row,
    size: f64,
    /// Somebody else's time of the same, if it is not the row's own.
    ms: f64,
}

/// A picture for each operator and kind of case with enough sizes.
pub(super) fn sweeps(timings: &Timings<'_>) -> Result<Vec<Figure>> {
    let mut kinds: BTreeMap<(&str, String), Vec<(usize, &Row)>> = BTreeMap::new();
    for &(number, row) in &timings.rows {
        if row.gbps.or(row.tflops).is_some() {
            kinds.entry((&row.op, shape(&row.case))).or_default().push((number, row));
        }
    }
    let mut figures = Vec::new();
    for ((op, _), rows) in kinds {
        for (varying, rows) in parts(rows) {
            figures.extend(figure(timings, op, varying, &rows)?);
        }
    }
    Ok(figures)
}

/// Rows that make one picture, and the size that varies in them if it is one alone.
type Part<'a> = (Option<&'a str>, Vec<(usize, &'a Row)>);

/// Rows of one kind by what makes them different: a size that varies while all others stay, or else all sizes together. Where one place on
/// the axis has two rows, a size that tells them apart does so.
fn parts<'a>(rows: Vec<(usize, &'a Row)>) -> Vec<Part<'a>> {
    let names: Vec<&str> = sizes(&rows[0].1.case).into_keys().collect();
    let without = |row: &Row, name: &str| {
        let is = |word: &str| word.split_once('=').is_some_and(|(known, _)| known == name);
        row.case.split_whitespace().filter(|word| !is(word)).collect::<Vec<_>>().join(" ")
    };
    let mut parts: Vec<Part<'a>> = Vec::new();
    for &name in names.iter().filter(|_| names.len() > 1) {
        let of_name = grouped(&rows, |row| without(row, name));
        parts.extend(of_name.into_iter().filter(|rows| places(rows) >= FEWEST).map(|rows| (Some(name), rows)));
    }
    if !parts.is_empty() {
        return parts;
    }
    if unambiguous(&rows) {
        return vec![(None, rows)];
    }
    let whole = |rows: &Vec<(usize, &Row)>| unambiguous(rows) && places(rows) >= FEWEST;
    let splits = names.iter().rev().map(|name| grouped(&rows, |row| format!("{:?}", sizes(&row.case).get(name))));
    let found = splits.into_iter().find(|split| split.len() > 1 && split.iter().all(whole));
    found.into_iter().flatten().map(|rows| (None, rows)).collect()
}

fn grouped<'a>(rows: &[(usize, &'a Row)], key: impl Fn(&'a Row) -> String) -> Vec<Vec<(usize, &'a Row)>> {
    let mut groups: BTreeMap<String, Vec<(usize, &'a Row)>> = BTreeMap::new();
    for &(number, row) in rows {
        groups.entry(key(row)).or_default().push((number, row));
    }
    groups.into_values().collect()
}

/// Different sizes of work.
fn places(rows: &[(usize, &Row)]) -> usize {
    let mut sizes: Vec<_> = rows.iter().map(|(_, row)| work(row)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.len()
}

/// Operations where they are counted, or bytes.
fn work(row: &Row) -> u64 {
    if row.tflops.is_some() { row.flops } else { row.bytes }
}

/// Whether each variant has one row a size.
fn unambiguous(rows: &[(usize, &Row)]) -> bool {
    let mut all: Vec<_> = rows.iter().map(|(_, row)| (&row.variant, work(row))).collect();
    all.sort_unstable();
    all.windows(2).all(|pair| pair[0] != pair[1])
}

fn figure(timings: &Timings<'_>, op: &str, varying: Option<&str>, rows: &[(usize, &Row)]) -> Result<Option<Figure>> {
    let by_work = rows.iter().all(|(_, row)| row.tflops.is_some());
    let size = |row: &Row| match varying.filter(|_| by_work) {
        Some(name) => sizes(&row.case).get(name).copied().unwrap_or(0.0),
        None if by_work => row.flops as f64 / 1e9,
        None => row.bytes as f64,
    };
    let mut series: Series<'_> = BTreeMap::new();
    let mut sources = Vec::new();
    for &(document, row) in rows {
        sources.push(document);
        series.entry((false, row.variant.clone())).or_default().push(Point { row, size: size(row), ms: row.ms });
        for (document, peer) in timings.peers_of(row).into_iter().filter(|_| row.variant == AUTO) {
            sources.push(document);
            series.entry((true, peer.peer.clone())).or_default().push(Point { row, size: size(row), ms: peer.ms });
        }
    }
    series.retain(|_, points| points.len() >= FEWEST);
    if series.is_empty() {
        return Ok(None);
    }
    let mut table = Table::new(["variant or peer", "case", ">size", ">time", ">rate"]);
    let upwards = if by_work { "TFLOP/s" } else { "GB/s" };
    let mut curves = Vec::new();
    for ((other, name), mut points) in series {
        points.sort_by(|a, b| a.size.total_cmp(&b.size));
        let mut curve = Curve { name, other, points: Vec::new() };
        for Point { row, size, ms } in points {
            let value = if by_work { row.flops as f64 / ms / 1e9 } else { row.bytes as f64 / ms / 1e6 };
            let timed = Row {
                ms,
                gbps: (!by_work).then_some(value),
                tflops: by_work.then_some(value),
                pct_of_ceiling: None,
                pct_of_copy: None,
                ..row.clone()
            };
            let place = if by_work { format!("{size}") } else { bytes(size) };
            table.rows.push(cells([&curve.name, &row.case, &place, &time(ms), &rate(&timed)]));
            curve.points.push((size, value, format!("{}: {}, {}", row.case, rate(&timed), time(ms))));
        }
        curves.push(curve);
    }
    let (copy, across) = match varying {
        Some(name) if by_work => (None, name.to_owned()),
        _ if by_work => (None, "GFLOP".to_owned()),
        _ => (timings.copy(), "bytes read and written at least".to_owned()),
    };
    let best = curves[0].points.iter().map(|p| p.1).fold(0.0, f64::max);
    let share = copy.map_or(String::new(), |copy| format!(", {} of a copy", percent(100.0 * best / copy)));
    let says = format!("{} sizes, {} at up to {best:.0} {upwards}{share}.", curves[0].points.len(), curves[0].name);
    let curves = Curves {
        title: format!("{op}: {}", common(&rows.iter().map(|(_, row)| row.case.as_str()).collect::<Vec<_>>())),
        across,
        scale: if by_work { Scale::Doublings } else { Scale::Bytes },
        upwards: upwards.to_owned(),
        curves,
        rule: copy.map(|copy| (copy, "copy".to_owned())),
        edge: timings.l2_bytes.filter(|_| !by_work).map(|bytes| (bytes as f64, "L2".to_owned())),
    };
    Ok(Some(Figure::new(curves.picture(says, table)?, sources)))
}
