//! The file formats of results.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::check::bench::{self, PeerRow, Row};
use crate::check::lessons::Rung;
use crate::check::pictures::LessonTaken;
use crate::check::verify::Status;
use crate::runtime::error::{Error, Result, printable};
use crate::runtime::file;

/// A file of results.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// Its name on pages: that of the file, and of its folder.
    pub(crate) name: String,
    /// Its contents.
    pub(crate) results: Results,
}

/// The contents of a file of results.
#[derive(Clone, Debug)]
pub(crate) enum Results {
    /// The output of `bench --out`.
    Bench(bench::Report),
    /// Timings of other libraries.
    Peers(Peers),
    /// The output of `verify --json`.
    Verify(Verified),
    /// The output of `lesson --json`.
    Lesson(LessonTaken),
}

/// Timings of other libraries.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Peers {
    /// The device.
    pub(crate) device: String,
    /// The version of PyTorch.
    #[serde(default)]
    pub(crate) torch: Option<String>,
    /// The command that was run.
    #[serde(default)]
    pub(crate) command: Option<String>,
    /// The timings.
    pub(crate) rows: Vec<PeerRow>,
}

/// Checks of operators.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Verified {
    /// The backend that ran the kernels.
    pub(crate) backend: Option<String>,
    /// The device.
    pub(crate) device: Option<String>,
    /// The cases.
    pub(crate) rows: Vec<VerifiedRow>,
}

/// A case that was checked.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct VerifiedRow {
    /// The operator.
    pub(crate) op: String,
    /// Whether it is another library's.
    #[serde(default)]
    pub(crate) peer: bool,
    /// The outcome.
    pub(crate) status: Status,
    /// The maximum error as a fraction of the tolerance.
    pub(crate) max_err: Option<f64>,
    /// Elements that were compared.
    #[serde(default)]
    pub(crate) checked: u64,
}

/// What a file may be; the first that its keys fit.
const KINDS: &str = "what `bench --out`, `verify --json` or `lesson --json` write, or others' timings";

impl Document {
    /// Reads a file. `None` if it is JSON, but not results of a known kind.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let text = file::text(path).map_err(|e| Error::file(path, format!("cannot be read: {e}")))?;
        Self::parse(path, &text)
    }

    /// [`read`](Self::read) for the contents of `path`, which have been read already.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Option<Self>> {
        let refused = |reason: String| Error::file(path, printable(&reason));
        let document: Value = serde_json::from_str(text).map_err(|e| refused(format!("is not JSON: {e}")))?;
        let has = |key: &str| document.get(key).is_some();
        let row = document.get("rows").and_then(|rows| rows.get(0));
        let of_row = |key: &str| row.is_some_and(|row| row.get(key).is_some());
        let results = if has("lesson") {
            let lesson = document.get("lesson").cloned().unwrap_or_default();
            let lesson: LessonTaken =
                serde_json::from_value(lesson).map_err(|e| refused(format!("is not a whole lesson: {e}")))?;
            check_lesson(&lesson).map_err(refused)?;
            Results::Lesson(lesson)
        } else if has("rows") && (has("executed") || of_row("status")) {
            let mut verified: Verified = typed(text, "result of `verify`").map_err(refused)?;
            check_rows(&verified.rows, |row| check("max_err", row.max_err.unwrap_or(0.0), 0.0)).map_err(refused)?;
            verified.rows.retain(|row| !row.peer);
            Results::Verify(verified)
        } else if has("rows") && of_row("peer") {
            let peers: Peers = typed(text, "table of others' timings").map_err(refused)?;
            check_rows(&peers.rows, check_peer).map_err(refused)?;
            Results::Peers(peers)
        } else if has("rows") && has("device") {
            let report: bench::Report = typed(text, "bench report").map_err(refused)?;
            check_rows(&report.rows, check_timing).map_err(refused)?;
            report.peers.iter().try_for_each(check_peer).map_err(|why| refused(format!("peers: {why}")))?;
            Results::Bench(report)
        } else {
            return Ok(None);
        };
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        let name = parts[parts.len().saturating_sub(2)..].join("/");
        Ok(Some(Self { name, results }))
    }

    /// The message about a file that contains JSON but no results.
    pub(crate) fn unknown(path: &Path) -> Error {
        Error::file(path, format!("holds no results: expected {KINDS}"))
    }
}

fn typed<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| format!("is not a whole {what}: {e}"))
}

fn check_rows<R>(rows: &[R], check: impl Fn(&R) -> Result<(), String>) -> Result<(), String> {
    if rows.is_empty() {
        return Err("has no rows".to_owned());
    }
    let mut rows = (0..).zip(rows);
    rows.try_for_each(|(i, row)| check(row).map_err(|why| format!("rows[{i}]: {why}")))
}

fn check(name: &str, value: f64, least: f64) -> Result<(), String> {
    if value.is_finite() && value >= least { Ok(()) } else { Err(format!("`{name}` = {value} is no such number")) }
}

fn check_peer(row: &PeerRow) -> Result<(), String> {
    check("ms", row.ms, f64::MIN_POSITIVE)
}

fn check_timing(row: &Row) -> Result<(), String> {
    check("ms", row.ms, f64::MIN_POSITIVE)?;
    check("min_ms", row.min_ms, 0.0)?;
    let percentages = [("pct_of_ceiling", row.pct_of_ceiling), ("pct_of_copy", row.pct_of_copy)];
    for (name, rate) in [("gbps", row.gbps), ("tflops", row.tflops)].into_iter().chain(percentages) {
        check(name, rate.unwrap_or(0.0), 0.0)?;
    }
    Ok(())
}

fn check_lesson(lesson: &LessonTaken) -> Result<(), String> {
    if lesson.runs.is_empty() {
        return Err("has no runs".to_owned());
    }
    for run in &lesson.runs {
        for count in &run.counts {
            check(&count.quantity, count.predicted, 0.0)?;
            check(&count.quantity, count.counted, 0.0)?;
        }
        check("at_least_ms", run.at_least_ms.unwrap_or(0.0), 0.0)?;
        check("ms", run.time.as_ref().map_or(0.0, |time| time.ms), 0.0)?;
    }
    for rung in &lesson.ladder {
        let times = [rung.at_least_ms, rung.expected_ms, rung.ms, rung.cublas_ms];
        for ms in times.into_iter().flatten() {
            check("ms", ms, f64::MIN_POSITIVE)?;
            check("flops", Rung::rate(rung.flops, ms), f64::MIN_POSITIVE)?;
        }
    }
    Ok(())
}
