//! Other libraries, timed in the same way as operators.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::check::Job;

/// A timing of another library.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerRow {
    /// The operator's bench name.
    pub op: String,
    /// The case.
    pub case: String,
    /// The name of the library.
    pub peer: String,
    /// Median milliseconds.
    pub ms: f64,
    /// Least milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_ms: Option<f64>,
}

impl PeerRow {
    pub(super) fn new(job: &Job, peer: &str, (ms, min_ms): (f64, f64)) -> Self {
        let (op, case) = (job.op.info().bench_name.to_owned(), job.case.name.clone());
        Self { op, case, peer: peer.to_owned(), ms, min_ms: Some(min_ms) }
    }

    /// The row that an operator would have with this time, if it is for the same case.
    pub fn beside(&self, row: &Row) -> Option<Row> {
        let scale = |rate: Option<f64>| rate.map(|rate| rate * row.ms / self.ms);
        let like = || Row {
            variant: self.peer.clone(),
            ms: self.ms,
            min_ms: self.min_ms.unwrap_or(self.ms),
            gbps: scale(row.gbps),
            tflops: scale(row.tflops),
            pct_of_ceiling: scale(row.pct_of_ceiling),
            pct_of_copy: scale(row.pct_of_copy),
            spread: None,
            ..row.clone()
        };
        (self.op == row.op && self.case == row.case).then(like)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plain;
    use super::*;

    #[test]
    fn rates_are_those_of_the_work_in_the_peers_time() {
        let ours = Row { tflops: Some(100.0), pct_of_ceiling: Some(50.0), ..plain("gemm", "NN", 2.0, 1.9) };
        let peer = |case: &str| PeerRow {
            op: "gemm".to_owned(),
            case: case.to_owned(),
            peer: "cublas".to_owned(),
            ms: 4.0,
            min_ms: None,
        };
        let row = peer("NN").beside(&ours).unwrap();
        assert_eq!((row.variant.as_str(), row.ms, row.min_ms), ("cublas", 4.0, 4.0));
        assert_eq!((row.gbps, row.tflops, row.pct_of_ceiling), (None, Some(50.0), Some(25.0)));
        assert!(peer("NT").beside(&ours).is_none());
    }
}
