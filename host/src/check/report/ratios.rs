//! Bars: operators against their floors, against others, and the steps of a ladder.

use std::collections::BTreeMap;

use super::figure::{Figure, cells, label, percent, rate, time};
use super::timings::{FAMILIES, Timings, family};
use crate::check::bench::Row;
use crate::check::pictures::{Bar, Bars, Group, PALE, SERIES, SLOWER, Scale, Table};
use crate::check::verify::AUTO;
use crate::runtime::error::Result;

/// Bars in one picture; the table has all.
const MOST: usize = 160;

/// How much of its ceiling each operator reaches: the median of its cases, with a stroke for each of them.
pub(super) fn floors(timings: &Timings<'_>) -> Result<Option<Figure>> {
    // A document's number, a row of it and its percentage.
    type Reached<'a> = (usize, &'a Row, f64);
    let mut operators: BTreeMap<(usize, &str), Vec<Reached<'_>>> = BTreeMap::new();
    for (number, row) in timings.picked() {
        if let Some(percent) = row.pct_of_ceiling {
            operators.entry((family(&row.op), &row.op)).or_default().push((number, row, percent));
        }
    }
    if operators.is_empty() {
        return Ok(None);
    }
    let mut table = Table::new(["operator", "case", ">time", ">rate", ">of its ceiling"]);
    let mut groups = Vec::new();
    let mut sources = Vec::new();
    for ((family, op), mut rows) in operators {
        rows.sort_by(|a, b| a.2.total_cmp(&b.2));
        let median = rows[rows.len() / 2].2;
        let [least, most] = [rows[0].2, rows[rows.len() - 1].2].map(percent);
        let tip = match rows.len() {
            1 => format!("{least} of its ceiling"),
            n => format!("{} of its ceiling, the median of {n} cases from {least} to {most}", percent(median)),
        };
        let bar = Bar { value: median, shown: percent(median), tip, ink: SERIES[family] };
        let strokes = if rows.len() > 1 { rows.iter().map(|row| row.2).collect() } else { Vec::new() };
        groups.push(Group { label: op.to_owned(), bars: vec![bar], strokes });
        for (number, row, share) in rows {
            sources.push(number);
            table.rows.push(cells([op, &row.case, &time(row.ms), &rate(row), &percent(share)]));
        }
    }
    let of = groups.len();
    groups.truncate(MOST);
    let present = |i: &usize| groups.iter().any(|group| group.bars[0].ink == SERIES[*i]);
    let legend = (0..FAMILIES.len()).filter(present).map(|i| (FAMILIES[i].to_owned(), SERIES[i])).collect();
    let bars = Bars {
        title: format!("Operators against their floors, {}", timings.device),
        unit: "% of the ceiling".to_owned(),
        scale: Scale::Linear,
        start: 0.0,
        legend,
        groups,
        rule: Some((100.0, "the ceiling".to_owned())),
    };
    let says = format!(
        "{of} operators: the least time that the copy's bandwidth or the peak of arithmetic allows, as a share of the time that was measured. \
         A bar is the median of an operator's production cases, a stroke one of them. More than 100% is what the cache answers."
    );
    Ok(Some(Figure::new(bars.picture(says, table)?, sources)))
}

/// How many times as fast as the fastest of the others, for each case that others were timed on.
pub(super) fn versus(timings: &Timings<'_>) -> Result<Option<Figure>> {
    let mut table = Table::new(["operator", "case", ">time", "peer", ">its time", ">times as fast"]);
    let (mut groups, mut sources) = (Vec::new(), Vec::new());
    let mut rows: Vec<_> = timings.picked().collect();
    rows.sort_by(|a, b| (family(&a.1.op), &a.1.op).cmp(&(family(&b.1.op), &b.1.op)));
    for (number, row) in rows {
        let mut peers = timings.peers_of(row);
        peers.sort_by(|a, b| a.1.ms.total_cmp(&b.1.ms));
        for (of_peer, peer) in &peers {
            sources.extend([number, *of_peer]);
            let ratio = format!("{:.2}", peer.ms / row.ms);
            table.rows.push(cells([&row.op, &row.case, &time(row.ms), &peer.peer, &time(peer.ms), &ratio]));
        }
        if let Some((_, best)) = peers.first() {
            let value = best.ms / row.ms;
            let tip = format!("{} against {} by {}: {value:.2} times as fast", time(row.ms), time(best.ms), best.peer);
            let ink = if value >= 1.0 { SERIES[0] } else { SLOWER };
            let bar = Bar { value, shown: format!("{value:.2} {}", best.peer), tip, ink };
            groups.push(Group { label: label(row), bars: vec![bar], strokes: Vec::new() });
        }
    }
    if groups.is_empty() {
        return Ok(None);
    }
    let (of, faster) = (groups.len(), groups.iter().filter(|group| group.bars[0].value >= 1.0).count());
    groups.truncate(MOST);
    let bars = Bars {
        title: format!("Operators against their fastest peers, {}", timings.device),
        unit: "times as fast as the fastest peer".to_owned(),
        scale: Scale::Log,
        start: 1.0,
        legend: vec![("as fast or faster".to_owned(), SERIES[0]), ("slower".to_owned(), SLOWER)],
        groups,
        rule: None,
    };
    let says = format!(
        "{of} cases that other libraries were timed on as well, on such a device: {faster} of them take no longer than the fastest of these."
    );
    Ok(Some(Figure::new(bars.picture(says, table)?, sources)))
}

