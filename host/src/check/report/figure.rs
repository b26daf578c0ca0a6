//! A picture in its place on the page.

use std::collections::BTreeSet;

use crate::check::bench::Row;
use crate::check::pictures::Picture;

/// A picture, and the documents that it came from.
#[derive(Debug)]
pub(super) struct Figure {
    /// The picture.
    pub(super) picture: Picture,
    /// The numbers of the documents.
    pub(super) sources: BTreeSet<usize>,
}

impl Figure {
    /// Of these documents.
    pub(super) fn new(picture: Picture, sources: impl IntoIterator<Item = usize>) -> Self {
        Self { picture, sources: sources.into_iter().collect() }
    }
}

/// Milliseconds as a reader wants them.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{:.1} µs", ms * 1e3),
        ms => format!("{ms:.3} ms"),
    }
}

/// A rate with its unit: operations where they are counted, or bytes.
pub(super) fn rate(row: &Row) -> String {
    match (row.tflops, row.gbps) {
        (Some(rate), _) => format!("{rate:.1} TFLOP/s"),
        (None, Some(rate)) => format!("{rate:.0} GB/s"),
        (None, None) => "-".to_owned(),
    }
}

/// A share as a percentage.
pub(super) fn percent(percent: f64) -> String {
    format!("{percent:.1}%")
}

/// An operator with its case, and its variant where it is not the operator's own choice.
pub(super) fn label(row: &Row) -> String {
    format!("{} {}", row.op, row.case)
}

/// A table's cells.
pub(super) fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}
