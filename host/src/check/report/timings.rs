//! The rows of several files as one table per device, and values derived from them: ceilings, families, names of series.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::document::{Document, Results};
use crate::check::bench::{PeerRow, Row};
use crate::check::pictures::Roof;
use crate::check::registry::OPERATORS;
use crate::check::verify::AUTO;
use crate::ops::model::Bound;
use crate::runtime::dtype::DType;

/// What of all documents is of one device.
#[derive(Debug, Default)]
pub(super) struct Timings<'a> {
    /// The device.
    pub(super) device: &'a str,
    /// The rows of operators, each with its document's number. If an operator, case and variant has several rows, the last one.
    pub(super) rows: Vec<(usize, &'a Row)>,
    /// Others' rows, likewise.
    pub(super) peers: Vec<(usize, &'a PeerRow)>,
    /// The copies that stand for the peak of memory, likewise.
    copies: Vec<(usize, &'a Row)>,
    /// The documents whose rows are of cases in many sizes.
    swept: HashSet<usize>,
    /// The device's second-level cache, where a document tells it.
    pub(super) l2_bytes: Option<u64>,
    /// Where the row of an operator, case and variant or peer is.
    index: HashMap<[String; 3], usize>,
}

/// What the copy's row is called, and the rows that are no operator's.
const COPY: &str = "ceiling.copy";
const OVERHEADS: [&str; 2] = ["launch_overhead", "cold_start"];

/// One table a device, in the order in which documents name them.
pub(super) fn by_device(documents: &[Document]) -> Vec<Timings<'_>> {
    let mut all: Vec<Timings<'_>> = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let device = match &document.results {
            Results::Bench(report) => report.device.as_str(),
            Results::Peers(peers) => peers.device.as_str(),
            _ => continue,
        };
        let at = all.iter().position(|timings| timings.device == device).unwrap_or_else(|| {
            all.push(Timings { device, ..Timings::default() });
            all.len() - 1
        });
        match &document.results {
            Results::Bench(report) => {
                all[at].swept.extend(report.is_sweep().then_some(number));
                all[at].l2_bytes = report.l2_bytes.or(all[at].l2_bytes);
                report.rows.iter().for_each(|row| all[at].add(number, row));
                report.peers.iter().for_each(|row| all[at].add_peer(number, row));
            }
            Results::Peers(peers) => peers.rows.iter().for_each(|row| all[at].add_peer(number, row)),
            _ => {}
        }
    }
    all
}

impl<'a> Timings<'a> {
    fn add(&mut self, number: usize, row: &'a Row) {
        if row.op == COPY {
            self.copies.push((number, row));
        } else if !OVERHEADS.contains(&row.op.as_str()) {
            let key = [&row.op, &words(&row.case).join(" "), &row.variant].map(String::to_owned);
            put(&mut self.index, &mut self.rows, key, (number, row));
        }
    }

    fn add_peer(&mut self, number: usize, row: &'a PeerRow) {
        let key = [&row.op, &words(&row.case).join(" "), &format!("peer {}", row.peer)].map(String::to_owned);
        put(&mut self.index, &mut self.peers, key, (number, row));
    }

    /// What operators pick by themselves for production shapes; where a case was timed by one variant alone, that one.
    pub(super) fn picked(&self) -> impl Iterator<Item = (usize, &'a Row)> {
        let of_case =
            |row: &'a Row| self.rows.iter().filter(move |(_, other)| (&other.op, &other.case) == (&row.op, &row.case));
        let picked = move |row: &'a Row| row.variant == AUTO || of_case(row).count() == 1;
        self.rows.iter().copied().filter(move |(number, row)| !self.swept.contains(number) && picked(row))
    }

    /// Others' rows of the same operator and case.
    pub(super) fn peers_of(&self, row: &Row) -> Vec<(usize, &'a PeerRow)> {
        let same = |peer: &PeerRow| peer.op == row.op && words(&peer.case) == words(&row.case);
        self.peers.iter().copied().filter(|(_, peer)| same(peer)).collect()
    }

    /// The copy of all documents: the median of what they measured.
    pub(super) fn copy(&self) -> Option<f64> {
        let mut rates: Vec<_> = self.copies.iter().filter_map(|(_, row)| row.gbps).filter(|rate| *rate > 0.0).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    }

    /// The documents that the copy came from.
    pub(super) fn copied_in(&self) -> impl Iterator<Item = usize> {
        self.copies.iter().map(|(number, _)| *number)
    }

    /// The peak of arithmetic that a row's percentage is of, in TFLOP/s; `None` where memory is what limits it.
    pub(super) fn peak(&self, document: usize, row: &Row) -> Option<f64> {
        let percent = row.pct_of_ceiling.filter(|percent| *percent > 0.0)?;
        let copy = self.copies.iter().find(|(number, _)| *number == document)?.1.gbps?;
        let by_memory = (row.gbps.unwrap_or(0.0) * 100.0 / percent / copy - 1.0).abs() < 1e-6;
        row.tflops.filter(|rate| !by_memory && *rate > 0.0).map(|rate| rate * 100.0 / percent)
    }