/// The number of a step that is called `v` and a number.
fn step(variant: &str) -> Option<u32> {
    variant.strip_prefix('v')?.parse().ok()
}

/// The steps of operators that have several, with what the operator picks and with the others.
pub(super) fn ladders(timings: &Timings<'_>) -> Result<Vec<Figure>> {
    let mut ladders: BTreeMap<(&str, &str), Vec<(usize, &Row)>> = BTreeMap::new();
    for &(number, row) in &timings.rows {
        if row.tflops.is_some() && (step(&row.variant).is_some() || row.variant == AUTO) {
            ladders.entry((&row.op, &row.case)).or_default().push((number, row));
        }
    }
    ladders.retain(|_, rows| rows.len() > 3);
    let mut figures = Vec::new();
    for ((op, case), mut rows) in ladders {
        rows.sort_by_key(|(_, row)| step(&row.variant).unwrap_or(u32::MAX));
        let peak = rows.iter().find_map(|(number, row)| timings.peak(*number, row));
        let mut table = Table::new(["step", ">time", ">TFLOP/s", ">of the peak"]);
        let mut sources: Vec<_> = rows.iter().map(|(number, _)| *number).collect();
        let bar = |rate: f64, tip: String, ink| Bar { value: rate, shown: format!("{rate:.1}"), tip, ink };
        let group = |label: &str, bar| Group { label: label.to_owned(), bars: vec![bar], strokes: Vec::new() };
        let mut groups = Vec::new();
        for (_, row) in &rows {
            let rate = row.tflops.unwrap_or(0.0);
            let (name, ink) =
                if row.variant == AUTO { ("what is picked", SERIES[2]) } else { (row.variant.as_str(), SERIES[0]) };
            let share = row.pct_of_ceiling.map_or("-".to_owned(), percent);
            groups.push(group(name, bar(rate, format!("{rate:.1} TFLOP/s, {share} of the peak"), ink)));
            table.rows.push(cells([name, &time(row.ms), &format!("{rate:.2}"), &share]));
        }
        for (number, peer) in timings.peers_of(rows[0].1) {
            let rate = rows[0].1.flops as f64 / peer.ms / 1e9;
            let share = peak.map_or("-".to_owned(), |peak| percent(100.0 * rate / peak));
            sources.push(number);
            groups.push(group(&peer.peer, bar(rate, format!("{rate:.1} TFLOP/s, {share} of the peak"), PALE)));
            table.rows.push(cells([&peer.peer, &time(peer.ms), &format!("{rate:.2}"), &share]));
        }
        let rates = || rows.iter().filter_map(|(_, row)| row.tflops);
        let (first, best) = (rates().next().unwrap_or(0.0), rates().fold(0.0, f64::max));
        let bars = Bars {
            title: format!("The ladder of {op} {case}, {}", timings.device),
            unit: "TFLOP/s".to_owned(),
            scale: Scale::Linear,
            start: 0.0,
            legend: Vec::new(),
            groups,
            rule: peak.map(|peak| (peak, format!("peak {peak:.1}"))),
        };
        let says = format!("{} steps of one product, from {first:.1} to {best:.1} TFLOP/s.", rows.len());
        figures.push(Figure::new(bars.picture(says, table)?, sources));
    }
    Ok(figures)
}
