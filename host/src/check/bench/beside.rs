//! Other libraries, timed as operators are.

use serde::{Deserialize, Serialize};

use super::{Prepared, Row, Timing};
use crate::check::Job;
use crate::check::peers::Cublas;
use crate::runtime::device::Device;
use crate::runtime::error::Result;

/// A timing of another library.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerRow {
    /// The operator's bench name.
    pub op: String,
    /// The case.
    pub case: String,
    /// Whose it is.
    pub peer: String,
    /// Median milliseconds.
    pub ms: f64,
    /// Least milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_ms: Option<f64>,
}

impl PeerRow {
    /// What an operator's row would be in that time, if it is of the same case.
    pub fn beside(&self, row: &Row) -> Option<Row> {
        let scale = |rate: Option<f64>| rate.map(|rate| rate * row.ms / self.ms);
        let like = || Row {
            variant: self.peer.clone(),
            ms: self.ms,
            min_ms: self.min_ms.unwrap_or(self.ms),
            gbps: scale(row.gbps),
            tflops: scale(row.tflops),
            pct_of_ceiling: scale(row.pct_of_ceiling),
            spread: None,
            ..row.clone()
        };
        (self.op == row.op && self.case == row.case).then(like)
    }
}

/// Times what `peer` does in place of the operator: the same tensors, rotated alike, on the same stream.
pub fn beside(device: &Device, timing: &Timing, peer: &Cublas) -> Result<PeerRow> {
    let Job { op, case } = &timing.job;
    let mut prepared = Prepared::new(device, timing)?;
    let (ms, min_ms) = prepared.time_by(|stream, op, args, params| peer.launch(stream, op, args, params))?;
    let (op, case) = (op.info().bench_name.to_owned(), case.name.clone());
    Ok(PeerRow { op, case, peer: peer.name().to_owned(), ms, min_ms: Some(min_ms) })
}