    /// The peaks of arithmetic that percentages are of, the lowest first.
    pub(super) fn peaks(&self) -> Vec<Roof> {
        let mut peaks: Vec<(f64, &Row)> = Vec::new();
        for (number, row) in &self.rows {
            if let Some(peak) = self.peak(*number, row)
                && !peaks.iter().any(|(known, _)| (known / peak - 1.0).abs() < 1e-3)
            {
                peaks.push((peak, row));
            }
        }
        peaks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let name = |row: &Row| bound_of(row).map_or("arithmetic", units);
        peaks
            .iter()
            .map(|(rate, row)| Roof { name: format!("{}: {rate:.0} TFLOP/s", name(row)), rate: *rate })
            .collect()
    }
}

/// In place of the row of that key, or behind all.
fn put<R>(index: &mut HashMap<[String; 3], usize>, rows: &mut Vec<R>, key: [String; 3], row: R) {
    let at = *index.entry(key).or_insert(rows.len());
    if at < rows.len() { rows[at] = row } else { rows.push(row) }
}

/// The words of a case, in the names that dtypes have in Rust.
fn words(case: &str) -> Vec<&str> {
    case.split_whitespace()
        .map(|word| DType::ALL.iter().find(|d| d.name() == word).map_or(word, |d| d.short_name()))
        .collect()
}

/// What limits a row on an ideal device, where the operator and the case are still known.
fn bound_of(row: &Row) -> Option<Bound> {
    let op = OPERATORS.iter().find(|op| op.info().bench_name == row.op)?;
    let case = op.cases().into_iter().find(|case| words(&case.name) == words(&row.case))?;
    op.cost(&case).ok().map(|cost| cost.bound)
}

fn units(bound: Bound) -> &'static str {
    match bound {
        Bound::Memory => "memory",
        Bound::Fp32 => "f32 units",
        Bound::Tensor(dtype) if dtype.size() == 1 => "tensor cores, 8 bits",
        Bound::Tensor(dtype) if dtype.size() == 2 => "tensor cores, 16 bits",
        Bound::Tensor(_) => "tensor cores",
    }
}

/// Families by the first word of bench names, in the order of their colours. Names outside of all families belong to the last.
pub(super) const FAMILIES: [&str; 8] =
    ["products", "attention", "elementwise", "rows", "losses", "quantization", "layout", "others"];

/// The number of a row's family.
pub(super) fn family(op: &str) -> usize {
    match op.split('.').next().unwrap_or_default() {
        "gemm" | "gemv" | "mlp" => 0,
        "attn" | "attention" | "cache" => 1,
        "ew" => 2,
        "row" => 3,
        "loss" => 4,
        "quant" => 5,
        "layout" | "rope" | "embedding" => 6,
        _ => 7,
    }
}

/// A case apart from its sizes: `rows=# d=# bf16` of `rows=32768 d=4096 bfloat16`.
pub(super) fn shape(case: &str) -> String {
    let words: Vec<_> =
        words(case).into_iter().map(|word| if is_dtype(word) { word.to_owned() } else { blanked(word) }).collect();
    words.join(" ")
}

/// What cases have in common: their words, with `…` for sizes that differ.
pub(super) fn common(cases: &[&str]) -> String {
    let Some((first, others)) = cases.split_first() else { return String::new() };
    let others: Vec<_> = others.iter().map(|case| words(case)).collect();
    let alike = |i: usize, word: &str| others.iter().all(|words| words.get(i) == Some(&word));
    let word =
        |(i, word): (usize, &&str)| if alike(i, word) { (*word).to_owned() } else { blanked(word).replace('#', "…") };
    words(first).iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

fn is_dtype(word: &str) -> bool {
    DType::ALL.iter().any(|dtype| dtype.short_name() == word)
}

/// A word with `#` for each integer in it. Fractions do not count as sizes.
fn blanked(word: &str) -> String {
    let (mut out, mut number) = (String::new(), String::new());
    let put = |number: &mut String, out: &mut String| {
        if !number.is_empty() {
            out.push_str(if number.contains('.') { number } else { "#" });
            number.clear();
        }
    };
    for c in word.chars() {
        if c.is_ascii_digit() || (!number.is_empty() && matches!(c, '.' | '^')) {
            number.push(c);
        } else {
            put(&mut number, &mut out);
            out.push(c);
        }
    }
    put(&mut number, &mut out);
    out
}

/// The sizes that a case names: `rows` and 32768, `d` and 4096.
pub(super) fn sizes(case: &str) -> BTreeMap<&str, f64> {
    let named = case.split_whitespace().filter_map(|word| word.split_once('='));
    named.filter_map(|(name, size)| Some((name, size.parse::<u64>().ok()? as f64))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_from_other_words() {
        assert_eq!(shape("rows=32768 d=4096 bfloat16"), "rows=# d=# bf16");
        assert_eq!(shape("n=2^28 p=0.1 float32"), "n=# p=0.1 f32");
        assert_eq!(shape("16384x8192 1x128 bf16"), "#x# #x# bf16");
        assert_eq!(sizes("m=64 n=2^3 k=128 NT").into_iter().collect::<Vec<_>>(), [("k", 128.0), ("m", 64.0)]);
        assert_eq!(words("4 float16"), words("4 f16"));
        assert_eq!(common(&["b=8 h=16 s=2048 bf16", "b=2 h=16 s=8192 bf16"]), "b=… h=16 s=… bf16");
    }
}
