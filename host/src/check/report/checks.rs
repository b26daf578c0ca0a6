//! What `verify` found: how much of its tolerance each operator needs.

use std::collections::BTreeMap;

use super::document::Verified;
use super::figure::{Figure, cells};
use crate::check::pictures::{Bar, Bars, Group, SERIES, SLOWER, Scale, Table};
use crate::check::verify::Status;
use crate::runtime::error::Result;

#[derive(Default)]
struct Found {
    cases: usize,
    passed: usize,
    skipped: usize,
    checked: u64,
    worst: f64,
}

/// A bar an operator: its largest error.
pub(super) fn checks(document: usize, verified: &Verified) -> Result<Figure> {
    let mut operators: BTreeMap<&str, Found> = BTreeMap::new();
    for row in &verified.rows {
        let found = operators.entry(&row.op).or_default();
        found.cases += 1;
        found.passed += usize::from(row.status == Status::Pass);
        found.skipped += usize::from(row.status == Status::Skipped);
        found.checked = found.checked.saturating_add(row.checked);
        found.worst = found.worst.max(row.max_err.unwrap_or(0.0));
    }
    let mut table = Table::new([
        "operator",
        ">cases",
        ">passed",
        ">skipped",
        ">elements compared",
        ">largest error, of its tolerance",
    ]);
    let mut groups = Vec::new();
    for (op, found) in &operators {
        let failed = found.passed + found.skipped < found.cases;
        let shown = format!("{:.3}", found.worst);
        let tip = format!("{shown} of its tolerance at most, {} of {} cases passed", found.passed, found.cases);
        let bar = Bar { value: found.worst, shown: shown.clone(), tip, ink: if failed { SLOWER } else { SERIES[0] } };
        groups.push(Group { label: (*op).to_owned(), bars: vec![bar], strokes: Vec::new() });
        let numbers = [found.cases, found.passed, found.skipped].map(|n| n.to_string());
        table.rows.push(cells([op, &numbers[0], &numbers[1], &numbers[2], &found.checked.to_string(), &shown]));
    }
    let device = verified.device.as_deref().or(verified.backend.as_deref()).unwrap_or("no device");
    let (cases, passed) = (verified.rows.len(), operators.values().map(|found| found.passed).sum::<usize>());
    let bars = Bars {
        title: format!("Operators against their references, {device}"),
        unit: "largest error as a share of the tolerance".to_owned(),
        scale: Scale::Linear,
        start: 0.0,
        legend: vec![("all cases passed".to_owned(), SERIES[0]), ("some failed".to_owned(), SLOWER)],
        groups,
        rule: Some((1.0, "the tolerance".to_owned())),
    };
    let says = format!("{passed} of {cases} cases of {} operators passed.", operators.len());
    Ok(Figure::new(bars.picture(says, table)?, [document]))
}
